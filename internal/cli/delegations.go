package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
)

func (s *session) checkDelegationCommand() *cobra.Command {
	request := &pb.CheckDelegationRequest{}
	cmd := &cobra.Command{
		Use: "check [ZONE...]", Short: "Ask the site's DNS servers whether they lead to the zones", Args: arguments("[ZONE...]"),
		Long: `Ask each of the groupnet's dns-servers from this node, as a client would, whether it leads to each zone: NS of the zone must be the
service name, its addresses must be service addresses, and A or AAAA of the zone must be an address of its pools. All zones and
aliases are asked about unless some are named. One line for each zone and server says what is wrong and how long the questions took.

A node that holds a service address does the same every five minutes; what is wrong is then the problem dns.delegation.`,
		Example:           "  holdfast network dns check cluster.company.com",
		ValidArgsFunction: s.complete(-1, configured(zoneNames)),
		RunE: func(cmd *cobra.Command, args []string) error {
			request.Zones = args
			answer, err := ask(s, cmd, "asking the site's DNS servers", askTimeout, func(ctx context.Context, c Client) (*pb.CheckDelegationResponse, error) {
				return c.CheckDelegation(ctx, request)
			})
			if err != nil {
				return err
			}
			if err := s.show(answer, func(p *page) { layChecks(p, answer) }); err != nil {
				return err
			}
			bad := 0
			for _, check := range answer.Checks {
				if !check.Good {
					bad++
				}
			}
			if bad > 0 {
				return failed("something is wrong with %d of %d", bad, len(answer.Checks))
			}
			return nil
		},
	}
	return cmd
}

func layChecks(p *page, r *pb.CheckDelegationResponse) {
	rows := make([][]string, len(r.Checks))
	var paste []string
	for i, c := range r.Checks {
		state, why := "yes", "-"
		if !c.Good {
			state, why = "no", strings.Join(c.Wrong, "; ")
			if c.Remedy != "" && !slices.Contains(paste, c.Remedy) {
				paste = append(paste, c.Remedy)
			}
		}
		rows[i] = []string{c.Zone, c.Server, c.Groupnet, state, span(time.Duration(c.TookMs * float64(time.Millisecond))), why}
	}
	p.table([]string{"ZONE", "SERVER", "GROUPNET", "GOOD", "TOOK", "WHAT IS WRONG"}, rows)
	if len(paste) > 0 {
		p.blank()
		p.line("What to paste there (--for names the kind of DNS server):")
		for _, command := range paste {
			p.line("  " + command)
		}
	}
}
