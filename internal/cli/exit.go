package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes. They are part of the contract: scripts branch on them.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitPartly      = 4
)

// exitMeanings say what each exit code means; the code is the index.
var exitMeanings = []string{
	exitDone:        "done; with --dry-run: it could be done",
	exitFailed:      "refused or failed; nothing was changed unless the message says so",
	exitUsage:       "the command line is wrong: an unknown command or flag, a missing argument, a value that cannot be read",
	exitUnreachable: "no agent answers on the socket, or this user may not talk to it",
	exitPartly: "done, but not everywhere: some nodes that are up had not put the change into effect when --wait was over; the " +
		"message names them",
}

const labExec = "'holdfast lab exec' ends with the exit code of the command that it ran."

var exitCodesText = exitCodes()

func exitCodes() string {
	var b strings.Builder
	b.WriteString("Every holdfast command ends with one of these exit codes:\n\n")
	for code, meaning := range exitMeanings {
		fmt.Fprintf(&b, "  %d  %s\n", code, strings.Replace(meaning, "; the message", "; the\n     message", 1))
	}
	b.WriteString("\n" + labExec + "\n")
	return b.String()
}

func (s *session) exitCodesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "exit-codes", Short: "The exit codes of every command", Long: exitCodesText, Args: arguments(),
		RunE: func(*cobra.Command, []string) error {
			codes := list{}
			for code, meaning := range exitMeanings {
				codes = append(codes, object{{"code", code}, {"meaning", meaning}})
			}
			return s.print(object{{"exit_codes", codes}, {"note", labExec}}, func(p *page) { p.out.WriteString(exitCodesText) })
		},
	}
}

// failure is an error that knows its exit code.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

// ExitCode is the code with which the program ends.
func (f *failure) ExitCode() int { return f.code }

func failed(format string, args ...any) error {
	return &failure{exitFailed, fmt.Sprintf(format, args...)}
}

func misused(format string, args ...any) error {
	return &failure{exitUsage, fmt.Sprintf(format, args...)}
}

// exitCode is the code for an error. Any error may bring its own by a method ExitCode() int, which is how commands of
// other packages pass on the code of a program that they ran.
func exitCode(err error) int {
	var coded interface{ ExitCode() int }
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &coded):
		return coded.ExitCode()
	case errors.Is(err, context.Canceled):
		return exitFailed
	default:
		return exitFailed
	}
}
