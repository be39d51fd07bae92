package steering

import (
	"maps"
	"net/netip"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

// ReadyLimit is how long an owner keeps an address that is asked away for want of its target's word that it could take it. Then it lets go
// all the same: the target may hear of it through the store, and a node that is about to stop cannot wait. It is as long as a node that
// has lapsed waits before it begins anew.
const ReadyLimit = 3 * time.Second

// Readiness is what one owner knows of the targets of the moves away from it. A planned move is for nothing that an address should be
// without a holder for: it stays where it is until its target says that it could take it at this moment. NewReadiness makes it; it belongs to
// its caller.
type Readiness struct {
	heard map[netip.Addr]readyWord // what came last of each address
	since map[awaited]time.Time
	free  map[awaited]bool // those that have once not waited any more
}

// readyWord is one node's word that it could take an address that moves under one statement.
type readyWord struct {
	from int
	move Release
}

// awaited is one move that waits for that. While an address changes its pool, two records may have it.
type awaited struct {
	address netip.Addr
	move    Release
}

// NewReadiness knows nothing.
func NewReadiness() Readiness {
	return Readiness{heard: map[netip.Addr]readyWord{}, since: map[awaited]time.Time{}, free: map[awaited]bool{}}
}

// Hear notes the word of a node. The caller bounds the addresses to those of the cluster.
func (r Readiness) Hear(from int, address netip.Addr, move Release) {
	r.heard[address] = readyWord{from, move}
}

// Bind puts into a world which moves away from this node wait, and says in what time the first stops waiting for its target; zero if
// none does. Words about addresses that this node does not own, and moves that do not wait any more, are forgotten.
//
// A move also waits while this node has a change of the same record under way, of which pending tells: its target could not be told that it
// has the address ([Handing]), and nobody would have it until the store has said so. The change ends when the store has taken it, or after
// the time that a write may take. A move that has once not waited does not wait for that any more: the change may be the one by which this
// node lets go of the address, which must not come back meanwhile.
func (r Readiness) Bind(w *World, now time.Time, pending func(cluster.PoolID, ServiceKey) bool) (left time.Duration) {
	w.Unready = nil
	owned, awaiting := map[netip.Addr]bool{}, map[awaited]bool{}
	w.Concerning(func(id cluster.PoolID, address netip.Addr, st tenure.Statement) bool {
		if st.Owner.LNN != w.Self {
			return true
		}
		if len(r.heard) > 0 {
			owned[address] = true
		}
		if !awaits(w, st) {
			return true
		}
		wait := awaited{address, Release{Owner: st.Owner, Epoch: st.Epoch}}
		awaiting[wait] = true
		rest := r.waits(wait, st.To.LNN, now)
		if rest > 0 && (left == 0 || rest < left) {
			left = rest
		}
		if rest <= 0 && !r.free[wait] {
			r.free[wait] = !pending(w.recordOf(id, address))
		}
		if rest > 0 || !r.free[wait] {
			if w.Unready == nil {
				w.Unready = map[netip.Addr]bool{}
			}
			w.Unready[address] = true
		}
		return true
	})
	maps.DeleteFunc(r.heard, func(address netip.Addr, _ readyWord) bool { return !owned[address] })
	maps.DeleteFunc(r.since, func(wait awaited, _ time.Time) bool { return !awaiting[wait] })
	maps.DeleteFunc(r.free, func(wait awaited, _ bool) bool { return !awaiting[wait] })
	return left
}

// recordOf names the record of an address as Concerning has it: the pool, or where that is zero the service address.
func (w *World) recordOf(id cluster.PoolID, address netip.Addr) (cluster.PoolID, ServiceKey) {
	if (id == cluster.PoolID{}) {
		for key := range w.Services {
			if key.Address == address {
				return id, key
			}
		}
	}
	return id, ServiceKey{}
}

// waits is for how much longer a move waits for its target.
func (r Readiness) waits(wait awaited, to int, now time.Time) time.Duration {
	if word := r.heard[wait.address]; word.from == to && word.move == wait.move {
		return 0
	}
	since, known := r.since[wait]
	if !known {
		since = now
		r.since[wait] = since
	}
	return since.Add(ReadyLimit).Sub(now)
}

// awaits reports whether a statement asks an address away from this node to another that may live.
func awaits(w *World, st tenure.Statement) bool {
	return st.Owner.LNN == w.Self && st.State() == tenure.Moving && !st.Fixed && st.To.LNN != w.Self && w.settled(st)
}

// Ready are the addresses that move to this node and that it could take at this moment, under which statements: what their owners are told.
func Ready(w *World, self tenure.Incarnation, mayHold bool) map[netip.Addr]Release {
	ready := map[netip.Addr]Release{}
	if !mayHold {
		return ready
	}
	add := func(address netip.Addr, st tenure.Statement, unfit string) {
		mine := st.To.LNN == w.Self && st.To.Incarnation == self && st.State() == tenure.Moving && st.Owner.LNN != w.Self
		if mine && unfit == "" && !w.Over(st.Owner) {
			ready[address] = Release{Owner: st.Owner, Epoch: st.Epoch}
		}
	}
	for id, record := range w.Pools {
		for _, address := range w.concerned(id) {
			if st := record[address]; st.To.LNN == w.Self {
				add(address, st, w.UnfitFor(id, st.To.Member()))
			}
		}
	}
	for key, st := range w.Services {
		if st.To.LNN == w.Self {
			add(key.Address, st, w.Unfit(st.To.Member()))
		}
	}
	return ready
}

// readyAgain is when an owner is told once more that its address could be taken: the word may have been lost, or the owner's agent replaced.
const readyAgain = 200 * time.Millisecond

// ToldReady is what a node has told the owners of addresses that move to it, and when. Make it before use; it belongs to its caller.
type ToldReady map[netip.Addr]toldReady

type toldReady struct {
	move Release
	at   time.Time
}

// Due is what the owners are to be told now, of all that the node could take, and in what time that is to be looked at again; zero if there is
// nothing. It counts as told. Owners that have let go need to hear nothing more.
func (t ToldReady) Due(ready map[netip.Addr]Release, w *World, now time.Time) (due map[netip.Addr]Release, again time.Duration) {
	maps.DeleteFunc(t, func(address netip.Addr, _ toldReady) bool { _, still := ready[address]; return !still })
	due = map[netip.Addr]Release{}
	for address, move := range ready {
		if w.Released[address] == move {
			continue
		}
		told := t[address]
		left := told.at.Add(readyAgain).Sub(now)
		if told.move != move || left <= 0 {
			t[address] = toldReady{move, now}
			due[address], left = move, readyAgain
		}
		if again == 0 || left < again {
			again = left
		}
	}
	return due, again
}
