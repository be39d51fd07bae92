package tenure

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// flight is a message on its way to a node, in whatever life that is when it arrives.
type flight struct {
	to       *seat
	message  Message
	received Received
	kept     bool // it may come again: it is not used for another message
}

// seat is one machine of the world: a peer, or none while it is off.
type seat struct {
	lnn     int
	peer    *Peer
	life    int // of the process
	frozen  bool
	waiting []*flight // what arrived while it was frozen
	wake    time.Time
	rate    int           // its clock is fast by so many millionths
	offset  time.Duration // and shows so much more
	timing  Timing
	drawn   Incarnation // the last number drawn for it
	held    Incarnation // the last under which it had its right
	lapsed  time.Duration
	seen    int // how far it has read the store
	blind   time.Duration
	out     Outbox
	pending bool // a write to the store is under way
	drawing bool // a number is being drawn
	told    Recorded
	wakes   int // how often in a row it woke without time passing
	nervous bool
}

// storm is a cluster of peers in virtual time, with a network and a store that do what the seed says.
type storm struct {
	t        testing.TB
	random   *rand.Rand
	now      time.Duration
	turn     int
	due      calendar
	free     []*flight
	old      []*flight // which may come again
	seats    []*seat
	members  []bool     // by LNN less one: who the configuration names
	racks    int        // in so many they stand; 0: none is named
	history  []Recorded // the store, as its changes
	latest   map[int]Recorded
	cut      map[[2]int]float64 // what is lost from one to the other, up to 1
	loss     float64
	networks int
	burst    time.Duration // until when messages overtake each other
	store    bool          // it answers
	calm     bool
	over     map[int]Incarnation // the highest that anybody has found
	found    map[int][]Finding   // by who found; nil: nobody wants to know
	steady   bool                // nothing fails: nobody lapses, hints or changes its observers
	mistaken int                 // a node that lives and of which an operator says that it is dead
	trace    bool
	flaw     flaw
}

// flaw is a rule that the world breaks, to show that these tests can find it.
type flaw struct {
	name      string
	shortSpan bool // a heartbeat names a span that is an interval shorter than what its sender counts
	wildClock int  // a clock is off by so many millionths, beyond what the margin covers
	stepped   *func(x *seat, now time.Time, standing Standing)
}

func (s *storm) log(format string, args ...any) {
	if s.trace {
		s.t.Logf("%9.3f ms  %s", float64(s.now.Microseconds())/1000, fmt.Sprintf(format, args...))
	}
}

func (s *storm) after(d time.Duration, do func()) {
	s.turn++
	s.due.push(happening{at: s.now + d, turn: s.turn, do: do})
}

func (s *storm) milliseconds(below int) time.Duration {
	return time.Duration(s.random.IntN(below)) * time.Millisecond
}

// clock is what a seat's clock shows.
func (s *storm) clock(x *seat) time.Time {
	return epoch.Add(x.offset + s.now + s.now*time.Duration(x.rate)/1_000_000)
}

func (s *storm) start(x *seat) {
	x.life++
	x.peer = NewPeer(x.lnn, s.random.Uint64()|1, x.timing, s.clock(x))
	x.frozen, x.waiting, x.seen, x.pending, x.told = false, nil, 0, false, Recorded{}
	s.log("node %d starts", x.lnn)
	s.configure(x)
	s.read(x)
	s.draw(x)
	s.step(x, &Due{})
}

func (s *storm) configure(x *seat) {
	var voices []Voice
	for _, other := range s.seats {
		if s.members[other.lnn-1] {
			v := Voice{LNN: other.lnn}
			if s.racks > 0 {
				v.Rack = fmt.Sprint(other.lnn % s.racks)
			}
			voices = append(voices, v)
		}
	}
	s.step(x, &Configured{Timing: x.timing, Voices: voices})
}

// draw gives a node the number of a new incarnation, a while later.
func (s *storm) draw(x *seat) {
	peer := x.peer
	x.drawing = true
	s.after(time.Millisecond+s.milliseconds(5), func() {
		switch {
		case x.peer != peer:
		case !s.store || x.frozen:
			s.draw(x)
		case !x.peer.Ended() && x.lapsed < 0: // it has resumed meanwhile
			x.drawing = false
		default:
			x.drawing, x.lapsed = false, -1
			x.drawn++
			s.step(x, &Entered{Incarnation: x.drawn})
		}
	})
}

// read has a node read the store to its end.
func (s *storm) read(x *seat) {
	for ; x.seen < len(s.history); x.seen++ {
		if r := s.history[x.seen]; r.LNN != x.lnn {
			s.step(x, &r)
		}
	}
}

// publish brings to the store what a node has to report, some time later, and tells it some time after that, or never, so that it writes
// again.
func (s *storm) publish(x *seat) {
	incarnation, begun := x.peer.Incarnation()
	if !begun || x.pending || x.peer.Ended() {
		return
	}
	observers, span := x.peer.right.set, max(x.peer.right.timing.Span(), x.peer.asked.Span())
	if t := &x.told; t.Incarnation == incarnation && t.Span == span && !x.peer.right.ending && t.Observers.Version == observers.Version &&
		t.Observers.Changing == observers.Changing {
		return
	}
	observers, span = x.peer.OnRecord()
	if incarnation > x.held {
		s.fail("node %d has incarnation %d ready for the record, under which it never had its right", x.lnn, incarnation)
	}
	report := Recorded{LNN: x.lnn, Incarnation: incarnation, Observers: observers, Span: span}
	x.pending = true
	peer := x.peer
	s.after(time.Millisecond+s.milliseconds(4), func() {
		if x.peer == peer {
			x.pending = false
		}
		if !s.store || s.latest[x.lnn].Incarnation > incarnation {
			return
		}
		s.write(x, report)
		if !s.calm && s.random.IntN(20) == 0 {
			return // and the writer does not learn that it was done
		}
		x.pending = x.peer == peer
		s.after(time.Millisecond+s.milliseconds(3), func() {
			if x.peer != peer {
				return
			}
			x.pending = false
			if !x.frozen {
				x.told = report
				s.step(x, &Published{Incarnation: incarnation, Version: observers.Version, Span: span})
			}
		})
	})
}

func (s *storm) write(x *seat, report Recorded) {
	s.latest[x.lnn] = report
	s.history = append(s.history, report)
	s.log("node %d has on record: incarnation %d, observers %v, span %s", x.lnn, report.Incarnation, report.Observers, report.Span)
	if s.steady && s.members[x.lnn-1] {
		s.fail("nothing failed, and node %d changes what is on record: %v", x.lnn, report)
	}
	staleness := 400
	if s.calm {
		staleness = 5
	}
	for _, other := range s.seats {
		reader := other.peer
		if reader == nil || other == x {
			continue
		}
		s.after(max(s.milliseconds(staleness), other.blind-s.now), func() {
			if other.peer == reader && !other.frozen && (s.calm || s.now >= other.blind) {
				s.read(other)
			}
		})
	}
}

// step passes an event into a peer, sends what it says, and checks the world.
func (s *storm) step(x *seat, event Event) {
	now := s.clock(x)
	before := x.peer.Standing(now).MayHold
	standing := x.peer.Step(event, now, &x.out)
	if s.flaw.stepped != nil {
		(*s.flaw.stepped)(x, now, standing)
	}
	incarnation, _ := x.peer.Incarnation()
	if before != standing.MayHold {
		s.log("node %d/%d may hold: %t %s", x.lnn, incarnation, standing.MayHold, standing.Reason)
	}
	if s.steady && before && !standing.MayHold && s.members[x.lnn-1] {
		s.fail("nothing failed, and node %d lapsed: %s", x.lnn, standing.Reason)
	}
	if standing.MayHold {
		x.held = incarnation
	}
	switch {
	case !standing.Lapsed:
		x.lapsed = -1
	case x.lapsed < 0:
		x.lapsed = s.now
	}
	for _, f := range x.out.Findings {
		s.log("node %d: up to incarnation %d of node %d is over: %s", x.lnn, f.Over, f.LNN, f.How)
		s.over[f.LNN] = max(s.over[f.LNN], f.Over)
		if s.found != nil {
			s.found[x.lnn] = append(s.found[x.lnn], f)
		}
		s.checkHolder(s.seats[f.LNN-1])
	}
	for i := range x.out.Messages {
		s.send(x, &x.out.Messages[i])
	}
	x.out.Reset()
	s.checkHolder(x)
	switch e := event.(type) {
	case *Due:
		s.checkPromises(x)
		s.publish(x)
	case *Received:
		if e.Message.Kind == Acknowledgement {
			s.checkPromise(s.seats[e.From-1], x)
		}
	}
	s.schedule(x, event)
}

// schedule has the peer look again when it wants to.
func (s *storm) schedule(x *seat, event Event) {
	now := s.clock(x)
	wake := x.peer.Wake(now)
	if !x.wake.IsZero() && !wake.Before(x.wake) && x.wake.After(now) {
		return
	}
	x.wake = wake
	peer := x.peer
	if _, due := event.(*Due); due && !wake.After(now) {
		x.wakes++
	} else if due {
		x.wakes = 0
	}
	if x.wakes > 100 {
		s.fail("node %d wants to look again at once, again and again", x.lnn)
	}
	s.after(max(wake.Sub(now), 0)+2*time.Microsecond, func() {
		if x.peer != peer || x.frozen || !x.wake.Equal(wake) {
			return
		}
		x.wake = time.Time{}
		if x.peer.Ended() || x.lapsed >= 0 && s.now-x.lapsed > 3*time.Second {
			if !x.drawing {
				s.draw(x)
			}
		}
		s.step(x, &Due{})
	})
}

func (s *storm) lost(from, to int) bool {
	p := s.cut[[2]int{from, to}]
	return p >= 1 || p > 0 && s.random.Float64() < p || s.loss > 0 && s.random.Float64() < s.loss
}

// flightTo is a flight to use, perhaps one that has ended.
func (s *storm) flightTo(to *seat, from, network int, m *Message) *flight {
	var f *flight
	if last := len(s.free) - 1; last >= 0 {
		f, s.free = s.free[last], s.free[:last]
	} else {
		f = &flight{}
	}
	f.to, f.message = to, *m
	f.received = Received{Message: &f.message, From: from, Network: network}
	return f
}

func (s *storm) send(x *seat, o *Outgoing) {
	if s.steady && o.Message.Kind == Hint && s.members[o.Message.Subject-1] {
		s.fail("nothing failed, and node %d hints about node %d", x.lnn, o.Message.Subject)
	}
	if x.nervous && o.Message.Kind == Confirmation {
		x.nervous = false
		s.after(s.milliseconds(20), func() { s.restart(x) })
	}
	for network := range s.networks {
		if o.Network >= 0 && network != o.Network {
			continue
		}
		copies := 1
		if !s.calm && s.random.IntN(50) == 0 {
			copies = 2
		}
		for range copies {
			s.carry(x, o, network)
		}
	}
}

func (s *storm) carry(x *seat, o *Outgoing, network int) {
	if s.lost(x.lnn, o.To) {
		return
	}
	f := s.flightTo(s.seats[o.To-1], x.lnn, network, &o.Message)
	if s.flaw.shortSpan && f.message.Kind == Heartbeat {
		f.message.Span -= f.message.Interval
	}
	way := 150*time.Microsecond + time.Duration(s.random.Int64N(300_000))
	switch {
	case s.calm:
	case s.now < s.burst:
		way += s.milliseconds(250)
	case s.random.IntN(200) == 0:
		way += s.milliseconds(400)
	}
	if !s.calm && s.random.IntN(100) == 0 {
		f.kept = true
		s.old = append(s.old, f)
	}
	s.turn++
	s.due.push(happening{at: s.now + way, turn: s.turn, flight: f})
}

// arrive is the end of a flight.
func (s *storm) arrive(f *flight) {
	to := f.to
	if to.peer == nil || s.cut[[2]int{f.received.From, to.lnn}] >= 1 {
		s.land(f)
		return
	}
	f.received.Arrived = s.clock(to)
	if to.frozen {
		if f.kept {
			f = s.flightTo(to, f.received.From, f.received.Network, &f.message)
			f.received.Arrived = s.clock(to)
		}
		to.waiting = append(to.waiting, f)
		return
	}
	s.step(to, &f.received)
	if to.peer != nil {
		s.step(to, &Due{})
	}
	s.land(f)
}

// land gives a flight back.
func (s *storm) land(f *flight) {
	if !f.kept {
		s.free = append(s.free, f)
	}
}

// checkHolder is the safety: whoever anybody has found over does not hold. A right comes only with a step, and a finding only with one.
func (s *storm) checkHolder(x *seat) {
	if x.peer == nil || x.frozen || x.lnn == s.mistaken { // what a frozen node's kernel keeps is the guard's business
		return
	}
	incarnation, _ := x.peer.Incarnation()
	if incarnation <= s.over[x.lnn] && x.peer.Standing(s.clock(x)).MayHold {
		s.fail("at %s node %d holds under incarnation %d, which somebody has found over", s.now, x.lnn, incarnation)
	}
}

// checkPromise: while an observer's promise runs, the node has no live lease from it.
func (s *storm) checkPromise(observer, holder *seat) {
	if observer.peer == nil || holder.peer == nil {
		return
	}
	w := observer.peer.watches[holder.lnn]
	if w == nil || !w.promise.After(s.clock(observer)) || w.incarnation != holder.peer.right.incarnation {
		return
	}
	if l := holder.peer.right.leases[observer.lnn]; l != nil && l.until.After(s.clock(holder)) {
		s.fail("at %s node %d has a live lease from node %d, whose promise runs", s.now, holder.lnn, observer.lnn)
	}
}

func (s *storm) checkPromises(observer *seat) {
	for _, w := range observer.peer.order {
		if !w.promise.IsZero() {
			s.checkPromise(observer, s.seats[w.lnn-1])
		}
	}
}

// fail ends the history with what is wrong.
func (s *storm) fail(format string, args ...any) { panic(wrong(fmt.Sprintf(format, args...))) }

type wrong string

// run plays until a moment, or until something is so.
func (s *storm) run(until time.Duration, enough func() bool) {
	for len(s.due) > 0 && s.due[0].at <= until {
		next := s.due.pop()
		s.now = next.at
		if next.flight != nil {
			s.arrive(next.flight)
		} else {
			next.do()
		}
		if enough != nil && enough() {
			return
		}
	}
	s.now = until
}

// holders are the nodes of the configuration that may hold now, and how many there are.
func (s *storm) holders() (lnns []int, of int) {
	for _, x := range s.seats {
		if !s.members[x.lnn-1] {
			continue
		}
		of++
		if x.peer != nil && !x.frozen && x.peer.Standing(s.clock(x)).MayHold {
			lnns = append(lnns, x.lnn)
		}
	}
	return lnns, of
}
