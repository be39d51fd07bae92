package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manCommand writes manual pages. Our own small writer of man(7) saves two dependencies that cobra's needs.
func (s *session) manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write the manual pages of every command to a directory", Args: arguments("DIR"),
		Long: `Write the manual pages of every command to a directory, which is made if it is not there: one page for each, such as
holdfast-network-pools-modify.1. 'man -l FILE' shows one; to install them, copy them to a directory man1 of the manual path.`,
		Example: "  holdfast man /usr/local/share/man/man1",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return failed("making the directory for manual pages: %v", err)
			}
			return writeManuals(cmd.Root(), args[0])
		},
	}
}

func writeManuals(cmd *cobra.Command, dir string) error {
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	if err := os.WriteFile(filepath.Join(dir, name+".1"), []byte(manual(cmd)), 0o644); err != nil {
		return failed("writing a manual page: %v", err)
	}
	for _, sub := range shownCommands(cmd) {
		if err := writeManuals(sub, dir); err != nil {
			return err
		}
	}
	return nil
}

func shownCommands(cmd *cobra.Command) []*cobra.Command {
	var out []*cobra.Command
	for _, sub := range cmd.Commands() {
		if !sub.Hidden && sub.Name() != "help" && (sub.Runnable() || sub.HasAvailableSubCommands()) {
			out = append(out, sub)
		}
	}
	return out
}

// manual is the page of one command in man(7) macros.
func manual(cmd *cobra.Command) string {
	var b strings.Builder
	path := cmd.CommandPath()
	fmt.Fprintf(&b, ".TH \"%s\" 1 \"\" \"Holdfast\" \"Holdfast manual\"\n", strings.ToUpper(strings.ReplaceAll(path, " ", "-")))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(strings.ReplaceAll(path, " ", "-")), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(cmd.UseLine()))
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	b.WriteString(".SH DESCRIPTION\n" + paragraphs(text))
	if subs := shownCommands(cmd); len(subs) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range subs {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(sub.CommandPath()), roff(sub.Short))
		}
	}
	manualFlags(&b, "OPTIONS", cmd.NonInheritedFlags())
	manualFlags(&b, "GLOBAL OPTIONS", cmd.InheritedFlags())
	if cmd.Example != "" {
		b.WriteString(".SH EXAMPLES\n.nf\n" + roffLines(cmd.Example) + ".fi\n")
	}
	b.WriteString(".SH EXIT STATUS\n.nf\n" + roffLines(strings.TrimSpace(exitCodesText)) + ".fi\n")
	if parent := cmd.Parent(); parent != nil {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(strings.ReplaceAll(parent.CommandPath(), " ", "-")))
	}
	return b.String()
}

func manualFlags(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	b.WriteString(".SH " + title + "\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if value, _ := pflag.UnquoteUsage(f); value != "" {
			name += " " + value
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(name), roff(f.Usage))
	})
}

// paragraphs keeps indented lines as they are and fills the others.
func paragraphs(text string) string {
	var b strings.Builder
	for block := range strings.SplitSeq(text, "\n\n") {
		if strings.HasPrefix(block, " ") {
			b.WriteString(".PP\n.nf\n" + roffLines(block) + ".fi\n")
			continue
		}
		b.WriteString(".PP\n" + roffLines(block))
	}
	return b.String()
}

func roffLines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(roff(strings.TrimRight(line, "\n")) + "\n")
	}
	return b.String()
}

// roff escapes what man(7) would read as a request or a special character.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
