package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
)

func (s *session) explainCommand() *cobra.Command {
	event := ""
	cmd := &cobra.Command{
		Use: "explain SUBJECT [TYPE]", Short: "Say why: for a name, an address, a node, a pool, a subnet or a failover",
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("event") {
				if strings.TrimSpace(event) == "" {
					return misused("--event is empty: write the name of a failover, such as 2.17, or the number of one of its events; 'holdfast events' shows both")
				}
				return arguments()(cmd, args)
			}
			return arguments("SUBJECT", "[TYPE]")(cmd, args)
		},
		Long: `Say why. For a DNS name: the next answer, among whom it is chosen, and who is left out; TYPE is a record type such as
AAAA. For a service name: also who holds its addresses. For an address: who holds it, who is next, and why. For a node (name
or LNN): what is known of it. For a pool: who is in its answers, whether its addresses are even and what that waits for, and
who has each. For a subnet: who answers for it, and how its pools stand.

With --event and no subject: where the time of a failover went. ID is the failover's, a node's number and the incarnation that
ended, such as 2.17, or the number of one of its events on this node; 'holdfast events' shows both. All nodes that answer within
a second say what they know of it.`,
		Example:           "  holdfast explain cluster.company.com\n  holdfast explain 10.0.0.7\n  holdfast explain node3\n  holdfast explain --event 2.17",
		ValidArgsFunction: s.complete(0, subjects),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := &pb.ExplainRequest{Event: event}
			if len(args) > 0 {
				request.Subject = args[0]
			}
			if len(args) > 1 {
				request.Type = strings.ToUpper(args[1])
			}
			answer, err := ask(s, cmd, "asking the agent", askTimeout, func(ctx context.Context, c Client) (*pb.ExplainResponse, error) {
				return c.Explain(ctx, request)
			})
			if err != nil {
				return err
			}
			return s.show(answer, func(p *page) {
				if answer.Text != "" {
					for line := range strings.Lines(answer.Text) {
						p.line(strings.TrimRight(line, "\n"))
					}
					return
				}
				layDecisions(p, answer.Decisions)
			})
		},
	}
	cmd.Flags().StringVar(&event, "event", "", "a failover, or one of its events, instead of a subject")
	return cmd
}

func layDecisions(p *page, decisions []*pb.Decision) {
	if len(decisions) == 0 {
		p.line("no decision is on record")
	}
	for _, d := range decisions {
		if p.out.Len() > 0 {
			p.blank()
		}
		p.linef("%s -> %s", d.Subject, orNobody(d.Chosen))
		if d.Reason != "" {
			p.line("  because " + d.Reason)
		}
		if d.DataAgeMs > 0 {
			p.linef("  on measurements of up to %s ago", span(time.Duration(d.DataAgeMs)*time.Millisecond))
		}
		var rows [][]string
		for _, c := range d.Among {
			rows = append(rows, []string{"  among", c.Name, "weight " + number(c.Weight), fmt.Sprintf("score %.3g", c.Score), c.Note})
		}
		p.table(nil, rows)
		rows = nil
		for _, c := range d.LeftOut {
			rows = append(rows, []string{"  left out", c.Name, c.Reason})
		}
		p.table(nil, rows)
	}
}

func (s *session) planCommand() *cobra.Command {
	var down []string
	cmd := &cobra.Command{
		Use: "plan --down NODE...", Short: "Show the plan on record for the death of nodes", Args: cobra.ArbitraryArgs,
		Example: "  holdfast plan --down node3\n  holdfast plan --down node3,node4",
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes := slices.Concat(down, args)
			if len(nodes) == 0 {
				return misused("say which nodes die: holdfast plan --down NODE")
			}
			answer, err := ask(s, cmd, "asking the agent", askTimeout, func(ctx context.Context, c Client) (*pb.PlanDownResponse, error) {
				return c.PlanDown(ctx, &pb.PlanDownRequest{Nodes: nodes})
			})
			if err != nil {
				return err
			}
			return s.show(answer, func(p *page) { layPlan(p, answer) })
		},
	}
	cmd.Flags().StringSliceVar(&down, "down", nil, "nodes that die together, by name or LNN")
	if err := cmd.RegisterFlagCompletionFunc("down", s.complete(-1, nodeNames)); err != nil {
		panic(err)
	}
	cmd.ValidArgsFunction = s.complete(-1, nodeNames)
	return cmd
}

func layPlan(p *page, r *pb.PlanDownResponse) {
	if len(r.Moves)+len(r.Unassigned) == 0 {
		p.line("nothing would move")
		return
	}
	layMoves(p, r.Moves)
	if len(r.Unassigned) > 0 {
		p.title("Nobody would hold")
		rows := make([][]string, len(r.Unassigned))
		for i, a := range r.Unassigned {
			rows[i] = []string{a.Address, a.Why}
		}
		p.table(nil, rows)
	}
	for _, pool := range r.Pools {
		p.title(pool.Pool)
		rows := make([][]string, len(pool.Nodes))
		for i, n := range pool.Nodes {
			rows[i] = []string{n.Name, number(n.AddressesBefore), number(n.AddressesAfter)}
		}
		p.table([]string{"NODE", "NOW", "AFTER"}, rows)
	}
	if r.AgeMs > 0 {
		p.blank()
		p.linef("the plan is %s old", span(time.Duration(r.AgeMs)*time.Millisecond))
	}
}
