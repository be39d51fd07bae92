package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// failoverResult is what `lab run failover --output json` prints.
type failoverResult struct {
	Scenario string         `json:"scenario"`
	Pass     bool           `json:"pass"`
	Cases    []failoverCase `json:"cases"`
}

// failoverCase is one kind of fault, done several times.
type failoverCase struct {
	Fault      string     `json:"fault"`
	IntervalMS int        `json:"interval_ms"` // the heartbeat settings of the cluster
	Multiplier int        `json:"multiplier"`
	Runs       int        `json:"runs"`
	GapMS      percentile `json:"gap_ms"`   // the longest that any pool address did not answer a client's packets
	BoundMS    float64    `json:"bound_ms"` // what no run may exceed

	// Of the node's own addresses, which are watched: UDP datagrams, one a millisecond, that were not echoed, the most of any; and how
	// long an idle TCP client was without a connection, the longest of any. Null: none lost its connection.
	LostProbes  percentile  `json:"lost_probes"`
	ReconnectMS *percentile `json:"reconnect_ms"`
	Unnoticed   int         `json:"unnoticed"` // runs after which an idle client had not noticed for seconds

	Pass bool   `json:"pass"`
	Why  string `json:"why,omitempty"` // why it did not pass
}

// percentile is a distribution in short; by the nearest rank, so that with fewer than a hundred runs the 99th is the longest.
type percentile struct {
	Median float64 `json:"p50"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

// fault is something that happens to a node, and how it is mended. The victim of storeLeader is the node whose member leads the store.
type fault struct {
	name        string
	storeLeader bool
	bound       func(span time.Duration) time.Duration // what docs/failover.md says of it, with room for a machine of two cores that runs the whole cluster
	begin, mend func(ctx context.Context, f *failover, victim string) error
	stays       bool // the addresses are where they were, or come back by themselves
}

// room is what a machine of two cores that runs the whole cluster may be late by.
const room = 500 * time.Millisecond

// blink is for how long the switch is dead.
const blink = 300 * time.Millisecond

// The bounds: a death is noticed when no heartbeat has come for a span, whoever led the store; what an operator asks for waits for
// nothing; and after a dead switch every node takes back what it held within two intervals.
func afterDeath(span time.Duration) time.Duration { return span + room }
func afterOrder(time.Duration) time.Duration      { return 250 * time.Millisecond }
func afterBlink(span time.Duration) time.Duration { return blink + span + room }

var faults = []fault{
	{name: "link-cut", bound: afterDeath, begin: ask("cut", false), mend: ask("heal", false)},
	{name: "agent-killed", bound: afterDeath, begin: ask("kill", true), mend: ask("start", true)},
	{name: "agent-frozen", bound: afterDeath, begin: ask("freeze", true), mend: ask("thaw", true)},
	{name: "node-frozen", bound: afterDeath, begin: ask("freeze", false), mend: ask("thaw", false)},
	{name: "node-killed", bound: afterDeath, begin: ask("kill", false), mend: startAgain},
	{name: "store-leader-killed", storeLeader: true, bound: afterDeath, begin: ask("kill", false), mend: startAgain},
	{name: "switch-dead-300ms", stays: true, bound: afterBlink, begin: blinkSwitch, mend: nothing},
	{name: "graceful-stop", bound: afterOrder, begin: ask("stop", true), mend: ask("start", true)},
	{name: "planned-move", bound: afterOrder, begin: command("node", "drain"), mend: command("node", "undrain")},
}

// failover is the scenario while it plays.
type failover struct {
	*stage
	nodes   []string
	probe   *program
	holders map[string]string // of the addresses, while the cluster is even
}

func runFailover(ctx context.Context, out *transcript, o runOptions) (any, bool, error) {
	result := failoverResult{Scenario: "failover", Pass: true, Cases: []failoverCase{}}
	chosen, err := chosenFaults(o.faults)
	if err != nil {
		return result, false, err
	}
	stage, err := newStageWith(ctx, failoverFile(o), out, o.keep, (*stage).startEcho)
	if err != nil {
		return result, false, err
	}
	f := &failover{stage: stage, nodes: stage.plan.Names(KindNode)}
	err = f.play(ctx, chosen, o, &result)
	if err = errors.Join(err, stage.close()); err != nil {
		return result, false, err
	}
	f.show(result)
	return result, result.Pass, nil
}

// failoverFile is a lab of four nodes, of which the first three host the store.
func failoverFile(o runOptions) File {
	return File{Nodes: 4, Clients: 1, Resolver: ResolverNone,
		Cluster: fmt.Sprintf("cluster: {name: lab, heartbeat-interval-ms: %d, heartbeat-multiplier: %d}\n", o.intervalMS, o.multiplier) + poolYAML("", "10.10.0.100-10.10.0.111", `"1:eth0", "2:eth0", "3:eth0", "4:eth0"`, "            rebalance-policy: manual\n")}
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

func (f *failover) play(ctx context.Context, chosen []fault, o runOptions, result *failoverResult) error {
	span := time.Duration(o.intervalMS*o.multiplier) * time.Millisecond
	var err error
	if f.holders, err = f.even(ctx, f.nodes); err != nil {
		return err
	}
	if f.probe, err = f.startProbe(ctx, "client1", slices.Sorted(maps.Keys(f.holders))); err != nil {
		return err
	}
	for _, fault := range chosen {
		f.out.title("%s, %d times", fault.name, o.runs)
		c := failoverCase{Fault: fault.name, IntervalMS: o.intervalMS, Multiplier: o.multiplier, Runs: o.runs, BoundMS: milliseconds(fault.bound(span)), Pass: true}
		var gaps, lost, reconnects []float64
		for run := range o.runs {
			seen, err := f.once(ctx, fault)
			if err != nil {
				return fmt.Errorf("%s, run %d: %w", fault.name, run+1, err)
			}
			gaps, lost = append(gaps, seen.gapMS), append(lost, float64(seen.lost))
			if seen.unnoticed {
				c.Unnoticed++
			} else if seen.broke {
				reconnects = append(reconnects, seen.reconnectMS)
			}
			f.out.say("%s", seen)
		}
		c.GapMS, c.LostProbes = percentiles(gaps), percentiles(lost)
		if len(reconnects) > 0 {
			sum := percentiles(reconnects)
			c.ReconnectMS = &sum
		}
		if c.GapMS.Max > c.BoundMS {
			c.Pass, c.Why = false, fmt.Sprintf("an address did not answer for %.0f ms; the bound is %.0f ms", c.GapMS.Max, c.BoundMS)
		}
		result.Pass = result.Pass && c.Pass
		result.Cases = append(result.Cases, c)
	}
	return nil
}

// followed is how long the owner of an address may take to tell its successor of a new client (docs/failover.md). One that has only just
// come is not known, and the idle client stands for those that have been there for a while.
const followed = 300 * time.Millisecond

// idlePatience is for how long after the addresses answer again an idle client may go on without having noticed.
const idlePatience = 5 * time.Second

// seen is what the client saw of one fault.
type seen struct {
	gapMS       float64 // the longest that any address did not answer
	lost        int     // datagrams to any one of the victim's addresses
	broke       bool    // an idle client lost its connection
	reconnectMS float64 // the longest that one was without
	unnoticed   bool    // one had not noticed that its connection is no more when idlePatience was over
}

func (s seen) String() string {
	text := fmt.Sprintf("%.1f ms, %d probes lost", s.gapMS, s.lost)
	if s.unnoticed {
		return text + ", and an idle client has not noticed"
	}
	if s.broke {
		text += fmt.Sprintf(", connected again after %.1f ms", s.reconnectMS)
	}
	return text
}

// othersInterval is the time between two probes of an address that is not watched, in milliseconds.
const othersInterval = 5

// sights reads a report of the probe.
func sights(r probeReport) seen {
	var s seen
	for address, silence := range r.LongestMS {
		if _, watched := r.Watched[address]; !watched {
			silence -= othersInterval // or it could not be less
		}
		s.gapMS = max(s.gapMS, silence)
	}
	for _, one := range r.Watched {
		s.lost = max(s.lost, one.Lost)
		s.broke = s.broke || one.Broke
		s.reconnectMS = max(s.reconnectMS, one.ReconnectMS)
	}
	return s
}

// once does a fault to a cluster that is even, measures, and makes the cluster whole again.
func (f *failover) once(ctx context.Context, fault fault) (s seen, err error) {
	victim := f.nodes[len(f.nodes)-1]
	if fault.storeLeader {
		if victim, err = f.leader(ctx); err != nil {
			return s, err
		}
	}
	if err := f.watch(ctx, f.probe, f.heldBy(victim)); err != nil {
		return s, err
	}
	pause(ctx, followed)
	if _, err := f.gap(ctx, f.probe); err != nil { // from here on it is counted
		return s, err
	}
	if err := fault.begin(ctx, f, victim); err != nil {
		return s, err
	}
	// The client is asked first, and the cluster only when the client is well again: a command that starts takes a processor for
	// milliseconds, and would be seen.
	if s, err = f.look(ctx, victim, fault.stays); err != nil {
		return s, err
	}
	if !fault.stays {
		if _, err := f.settled(ctx, without(f.nodes, victim)); err != nil {
			return s, err
		}
		if s, err = f.look(ctx, victim, fault.stays); err != nil {
			return s, err
		}
	}
	if err := fault.mend(ctx, f, victim); err != nil {
		return s, err
	}
	limited, cancel := context.WithTimeout(ctx, servingPatience)
	defer cancel()
	if err := WaitServing(limited, f.Directory, f.plan, f.nodes, io.Discard); err != nil {
		return s, err
	}
	f.holders, err = f.even(ctx, f.nodes)
	return s, err
}

// look waits until every address answers and every idle client is connected, to another node than the victim unless the addresses
// stay, and says what was seen since the last reset.
func (f *failover) look(ctx context.Context, victim string, stays bool) (s seen, err error) {
	if err := f.answering(ctx, f.probe); err != nil {
		return s, err
	}
	for began := time.Now(); ; {
		var report probeReport
		if err := f.probe.ask("report", &report); err != nil {
			return s, err
		}
		s = sights(report)
		if report.standing() && (stays || !report.reaches(victim)) {
			return s, nil
		}
		if s.unnoticed = time.Since(began) > idlePatience; s.unnoticed || !pause(ctx, clientPoll) {
			return s, ctx.Err()
		}
	}
}

// clientPoll is how often the client is asked how it is.
const clientPoll = 20 * time.Millisecond

// heldBy are a node's addresses.
func (f *failover) heldBy(node string) []string {
	var list []string
	for _, address := range slices.Sorted(maps.Keys(f.holders)) {
		if f.holders[address] == node {
			list = append(list, address)
		}
	}
	return list
}

// leader is the node whose member leads the store.
func (f *failover) leader(ctx context.Context) (string, error) {
	var leader string
	err := f.wait(ctx, "the store has a leader", func() (bool, error) {
		data, err := f.Output(ctx, f.nodes[0], "holdfast", "status", "--output", "json")
		if err != nil {
			return false, err
		}
		var status struct {
			Store struct {
				Leader string `json:"leader"`
			} `json:"store"`
		}
		err = json.Unmarshal(data, &status)
		leader = status.Store.Leader
		return slices.Contains(f.nodes, leader), err
	})
	return leader, err
}

func (f *failover) show(result failoverResult) {
	var rows [][]string
	for _, c := range result.Cases {
		again := "-"
		if c.ReconnectMS != nil {
			again = fmt.Sprintf("%.0f / %.0f ms", c.ReconnectMS.Median, c.ReconnectMS.Max)
		}
		rows = append(rows, []string{
			c.Fault, strconv.Itoa(c.Runs), whole(c.GapMS.Median), whole(c.GapMS.P99), whole(c.GapMS.Max), whole(c.BoundMS),
			fmt.Sprintf("%.0f / %.0f", c.LostProbes.Median, c.LostProbes.Max), again,
		})
	}
	f.out.title("How long an address did not answer, from a client's own packets")
	f.out.table([]string{"FAULT", "RUNS", "MEDIAN", "P99", "LONGEST", "BOUND", "PROBES LOST", "TCP AGAIN"}, rows)
	f.out.say("Probes lost: UDP datagrams, one a millisecond, to any one of the node's addresses; TCP again: how long an idle client of one was")
	f.out.say("without a connection. Both: median / longest.")
	for _, c := range result.Cases {
		if !c.Pass {
			f.out.verdict(false, "%s: %s", c.Fault, c.Why)
		}
	}
	f.out.verdict(result.Pass, "every address answered again after every fault; nothing of it is left on this machine")
}

func whole(ms float64) string { return fmt.Sprintf("%.0f ms", ms) }

// percentiles sums up what was measured.
func percentiles(values []float64) percentile {
	sorted := slices.Sorted(slices.Values(values))
	at := func(share float64) float64 { // by the nearest rank: the least value that at least this share of all does not exceed
		return sorted[int(math.Ceil(share*float64(len(sorted))))-1]
	}
	return percentile{Median: at(0.5), P99: at(0.99), Max: sorted[len(sorted)-1]}
}

// What faults are made of.

func ask(op string, agent bool) func(context.Context, *failover, string) error {
	return func(_ context.Context, f *failover, victim string) error {
		return f.tell(request{Op: op, Member: victim, Agent: agent})
	}
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
