package sim

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Scenario is everything that a history depends on. Two plays of one scenario are the same.
type Scenario struct {
	Seed       uint64        // of everything that is left to chance: delays, losses, the lateness of processes
	Story      string        // what it is about: "storm", or the name of a directed one
	Nodes      int           // 1 to MaxNodes
	Interval   time.Duration // between two heartbeats
	Multiplier int           // heartbeats that a lease lasts
	Addresses  int           // of the dynamic pool
	Static     bool          // there is a static pool, too, with one address for each node
	Services   int           // service addresses
	Networks   int           // over which nodes reach each other: 1 or 2
	External   bool          // the store is none of the nodes
	Unguarded  bool          // nodes have no guard
	NoWitness  bool          // of two nodes each asks the gateway whether it may go on without the other
	LossPM     int           // messages lost all the time, in a thousand, until the faults end
	Delay      time.Duration // that a message takes at most, as long as nothing is wrong
	Storm      time.Duration // until when faults may begin; at the latest then all of them end
	Faults     []Fault       // in the order of their beginning
}

// MaxNodes bounds a scenario. It is more than observe one node (tenure.MaxObservers).
const MaxNodes = 20

// Fault is one thing that goes wrong, or that an operator does, for a time.
type Fault struct {
	At, Lasts time.Duration
	Kind      FaultKind
	Node      int // on which node; 0: all of them, or none in particular
	Other     int // the other end of a link; 0: all
	Amount    int // what it means depends on the kind
}

// FaultKind is what goes wrong.
type FaultKind string

// The kinds of faults. A time that a fault lasts ends it, if that comes before the end of the storm.
const (
	Kill           FaultKind = "kill"            // the agent dies, and is started again after
	Power          FaultKind = "power"           // the machine loses its power
	PowerLeader    FaultKind = "power-leader"    // the machine that leads the store then, or owns an address, loses its power
	Stop           FaultKind = "stop"            // the agent is stopped in an orderly way, and started again after
	Freeze         FaultKind = "freeze"          // the agent's process stands still
	Suspend        FaultKind = "suspend"         // the whole machine stands still
	Slow           FaultKind = "slow"            // the agent does everything late, by up to Amount milliseconds
	GuardKill      FaultKind = "guard-kill"      // the guard dies, and is started again after
	GuardFreeze    FaultKind = "guard-freeze"    // the guard stands still
	Deaf           FaultKind = "deaf"            // the node hears nothing of the other
	Mute           FaultKind = "mute"            // the node is not heard by the other
	Cut            FaultKind = "cut"             // both
	Partition      FaultKind = "partition"       // nodes whose bit is set in Amount, and those whose is not, hear nothing of each other
	Switch         FaultKind = "switch"          // nobody hears anybody, on the network Other, counted from 1; 0: on all
	Loss           FaultKind = "loss"            // Amount in a thousand of what the node sends to the other are lost; 0: of all, to all
	Late           FaultKind = "late"            // what the node sends to the other takes up to Amount milliseconds longer; 0: of all, to all
	StoreAway      FaultKind = "store-away"      // the store has no quorum
	StoreLeader    FaultKind = "store-leader"    // the store has no leader
	SlowDisk       FaultKind = "slow-disk"       // the store takes up to Amount milliseconds longer for each write
	Stale          FaultKind = "stale"           // the node's watch of the store stands still
	Unanswered     FaultKind = "unanswered"      // the node gets no answers of the store to what it writes, though it may be written
	ClockStep      FaultKind = "clock-step"      // the wall clock of the node is set by Amount milliseconds
	Span           FaultKind = "span"            // the configuration has an interval of Amount milliseconds, while it lasts
	Carrier        FaultKind = "carrier"         // the node's interface of the pools has no carrier
	Check          FaultKind = "check"           // the node's check of the dynamic pool fails
	Drain          FaultKind = "drain"           // an operator drains the node
	Rebalance      FaultKind = "rebalance"       // an operator asks for a rebalance
	ShrinkPool     FaultKind = "shrink-pool"     // the dynamic pool lacks its last Amount addresses
	LeavePool      FaultKind = "leave-pool"      // the node is no member of the dynamic pool
	SlowKernel     FaultKind = "slow-kernel"     // the node's kernel takes up to Amount milliseconds longer to change an address
	Gateway        FaultKind = "gateway"         // the gateway does not answer the node; 0: nobody
	SpreadServices FaultKind = "spread-services" // an operator evens out the service addresses
	DeclareDead    FaultKind = "declare-dead"    // an operator declares the node dead, or all, if it has no power then; while it lasts he tries again
)

// Kinds are the kinds of faults that there are.
func Kinds() []FaultKind {
	return []FaultKind{
		Kill, Power, PowerLeader, Stop, Freeze, Suspend, Slow, GuardKill, GuardFreeze, Deaf, Mute, Cut, Partition, Switch, Loss, Late, StoreAway, StoreLeader,
		SlowDisk, Stale, Unanswered, ClockStep, Span, Carrier, Check, Drain, Rebalance, ShrinkPool, LeavePool, SlowKernel, SpreadServices,
		DeclareDead, Gateway,
	}
}

func (f Fault) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%8.3fs %-13s", f.At.Seconds(), f.Kind)
	switch {
	case f.Node > 0 && f.Other > 0:
		fmt.Fprintf(&b, " node%d, node%d", f.Node, f.Other)
	case f.Node > 0:
		fmt.Fprintf(&b, " node%d", f.Node)
	case f.Other > 0:
		fmt.Fprintf(&b, " %d", f.Other)
	}
	if f.Amount != 0 {
		fmt.Fprintf(&b, " (%d)", f.Amount)
	}
	if f.Lasts > 0 {
		fmt.Fprintf(&b, " for %s", f.Lasts.Round(time.Millisecond))
	}
	return b.String()
}

// String says what happens, for people.
func (s Scenario) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %s: %d nodes, heartbeats %s x %d, %d addresses, %d service addresses", s.Seed, s.Story, s.Nodes, s.Interval, s.Multiplier, s.Addresses, s.Services)
	for _, more := range []struct {
		is   bool
		text string
	}{{s.Static, "a static pool"}, {s.Networks > 1, "two networks"}, {s.External, "a store outside"}, {s.Unguarded, "no guard"}, {s.NoWitness, "no witness"}} {
		if more.is {
			b.WriteString(", " + more.text)
		}
	}
	fmt.Fprintf(&b, ", messages take up to %s", s.Delay)
	if s.LossPM > 0 {
		fmt.Fprintf(&b, " and %.1f%% are lost", float64(s.LossPM)/10)
	}
	fmt.Fprintf(&b, "; all faults end after %s\n", s.Storm.Round(time.Millisecond))
	for _, f := range s.Faults {
		b.WriteString("  " + f.String() + "\n")
	}
	return b.String()
}

// Encode writes the scenario so that Decode reads it.
func (s Scenario) Encode() []byte {
	data, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		panic("sim: a scenario cannot be written: " + err.Error()) // it is made of numbers and names
	}
	return append(data, '\n')
}
