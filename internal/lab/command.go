package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
)

// Command is `holdfast lab` with everything under it.
func Command() *cobra.Command {
	root := &cobra.Command{
		Use:   "lab",
		Short: "Run a disposable cluster in network namespaces of this machine",
		Long: `Runs a disposable cluster of this binary in network namespaces of this machine, with clients and a recursive
resolver in front of it, and breaks it in ways that real clusters break. Nothing of it touches the machine's own
network, and nothing of it survives "holdfast lab down".

A lab file looks like this; everything may be left out:

  lab: {nodes: 3, clients: 1, routers: 0, resolver: bind}   # or unbound, dnsmasq, knot, none
  links:
    node1: {seed: 7, out: {loss: 1%, delay: 5ms, jitter: 1ms, duplication: 0.1%, reordering: 2%}, in: {}}
  cluster:                                                   # as for "holdfast apply"
    groupnets: [...]`,
		Args:          cobra.NoArgs,
		SilenceErrors: true, SilenceUsage: true,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	directory := root.PersistentFlags().String("dir", "", "the lab's directory (default "+string(DefaultDirectory())+")")
	at := func() (Directory, error) {
		if *directory == "" {
			return DefaultDirectory(), nil
		}
		absolute, err := filepath.Abs(*directory)
		return Directory(absolute), err
	}
	root.AddCommand(upCommand(at), downCommand(at), statusCommand(at), gcCommand(), execCommand(at), runCommand())
	root.AddCommand(faultCommands(at)...)
	root.AddCommand(hiddenCommands(at)...)
	return root
}

type locate func() (Directory, error)

func upCommand(at locate) *cobra.Command {
	var path string
	var options launchOptions
	var noWait bool
	var limit time.Duration
	command := &cobra.Command{
		Use:   "up",
		Short: "Start a lab; returns when its cluster serves",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := at()
			if err != nil {
				return err
			}
			file := DefaultFile()
			if path != "" {
				if file, err = ReadFile(path); err != nil {
					return err
				}
			}
			plan, err := BuildPlan(file)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), limit)
			defer cancel()
			return up(ctx, dir, plan, options, !noWait, c.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.StringVarP(&path, "file", "f", "", "the lab file (default: three nodes, one client, BIND)")
	flags.BoolVar(&options.userNS, "userns", false, "use a user namespace even as root")
	flags.BoolVar(&options.noGuard, "no-guard", false, "run the agents without their guards")
	flags.BoolVar(&noWait, "no-wait", false, "return when all members run, whether the cluster serves or not")
	flags.DurationVar(&limit, "wait", 60*time.Second, "how long the cluster may take to serve")
	flags.StringArrayVar(&options.agent, "agent-command", nil, "run this instead of the agent, one word for each flag")
	_ = flags.MarkHidden("agent-command")
	return command
}

// up starts a lab. A lab that does not serve in time is left running, so that one can look why.
func up(ctx context.Context, dir Directory, plan *Plan, options launchOptions, wait bool, out io.Writer) error {
	if err := launch(dir, plan, options); err != nil {
		return err
	}
	fmt.Fprintf(out, "lab in %s: %s\n", dir, strings.Join(slices.Concat(plan.Names(KindNode), plan.Names(KindClient), plan.Names(KindRouter), plan.Names(KindResolver)), " "))
	if options.userNS || os.Getuid() != 0 {
		fmt.Fprintln(out, "it is in a user namespace: programs cannot change to other users, or take real-time priority (SCHED_RR)")
	}
	if !wait {
		return nil
	}
	if err := WaitServing(ctx, dir, plan, plan.Names(KindNode), out); err != nil {
		return fmt.Errorf("%w (the lab still runs: look at it, and take it down with `holdfast lab down`)", err)
	}
	return nil
}

func downCommand(at locate) *cobra.Command {
	var keep bool
	command := &cobra.Command{
		Use:   "down",
		Short: "Stop a lab and remove everything of it",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			dir, err := at()
			if err != nil {
				return err
			}
			return down(dir, keep)
		},
	}
	command.Flags().BoolVar(&keep, "keep-files", false, "keep the lab's files, for example its logs")
	return command
}

// down ends a lab. It also removes what a dead one left.
func down(dir Directory, keep bool) error {
	if _, err := os.Stat(dir.path(planFile)); !dir.alive() && errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("no lab runs in %s", dir)
	}
	if dir.alive() {
		_, _, callErr := dir.call(request{Op: "down"})
		if err := dir.waitDead(stopPatience); err != nil {
			return errors.Join(err, callErr) // an error of the call alone only says that the lab went quickly
		}
	}
	return dir.remove(keep)
}

func statusCommand(at locate) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "status",
		Short: "Show the members of a lab and what was done to them",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := at()
			if err != nil {
				return err
			}
			answer, _, err := dir.call(request{Op: "status"})
			if err != nil {
				return err
			}
			if output != "table" {
				return printAs(output, c.OutOrStdout(), answer.Status)
			}
			return answer.Status.table(c.OutOrStdout())
		},
	}
	outputFlag(command, &output)
	return command
}

// outputFlag adds --output, which is table, json or yaml.
func outputFlag(command *cobra.Command, output *string) {
	command.Flags().StringVarP(output, "output", "o", "table", "table, json or yaml")
	command.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains([]string{"table", "json", "yaml"}, *output) {
			return misused("--output %q: write table, json or yaml", *output)
		}
		return nil
	}
}

// printAs writes a value as json or yaml, with the same names and in the same order.
func printAs(output string, out io.Writer, value any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return err
	}
	written := text.Bytes()
	if output == "yaml" {
		var err error
		if written, err = yaml.JSONToYAML(written); err != nil {
			return fmt.Errorf("writing the result as YAML: %w", err)
		}
	}
	_, err := out.Write(written)
	return err
}

func gcCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "gc",
		Short: "Remove the files of labs that died",
		Long:  "Removes the files of labs that died. Processes, namespaces and links need no removal: they die with the lab.",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			removed, err := collectGarbage()
			for _, directory := range removed {
				fmt.Fprintf(c.OutOrStdout(), "removed %s\n", directory)
			}
			if err == nil && len(removed) == 0 {
				fmt.Fprintln(c.OutOrStdout(), "nothing to remove")
			}
			return err
		},
	}
}

func execCommand(at locate) *cobra.Command {
	return &cobra.Command{
		Use:   "exec MEMBER -- COMMAND [ARGUMENT...]",
		Short: "Run a program of this machine in a member of a lab",
		Long: `Runs a program of this machine in a member of a lab. Needs no terminal; the exit code is the program's. The
running binary is in PATH as "holdfast", and talks to the agent of that node.`,
		Example: "  holdfast lab exec node1 -- holdfast status\n  holdfast lab exec client1 -- dig cluster.lab",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, arguments []string) error {
			dir, err := at()
			if err != nil {
				return err
			}
			return dir.Exec(arguments[0], arguments[1:])
		},
	}
}
