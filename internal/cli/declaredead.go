package cli

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
)

func (s *session) declareDeadCommand() *cobra.Command {
	var reason string
	var yes, force, forceStore bool
	cmd := &cobra.Command{
		Use: "declare-dead NODE...", Short: "Say that nodes are dead when a majority is lost and nobody can find out",
		Long: `Say that nodes are dead. When half of the nodes or more die at once, the others cannot know that they are dead and not merely cut
off: they hold nothing until enough of them are back. If you know that they are dead, say so here, on a node that lives.

Turn the machines off, or take their networks away, before you say so: a node that is cut off by itself holds nothing any more, but
nobody vouches for one whose agent and guard have died and left its addresses. Nodes that answer or that somebody hears are refused,
unless --force is given. Who said so, when and why is an event, and is kept in the records of these nodes. A node that comes back
takes part as any other.

If the embedded store has lost its majority too, --force-store rebuilds it from the member of the node that you ask. It is refused
unless every node answers or is declared dead, and unless that member has all that anybody has seen of the store.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := arguments("NODE...")(cmd, args); err != nil {
				return err
			}
			if strings.TrimSpace(reason) == "" { // before a terminal is asked for, and before anybody is asked anything
				return misused("say why with --reason: it is kept, and whoever finds the nodes will want to know")
			}
			return nil
		},
		ValidArgsFunction: s.complete(0, nodeNames),
	}
	flags := cmd.Flags()
	flags.StringVar(&reason, "reason", "", "why you know it; kept on record (required)")
	flags.BoolVar(&yes, "yes", false, "do not ask first")
	flags.BoolVar(&force, "force", false, "also nodes that answer or that somebody hears")
	flags.BoolVar(&forceStore, "force-store", false, "rebuild the embedded store from the member of the node that you ask")
	cmd = s.changing(cmd, "declaring nodes dead", func(args []string, o *pb.ChangeOptions) (changer, error) {
		return func(ctx context.Context, c Client) (*pb.ChangeResult, error) {
			return c.DeclareDead(ctx, &pb.DeclareDeadRequest{Nodes: args, Reason: reason, Force: force, ForceStore: forceStore, Options: o})
		}, nil
	})
	return s.confirmed(cmd, &yes, func(ctx context.Context, c Client, args []string) (*pb.ChangeResult, error) {
		return c.DeclareDead(ctx, &pb.DeclareDeadRequest{Nodes: args, Reason: reason, Force: force, ForceStore: forceStore, Options: &pb.ChangeOptions{DryRun: true}})
	})
}

// confirmed has a person look at what would follow before it is done.
func (s *session) confirmed(cmd *cobra.Command, yes *bool, preview func(ctx context.Context, c Client, args []string) (*pb.ChangeResult, error)) *cobra.Command {
	do := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dry, err := cmd.Flags().GetBool("dry-run")
		if err != nil {
			return err
		}
		if *yes || dry {
			return do(cmd, args)
		}
		if !s.InTerminal {
			return misused("nobody can be asked here, since the input is not a terminal: look at --dry-run first, then repeat with --yes")
		}
		result, err := ask(s, cmd, "what would follow", askTimeout, func(ctx context.Context, c Client) (*pb.ChangeResult, error) {
			return preview(ctx, c, args)
		})
		if err != nil {
			return err
		}
		if err := s.show(result, func(p *page) { layChange(p, result) }); err != nil {
			return err
		}
		fmt.Fprint(s.Err, "Are these nodes dead, so that they hold nothing any more? Type yes to go on: ")
		line, _ := bufio.NewReader(s.In).ReadString('\n')
		if strings.TrimSpace(line) != "yes" {
			return failed("nothing was changed")
		}
		return do(cmd, args)
	}
	return cmd
}
