package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
)

// change are the flags of every command that changes something.
type change struct {
	dryRun, noWait bool
	wait           time.Duration
}

// maxWait bounds --wait below what the agent allows a call.
const maxWait = 10 * time.Minute

func (c *change) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&c.dryRun, "dry-run", false, "only show what would change and move")
	f.DurationVar(&c.wait, "wait", 10*time.Second, "how long every node that is up has to put it into effect")
	f.BoolVar(&c.noWait, "no-wait", false, "return as soon as the change is recorded")
	cmd.MarkFlagsMutuallyExclusive("wait", "no-wait")
}

func (c *change) options() (*pb.ChangeOptions, error) {
	if c.wait < time.Millisecond || c.wait > maxWait {
		return nil, misused("--wait %s is not between 1ms and %s; to return at once write --no-wait", c.wait, maxWait)
	}
	return &pb.ChangeOptions{DryRun: c.dryRun, WaitMs: c.wait.Milliseconds(), NoWait: c.noWait}, nil
}

// changing completes a command that changes something: flags, call, and the printing of the result.
func (s *session) changing(cmd *cobra.Command, what string, request func(args []string, o *pb.ChangeOptions) (func(context.Context, Client) (*pb.ChangeResult, error), error)) *cobra.Command {
	c := &change{}
	c.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		options, err := c.options()
		if err != nil {
			return err
		}
		call, err := request(args, options)
		if err != nil {
			return err
		}
		result, err := ask(s, cmd, what, c.wait+askTimeout, call)
		if err != nil {
			return err
		}
		return s.printChange(result)
	}
	return cmd
}

// printChange prints what a change did and turns faults and pending nodes into the exit code.
func (s *session) printChange(r *pb.ChangeResult) error {
	if err := s.show(r, func(p *page) { layChange(p, r) }); err != nil {
		return err
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(s.Err, "warning: %s\n", faultText(w))
	}
	if len(r.Faults) > 0 {
		texts, code := make([]string, len(r.Faults)), exitFailed
		for i, f := range r.Faults {
			texts[i] = faultText(f)
			if f.Unreadable {
				code = exitUsage
			}
		}
		return &failure{code, "refused, nothing was changed:\n" + strings.Join(texts, "\n")}
	}
	if len(r.PendingNodes) > 0 {
		texts := make([]string, len(r.PendingNodes))
		for i, n := range r.PendingNodes {
			texts[i] = "  " + n.Name + ": " + n.Why
		}
		return &failure{exitPartly, "the change is recorded, and these nodes have not put it into effect yet:\n" + strings.Join(texts, "\n")}
	}
	return nil
}

func faultText(f *pb.Fault) string {
	var b strings.Builder
	if f.Line > 0 {
		fmt.Fprintf(&b, "line %d, column %d: ", f.Line, f.Column)
	}
	if f.Path != "" {
		b.WriteString(f.Path + ": ")
	}
	b.WriteString(f.Message)
	if f.Excerpt != "" {
		b.WriteString("\n" + f.Excerpt)
	}
	return b.String()
}

func layChange(p *page, r *pb.ChangeResult) {
	if len(r.Faults) > 0 {
		return // said on standard error
	}
	for _, c := range r.Changes {
		switch {
		case c.Old == "":
			p.linef("%s: %s", c.Path, c.New)
		case c.New == "":
			p.linef("%s: %s -> (none)", c.Path, c.Old)
		default:
			p.linef("%s: %s -> %s", c.Path, c.Old, c.New)
		}
	}
	layMoves(p, r.Moves)
	if r.Note != "" {
		for line := range strings.Lines(r.Note) {
			p.line(strings.TrimSuffix(line, "\n"))
		}
	}
	switch {
	case r.DryRun && len(r.Changes)+len(r.Moves) == 0:
		p.line("nothing would change")
	case r.DryRun:
		p.linef("dry run: nothing was changed; %s would move", count(len(r.Moves), "address"))
	case len(r.Changes)+len(r.Moves) == 0 && r.Note == "":
		p.line("nothing to change")
	case len(r.Changes) > 0:
		p.linef("done, revision %d; %s", r.Revision, movedText(len(r.Moves)))
	default:
		p.linef("done; %s", movedText(len(r.Moves)))
	}
}

func movedText(moves int) string {
	if moves == 0 {
		return "no address moves"
	}
	return count(moves, "address") + " moved"
}

func layMoves(p *page, moves []*pb.Move) {
	if len(moves) == 0 {
		return
	}
	rows := make([][]string, len(moves))
	for i, m := range moves {
		rows[i] = []string{m.Address, m.From, m.To, m.Pool, m.Reason}
	}
	p.table([]string{"ADDRESS", "FROM", "TO", "POOL", "WHY"}, rows)
}
