package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast/holdfast/internal/api"
)

const rootText = `Holdfast keeps clients on a working node: it answers the names and moves the addresses that they hold on to.

Commands talk to the agent of this machine over its Unix socket. Results go to standard output, everything else to
standard error.`

// newRoot builds the whole tree of commands.
func newRoot(deps Deps) *cobra.Command {
	return (&session{Deps: deps, format: formatTable}).commandTree()
}

// commandTree is newRoot for one command line.
func (s *session) commandTree() *cobra.Command {
	deps := s.Deps
	root := group("holdfast", "Keep clients on a working node", rootText)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(deps.In)
	root.SetOut(deps.Out)
	root.SetErr(deps.Err)
	root.SetFlagErrorFunc(flagMisused)
	flags := root.PersistentFlags()
	flags.VarP(&s.format, "output", "o", "how results are written")
	flags.StringVar(&s.socket, "socket", cmp.Or(deps.Environment("HOLDFAST_SOCKET"), api.DefaultSocket),
		"the agent's socket; also by HOLDFAST_SOCKET")
	completeWords(root, "output", "table", "json", "yaml")
	root.AddCommand(
		s.statusCommand(), s.problemsCommand(), s.topCommand(), s.eventsCommand(), s.explainCommand(), s.planCommand(),
		s.validateCommand(), s.diffCommand(), s.applyCommand(), s.getCommand(), s.schemaCommand(),
		s.networkCommand(), s.nodeCommand(), s.clusterCommand(), s.sessionsCommand(), s.brokerCommand(), s.sshCommand(), s.tunnelCommand(),
		s.initCommand(), s.identityCommand(),
		s.versionCommand(), s.manCommand(), s.exitCodesCommand(),
	)
	root.AddCommand(deps.Commands...)
	for _, command := range deps.Commands {
		hideOutput(command)
	}
	s.helpOfItsOwn(root)
	checkAsUsage(root)
	root.InitDefaultCompletionCmd()
	for _, command := range root.Commands() {
		if command.Name() == "completion" || command.Name() == "man" {
			hideOutput(command)
		}
	}
	return root
}

// group is a command that only has subcommands. By itself it prints its help; with a word that is none of them it fails.
func group(use, short, long string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: cmp.Or(long, short+"."),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return noSubcommand(cmd, args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}

func noSubcommand(cmd *cobra.Command, word string) error {
	text := fmt.Sprintf("%s has no subcommand %q", cmd.CommandPath(), word)
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(word); len(near) > 0 {
		text += fmt.Sprintf("; did you mean %s?", strings.Join(near, " or "))
	}
	return misused("%s", text)
}

// arguments checks the number of arguments by their names: "POOL" must be there, "[NODE]" may, "NODE..." at least once, and "[NODE...]" as often as one
// likes.
func arguments(names ...string) cobra.PositionalArgs {
	least, most := 0, 0
	for _, name := range names {
		switch {
		case strings.HasSuffix(name, "...]"):
			most = 1 << 20
		case strings.HasSuffix(name, "..."):
			least, most = least+1, 1<<20
		case strings.HasPrefix(name, "["):
			most++
		default:
			least, most = least+1, most+1
		}
	}
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return misused("%s needs %s, and %d of them were given", cmd.CommandPath(), strings.Join(names, " "), len(args))
		case len(args) > most && most == 0:
			return misused("%s takes no argument, and %q was given", cmd.CommandPath(), args[0])
		case len(args) > most:
			return misused("%s takes %s, and %q is one too many", cmd.CommandPath(), strings.Join(names, " "), args[most])
		}
		return nil
	}
}

// completeWords completes a flag of cmd from fixed words.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	// The only error is a flag that does not exist, which every run of every test would show.
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}
