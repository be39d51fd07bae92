package cli

import (
	"context"
	"errors"
	"fmt"

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

const exitCodesText = `Every holdfast command ends with one of these exit codes:

  0  done; with --dry-run: it could be done
  1  refused or failed; nothing was changed unless the message says so
  2  the command line is wrong: an unknown command or flag, a missing argument, a value that cannot be read
  3  no agent answers on the socket, or this user may not talk to it
  4  done, but not everywhere: some nodes that are up had not put the change into effect when --wait was over; the
     message names them

'holdfast lab exec' ends with the exit code of the command that it ran.
`

func exitCodesTopic() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "The exit codes of every command", Long: exitCodesText}
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
