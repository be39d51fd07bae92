package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// fault is something that happens to a node, and how it is mended. The victim of storeLeader is the node whose member leads the store.
type fault struct {
	name        string
	storeLeader bool
	bar         func(interval, span time.Duration) bar
	bound       func(span time.Duration) time.Duration // what docs/failover.md says of it, with room for a machine of two cores that runs the whole cluster
	begin, mend func(ctx context.Context, f *failover, victim string) error
	stays       bool // the addresses are where they were, or come back by themselves
}

// room is what a machine of two cores that runs the whole cluster may be late by.
const room = 500 * time.Millisecond

// blink is for how long the switch is dead.
const blink = 300 * time.Millisecond

// The bounds: a death is noticed when no heartbeat has come for a span, whoever led the store; what an operator asks for waits for
// no span; and after a dead switch every node takes back what it held within two intervals.
func afterDeath(span time.Duration) time.Duration { return span + room }
func afterOrder(time.Duration) time.Duration      { return room }
func afterBlink(span time.Duration) time.Duration { return blink + span + room }

var faults = []fault{
	{name: "link-cut", bar: barOfDeath, bound: afterDeath, begin: ask("cut", false), mend: ask("heal", false)},
	{name: "agent-killed", bar: barOfDeath, bound: afterDeath, begin: ask("kill", true), mend: ask("start", true)},
	{name: "daemons-killed", bar: barOfDeath, bound: afterDeath, begin: killDaemons, mend: startDaemons},
	{name: "agent-frozen", bar: barOfDeath, bound: afterDeath, begin: ask("freeze", true), mend: ask("thaw", true)},
	{name: "node-frozen", bar: barOfDeath, bound: afterDeath, begin: ask("freeze", false), mend: ask("thaw", false)},
	{name: "node-killed", bar: barOfDeath, bound: afterDeath, begin: ask("kill", false), mend: startAgain},
	{name: "store-leader-killed", storeLeader: true, bar: barOfDeath, bound: afterDeath, begin: ask("kill", false), mend: startAgain},
	{name: "switch-dead-300ms", stays: true, bar: barOfBlink, bound: afterBlink, begin: blinkSwitch, mend: nothing},
	{name: "graceful-stop", bar: barOfOrder, bound: afterOrder, begin: ask("stop", true), mend: ask("start", true)},
	{name: "planned-move", bar: barOfOrder, bound: afterOrder, begin: command("node", "drain"), mend: command("node", "undrain")},
}

func chosenFaults(names []string) ([]fault, error) {
	if len(names) == 0 {
		return faults, nil
	}
	var chosen []fault
	for _, name := range names {
		i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
		if i < 0 {
			var known []string
			for _, f := range faults {
				known = append(known, f.name)
			}
			return nil, fmt.Errorf("there is no fault %q; there are %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, faults[i])
	}
	return chosen, nil
}

// What faults are made of.

func ask(op string, agent bool) func(context.Context, *failover, string) error {
	return func(_ context.Context, f *failover, victim string) error {
		return f.tell(request{Op: op, Member: victim, Agent: agent})
	}
}

// killDaemons kills a node's agent and its guard at once, as the end of both their cgroups does. Nobody takes the addresses off: they are
// taken by others at detection time, and the kernel lets go when their lifetime ends.
func killDaemons(_ context.Context, f *failover, victim string) error {
	return f.tell(request{Op: "kill", Member: victim, Agent: true, Guard: true})
}

func startDaemons(_ context.Context, f *failover, victim string) error {
	return f.tell(request{Op: "start", Member: victim, Agent: true, Guard: true})
}

// startAgain powers a node on, with the echo server that the stage gave it.
func startAgain(ctx context.Context, f *failover, victim string) error {
	if err := f.tell(request{Op: "start", Member: victim}); err != nil {
		return err
	}
	return f.startEcho(ctx, victim)
}

func blinkSwitch(ctx context.Context, f *failover, _ string) error {
	if err := f.tell(request{Op: "switch off"}); err != nil {
		return err
	}
	pause(ctx, blink)
	return f.tell(request{Op: "switch on"})
}

func command(arguments ...string) func(context.Context, *failover, string) error {
	return func(ctx context.Context, f *failover, victim string) error {
		return f.holdfast(ctx, f.nodes[0], append(slices.Clone(arguments), victim)...)
	}
}

func nothing(context.Context, *failover, string) error { return nil }
