package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast/holdfast/internal/cluster"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
)

// completionTimeout bounds the question behind a press of the tab key.
const completionTimeout = time.Second

// source lists what a word can be, asking the agent.
type source func(context.Context, Client) ([]string, error)

// complete completes the argument at a position (from 0), or every one (-1), from a source. Without an agent it offers
// nothing.
func (s *session) complete(position int, from source) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if position >= 0 && len(args) != position {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		client := s.Dial(s.socket)
		defer client.Close()
		words, err := from(ctx, client)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// inOrder completes each argument from its own source; the last one serves all that follow.
func (s *session) inOrder(sources ...source) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		return s.complete(-1, sources[min(len(args), len(sources)-1)])(cmd, args, word)
	}
}

func nothing(context.Context, Client) ([]string, error) { return nil, nil }

func nodeNames(ctx context.Context, c Client) ([]string, error) {
	status, err := c.Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, n := range status.Nodes {
		names = append(names, n.Name)
	}
	return names, nil
}

// configured makes a source out of a list in the configuration.
func configured(names func(*cluster.Config) []string) source {
	return func(ctx context.Context, c Client) ([]string, error) {
		answer, err := c.GetConfig(ctx, &pb.GetConfigRequest{})
		if err != nil {
			return nil, err
		}
		config, err := cluster.Parse("the configuration in force", []byte(answer.Yaml))
		if err != nil {
			return nil, err
		}
		return names(config), nil
	}
}

func addresses(ctx context.Context, c Client) ([]string, error) {
	answer, err := c.ListInterfaces(ctx, &pb.ListInterfacesRequest{})
	if err != nil {
		return nil, err
	}
	var words []string
	for _, a := range answer.Addresses {
		words = append(words, a.Address)
	}
	return words, nil
}

// subjects is what can be explained: zones, nodes and addresses.
func subjects(ctx context.Context, c Client) ([]string, error) {
	zones, err := configured(zoneNames)(ctx, c)
	if err != nil {
		return nil, err
	}
	nodes, err := nodeNames(ctx, c)
	if err != nil {
		return zones, nil //nolint:nilerr // what is known is offered
	}
	held, err := addresses(ctx, c)
	if err != nil {
		return append(zones, nodes...), nil //nolint:nilerr // what is known is offered
	}
	return append(append(zones, nodes...), held...), nil
}

func zoneNames(config *cluster.Config) []string {
	var names []string
	for _, id := range config.Pools() {
		if pool, _, _, ok := config.Pool(id); ok && pool.Zone != "" {
			names = append(names, pool.Zone)
		}
	}
	return names
}

func poolIDs(config *cluster.Config) []string   { return dotted(config.Pools()) }
func subnetIDs(config *cluster.Config) []string { return dotted(config.Subnets()) }

func dotted[ID interface{ String() string }](ids []ID) []string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = id.String()
	}
	return words
}
