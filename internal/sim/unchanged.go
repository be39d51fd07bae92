package sim

import (
	"maps"
	"time"

	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// Most looks of the loop are asked for by something that changes little or nothing for it. An agent looks at everything all the same; a
// simulation need not: what comes of a look follows from what it sees, and from the time only in that it says when to look again. So a look,
// or a part of one, that would see just what the last one saw, of which nothing came, is left out until then. TestLooksLeftOut plays
// histories with and without.

// sight is a part of what a look sees. What a look sees of the others is counted when it changes.
type sight int

const (
	ofNodes    sight = iota // the configuration, reports, drains and whose hold-down is over
	ofPools                 // records of pools
	ofServices              // records of service addresses
	ofPromises              // what this node has told others and been told about addresses
	ofWish                  // what is wanted on the interfaces, and what is there
	sightsOf
)

// sights are what a look sees.
type sights struct {
	changes     [sightsOf]uint64 // how often the parts have changed
	incarnation tenure.Incarnation
	mayHold     bool
	reason      string
	settling    bool
	over        [MaxNodes + 1]tenure.Incarnation
	declared    uint64 // by bit: whom an operator declared dead

	faultless, passing, ready bool // of this node, on its way to its report
	applied                   uint64
	reported                  int64
}

// outcome is what came of looking at something.
type outcome struct {
	sights sights
	known  bool      // nothing came of it
	again  time.Time // until then; zero: for as long as it sees the same
}

// holds reports whether it is known that nothing would come of it now.
func (o *outcome) holds(now sights, at time.Time) bool {
	return o.known && (o.again.IsZero() || at.Before(o.again)) && o.sights == now
}

// looked is what a process remembers of its last look.
type looked struct {
	changes  [sightsOf]uint64
	all      outcome
	tries    bool      // it wanted something written: the next one tries again, or looks whether it was done
	askedFor time.Time // the soonest moment at which the look in progress wants another; zero: none

	pools, services, lettings outcome
	holdings                  outcome
	desired                   []steering.Holding
	nodesKnown                outcome
	nodes                     map[int]steering.Node
	seen                      *steering.World // the last world, as it was read
}

// changed notes that a part of what a look sees has changed.
func (p *process) changed(part sight) { p.looked.changes[part]++ }

// see is what a look would see now.
func (p *process) see(now time.Time) sights {
	standing := p.peer.Standing(now)
	saw := sights{
		changes: p.looked.changes, incarnation: p.incarnation(), mayHold: standing.MayHold, reason: standing.Reason,
		faultless: p.noCarrier == 0, passing: p.failing == 0, ready: p.wasReady, applied: p.last.generation,
		reported: p.replica.members[p.lnn].record.ConfigRevision,
	}
	for lnn := 1; lnn <= p.s.Nodes; lnn++ {
		saw.over[lnn] = p.peer.Over(lnn)
		if p.peer.Declared(lnn) {
			saw.declared |= 1 << lnn
		}
	}
	return saw
}

// lookAtAll evaluates, unless it is known that nothing comes of it.
func (p *process) lookAtAll() {
	now := p.time()
	p.wakeAt = now.Add(lookAgain)
	last, saw := &p.looked, p.see(now)
	if !p.s.everyLook && last.all.holds(saw, now) {
		p.wakeAt = soonerOf(p.wakeAt, last.all.again)
		return
	}
	last.tries, last.askedFor = false, time.Time{}
	p.evaluate()
	last.all = outcome{saw, !last.tries, last.askedFor}
}

// soonerOf is the earlier of two moments, of which the zero one is never.
func soonerOf(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// wakeIn asks to look again after a while.
func (p *process) wakeIn(d time.Duration) {
	at := p.time().Add(d)
	p.wakeAt, p.looked.askedFor = soonerOf(p.wakeAt, at), soonerOf(p.looked.askedFor, at)
}

// tryAgainIn asks to look again after a while since something that is wanted could not be written now.
func (p *process) tryAgainIn(d time.Duration) {
	p.looked.tries = true
	p.wakeIn(d)
}

// unless has a part of a look done, unless it is known that nothing comes of it as long as it sees the same but for some parts. The part
// says whether anything came of it.
func (p *process) unless(known *outcome, all *sights, now time.Time, part func() (came bool), but ...sight) {
	saw := all.but(but...)
	if !p.s.everyLook && known.holds(saw, now) {
		if !known.again.IsZero() {
			p.wakeIn(known.again.Sub(now))
		}
		return
	}
	before := p.looked.askedFor
	p.looked.askedFor = time.Time{}
	came := part()
	*known = outcome{saw, !came, p.looked.askedFor}
	p.looked.askedFor = soonerOf(before, p.looked.askedFor)
}

// but is without what only the report of the node itself comes of, and without some parts.
func (s *sights) but(parts ...sight) sights {
	saw := *s
	saw.faultless, saw.passing, saw.ready, saw.reported = false, false, false, 0
	for _, part := range parts {
		saw.changes[part] = 0
		if part == ofWish {
			saw.applied = 0
		}
	}
	return saw
}

// desires is what the node should have on its interfaces.
func (p *process) desires(w *steering.World, all *sights, now time.Time) []steering.Holding {
	saw := all.but(ofWish)
	if p.s.everyLook || !p.looked.holdings.holds(saw, now) {
		p.looked.desired = steering.Desired(w, saw.incarnation, saw.mayHold)
		p.looked.holdings = outcome{sights: saw, known: true}
	}
	return p.looked.desired
}

// nodes puts what is known of the nodes into a world: what it was in the last one if nothing has changed it.
func (p *process) nodes(w *steering.World, now time.Time) {
	all := p.see(now)
	saw := all.but(ofPromises, ofWish)
	if !p.s.everyLook && p.looked.nodesKnown.holds(saw, now) {
		w.Nodes = p.looked.nodes
		return
	}
	p.addNodes(w, now)
	p.looked.nodesKnown, p.looked.nodes = outcome{sights: saw, known: true}, w.Nodes
}

// promised puts what was said of addresses into a world.
func (p *process) promised(w *steering.World) {
	if p.s.everyLook || len(p.promises.Given) > 0 || len(p.promises.Renounced) > 0 {
		p.promises.Bind(w)
	}
	if p.s.everyLook || len(p.releases) > 0 {
		steering.Outdated(w, p.releases)
		w.Released = maps.Clone(p.releases)
	}
}
