package tenure

import "time"

// An operator who declares a node dead says two things: that its incarnation is over, and that nobody need wait for its word as an
// observer. The first is proof like any other. The second only changes whom a node wants for its observers from now on: a node
// whose incarnation has not begun, or which begins another one, leaves the dead out at once, since nothing on record names that
// incarnation yet; a node that holds changes its set as it always does. It never shortens the set under which it holds already: a
// node that was declared dead and comes back may find the old set on record, and would be a majority of it with another of its kind.

// declare takes in an operator's word that a node is dead.
func (p *Peer) declare(e *Told) {
	if w := p.watchOf(e.LNN); e.Declared && w != nil && w.incarnation <= e.Over {
		w.dead, p.stale = true, true
	}
}

// Declared reports whether an operator declared a node dead, and no later incarnation of it has been heard since.
func (p *Peer) Declared(lnn int) bool {
	w := p.watches[lnn]
	return w != nil && w.dead
}

// Sounds reports whether any heartbeat of a node came within the span that it named last, also one that could not count: whoever
// sends one lives.
func (p *Peer) Sounds(lnn int, now time.Time) bool {
	w := p.watches[lnn]
	if w == nil || w.sounded.IsZero() {
		return false
	}
	span, _ := w.timing(p.right.timing)
	return now.Before(promised(w.sounded, span))
}

// Latest is the latest incarnation of a node that was heard or is on record; zero: none.
func (p *Peer) Latest(lnn int) Incarnation {
	if w := p.watches[lnn]; w != nil {
		return max(w.incarnation, w.record.Incarnation)
	}
	return 0
}
