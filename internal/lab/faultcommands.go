package lab

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// faultCommands are the commands that break a lab and mend it.
func faultCommands(at locate) []*cobra.Command {
	return []*cobra.Command{
		machineCommand(at, "kill", "Turn a member's power off: its links go down and all its processes die, at once"),
		machineCommand(at, "start", "Turn a member on again, with the files it had"),
		machineCommand(at, "stop", "Let a member's agent end by itself, then turn the member off"),
		machineCommand(at, "freeze", "Stop all processes of a member; its kernel goes on"),
		machineCommand(at, "thaw", "Let the processes of a frozen member go on"),
		replaceCommand(at),
		cutCommand(at), healCommand(at), partitionCommand(at), switchCommand(at),
	}
}

// machineCommand is a command about one member, or the agent or the guard on it, or both.
func machineCommand(at locate, op, short string) *cobra.Command {
	ask := request{Op: op}
	command := &cobra.Command{
		Use: op + " MEMBER", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			ask.Member = arguments[0]
			return tell(at, ask)
		},
	}
	command.Flags().BoolVar(&ask.Agent, "agent", false, "do it to the agent alone; its guard goes on, unless --guard is given too")
	command.Flags().BoolVar(&ask.Guard, "guard", false, "do it to the agent's guard alone; with --agent to both at once")
	return command
}

// replaceCommand is what a package's upgrade does to a node's agent.
func replaceCommand(at locate) *cobra.Command {
	return &cobra.Command{
		Use: "replace NODE", Short: "Replace a node's agent by another process, which goes on with all that it holds",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			return tell(at, request{Op: "replace", Member: arguments[0], Agent: true})
		},
	}
}

// tell sends a request of which only success matters.
func tell(at locate, ask request) error {
	dir, err := at()
	if err != nil {
		return err
	}
	_, _, err = dir.call(ask)
	return err
}

func cutCommand(at locate) *cobra.Command {
	ask := request{Op: "cut"}
	command := &cobra.Command{
		Use: "cut MEMBER", Short: "Drop all frames of a member at the switch; its carrier stays", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			ask.Member = arguments[0]
			return tell(at, ask)
		},
	}
	command.Flags().StringVar(&ask.Interface, "interface", "", "of this interface alone (default all)")
	command.Flags().BoolVar(&ask.Carrier, "carrier", false, "take the carrier down instead, as when the cable is pulled")
	command.Flags().StringVar((*string)(&ask.Direction), "direction", "", "out: only of the frames that it sends; in: only of those that are sent to it (default both)")
	command.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case ask.Direction != "" && ask.Direction != DirectionIn && ask.Direction != DirectionOut:
			return misused("--direction %q: write in or out", ask.Direction)
		case ask.Direction != "" && ask.Carrier:
			return misused("--direction and --carrier: a cable has both directions; leave one out")
		}
		return nil
	}
	return command
}

func healCommand(at locate) *cobra.Command {
	return &cobra.Command{
		Use: "heal [MEMBER]", Short: "Undo a cut; without a member, undo every cut and partition and turn the switch on",
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			return tell(at, request{Op: "heal", Member: strings.Join(arguments, "")})
		},
	}
}

func partitionCommand(at locate) *cobra.Command {
	return &cobra.Command{
		Use:     "partition A,B / C,D [/ ...]",
		Short:   "Let nothing pass between groups of members; members that are in no group reach all",
		Example: "  holdfast lab partition node1,node2 / node3,client1",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			groups, err := parseGroups(strings.Join(arguments, " "))
			if err != nil {
				return err
			}
			return tell(at, request{Op: "partition", Groups: groups})
		},
	}
}

// parseGroups reads groups of names: names are separated by commas, groups by slashes.
func parseGroups(text string) ([][]string, error) {
	var groups [][]string
	for group := range strings.SplitSeq(text, "/") {
		names := strings.FieldsFunc(group, func(r rune) bool { return r == ',' || r == ' ' })
		if len(names) == 0 {
			return nil, misused("a group of the partition is empty: write it as node1,node2 / node3")
		}
		groups = append(groups, slices.Clip(names))
	}
	return groups, nil
}

func switchCommand(at locate) *cobra.Command {
	ask := request{}
	command := &cobra.Command{
		Use: "switch off|on", Short: "Let the switch drop everything, or work again", Args: cobra.ExactArgs(1), ValidArgs: []string{"off", "on"},
		RunE: func(_ *cobra.Command, arguments []string) error {
			if arguments[0] != "off" && arguments[0] != "on" {
				return misused("the switch can be turned off or on, not %q", arguments[0])
			}
			ask.Op = "switch " + arguments[0]
			return tell(at, ask)
		},
	}
	command.Flags().BoolVar(&ask.Carrier, "carrier", false, "with off: take all carriers down too, as when its power fails")
	return command
}
