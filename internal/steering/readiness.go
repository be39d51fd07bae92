package steering

import (
	"maps"
	"net/netip"
	"time"

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
	heard map[netip.Addr]readyWord
	since map[netip.Addr]waiting
}

// readyWord is one node's word that it could take an address that moves under one statement.
type readyWord struct {
	from int
	move Release
}

// waiting is since when a move waits for that.
type waiting struct {
	move  Release
	since time.Time
}

// NewReadiness knows nothing.
func NewReadiness() Readiness {
	return Readiness{heard: map[netip.Addr]readyWord{}, since: map[netip.Addr]waiting{}}
}

// Hear notes the word of a node. The caller bounds the addresses to those of the cluster.
func (r Readiness) Hear(from int, address netip.Addr, move Release) {
	r.heard[address] = readyWord{from, move}
}

// Bind puts into a world which moves away from this node wait for their targets, and says in what time the first stops waiting; zero if
// none waits. What the records have gone beyond is forgotten.
func (r Readiness) Bind(w *World, now time.Time) (left time.Duration) {
	w.Unready = map[netip.Addr]bool{}
	if len(r.heard)+len(r.since) == 0 && !asksAway(w) {
		return 0 // as at most times
	}
	moving := Moving(w)
	maps.DeleteFunc(r.heard, func(address netip.Addr, word readyWord) bool { return moving[address].Epoch > word.move.Epoch })
	maps.DeleteFunc(r.since, func(address netip.Addr, wait waiting) bool { return !wait.move.Of(moving[address]) })
	for address, st := range moving {
		if !awaits(w, st) {
			continue
		}
		move := Release{Owner: st.Owner, Epoch: st.Epoch}
		if word := r.heard[address]; word.from == st.To.LNN && word.move == move {
			continue
		}
		wait, known := r.since[address]
		if !known {
			wait = waiting{move, now}
			r.since[address] = wait
		}
		if rest := wait.since.Add(ReadyLimit).Sub(now); rest > 0 {
			w.Unready[address] = true
			if left == 0 || rest < left {
				left = rest
			}
		}
	}
	return left
}

// asksAway reports whether a statement asks an address away from this node.
func asksAway(w *World) bool {
	asks := func(st tenure.Statement) bool { return st.Owner.LNN == w.Self && !st.To.IsZero() }
	for _, record := range w.Pools {
		for _, st := range record {
			if asks(st) {
				return true
			}
		}
	}
	for _, st := range w.Services {
		if asks(st) {
			return true
		}
	}
	return false
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
		for address, st := range record {
			if st.To.LNN == w.Self {
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
