package tenure

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// MaxNetworks is over how many networks two nodes may send each other heartbeats.
const MaxNetworks = 8

// phase is where a node stands with its own right.
type phase uint8

const (
	idle     phase = iota // it has no incarnation
	entering              // its incarnation has not had enough leases yet; nothing may name it
	holding               // it may hold
	lapsed                // it may not, and heartbeats on to take back what it held
	over                  // its incarnation is over for good
)

// past is before every moment that matters, and not zero.
var past = time.Time{}.Add(1)

// beats is how many heartbeats are remembered: an acknowledgement of an older one says nothing.
const beats = 64

// beat is one round of heartbeats.
type beat struct {
	number uint64
	sent   time.Time
	span   time.Duration
	marked bool
	lapse  uint64 // the lapse that a marked one belongs to
}

// lease is what one observer has acknowledged.
type lease struct {
	until    time.Time
	life     uint64                 // the observer's life whose acknowledgement last extended a right that was there ("watched")
	recorded uint64                 // the version of the set that it says it has recorded
	heard    [MaxNetworks]time.Time // when its last acknowledgement came, by network
}

// right is a node's own right to hold under one incarnation.
type right struct {
	incarnation Incarnation
	phase       phase
	why         string // why not, when not
	timing      Timing
	set         Observers
	wanted      []int // the set that it should have
	stranger    bool  // no configuration names this node, so that to have no observers is no right to hold
	leases      map[int]*lease
	asked       []int     // whom they are from or should be, sorted
	until       time.Time // when the right runs out; zero while holding: never

	number       uint64
	beats        [beats]beat
	beatDue      time.Time
	lapses       uint64
	resumed      time.Time
	began        time.Time     // when this incarnation first had enough leases
	recorded     uint64        // the version that is known to be on record in the store
	recordedSpan time.Duration // and the longest span in use
	ending       bool          // the change of the set may end: what is to be on record is the new set alone
	moved        time.Time     // when enough of the previous set, and this node, had recorded the change
}

// enter begins an incarnation. It has no leases yet.
func (r *right) enter(incarnation Incarnation, now time.Time) {
	*r = right{
		incarnation: incarnation, phase: entering, timing: r.timing, wanted: r.wanted, stranger: r.stranger, number: r.number, beatDue: now,
		why: "not acknowledged yet", leases: map[int]*lease{}, set: Observers{Version: 1, Current: r.wanted},
	}
	r.follow()
	r.judgeEntering(now)
}

// want says which set it should have. Before its incarnation has had enough leases nothing on record names a set, and it has the new one at
// once.
func (r *right) want(wanted []int) {
	r.wanted = wanted
	if r.phase == entering {
		r.set.Current = wanted
	}
	if r.leases != nil {
		r.follow()
	}
}

// follow has leases for exactly those that count or are about to.
func (r *right) follow() {
	for lnn := range r.leases {
		if !r.set.has(lnn) && !slices.Contains(r.wanted, lnn) {
			delete(r.leases, lnn)
		}
	}
	for _, set := range [][]int{r.set.Current, r.set.Previous, r.wanted} {
		for _, lnn := range set {
			if r.leases[lnn] == nil && (r.set.has(lnn) || slices.Contains(r.wanted, lnn)) {
				r.leases[lnn] = &lease{}
			}
		}
	}
	r.asked = slices.Sorted(maps.Keys(r.leases))
}

// end is when a set's leases no longer suffice: the end of the lease that makes up the number. An empty set always suffices.
func (r *right) end(set []int) (until time.Time, forever bool) {
	if len(set) == 0 {
		return time.Time{}, true
	}
	var ends [2 * MaxObservers]time.Time
	n := 0
	for _, lnn := range set {
		if l := r.leases[lnn]; l != nil && n < len(ends) {
			at := n
			for ; at > 0 && l.until.After(ends[at-1]); at-- { // the latest first; there are few
				ends[at] = ends[at-1]
			}
			ends[at] = l.until
			n++
		}
	}
	need := Need(len(set))
	if n < need {
		return time.Time{}, false
	}
	return ends[need-1], false
}

// ends is when the right runs out by all the sets that count ("one-set").
func (r *right) ends() (until time.Time, forever bool) {
	until, forever = r.end(r.set.Current)
	if !r.set.Changing {
		return until, forever
	}
	before, always := r.end(r.set.Previous)
	switch {
	case forever:
		return before, always
	case always || until.Before(before):
		return until, false
	}
	return before, false
}

// judge lets the right lapse if it has run out.
func (r *right) judge(now time.Time) {
	if r.phase != holding || r.until.IsZero() || r.until.After(now) {
		return
	}
	r.phase = lapsed
	r.lapses++
	r.why = fmt.Sprintf("incarnation %d lapsed: fewer than %d of its %d observers acknowledged it in time", r.incarnation, Need(len(r.set.Current)), len(r.set.Current))
	if r.set.has(Ground) {
		r.why = fmt.Sprintf("incarnation %d lapsed: neither the other node acknowledged it in time, nor did the gateway answer", r.incarnation)
	}
	for _, l := range r.leases {
		l.until = time.Time{} // only answers to marked heartbeats bring it back
	}
	r.until, r.beatDue = time.Time{}, now // the first marked heartbeat goes at once
}

// judgeEntering gives an incarnation its right once it has enough leases ("unleased"), and extends a right that is there.
func (r *right) judgeEntering(now time.Time) {
	if r.phase != entering && r.phase != holding && r.phase != lapsed {
		return
	}
	until, forever := r.ends()
	if !forever && !until.After(now) || r.phase == entering && forever && r.stranger {
		return
	}
	switch r.phase {
	case entering:
		r.began = now
	case lapsed:
		r.resumed = now
	}
	r.phase, r.until, r.why = holding, until, ""
	if forever {
		r.until = time.Time{}
	}
}

// acknowledged takes in a lease. What had run out before it arrived is judged first: it extends only a right that was still
// there ("revive"). A right that is not there begins, or comes back, only with leases that last beyond now.
func (r *right) acknowledged(m *Message, from, network int, arrived, now time.Time) {
	l := r.leases[from]
	sent := r.beats[m.Number%beats]
	if l == nil || m.Incarnation != r.incarnation || sent.number != m.Number || sent.marked != m.Lapsed {
		return
	}
	r.judge(arrived)
	if network >= 0 && network < MaxNetworks {
		l.heard[network] = later(l.heard[network], arrived)
	}
	l.recorded = max(l.recorded, m.Version)
	if r.phase == lapsed && (!sent.marked || sent.lapse != r.lapses) || sent.marked && sent.lapse != r.lapses {
		return
	}
	r.leased(l, sent, arrived, now)
	if r.phase == holding {
		l.life = m.Life
	}
}

// leased has a lease last as long as the round of heartbeats that it is for makes it, and the right with it.
func (r *right) leased(l *lease, b beat, arrived, now time.Time) {
	l.until = later(l.until, counted(b.sent, b.span, r.timing.Margin()))
	if r.phase == holding {
		r.judgeEntering(arrived)
	} else {
		r.judgeEntering(now)
	}
}

// lose ends the incarnation for good.
func (r *right) lose(why string) {
	if r.phase == idle || r.phase == over {
		return
	}
	r.phase, r.why, r.until = over, why, time.Time{}
}

// retime puts other heartbeats into effect. Leases that were given for a longer span are cut to the new one, so that what is
// on record as the longest span in use ("last-span") may follow.
func (r *right) retime(t Timing, now time.Time) {
	shorter := t.Span() < r.timing.Span()
	r.timing = t
	if !shorter {
		return
	}
	r.beatDue = now
	for i := range r.beats {
		r.beats[i].span = min(r.beats[i].span, t.Span())
	}
	for _, l := range r.leases {
		if most := counted(now, t.Span(), t.Margin()); l.until.After(most) {
			l.until = most
		}
	}
	// From here on the shorter one is what goes on record; a write of it may be under way before this node hears that it was done.
	r.recordedSpan = min(r.recordedSpan, t.Span())
	r.shorten()
}

// shorten has a right that is there run out with the leases that count now, if that is earlier.
func (r *right) shorten() {
	if r.phase != holding {
		return
	}
	if until, forever := r.ends(); !forever && (r.until.IsZero() || until.Before(r.until)) {
		r.until = later(until, past) // zero would be never
	}
}

// live reports whether the right is there at a moment, also if nobody has judged it since.
func (r *right) live(now time.Time) bool {
	return r.phase == holding && (r.until.IsZero() || r.until.After(now))
}

// nextBeat is the round of heartbeats that is due at now; false if none is.
func (r *right) nextBeat(now time.Time) (beat, bool) {
	if r.phase == idle || r.phase == over || now.Before(r.beatDue) {
		return beat{}, false
	}
	r.beatDue = r.beatDue.Add(r.timing.Interval)
	if !r.beatDue.After(now) {
		r.beatDue = now.Add(r.timing.Interval) // it was late: no burst
	}
	r.number++
	b := beat{number: r.number, sent: now, span: r.timing.Span()}
	if r.phase == lapsed {
		b.marked, b.lapse = true, r.lapses
	}
	r.beats[b.number%beats] = b
	return b, true
}

// change takes the next step of a change of the set.
func (r *right) change(now time.Time) {
	switch {
	case r.phase == entering && !r.set.Changing:
		r.judgeEntering(now)
	case !r.live(now): // a lapse is not carried over the end of a change ("carry-lapse"), nor one that was not judged yet
	case !r.set.Changing:
		r.beginChange(now)
	case r.ending:
		if r.recorded >= r.set.Version {
			r.set.Previous, r.set.Changing, r.ending = nil, false, false
			r.follow()
			r.judgeEntering(now)
		}
	default:
		r.ripen(now)
	}
}

// beginChange has both sets count from now on, once the new one would suffice and what is on record is what counts.
func (r *right) beginChange(now time.Time) {
	if slices.Equal(r.set.Current, r.wanted) || r.recorded < r.set.Version {
		return
	}
	if until, forever := r.end(r.wanted); !forever && !until.After(now) {
		return
	}
	r.set = Observers{Version: r.set.Version + 1, Current: r.wanted, Previous: r.set.Current, Changing: true}
	r.moved = time.Time{}
	r.shorten()
}

// ripen ends a change when this node ("without-node") has recorded it, and so many of the previous set that those who have not are no
// majority ("without-majority"), and when
// one span has passed ("no-span").
func (r *right) ripen(now time.Time) {
	if r.recorded < r.set.Version {
		return
	}
	recorded := 0
	for _, lnn := range r.set.Previous { // the ground records nothing
		if l := r.leases[lnn]; l != nil && l.recorded >= r.set.Version {
			recorded++
		}
	}
	if len(r.set.Previous) > 0 && recorded < Need(len(r.set.Previous)) {
		return
	}
	if r.moved.IsZero() {
		r.moved = now
	}
	if !now.Before(promised(r.moved, max(r.timing.Span()+r.timing.Interval, leastWait))) {
		r.set.Version++
		r.ending = true
	}
}

// onRecord is what should be on record about the set.
func (r *right) onRecord() Observers {
	o := r.set.clone()
	if r.ending {
		o.Previous, o.Changing = nil, false
	}
	return o
}

// mayConfirm says why this node's word about others does not count; zero when it does.
func (r *right) mayConfirm(now time.Time) Denied {
	if !r.live(now) || !r.resumed.IsZero() && now.Before(r.resumed.Add(2*r.timing.Interval)) {
		return DeniedLapsed
	}
	return 0
}
