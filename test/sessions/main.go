// Command sessions measures what a session through `holdfast gateway` costs beside the same session without it and beside one over a plain
// OpenSSH jump host (ProxyJump): how much goes through, and how long connecting takes. `make bench` runs it.
//
// Everything is stock OpenSSH but the gateway: client, target and jump host, all on the loopback interface of a network namespace of its own,
// of which nothing is left. The ways take turns within each round, with the same cipher and key exchange, so that a slow minute of the machine meets all
// of them; what counts is the ratio within a round.
//
// It judges nothing: there are no bounds in it.
//
//	sessions measure -holdfast PROGRAM [-rounds N] [-mib N] [-connects N] > report.json
//	sessions page < report.json       the section for docs/benchmarks.md
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sessions:", err)
		os.Exit(1)
	}
}

func command(arguments []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	switch {
	case len(arguments) > 0 && arguments[0] == "measure":
		flags := flag.NewFlagSet("sessions measure", flag.ContinueOnError)
		program := flags.String("holdfast", "", "the program to measure")
		rounds := flags.Int("rounds", 5, "rounds of transfers")
		mebibytes := flags.Int("mib", 256, "MiB of one transfer")
		connects := flags.Int("connects", 100, "rounds of connecting")
		if err := flags.Parse(arguments[1:]); err != nil {
			return err
		}
		report, err := measure(ctx, *program, *rounds, *mebibytes, *connects)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(report)
	case len(arguments) == 1 && arguments[0] == "page":
		var r report
		if err := json.NewDecoder(os.Stdin).Decode(&r); err != nil {
			return fmt.Errorf("reading a report from standard input: %w", err)
		}
		_, err := io.WriteString(os.Stdout, page(r))
		return err
	}
	return fmt.Errorf("usage: sessions measure -holdfast PROGRAM > report.json; sessions page < report.json")
}

// apart moves the calling goroutine, and what it starts, to a network namespace of its own for good.
func apart() error {
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("making a network namespace: %w", err)
	}
	return run("ip", "link", "set", "lo", "up")
}
