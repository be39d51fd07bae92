package sim

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
)

// This file mirrors internal/agent/release.go and internal/agent/readiness.go: an owner's word to whom an address moves that it has let go
// of it, and the other's before that, that it could take it.

const (
	wordTimeout = 500 * time.Millisecond // for one word to another node (releaseTimeout)
	wordAgain   = 200 * time.Millisecond
)

// handingOver is what a process has told others, and what others have told it.
type handingOver struct {
	promises steering.Promises
	releases map[netip.Addr]steering.Release

	readiness steering.Readiness
	unready   map[netip.Addr]bool // what the last look found to wait
	toldReady steering.ToldReady
}

// changing reports whether this node has a change of a record under way, whose outcome it does not know.
func (p *process) changing(id cluster.PoolID, service steering.ServiceKey) bool {
	if service != (steering.ServiceKey{}) {
		return p.busy(serviceKey(service))
	}
	return p.busy(poolKey(id))
}

// handed tells the new owners of addresses that have just left this node's interfaces.
func (p *process) handed(w wish, off []netip.Addr) {
	for _, a := range slices.SortedFunc(slices.Values(off), netip.Addr.Compare) {
		if st, handing := w.handing[a]; handing {
			release := steering.Release{Owner: st.Owner, Epoch: st.Epoch}
			p.tellProcess(st.To.LNN, p.s.now+wordTimeout, func(other *process) { other.takeRelease(a, release) })
		}
	}
}

// tellProcess carries a word to the process of another node. What is lost on the way is sent again by the transport, as long as there is
// time.
func (p *process) tellProcess(to int, until time.Duration, hear func(other *process)) {
	s, from := p.s, p.lnn
	way := s.chance.between(s.Delay/2, 2*s.Delay) + s.chance.between(0, time.Duration(s.network.late[from][to])*time.Millisecond)
	lost := s.chance.chance(s.network.loss[from][to])
	s.after(way, func() {
		switch {
		case s.now >= until:
		case lost || !s.connected(from, to):
			p.later(wordAgain, func() { p.tellProcess(to, until, hear) })
		default:
			if other := s.node(to).process; other != nil {
				other.later(0, func() { hear(other) })
			}
		}
	})
}

// awaitReady puts into the world which moves away from this node wait for their targets, and looks again when that ends.
func (p *process) awaitReady(w *steering.World, now time.Time) {
	if left := p.readiness.Bind(w, now, p.changing); left > 0 {
		p.wakeIn(left)
	}
	if p.s.broken == BreakBack {
		p.takeBack(w)
	}
	if len(w.Unready) > 0 {
		p.looked.tries = true // some wait for a change of a record, which is no part of what is seen
	}
	if !maps.Equal(w.Unready, p.unready) {
		p.changed(ofPromises)
	}
	p.unready = w.Unready
}

// tellReady tells the owners of addresses that move to this node that it could take them now, again and again until they have let go.
func (p *process) tellReady(w *steering.World, mayHold bool, now time.Time) {
	due, again := p.toldReady.Due(steering.Ready(w, p.incarnation(), mayHold), w, now)
	if again > 0 {
		p.wakeIn(again)
	}
	for _, a := range slices.SortedFunc(maps.Keys(due), netip.Addr.Compare) {
		from, move := p.lnn, due[a]
		p.tellProcess(move.Owner.LNN, p.s.now+wordTimeout, func(other *process) { other.takeReady(from, a, move) })
	}
}

// takeReady notes what a node says that it could take.
func (p *process) takeReady(from int, a netip.Addr, move steering.Release) {
	if p.view != nil {
		p.readiness.Hear(from, a, move)
		p.changed(ofPromises)
		p.note()
	}
}

// takeRelease notes what a node says that it has let go of.
func (p *process) takeRelease(a netip.Addr, release steering.Release) {
	if p.view != nil {
		p.releases[a] = release
		p.changed(ofPromises)
		p.note()
	}
}
