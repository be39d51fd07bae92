// Command names measures how many answers a second DNS servers give, beside each other in one run: Holdfast's, others that are health-aware
// or plain, and a responder in C that only copies. `make bench` runs it.
//
// All servers are up at once, each kept to the same processor; a generator on the other one asks each in turn for a second or two, round by
// round, so that a slow minute of the machine meets all of them. What counts is the ratio within a round. The whole happens in a network
// namespace of its own; nothing of it is left.
//
// It judges nothing: there are no bounds in it.
//
// It also attacks Holdfast's server, in each of several ways for some seconds, while honest clients ask it: what they notice, what the
// attackers get, and what it costs the server.
//
//	names measure [-rounds N] [-seconds S] [-servers a,b] > report.json
//	names page < report.json       the section for docs/benchmarks.md
//	names plot < report.json       the picture, as SVG
//	names fire [-seconds S] [-rate N] [-attacks a,b] > fire.json
//	names firepage < fire.json     the section for docs/benchmarks.md
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// roles are what the program can be. The last three it is for itself.
var roles = map[string]func(arguments []string) error{
	"measure":  measureCommand,
	"page":     func([]string) error { return render(page) },
	"plot":     func([]string) error { return render(plot) },
	"fire":     fireCommand,
	"firepage": func([]string) error { return render(firePage) },
	"serve":    serveCommand,
	"ask":      askCommand,
	"attack":   attackCommand,
}

// render writes a report in another form.
func render[R any](form func(R) string) error {
	var r R
	if err := json.NewDecoder(os.Stdin).Decode(&r); err != nil {
		return fmt.Errorf("reading a report from standard input: %w", err)
	}
	_, err := io.WriteString(os.Stdout, form(r))
	return err
}

func main() {
	if len(os.Args) < 2 || roles[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: names measure > report.json; names page|plot < report.json; names fire > fire.json; names firepage < fire.json")
		os.Exit(2)
	}
	if err := roles[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "names:", err)
		os.Exit(1)
	}
}
