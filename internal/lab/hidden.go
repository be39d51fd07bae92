package lab

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/spf13/cobra"
)

// hiddenCommands are what the lab runs of itself in its namespaces.
func hiddenCommands(at locate) []*cobra.Command {
	commands := []*cobra.Command{hostCommand(at), nodeCommand(), resolveCommand(), serveCommand(), echoCommand(), connectCommand(), probeCommand(), recordsCommand(), launchesCommand()}
	for _, command := range commands {
		command.Hidden = true
	}
	return commands
}

func hostCommand(at locate) *cobra.Command {
	var options HostOptions
	command := &cobra.Command{
		Use: "host", Short: "Be the host of a lab", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) (err error) {
			if options.Dir, err = at(); err != nil {
				return err
			}
			return runHost(options)
		},
	}
	command.Flags().BoolVar(&options.UserNS, "user-namespace", false, "the lab is in a user namespace")
	command.Flags().BoolVar(&options.NoGuard, "no-guard", false, "run no guards")
	command.Flags().BoolVar(&options.Leashed, "leashed", false, "end with the process that started the lab")
	command.Flags().StringArrayVar(&options.Agent, "agent-command", nil, "run this instead of the agent")
	return command
}

func nodeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "node", Short: "Be the first process of a member", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return runFirstProcess() },
	}
}

func resolveCommand() *cobra.Command {
	count := 1
	command := &cobra.Command{
		Use: "resolve NAME", Short: "Print the addresses that a name is answered with, as a program on this member sees it", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, arguments []string) error {
			for range count {
				if err := resolveOnce(c.Context(), arguments[0], c.OutOrStdout()); err != nil {
					return err
				}
			}
			return nil
		},
	}
	command.Flags().IntVar(&count, "count", count, "how often to ask")
	return command
}

func resolveOnce(ctx context.Context, name string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	resolver := net.Resolver{PreferGo: true}
	addresses, err := resolver.LookupNetIP(ctx, "ip", name+".")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, addresses[0].Unmap())
	return err
}
