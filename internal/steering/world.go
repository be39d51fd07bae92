// Package steering decides, for one node, what the cluster's addresses need next: what should be on record for each pool
// and service address, what this node should have on its interfaces, and who may be named in an answer.
//
// It guarantees that a proposal changes the owner of an address only in the ways that tenure allows, that every change
// carries its reason, and that equal worlds yield equal proposals on every node. It is pure: a World and the time go in,
// values come out. A World is not modified; concurrent readers are safe.
//
// It does not write records, touch interfaces, answer names, or measure anything: the agent does, with what it says here.
package steering

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
	"github.com/holdfast/holdfast/internal/tenure"
)

// Node is one node as the store, the other nodes and its own report show it.
type Node struct {
	LNN         int
	Name        string
	Weight      int                // its own weight in the configuration; 0 counts as 1
	Witness     bool               // it hosts nothing
	Present     bool               // its report is in the store, and that incarnation is not known to be over
	Incarnation tenure.Incarnation // of the member record; the last one seen when the node is not present
	Over        tenure.Incarnation // every incarnation up to this one is known to be over
	Ready       bool               // its first full round of checks is done and it knows the configuration
	Waiting     string             // what it waits for while it is not ready, by its own word
	Draining    bool               // an operator asked it to give everything away
	Leaving     bool               // its agent is shutting down
	Left        bool               // its agent was stopped in an orderly way
	Declared    bool               // an operator declared it dead, and it has not come back
	Lapsed      string             // why it may hold nothing that moves; a node knows this of itself alone
	Faults      map[string]string  // interface to what is wrong with it; a missing interface is fit
	PoolFaults  map[cluster.PoolID]string
	AbsentSince time.Time     // when it was found over, by the observing node's clock; zero when present
	FitSince    time.Time     // when it last became ready and not draining, by the observing node's clock
	Outage      time.Duration // how long it was away before that
	HoldDown    time.Duration // how long it must stay fit before addresses may return; grows with flapping
	Trusted     bool          // an operator's rebalance gave it addresses during its hold-down, which is thereby over

	Mended      map[string]Mend         // interface to its last fault, when that is over
	MendedPools map[cluster.PoolID]Mend // pool to the last failure of its checks, when that is over
}

// Mend is the end of a fault, by the observing node's clock.
type Mend struct {
	At     time.Time
	Lasted time.Duration
}

// ServiceKey names one service address.
type ServiceKey struct {
	Subnet  cluster.SubnetID
	Address netip.Addr
}

// Loads are measurements of members by pool; connections are those to the pool's own addresses.
type Loads map[cluster.PoolID]map[cluster.Member]placement.Load

// World is all that a decision may look at.
type World struct {
	Config     *cluster.Config
	Self       int
	Nodes      map[int]Node
	Pools      map[cluster.PoolID]tenure.Record
	Services   map[ServiceKey]tenure.Statement
	Loads      Loads                  // the last measurements, for answers, of those pools that are decided by them
	Planned    Loads                  // those on which the plan on record rests; nil: the last
	PlannedAge time.Duration          // how long ago the planned ones were the last, at most placement.PlanInterval
	Idle       map[netip.Addr]bool    // addresses that are known to have no connection
	Released   map[netip.Addr]Release // addresses that are moving to this node and that their owners say they have let go of
	Given      map[netip.Addr]Release // of which this node, as the owner, has told whom they move to that it has let go
	Unready    map[netip.Addr]bool    // addresses that are asked away from this node, and stay until whom they go to could take them and be told so
	Renounced  map[netip.Addr]bool    // addresses of which this node, as their former next, is about to acknowledge that it will not take them
	Settling   bool                   // the cluster is starting and not all of its nodes have been heard: unowned pool addresses wait

	roll  *roll  // see ForReading
	notes *notes // see Recall
}

// Claim is the claim under which a member may be put on record now; zero when its node is not present.
func (w *World) Claim(m cluster.Member) tenure.Claim {
	node := w.node(m.LNN)
	if !node.Present || m.IsZero() {
		return tenure.Claim{}
	}
	return tenure.Claim{LNN: m.LNN, Interface: m.Interface, Incarnation: node.Incarnation}
}

// Over reports whether a claim's incarnation is known to be over.
func (w *World) Over(c tenure.Claim) bool {
	node := w.node(c.LNN)
	return c.Incarnation <= node.Over || node.Present && c.Incarnation < node.Incarnation
}

// settled reports whether nobody can act on an earlier statement any more.
func (w *World) settled(st tenure.Statement) bool { return st.Settled(w.Over(st.Former)) }

// step passes a change into a statement, with what is known of those who could act on it.
func (w *World) step(st tenure.Statement, c tenure.Change) (tenure.Statement, tenure.Outcome) {
	c.Over, c.Gone = w.Over(st.Owner), w.removed(st.Owner.LNN)
	c.NextOver, c.FormerOver = w.Over(st.Next), w.Over(st.Former)
	return st.Step(c)
}

// Release is an owner's word that it has let go of an address under one statement. It never takes it again by that one.
type Release struct {
	Owner tenure.Claim
	Epoch uint64
}

// Of reports whether the word was given under a statement.
func (r Release) Of(st tenure.Statement) bool {
	return !r.Owner.IsZero() && r.Owner == st.Owner && r.Epoch == st.Epoch && st.State() == tenure.Moving
}

// released reports whether this node may have an address that is moving to it: the owner has let go, and nobody else can take it.
func (w *World) released(address netip.Addr, st tenure.Statement, self tenure.Incarnation) bool {
	return st.To.LNN == w.Self && st.To.Incarnation == self && w.settled(st) && w.Released[address].Of(st)
}

// heir is who takes, or has taken, the address of an owner that is over: the former next as long as it has not acknowledged, else the
// next. It is nobody when both are over.
func (w *World) heir(st tenure.Statement) tenure.Claim {
	switch {
	case st.Owner.IsZero() || !w.Over(st.Owner) || st.Fixed:
	case !w.settled(st):
		return st.Former
	case !st.Next.IsZero() && !w.Over(st.Next):
		return st.Next
	}
	return tenure.Claim{}
}

// inherits reports whether this node takes, or has taken, an address whose owner is over, without waiting for the record to say so. One
// that is unfit does not: it is replaced as the next, and acknowledges that. Nor does one that has said it would not.
func (w *World) inherits(address netip.Addr, st tenure.Statement, self tenure.Incarnation, unfit string) bool {
	heir := w.heir(st)
	return heir.LNN == w.Self && heir.Incarnation == self && unfit == "" && !(heir == st.Former && w.Renounced[address])
}

// Holder is who holds an address as far as is known here: its owner, or its heir when the owner is over.
func (w *World) Holder(st tenure.Statement) tenure.Claim {
	if st.Owner.IsZero() || !w.Over(st.Owner) {
		return st.Owner
	}
	return w.heir(st)
}

// Silent reports whether a claim's node has no report in the store and yet is not known to be over: it may still hold, by
// the word of the other nodes.
func (w *World) Silent(c tenure.Claim) bool {
	return !c.IsZero() && !w.node(c.LNN).Present && !w.Over(c)
}

// Free reports whether an owner's end leaves an address to others: its incarnation is known to be over, and it held by a right
// that ends with it, or its node is no longer configured.
func (w *World) Free(st tenure.Statement) bool {
	return w.Over(st.Owner) && (!st.Fixed || w.removed(st.Owner.LNN))
}

// removed reports whether an operator took a node out of the configuration and it is not heard any more.
func (w *World) removed(lnn int) bool {
	return !w.configured(lnn) && !w.node(lnn).Present
}

// ownedElsewhere reports whether an address has an owner in another record than that of one pool, or than that of one service
// address. A change of the configuration brought it here, and that owner may not have heard of it: it has to let go first.
func (w *World) ownedElsewhere(address netip.Addr, but cluster.PoolID, butService cluster.SubnetID) bool {
	for id, record := range w.Pools {
		if id != but && !record[address].Owner.IsZero() {
			return true
		}
	}
	for key, st := range w.Services {
		if key.Address == address && key.Subnet != butService && !st.Owner.IsZero() {
			return true
		}
	}
	return false
}

// Unfit says why a node may hold nothing that moves on an interface, apart from what a pool's checks say; empty when it may.
func (w *World) Unfit(m cluster.Member) string {
	if why := w.unfitForAnything(m); why != "" {
		return why
	}
	if w.Dependent() == m.LNN {
		return dependence
	}
	return ""
}

// unfitForAnything says why a node may not even hold what does not move.
func (w *World) unfitForAnything(m cluster.Member) string {
	return w.listed(m.LNN).unfitOn(m.Interface)
}

// unfitOn is unfitForAnything for one of the node's interfaces.
func (at *listed) unfitOn(iface string) string {
	if at.unfit != "" || len(at.Faults) == 0 {
		return at.unfit
	}
	return at.Faults[iface]
}

// unfitNode says why a node may not hold anything on any interface.
func unfitNode(node *Node, known, configured bool) string {
	switch {
	case !known:
		return "it has never been heard"
	case !configured:
		return "it is no longer in the configuration"
	case !node.Present && node.Left:
		return "its agent was stopped"
	case !node.Present && node.Declared:
		return "an operator declared it dead"
	case !node.Present && node.Over >= node.Incarnation:
		return "it is down"
	case !node.Present:
		return "it has not reported yet"
	case node.Lapsed != "":
		return "it may not hold what moves: " + node.Lapsed
	case node.Leaving:
		return "it is shutting down"
	case node.Draining:
		return "it is being drained"
	case !node.Ready && node.Waiting != "":
		return "its agent has just started and waits for " + node.Waiting
	case !node.Ready:
		return "its agent has just started"
	}
	return ""
}

// Fitness says of each member of a pool why it may hold nothing of it, in order; empty when it may. A hold-down is no reason.
func Fitness(w *World, id cluster.PoolID, each func(m cluster.Member, node, unfit string)) {
	w = w.ForReading()
	site, exists := w.poolSite(id)
	if !exists {
		return
	}
	for _, m := range site.members {
		at := w.listed(m.LNN)
		each(m, at.name(m.LNN), w.unfitAt(at, id, site.static, m))
	}
}

// UnfitFor says why a member may hold nothing of a pool; empty when it may.
func (w *World) UnfitFor(id cluster.PoolID, m cluster.Member) string {
	return w.unfitFor(id, w.static(id), m)
}

// static reports whether there is a pool and its addresses do not move.
func (w *World) static(id cluster.PoolID) bool {
	pool, _, _, exists := w.Config.Pool(id)
	return exists && pool.AllocMethod == cluster.AllocStatic
}

// unfitFor is UnfitFor where it is known whether the pool is static.
func (w *World) unfitFor(id cluster.PoolID, static bool, m cluster.Member) string {
	return w.unfitAt(w.listed(m.LNN), id, static, m)
}

// unfitAt is unfitFor where the member's node has been found.
func (w *World) unfitAt(at *listed, id cluster.PoolID, static bool, m cluster.Member) string {
	if why := at.unfitOn(m.Interface); why != "" {
		return why
	}
	switch {
	case !static && w.Dependent() == m.LNN:
		return dependence
	case at.Witness:
		return "it is a witness and hosts nothing"
	case len(at.PoolFaults) == 0:
		return ""
	}
	return at.PoolFaults[id]
}

// Candidates are the members of a pool as placement sees them.
func (w *World) Candidates(id cluster.PoolID, now time.Time) []placement.Candidate {
	w = w.ForReading()
	site, exists := w.poolSite(id)
	if !exists {
		return nil
	}
	return w.candidates(site, nil, now)
}

// candidates appends the members of a pool to an empty list.
func (w *World) candidates(site poolSite, candidates []placement.Candidate, now time.Time) []placement.Candidate {
	candidates = slices.Grow(candidates, len(site.members))
	loads, age := w.plannedLoads(site.id)
	for _, m := range site.members {
		at := w.listed(m.LNN)
		candidate := placement.Candidate{Member: m, Node: at.name(m.LNN), Weight: at.weight(site.pool, m.LNN), Why: w.unfitAt(at, site.id, site.static, m)}
		if len(loads) > 0 {
			candidate.Load = loads[m]
		}
		if candidate.Load.Known {
			candidate.Load.Age += age
		}
		candidate.Fit = candidate.Why == ""
		if left := at.heldDown(now); candidate.Fit && left > 0 {
			candidate.HoldDown = true
			candidate.Why = fmt.Sprintf("it came back and must stay fit for another %s", left.Round(100*time.Millisecond))
		}
		candidates = append(candidates, candidate)
	}
	return candidates
}

// plannedLoads are the measurements of a pool's members on which the plan rests, and how much older than they say they are.
func (w *World) plannedLoads(id cluster.PoolID) (map[cluster.Member]placement.Load, time.Duration) {
	if w.Planned == nil {
		return w.Loads[id], 0
	}
	return w.Planned[id], w.PlannedAge
}

// Weight is a node's weight in a pool: the pool's word, or its own.
func (w *World) Weight(pool *cluster.Pool, lnn int) int { return w.node(lnn).weight(pool, lnn) }

func (n *Node) weight(pool *cluster.Pool, lnn int) int {
	if len(pool.Weights) > 0 {
		if weight, set := pool.Weights[lnn]; set {
			return weight
		}
	}
	return max(n.Weight, 1)
}

// HeldDown is how long a node that came back must still stay fit before it is given anything.
func (w *World) HeldDown(lnn int, now time.Time) time.Duration { return w.node(lnn).heldDown(now) }

func (n *Node) heldDown(now time.Time) time.Duration {
	if n.HoldDown == 0 || n.FitSince.IsZero() || n.Trusted {
		return 0
	}
	return n.FitSince.Add(n.HoldDown).Sub(now)
}

func (w *World) nodeName(lnn int) string { return w.node(lnn).name(lnn) }

func (n *Node) name(lnn int) string {
	if n.Name != "" {
		return n.Name
	}
	return fmt.Sprintf("node %d", lnn)
}
