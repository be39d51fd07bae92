package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// everyCommand calls visit for each command that people see, with its words behind "holdfast".
func everyCommand(visit func(words []string, cmd *cobra.Command)) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		visit(strings.Fields(cmd.CommandPath())[1:], cmd)
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(Deps{Environment: func(string) string { return "" }}))
}

// TestEveryHelpIsItsOwn: --help and the command help say of each command what it is.
func TestEveryHelpIsItsOwn(t *testing.T) {
	seen := 0
	everyCommand(func(words []string, cmd *cobra.Command) {
		seen++
		for _, args := range [][]string{append(words[:len(words):len(words)], "--help"), append([]string{"help"}, words...)} {
			if cmd.Name() == "help" && args[0] == "help" {
				continue
			}
			r := run(t, "", "", args...)
			first, _, _ := strings.Cut(cmd.Long, "\n")
			if first == "" {
				first = cmd.Short
			}
			if r.code != 0 || !strings.HasPrefix(r.out, first) || cmd.Runnable() && !strings.Contains(r.out, "\n  "+cmd.CommandPath()) {
				t.Errorf("holdfast %s: exit code %d, printed\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
			}
		}
	})
	if seen < 60 {
		t.Errorf("only %d commands were found", seen)
	}
}

// TestNoHelpForWhatIsNotThere: the help of a command that does not exist is not that of the one above it.
func TestNoHelpForWhatIsNotThere(t *testing.T) {
	for line, want := range map[string]string{
		"node declare-undead --help":    `holdfast node has no subcommand "declare-undead"`,
		"node declare-undead -h":        `holdfast node has no subcommand "declare-undead"`,
		"help node declare-undead":      `holdfast node has no subcommand "declare-undead"`,
		"network pool --help":           `did you mean pools?`,
		"stauts --help":                 `did you mean status?`,
		"help stauts":                   `did you mean status?`,
		"help status now":               `holdfast status has no subcommand "now"`,
		"--output json node drian -h":   `did you mean drain?`,
		"network pools modfiy p --help": `did you mean modify?`,
	} {
		r := run(t, "", "", strings.Fields(line)...)
		if r.code != exitUsage || r.out != "" || !strings.Contains(r.err, want) || !strings.Contains(r.err, "--help'.") {
			t.Errorf("holdfast %s: exit code %d, printed\n%s%s", line, r.code, r.out, r.err)
		}
	}
}
