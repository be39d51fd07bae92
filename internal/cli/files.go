package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
)

// maxFile bounds a configuration file; 256 nodes with 4,096 addresses need some hundred kilobytes.
const maxFile = 8 << 20

// readFile reads a configuration; "-" is standard input.
func (s *session) readFile(name string) (string, []byte, error) {
	in := s.In
	if name == "-" {
		name = "standard input"
	} else {
		file, err := os.Open(name)
		if err != nil {
			var path *os.PathError
			if errors.As(err, &path) {
				err = path.Err
			}
			return "", nil, failed("reading %s: %v", name, err)
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	switch {
	case err != nil:
		return "", nil, failed("reading %s: %v", name, err)
	case len(data) > maxFile:
		return "", nil, failed("%s is larger than %d MiB: this is not a configuration", name, maxFile>>20)
	case !utf8.Valid(data):
		return "", nil, failed("%s is not UTF-8 text (line %d): this is not a configuration, or it was saved in another encoding", name, firstNotUTF8(data))
	}
	return name, data, nil
}

// firstNotUTF8 is the line of the first byte that is not UTF-8.
func firstNotUTF8(data []byte) int {
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		if !utf8.ValidString(line) {
			break
		}
	}
	return number
}

func (s *session) validateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "validate FILE", Short: "Say everything that is wrong with a configuration file, without an agent", Args: arguments("FILE"),
		Long: "Say everything that is wrong with a configuration file, each fault with its line. Needs no agent. FILE may be - for standard input.",
		RunE: func(_ *cobra.Command, args []string) error {
			name, data, err := s.readFile(args[0])
			if err != nil {
				return err
			}
			_, faults := cluster.ParseWithWarnings(name, data)
			wrong := faults.Errors()
			tree := object{{"valid", len(wrong) == 0}, {"faults", faultTrees(wrong)}, {"warnings", faultTrees(faults.Warnings())}}
			err = s.print(tree, func(p *page) {
				if len(wrong) == 0 {
					p.linef("%s is valid", name)
				}
			})
			if err != nil {
				return err
			}
			for _, w := range faults.Warnings() {
				fmt.Fprintln(s.Err, w.String())
			}
			if len(wrong) > 0 {
				return failed("%s is refused:\n%s", name, wrong.Error())
			}
			return nil
		},
	}
}

func faultTrees(faults cluster.Faults) list {
	out := list{}
	for _, f := range faults {
		out = append(out, object{{"path", f.Path}, {"line", f.Line}, {"column", f.Column}, {"message", f.Message}, {"excerpt", f.Excerpt}})
	}
	return out
}

// applying makes the call for a file.
func (s *session) applying(path string, expected int64, o *pb.ChangeOptions) (changer, error) {
	name, data, err := s.readFile(path)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, c Client) (*pb.ChangeResult, error) {
		return c.ApplyConfig(ctx, &pb.ApplyConfigRequest{Name: name, Yaml: string(data), ExpectedRevision: expected, Options: o})
	}, nil
}

func (s *session) applyCommand() *cobra.Command {
	var expected int64
	cmd := &cobra.Command{
		Use: "apply FILE", Short: "Put a configuration file into force", Args: arguments("FILE"),
		Long: "Put a configuration file into force, on every node. A refused file changes nothing. FILE may be - for standard input.",
	}
	cmd.Flags().Int64Var(&expected, "expect-revision", 0, "refuse unless this revision is in force; 0 does not ask")
	return s.changing(cmd, "applying", func(args []string, o *pb.ChangeOptions) (changer, error) {
		return s.applying(args[0], expected, o)
	})
}

func (s *session) diffCommand() *cobra.Command {
	return &cobra.Command{
		Use: "diff FILE", Short: "Show what applying a file would change and move", Args: arguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			call, err := s.applying(args[0], 0, &pb.ChangeOptions{DryRun: true})
			if err != nil {
				return err
			}
			result, err := ask(s, cmd, "comparing", askTimeout, call)
			if err != nil {
				return err
			}
			return s.printChange(result)
		},
	}
}

func (s *session) getCommand() *cobra.Command {
	return &cobra.Command{
		Use: "get [config]", Short: "Print the configuration in force, as a file for apply", Args: arguments("[config]"),
		Long: `Print the configuration in force, as a file for apply: as YAML, or with --output json as JSON of the same names and values.
What has its default is left out. 'holdfast status' says which revision is in force.`,
		ValidArgs: []string{"config"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] != "config" {
				return misused("holdfast get knows \"config\", and %q was given", args[0])
			}
			answer, err := ask(s, cmd, "asking the agent", askTimeout, func(ctx context.Context, c Client) (*pb.GetConfigResponse, error) {
				return c.GetConfig(ctx, &pb.GetConfigRequest{})
			})
			switch {
			case err != nil:
				return err
			case s.format != formatJSON:
				return s.write(answer.Yaml)
			}
			config, err := parseInForce(answer)
			if err != nil {
				return err
			}
			return s.write(string(cluster.PrintJSON(config)))
		},
	}
}

func (s *session) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON schema of the configuration file, for editors", Args: arguments(),
		RunE: func(*cobra.Command, []string) error {
			if s.format != formatYAML {
				return s.write(string(cluster.Schema()))
			}
			tree, err := treeOfJSON(cluster.Schema())
			if err != nil {
				return failed("reading the schema: %v", err)
			}
			return s.print(tree, nil)
		},
	}
}
