package sim

import (
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/tenure"
)

// manyPM is how many storms of a thousand have more nodes than observe one. Each costs as much as some five others.
const manyPM = 20

// Generate is the scenario of a seed: three of four are a storm of random faults, the others a directed story with random particulars.
func Generate(seed uint64) Scenario {
	r := newRandom(seed, 0)
	s := Scenario{
		Seed: seed, Story: "storm", Nodes: pick(r, 1, 2, 3, 3, 3, 4, 4, 5, 5, 6, 7), Multiplier: pick(r, 2, 3, 3, 3, 4),
		Interval:  time.Duration(pick(r, 10, 20, 50, 50, 100, 100, 100, 200)) * time.Millisecond,
		Addresses: 2 + r.below(6), Services: r.below(4), Networks: pick(r, 1, 1, 1, 2), Static: r.chance(200), External: r.chance(300), Unguarded: r.chance(200),
		Delay: time.Duration(pick(r, 300, 500, 2000, 5000)) * time.Microsecond, LossPM: pick(r, 0, 0, 0, 5, 50, 200),
	}
	if !s.inTime(s.Interval) {
		s.Interval = 50 * time.Millisecond
	}
	if r.chance(250) {
		return directed[r.below(len(directed))].make(s, r)
	}
	if r.chance(manyPM) { // with heartbeats that are seldom, so that it can be afforded
		s.Nodes, s.Interval = tenure.MaxObservers+1+r.below(MaxNodes-tenure.MaxObservers), time.Duration(pick(r, 100, 200))*time.Millisecond
	}
	if own := newRandom(seed, 4); s.Nodes == 2 && own.chance(600) { // what is left to chance elsewhere stays as it is
		s = s.withoutWitness(own)
	}
	at := 3 * time.Second
	for range 1 + r.below(12) {
		at += r.between(0, 600*time.Millisecond)
		s.Faults = append(s.Faults, anyFault(s, r, at))
	}
	s.Storm = at + time.Second
	return s.inOrder()
}

// withoutWitness is a scenario of two nodes that ask the gateway, which is away now and then.
func (s Scenario) withoutWitness(r *random) Scenario {
	s.Nodes, s.NoWitness = 2, true
	for range r.below(4) {
		at := 3*time.Second + r.between(0, 4*time.Second)
		s.Faults = append(s.Faults, Fault{At: at, Kind: Gateway, Node: r.below(3), Lasts: r.between(20*time.Millisecond, 2*time.Second)})
	}
	return s
}

// kinds are the kinds of a storm's faults; what is there twice comes twice as often.
var kinds = []FaultKind{
	Kill, Kill, Kill, Power, Power, PowerLeader, Stop, Freeze, Freeze, Freeze, Suspend, Slow, GuardKill, GuardFreeze, Deaf, Mute, Cut, Cut, Partition, Partition,
	Switch, Switch, Loss, Late, StoreAway, StoreLeader, StoreLeader, SlowDisk, Stale, Unanswered, ClockStep, Span, Carrier, Check, Drain, Rebalance,
	ShrinkPool, LeavePool, SlowKernel, SpreadServices, DeclareDead,
}

// anyFault is some fault that begins at a time.
func anyFault(s Scenario, r *random, at time.Duration) Fault {
	f := Fault{At: at.Round(time.Microsecond), Kind: pick(r, kinds...), Node: 1 + r.below(s.Nodes)}
	long := pick(r, 100*time.Millisecond, 400*time.Millisecond, 1500*time.Millisecond, 4*time.Second)
	f.Lasts = r.between(long/10, long).Round(time.Microsecond)
	switch f.Kind {
	case Deaf, Mute, Cut:
		f.Other = pick(r, 0, 0, 1+r.below(s.Nodes))
	case Partition:
		f.Node, f.Amount = 0, r.below(1<<(s.Nodes+1))
	case Switch:
		f.Node, f.Other = 0, r.below(s.Networks+1)
	case Loss:
		f.Node, f.Other, f.Amount = pick(r, 0, 0, f.Node), pick(r, 0, 0, 1+r.below(s.Nodes)), pick(r, 50, 300, 800)
	case Late:
		f.Node, f.Other, f.Amount = pick(r, 0, f.Node, f.Node), pick(r, 0, 0, 1+r.below(s.Nodes)), pick(r, 5, 30, 200)
	case Slow, SlowKernel:
		f.Amount = pick(r, 5, 30, 200)
	case DeclareDead:
		f.Node = pick(r, 0, f.Node)
	case StoreAway, StoreLeader:
		f.Node = 0
	case PowerLeader:
		f.Node = 0
	case SlowDisk:
		f.Node, f.Amount = 0, pick(r, 50, 300, 1500)
	case ClockStep:
		f.Amount = pick(r, -3600_000, -2000, 2000, 3600_000)
	case Span:
		f.Node, f.Amount, f.Lasts = 0, s.anyInterval(r), 0
	case Rebalance, SpreadServices:
		f.Lasts = 0
	case ShrinkPool:
		f.Node, f.Amount = 0, 1+r.below(s.Addresses)
	}
	return f
}

// inOrder is a scenario with its faults in the order of their beginning.
func (s Scenario) inOrder() Scenario {
	s.Faults = slices.Clone(s.Faults)
	slices.SortStableFunc(s.Faults, func(a, b Fault) int { return int(a.At - b.At) })
	return s
}

// anyInterval is some interval of heartbeats, in milliseconds: one at which acknowledgements come in time as long as nothing is wrong.
func (s Scenario) anyInterval(r *random) int {
	interval := pick(r, 10, 20, 50, 100, 200, 300)
	if !s.inTime(time.Duration(interval) * time.Millisecond) {
		return 50
	}
	return interval
}
