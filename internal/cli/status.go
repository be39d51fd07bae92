package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
)

func (s *session) askStatus(cmd *cobra.Command) (*pb.StatusResponse, error) {
	return ask(s, cmd, "asking the agent", askTimeout, func(ctx context.Context, c Client) (*pb.StatusResponse, error) {
		return c.Status(ctx, &pb.StatusRequest{})
	})
}

func (s *session) statusCommand() *cobra.Command {
	check, leases := false, false
	cmd := &cobra.Command{
		Use: "status", Short: "Say whether the cluster serves, and what is wrong", Args: arguments(),
		Long: `Say whether the cluster serves, and what is wrong. With --leases: who sees whom. Of this node: who acknowledges its right to
hold, over which network, until when, and what it knows of the others as their observer. Of all nodes that answer within a second:
what is left of each one's lease from each of its observers, or when the observer last heard it.`,
		Example: "  holdfast status\n  holdfast status --check\n  holdfast status --leases",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if leases {
				return s.showLeases(cmd)
			}
			status, err := s.askStatus(cmd)
			if err != nil {
				return err
			}
			if err := s.show(status, func(p *page) { layStatus(p, status) }); err != nil {
				return err
			}
			if check && !status.Serving {
				return failed("the cluster does not serve: %s", status.NotServingBecause)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "fail with exit code 1 unless the cluster serves")
	cmd.Flags().BoolVar(&leases, "leases", false, "show who sees whom instead: the leases, their networks and their ends")
	cmd.MarkFlagsMutuallyExclusive("check", "leases")
	return cmd
}

func layStatus(p *page, r *pb.StatusResponse) {
	serving := "yes"
	if !r.Serving {
		serving = "no"
		if r.NotServingBecause != "" {
			serving += ": " + r.NotServingBecause
		}
	}
	p.facts(
		[2]string{"cluster", r.Cluster},
		[2]string{"this node", fmt.Sprintf("%s (%d), version %s, up for %s", r.Node, r.Lnn, r.Version, p.ago(r.Started))},
		[2]string{"serving", serving},
		[2]string{"configuration", fmt.Sprintf("revision %d", r.ConfigRevision)},
		[2]string{"store", storeText(r.Store)},
		[2]string{"failure detection", r.GetFailureDetection().GetText()},
	)
	p.title("Nodes")
	layNodes(p, r.Nodes)
	if len(r.Pools) > 0 {
		p.title("Pools")
		layPools(p, r.Pools)
	}
	if len(r.ServiceAddresses) > 0 {
		p.title("Service addresses")
		rows := make([][]string, len(r.ServiceAddresses))
		for i, a := range r.ServiceAddresses {
			rows[i] = []string{a.Address, a.Subnet, a.ServiceName, orNobody(a.Node), a.Interface, p.ago(a.Since), orNobody(a.NextNode)}
		}
		p.table([]string{"ADDRESS", "SUBNET", "NAME", "NODE", "INTERFACE", "SINCE", "NEXT"}, rows)
	}
	p.title("Problems")
	layProblems(p, r.Problems)
}

func orNobody(name string) string {
	if name == "" {
		return "nobody"
	}
	return name
}

func storeText(s *pb.StoreStatus) string {
	if s == nil {
		return ""
	}
	healthy := 0
	for _, m := range s.Members {
		if m.Healthy {
			healthy++
		}
	}
	text := fmt.Sprintf("%s, %d of %s well", s.Mode, healthy, count(len(s.Members), "member"))
	if s.Leader != "" {
		text += ", led by " + s.Leader
	}
	if !s.Healthy {
		text += "; no quorum"
		if s.Why != "" {
			text += ": " + s.Why
		}
	}
	if s.Change != "" {
		text += "; its members change: " + s.Change
	}
	return text
}

func layNodes(p *page, nodes []*pb.NodeStatus) {
	rows := make([][]string, len(nodes))
	for i, n := range nodes {
		rows[i] = []string{n.Name, number(n.Lnn), n.State.String(), p.ago(n.Since), number(n.PoolAddresses), number(n.ServiceAddresses),
			loadText(n.Load), number(n.ConfigRevision), n.Why}
	}
	p.table([]string{"NODE", "LNN", "STATE", "SINCE", "POOL", "SERVICE", "LOAD", "REVISION", "WHY"}, rows)
}

func loadText(l *pb.Load) string {
	if !l.GetKnown() {
		return "-"
	}
	text := fmt.Sprintf("%d conn, %.0f%% cpu, %.0f%% net", l.Connections, 100*l.Cpu, 100*l.Throughput)
	if l.Stale {
		text += ", stale"
	}
	return text
}

func layPools(p *page, pools []*pb.PoolSummary) {
	rows := make([][]string, len(pools))
	for i, o := range pools {
		rows[i] = []string{o.Id, o.Zone, o.AllocMethod, o.ConnectPolicy, fmt.Sprintf("%d of %d", o.Held, o.Addresses),
			fmt.Sprintf("%d of %d", o.NodesIn, o.Nodes), yesNo(o.Serving), o.Why}
	}
	p.table([]string{"POOL", "ZONE", "ALLOCATION", "POLICY", "HELD", "NODES IN", "SERVES", "WHY"}, rows)
}

func (s *session) problemsCommand() *cobra.Command {
	problems := group("problems", "What is wrong, and what to do", "")
	problems.AddCommand(&cobra.Command{
		Use: "list", Short: "List what is wrong now", Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, err := s.askStatus(cmd)
			if err != nil {
				return err
			}
			found := list{}
			for _, problem := range status.Problems {
				found = append(found, treeOf(problem))
			}
			return s.print(object{{"problems", found}}, func(p *page) { layProblems(p, status.Problems) })
		},
	})
	return problems
}

func layProblems(p *page, problems []*pb.Problem) {
	if len(problems) == 0 {
		p.line("none")
	}
	for _, o := range problems {
		where := o.Subject
		if o.Node != "" {
			where += " on " + o.Node
		}
		p.out.WriteString(p.painted(o.Severity.String()))
		p.linef(" %s: %s, for %s: %s", o.Code, where, p.ago(o.Since), o.Detail)
		p.line("    " + o.Meaning)
		p.line("    " + o.Remedy)
	}
}
