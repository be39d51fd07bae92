package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// helpOfItsOwn makes --help and the command help speak of the command that was named, or say that there is none. By itself cobra
// prints the help of the nearest command that exists, which reads as if the wrong word were right.
func (s *session) helpOfItsOwn(root *cobra.Command) {
	print := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
			s.askedFor, s.misuse = cmd, noSubcommand(cmd, words[0])
			return
		}
		print(cmd, args)
	})
	root.SetHelpCommand(&cobra.Command{
		Use: "help [COMMAND...]", Short: "Say how a command is used", Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			below, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var words []string
			for _, sub := range below.Commands() {
				if sub.IsAvailableCommand() {
					words = append(words, fmt.Sprintf("%s\t%s", sub.Name(), sub.Short))
				}
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			asked, rest, err := cmd.Root().Find(args)
			switch {
			case err != nil:
				return misused("%s", err)
			case len(rest) > 0 && asked.HasSubCommands():
				return noSubcommand(asked, rest[0])
			case len(rest) > 0:
				return misused("%s has no subcommand %q", asked.CommandPath(), rest[0])
			}
			asked.InitDefaultHelpFlag()
			return asked.Help()
		},
	})
}
