package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast/holdfast/internal/api"
	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
)

// changer is a call that changes something.
type changer = func(context.Context, Client) (*pb.ChangeResult, error)

func (s *session) poolStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status [POOL]", Short: "Say for each node and each address why it is in or out of the answers", Args: arguments("[POOL]"),
		ValidArgsFunction: s.complete(0, configured(poolIDs)),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := &pb.PoolStatusRequest{}
			if len(args) > 0 {
				request.Pool = args[0]
			}
			answer, err := ask(s, cmd, "asking the agent", askTimeout, func(ctx context.Context, c Client) (*pb.PoolStatusResponse, error) {
				return c.PoolStatus(ctx, request)
			})
			if err != nil {
				return err
			}
			return s.show(answer, func(p *page) {
				for _, pool := range answer.Pools {
					layPoolState(p, pool)
				}
			})
		},
	}
}

func layPoolState(p *page, pool *pb.PoolState) {
	p.title(pool.Id)
	zone := pool.Zone
	for _, alias := range pool.ZoneAliases {
		zone += ", " + alias
	}
	p.facts(
		[2]string{"zone", zone},
		[2]string{"policies", fmt.Sprintf("%s allocation, connect by %s, fail over by %s, rebalance %s",
			pool.AllocMethod, pool.ConnectPolicy, pool.FailoverPolicy, pool.RebalancePolicy)},
		[2]string{"balance", pool.RebalanceNote},
	)
	var rows [][]string
	for _, n := range pool.Nodes {
		rows = append(rows, []string{n.Name, number(n.Lnn), inOut(n.In), p.ago(n.Since), number(n.Weight), loadText(n.Load), n.Why})
	}
	p.table([]string{"NODE", "LNN", "ANSWERS", "SINCE", "WEIGHT", "LOAD", "WHY"}, rows)
	rows = nil
	for _, n := range pool.Nodes {
		for _, a := range n.Addresses {
			rows = append(rows, addressRow(p, n.Name, a))
		}
	}
	for _, a := range pool.Unassigned {
		rows = append(rows, addressRow(p, "nobody", a))
	}
	if len(rows) > 0 {
		p.table([]string{"ADDRESS", "NODE", "INTERFACE", "ANSWERS", "SINCE", "CONNECTIONS", "WHY"}, rows)
	}
	rows = nil
	for _, n := range pool.Nodes {
		for _, c := range n.Checks {
			rows = append(rows, []string{c.Name, n.Name, c.Verdict, p.ago(c.Since), c.Evidence, c.Reason})
		}
	}
	if len(rows) > 0 {
		p.table([]string{"CHECK", "NODE", "VERDICT", "SINCE", "EVIDENCE", "WHY"}, rows)
	}
}

func addressRow(p *page, node string, a *pb.PoolAddress) []string {
	why := a.Why
	if a.Pinned {
		why = "pinned; " + why
	}
	return []string{a.Address, node, a.Interface, inOut(a.In), p.ago(a.Since), number(a.Connections), why}
}

func (s *session) rebalancePoolCommand() *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use: "rebalance-ips POOL", Short: "Move pool addresses so that they are even again", Args: arguments("[POOL]"),
		ValidArgsFunction: s.complete(0, configured(poolIDs)),
	}
	cmd.Flags().BoolVar(&all, "all", false, "every pool")
	return s.changing(cmd, "rebalancing", func(args []string, o *pb.ChangeOptions) (changer, error) {
		if all == (len(args) == 1) {
			return nil, misused("say one pool, or --all")
		}
		request := &pb.RebalancePoolRequest{All: all, Options: o}
		if len(args) == 1 {
			request.Pool = args[0]
		}
		return func(ctx context.Context, c Client) (*pb.ChangeResult, error) { return c.RebalancePool(ctx, request) }, nil
	})
}

// nodeWords says how several nodes are written.
const nodeWords = `Nodes are written by name, by LNN, or as a range of LNNs such as 1-3, which means those of them that there are; several are
separated by commas or spaces.`

func (s *session) suspendCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "sc-suspend-nodes POOL NODE...", Short: "Take nodes out of a pool's answers; connections stay",
		Long: "Take nodes out of a pool's answers; connections stay.\n\n" + nodeWords,
		Example: "  holdfast network pools sc-suspend-nodes groupnet0.subnet0.pool0 node1,node2\n" +
			"  holdfast network pools sc-suspend-nodes subnet0.pool0 1-3 7",
		Args: arguments("POOL", "NODE..."), ValidArgsFunction: s.inOrder(configured(poolIDs), nodeNames),
	}
	return s.changing(cmd, "suspending", func(args []string, o *pb.ChangeOptions) (changer, error) {
		return func(ctx context.Context, c Client) (*pb.ChangeResult, error) {
			return c.SuspendNodes(ctx, &pb.SuspendNodesRequest{Pool: args[0], Nodes: args[1:], Options: o})
		}, nil
	})
}

func (s *session) resumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "sc-resume-nodes POOL NODE...", Short: "Put suspended nodes back into a pool's answers",
		Long: "Put suspended nodes back into a pool's answers.\n\n" + nodeWords,
		Args: arguments("POOL", "NODE..."), ValidArgsFunction: s.inOrder(configured(poolIDs), nodeNames),
	}
	return s.changing(cmd, "resuming", func(args []string, o *pb.ChangeOptions) (changer, error) {
		return func(ctx context.Context, c Client) (*pb.ChangeResult, error) {
			return c.ResumeNodes(ctx, &pb.ResumeNodesRequest{Pool: args[0], Nodes: args[1:], Options: o})
		}, nil
	})
}

func (s *session) pinCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "pin POOL ADDRESS [LNN:INTERFACE]", Short: "Keep an address on one member; without one, where it is now",
		Args: arguments("POOL", "ADDRESS", "[LNN:INTERFACE]"), ValidArgsFunction: s.inOrder(configured(poolIDs), addresses, nothing),
	}
	return s.changing(cmd, "pinning", func(args []string, o *pb.ChangeOptions) (changer, error) {
		request := &pb.PinAddressRequest{Pool: args[0], Address: args[1], Options: o}
		if len(args) > 2 {
			request.Member = args[2]
		}
		return func(ctx context.Context, c Client) (*pb.ChangeResult, error) { return c.PinAddress(ctx, request) }, nil
	})
}

func (s *session) unpinCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "unpin POOL ADDRESS", Short: "Let a pinned address move again",
		Args: arguments("POOL", "ADDRESS"), ValidArgsFunction: s.inOrder(configured(poolIDs), addresses, nothing),
	}
	return s.changing(cmd, "unpinning", func(args []string, o *pb.ChangeOptions) (changer, error) {
		return func(ctx context.Context, c Client) (*pb.ChangeResult, error) {
			return c.UnpinAddress(ctx, &pb.UnpinAddressRequest{Pool: args[0], Address: args[1], Options: o})
		}, nil
	})
}

func (s *session) sizeCommand() *cobra.Command {
	request := &pb.PoolSizeRequest{}
	cmd := &cobra.Command{
		Use: "size [POOL]", Short: "Say how evenly a number of addresses carries the loss of nodes", Args: arguments("[POOL]"),
		Long: `Say how evenly a number of addresses carries the loss of nodes: of a pool as it is, or with --nodes and --addresses of numbers,
for which no agent is needed.`,
		Example:           "  holdfast network pools size groupnet0.subnet0.pool0 --clients 600\n  holdfast network pools size --nodes 4 --addresses 12 --clients 600",
		ValidArgsFunction: s.complete(0, configured(poolIDs)),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && (request.Nodes != 0 || request.Addresses != 0):
				return misused("say one pool, or --nodes and --addresses, and not both")
			case len(args) == 0 && (request.Nodes < 1 || request.Addresses < 1):
				return misused("say one pool, or --nodes and --addresses")
			case len(args) == 1:
				request.Pool = args[0]
			}
			answer, err := s.size(cmd, request)
			if err != nil {
				return err
			}
			return s.show(answer, func(p *page) { laySize(p, answer) })
		},
	}
	f := cmd.Flags()
	f.Int32Var(&request.Nodes, "nodes", 0, "number of nodes")
	f.Int32Var(&request.Addresses, "addresses", 0, "number of addresses")
	f.Int32Var(&request.Clients, "clients", 0, "number of clients, spread over the addresses")
	f.Float64Var(&request.WithinPercent, "within", 10, "how far over an even share the busiest survivor may be, in per cent")
	return cmd
}

// size asks the agent about a pool. Numbers it works out here.
func (s *session) size(cmd *cobra.Command, request *pb.PoolSizeRequest) (*pb.PoolSizeResponse, error) {
	if request.Pool == "" && s.Size != nil {
		answer, err := s.Size(request)
		if err != nil {
			return nil, misused("%s", api.Text(err))
		}
		return answer, nil
	}
	return ask(s, cmd, "asking the agent", askTimeout, func(ctx context.Context, c Client) (*pb.PoolSizeResponse, error) {
		return c.PoolSize(ctx, request)
	})
}

func laySize(p *page, r *pb.PoolSizeResponse) {
	p.facts(
		[2]string{"nodes", number(r.Nodes)},
		[2]string{"addresses", number(r.Addresses)},
		[2]string{"even after one loss with", fmt.Sprintf("%s = N*(N-1)", count(r.EvenAddresses, "address"))},
		[2]string{fmt.Sprintf("within %g%% after one loss with", r.WithinPercent), count(r.AddressesWithinAfterOne, "address")},
		[2]string{fmt.Sprintf("within %g%% after two losses with", r.WithinPercent), count(r.AddressesWithinAfterTwo, "address")},
	)
	p.blank()
	var rows [][]string
	for _, c := range []struct {
		name string
		*pb.SizeCase
	}{{"now", r.Now}, {"after one loss", r.AfterOne}, {"after two losses", r.AfterTwo}} {
		if c.SizeCase == nil {
			continue
		}
		clients := "-"
		if r.Clients > 0 {
			clients = between(c.ClientsLeast, c.ClientsMost)
		}
		rows = append(rows, []string{c.name, number(c.Nodes), between(c.AddressesLeast, c.AddressesMost), clients, fmt.Sprintf("%.1f%%", c.OverPercent)})
	}
	p.table([]string{"", "NODES", "ADDRESSES EACH", "CLIENTS EACH", "BUSIEST OVER EVEN"}, rows)
	if r.Text != "" {
		p.blank()
		p.line(r.Text)
	}
}

func between(least, most int32) string {
	if least == most {
		return number(least)
	}
	return number(least) + " to " + number(most)
}
