// Command holdfast is the whole of Holdfast in one binary: the agent, the commands that talk to it, and the lab.
//
// It has no logic: it hands what comes from outside to internal/cli and exits with its code.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast/holdfast/internal/cli"
)

// Set by the linker: -ldflags "-X main.version=1.2.3 -X main.commit=HASH -X main.date=2026-01-02T03:04:05Z". What is left
// out is taken from what the Go tools record in the binary.
var version, commit, date string

func main() { os.Exit(run()) }

func run() int { return execute(os.Stdout, os.Stderr, os.Args[1:]) }

// execute runs one command line and returns the exit code.
func execute(out, errs io.Writer, args []string) int {
	// The first signal asks for an orderly end; a second one ends at once, since stop restores the default.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return cli.Run(ctx, cli.Deps{
		In: os.Stdin, Out: out, Err: errs,
		InTerminal: isTerminal(os.Stdin), OutTerminal: isTerminal(os.Stdout), ErrTerminal: isTerminal(os.Stderr),
		Environment: os.Getenv,
		Now:         time.Now,
		Build:       cli.Build{Version: version, Commit: commit, Date: date},
		Size:        size,
		Commands:    []*cobra.Command{agentCommand(), guardCommand(), gatewayCommand(), labCommand(), simCommand()},
	}, args)
}
