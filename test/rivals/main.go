// Command rivals measures how long clients do without an address, for Holdfast and for two other ways to make addresses move,
// keepalived and CTDB, side by side in one run: the same switch, the same nodes, the same client, the same packets, the same
// faults. `make bench` runs it.
//
// Every system runs in a lab of its own (`holdfast lab up`): where a node would run the agent it runs the other system's daemon.
// Only one lab is up at a time, and the systems take turns round by round, so that a slow minute of the machine meets all of
// them; of those whose gaps are seconds several may be up beside each other, after the others. A run counts only if the client's packets were seen to go to other nodes afterwards; one that did not get there is kept
// with its reason, and so is a system that cannot run here.
//
// It judges nothing: there are no bounds in it. Nothing of it is left on the machine; what a daemon would keep under /etc, /run
// or /var is in private mounts over files of the lab.
//
//	rivals measure -holdfast FILE [-rounds N] [-repeats N] [-beside N] [-systems a,b] [-faults a,b] > report.json
//	rivals page < report.json       the section for docs/benchmarks.md
//	rivals plot < report.json       the picture, as SVG
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// roles are what the program can be. The last three it is in members of the lab.
var roles = map[string]func(arguments []string) error{
	"measure": measureCommand,
	"page":    func([]string) error { return render(os.Stdin, os.Stdout, page) },
	"plot":    func([]string) error { return render(os.Stdin, os.Stdout, plot) },
	"hold":    holdConnections,
	"idle":    waitIdle,
	"end":     endProcesses,
}

func main() {
	if len(os.Args) < 2 || roles[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: rivals measure -holdfast FILE > report.json; rivals page|plot < report.json")
		os.Exit(2)
	}
	if err := roles[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "rivals:", err)
		os.Exit(1)
	}
}

// render writes a report in another form.
func render(in io.Reader, out io.Writer, form func(report) string) error {
	var r report
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		return fmt.Errorf("reading the report of `rivals measure` from standard input: %w", err)
	}
	_, err := io.WriteString(out, form(r))
	return err
}

// words splits a list with commas; an empty one has no words.
func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}
