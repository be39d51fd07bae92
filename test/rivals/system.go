package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// The cast: four nodes, of which the last is the victim of every fault, and one client. Twelve addresses, three for each node.
var nodes = []string{"node1", "node2", "node3", "node4"}

const (
	victim       = "node4"
	client       = "client1"
	perNode      = 3
	firstAddress = 100 // 10.10.0.100
)

// addresses are the addresses that move.
func addresses() []string {
	var all []string
	for i := range perNode * len(nodes) {
		all = append(all, fmt.Sprintf("10.10.0.%d", firstAddress+i))
	}
	return all
}

// system is one way to make addresses move, with its settings.
type system interface {
	// about is its name, its settings in words, the program that it needs, and how to ask that for its version.
	about() about
	// files makes what its daemons need in a directory of their own, and returns the lab file and further arguments for `lab up`.
	files(directory string) (file string, more []string, err error)
	// healthy says whether every node takes part, in the opinion of the system itself.
	healthy(ctx context.Context, l *lab) error
	// even asks the system to spread the addresses evenly, where it does not do so by itself.
	even(ctx context.Context, l *lab) error
	// stop ends the victim's daemon as its manual says.
	stop(ctx context.Context, l *lab) error
	// move takes all addresses from the victim while everything is well, to the other nodes; back returns them. held are the victim's.
	move(ctx context.Context, l *lab, held []string) error
	back(ctx context.Context, l *lab, held []string) error
	// connected is told of a TCP connection to the victim, for which the system may need to be told; it returns when the
	// system's other nodes know of it, if they are ever to.
	connected(ctx context.Context, l *lab, far, near string) error
}

// about is what is to be known of a system before it runs.
type about struct {
	name, settings string
	program        string   // without which it cannot run
	debian         string   // the package that has it
	version        []string // a command that prints the version
	processes      []string // its processes, for endProcesses
	period         time.Duration
	slow           bool // its gaps are seconds: once each round is enough, and a few labs of it do not disturb each other
}

// systems are all that are measured.
func systems(holdfast string) []system {
	return []system{
		holdfastSystem{holdfast: holdfast, intervalMS: 10, multiplier: 3},
		holdfastSystem{holdfast: holdfast, intervalMS: 50, multiplier: 3},
		keepalived{advert: "0.01"},
		keepalived{advert: "0.1"},
		keepalived{},
		ctdb{name: "ctdb tuned", interval: 1, limit: 3, tickle: 1},
		ctdb{name: "ctdb"},
	}
}

// chosen picks by name; without names it is all. An unknown name is an error.
func chosen[T any](all []T, name func(T) string, names []string) ([]T, error) {
	if len(names) == 0 {
		return all, nil
	}
	var picked []T
	for _, wanted := range names {
		i := slices.IndexFunc(all, func(one T) bool { return name(one) == wanted })
		if i < 0 {
			var known []string
			for _, one := range all {
				known = append(known, name(one))
			}
			return nil, fmt.Errorf("there is no %q; there are %s", wanted, strings.Join(known, ", "))
		}
		picked = append(picked, all[i])
	}
	return picked, nil
}

// absent says why a system cannot run here; "" if its program is there.
func (a about) absent() string {
	if _, err := exec.LookPath(a.program); err != nil {
		return fmt.Sprintf("%s is not installed (Debian package %s)", a.program, a.debian)
	}
	return ""
}

// firstLine is the first line of what a program says of itself, on whichever stream, as far as the first comma.
func firstLine(ctx context.Context, argv []string) string {
	out, _ := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput() // a version is not worth an error
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	line, _, _ = strings.Cut(line, ", ")
	return line
}

// scriptLab is the lab in which every node runs a script where it would run the agent. The script has the node's name in
// HOLDFAST_LAB_NODE.
func scriptLab(script string) (file string, more []string) {
	file = fmt.Sprintf("lab: {nodes: %d, clients: 1, resolver: none}\n", len(nodes))
	return file, []string{"--no-wait", "--agent-command", "/bin/sh", "--agent-command", script}
}
