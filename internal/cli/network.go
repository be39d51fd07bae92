package cli

import (
	"context"

	"github.com/spf13/cobra"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
)

func (s *session) networkCommand() *cobra.Command {
	network := group("network", "Groupnets, subnets, pools, and who holds which address", "")
	of := func(k kind, short string, more ...*cobra.Command) {
		sub := group(k.plural, short, short+". An id looks like "+k.example+"; without the groupnet it means groupnet0.")
		sub.AddCommand(s.commands(k)...)
		sub.AddCommand(more...)
		network.AddCommand(sub)
	}
	of(groupnetKind(), "Tenants: DNS settings and the subnets under them")
	of(subnetKind(), "IP networks and their service addresses", s.rebalanceServiceCommand())
	of(poolKind(), "Sets of addresses and the names under which they are given out",
		s.poolStatusCommand(), s.rebalancePoolCommand(), s.suspendCommand(), s.resumeCommand(), s.sizeCommand(), s.pinCommand(), s.unpinCommand())
	of(ruleKind(), "Which interfaces of joining nodes become members of a pool")
	of(checkKind(), "Health checks that members of a pool run against themselves")
	interfaces := group("interfaces", "Which node holds which address", "")
	interfaces.AddCommand(s.interfacesCommand())
	dns := group("dns", "What the site's DNS needs", "")
	dns.AddCommand(s.delegationCommand(), s.checkDelegationCommand())
	network.AddCommand(interfaces, dns)
	return network
}

func (s *session) interfacesCommand() *cobra.Command {
	request := &pb.ListInterfacesRequest{}
	cmd := &cobra.Command{
		Use: "list", Short: "List which node holds which service and pool address, and since when", Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := ask(s, cmd, "asking the agent", askTimeout, func(ctx context.Context, c Client) (*pb.ListInterfacesResponse, error) {
				return c.ListInterfaces(ctx, request)
			})
			if err != nil {
				return err
			}
			return s.show(answer, func(p *page) { layInterfaces(p, answer) })
		},
	}
	cmd.Flags().StringVar(&request.Within, "within", "", "only of this groupnet, subnet or pool")
	cmd.Flags().StringVar(&request.Node, "node", "", "only what this node holds, by name or LNN")
	for flag, from := range map[string]source{"within": configured(poolIDs), "node": nodeNames} {
		if err := cmd.RegisterFlagCompletionFunc(flag, s.complete(-1, from)); err != nil {
			panic(err)
		}
	}
	return cmd
}

func layInterfaces(p *page, r *pb.ListInterfacesResponse) {
	if len(r.Addresses) == 0 {
		p.line("no address")
		return
	}
	rows := make([][]string, len(r.Addresses))
	for i, a := range r.Addresses {
		next := a.NextNode
		if next != "" && a.NextInterface != "" {
			next += " " + a.NextInterface
		}
		kind := a.Kind.String()
		if a.Pinned {
			kind += ", pinned"
		}
		lnn := ""
		if a.Lnn > 0 {
			lnn = number(a.Lnn)
		}
		rows[i] = []string{a.Address, kind, a.Pool, orNobody(a.Node), lnn, a.Interface, a.State.String(), p.ago(a.Since), orNobody(next), a.Why}
	}
	p.table([]string{"ADDRESS", "KIND", "POOL OR SUBNET", "NODE", "LNN", "INTERFACE", "STATE", "SINCE", "NEXT", "WHY"}, rows)
}

func (s *session) delegationCommand() *cobra.Command {
	request := &pb.DelegationRequest{}
	cmd := &cobra.Command{
		Use: "delegation [ZONE]", Short: "Print the records to paste into the site's DNS", Args: arguments("[ZONE]"),
		Example:           "  holdfast network dns delegation cluster.company.com --for unbound",
		ValidArgsFunction: s.complete(0, configured(zoneNames)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				request.Zone = args[0]
			}
			answer, err := ask(s, cmd, "asking the agent", askTimeout, func(ctx context.Context, c Client) (*pb.DelegationResponse, error) {
				return c.Delegation(ctx, request)
			})
			if err != nil {
				return err
			}
			return s.show(answer, func(p *page) { p.out.WriteString(answer.Text) })
		},
	}
	cmd.Flags().StringVar(&request.Flavour, "for", "bind", "bind, bind-forward, coredns, dnsmasq, knot, powerdns, unbound or windows")
	cmd.Flags().BoolVar(&request.SeparateNames, "separate-names", false, "one name for each service address")
	completeWords(cmd, "for", "bind", "bind-forward", "coredns", "dnsmasq", "knot", "powerdns", "unbound", "windows")
	return cmd
}

func (s *session) rebalanceServiceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rebalance-ssips SUBNET", Short: "Even out a subnet's service addresses, one at a time", Args: arguments("SUBNET"),
		ValidArgsFunction: s.complete(0, configured(subnetIDs)),
	}
	return s.changing(cmd, "rebalancing", func(args []string, o *pb.ChangeOptions) (func(context.Context, Client) (*pb.ChangeResult, error), error) {
		return func(ctx context.Context, c Client) (*pb.ChangeResult, error) {
			return c.RebalanceServiceAddresses(ctx, &pb.RebalanceServiceAddressesRequest{Subnet: args[0], Options: o})
		}, nil
	})
}
