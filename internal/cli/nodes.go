package cli

import (
	"context"

	"github.com/spf13/cobra"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
)

func (s *session) nodeCommand() *cobra.Command {
	node := group("node", "The members of the cluster", "")
	k := nodeKind()
	node.AddCommand(s.nodeListCommand(), s.viewCommand(k), s.createCommand(k), s.modifyCommand(k), s.deleteCommand(k),
		s.drainCommand(), s.undrainCommand(), s.declareDeadCommand())
	return node
}

func (s *session) clusterCommand() *cobra.Command {
	k := clusterKind()
	top := group("cluster", "The settings that hold for the whole cluster", `The settings that hold for the whole cluster. Hooks are changed in the file:
'holdfast get', and 'holdfast apply'.`)
	view := &cobra.Command{
		Use: "view", Short: "Show every setting of the cluster", Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := s.askConfig(cmd)
			if err != nil {
				return err
			}
			e := k.all(config)[0]
			return s.print(snake(e.id, e.view), func(p *page) { layView(p, e) })
		},
	}
	top.AddCommand(view, s.modifyCommand(k))
	return top
}

func (s *session) nodeListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the nodes, their state and what they hold", Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, err := s.askStatus(cmd)
			if err != nil {
				return err
			}
			nodes := list{}
			for _, n := range status.Nodes {
				nodes = append(nodes, treeOf(n))
			}
			return s.print(object{{"nodes", nodes}}, func(p *page) { layNodes(p, status.Nodes) })
		},
	}
}

func (s *session) drainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "drain NODE", Short: "Move everything off a node without losing a request, and keep it out",
		Args: arguments("NODE"), ValidArgsFunction: s.complete(0, nodeNames),
	}
	return s.changing(cmd, "draining", func(args []string, o *pb.ChangeOptions) (changer, error) {
		return func(ctx context.Context, c Client) (*pb.ChangeResult, error) {
			return c.DrainNode(ctx, &pb.DrainNodeRequest{Node: args[0], Options: o})
		}, nil
	})
}

func (s *session) undrainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "undrain NODE", Short: "Let a drained node hold addresses again",
		Args: arguments("NODE"), ValidArgsFunction: s.complete(0, nodeNames),
	}
	return s.changing(cmd, "ending the drain", func(args []string, o *pb.ChangeOptions) (changer, error) {
		return func(ctx context.Context, c Client) (*pb.ChangeResult, error) {
			return c.UndrainNode(ctx, &pb.UndrainNodeRequest{Node: args[0], Options: o})
		}, nil
	})
}
