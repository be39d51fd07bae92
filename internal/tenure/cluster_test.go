package tenure

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// happening is one thing that is to happen in the world of the tests.
type happening struct {
	at   time.Time
	turn int
	do   func()
}

type calendar []happening

func (c calendar) Len() int { return len(c) }
func (c calendar) Less(i, j int) bool {
	return c[i].at.Before(c[j].at) || c[i].at.Equal(c[j].at) && c[i].turn < c[j].turn
}
func (c calendar) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *calendar) Push(x any)   { *c = append(*c, x.(happening)) }
func (c *calendar) Pop() any {
	last := len(*c) - 1
	x := (*c)[last]
	*c = (*c)[:last]
	return x
}

// seat is one machine of the world: a peer, or none while it is off.
type seat struct {
	lnn     int
	peer    *Peer
	life    int // of the process
	frozen  bool
	waiting []Received // what arrived while it was frozen
	wake    time.Time
	slow    int // its clock loses so many thousandths of a thousandth
	timing  Timing
	drawn   Incarnation // the last number drawn for it
	lapsed  time.Time
	seen    uint64 // how far it has read the store
	out     Outbox
	pending bool // a write to the store is under way
}

// entry is one version of a node's report in the store.
type entry struct {
	record Recorded
	gone   bool
}

// storm is a cluster of peers in virtual time, with a network and a store that do what the seed says.
type storm struct {
	t       testing.TB
	random  *rand.Rand
	now     time.Time
	turn    int
	due     calendar
	seats   []*seat
	history []entry // the store, as its changes
	latest  map[int]int
	cut     map[[2]int]bool
	loss    float64
	delay   time.Duration
	store   bool // it answers
	calm    bool
	over    map[int]Incarnation // the highest that anybody has found
	found   map[int][]Finding   // by who found
	trace   bool
	flaw    flaw
}

// flaw is a rule that the world breaks, to show that these tests can find it.
type flaw struct {
	name      string
	shortSpan bool // a heartbeat names a span that is an interval shorter than what its sender counts
	wildClock int  // a clock loses so many thousandths of a thousandth, beyond what the margin covers
}

func newStorm(t testing.TB, seed uint64, nodes int, timing Timing, f flaw) *storm {
	s := &storm{t: t, random: rand.New(rand.NewPCG(seed, 1)), now: epoch, latest: map[int]int{}, cut: map[[2]int]bool{}, store: true,
		over: map[int]Incarnation{}, found: map[int][]Finding{}, delay: 300 * time.Microsecond, flaw: f}
	for lnn := 1; lnn <= nodes; lnn++ {
		s.seats = append(s.seats, &seat{lnn: lnn, timing: timing})
	}
	for _, x := range s.seats {
		s.start(x)
	}
	return s
}

func (s *storm) log(format string, args ...any) {
	if s.trace {
		s.t.Logf("%9.3f ms  %s", float64(s.now.Sub(epoch).Microseconds())/1000, fmt.Sprintf(format, args...))
	}
}

func (s *storm) after(d time.Duration, do func()) {
	s.turn++
	heap.Push(&s.due, happening{s.now.Add(d), s.turn, do})
}

// clock is what a seat's clock shows: it may be slow by up to 0.1%.
func (s *storm) clock(x *seat) time.Time {
	passed := s.now.Sub(epoch)
	return epoch.Add(passed - passed*time.Duration(x.slow)/1_000_000)
}

func (s *storm) start(x *seat) {
	x.life++
	x.peer = NewPeer(x.lnn, s.random.Uint64()|1, x.timing, s.clock(x))
	x.frozen, x.waiting, x.seen, x.pending = false, nil, 0, false
	s.log("node %d starts", x.lnn)
	s.configure(x)
	s.read(x)
	s.draw(x)
	s.step(x, &Due{})
}

func (s *storm) configure(x *seat) {
	var voices []Voice
	for _, other := range s.seats {
		voices = append(voices, Voice{LNN: other.lnn})
	}
	s.step(x, &Configured{Timing: x.timing, Voices: voices})
}

// draw gives a node the number of a new incarnation, a while later.
func (s *storm) draw(x *seat) {
	life, peer := x.life, x.peer
	s.after(time.Duration(1+s.random.IntN(5))*time.Millisecond, func() {
		if x.life != life || x.peer != peer {
			return
		}
		if !s.store || x.frozen {
			s.draw(x)
			return
		}
		x.drawn++
		s.step(x, &Entered{Incarnation: x.drawn})
	})
}

// read has a node read the store to some point.
func (s *storm) read(x *seat) {
	for ; x.seen < uint64(len(s.history)); x.seen++ {
		if e := s.history[x.seen]; e.record.LNN != x.lnn && !e.gone {
			r := e.record
			s.step(x, &r)
		}
	}
}

// publish brings to the store what a node has to report, some time later, and tells it some time after that.
func (s *storm) publish(x *seat) {
	incarnation, begun := x.peer.Incarnation()
	observers, span := x.peer.OnRecord()
	if at, there := s.latest[x.lnn]; !begun || x.peer.Ended() || x.pending || there && s.history[at].record.Incarnation == incarnation &&
		s.history[at].record.Observers.Equal(observers) && s.history[at].record.Span == span {
		return
	}
	x.pending = true
	peer, life := x.peer, x.life
	s.after(time.Duration(1+s.random.IntN(4))*time.Millisecond, func() {
		if !s.store || x.peer != peer {
			if x.life == life {
				x.pending = false
			}
			return
		}
		if at, there := s.latest[x.lnn]; there && s.history[at].record.Incarnation > incarnation {
			return
		}
		s.latest[x.lnn] = len(s.history)
		s.history = append(s.history, entry{record: Recorded{LNN: x.lnn, Incarnation: incarnation, Observers: observers, Span: span}})
		s.log("node %d has on record: incarnation %d, observers %v", x.lnn, incarnation, observers)
		for _, other := range s.seats {
			reader, its := other, other.life
			s.after(time.Duration(s.random.IntN(s.staleness()))*time.Millisecond, func() {
				if reader.life == its && reader.peer != nil && !reader.frozen {
					s.read(reader)
				}
			})
		}
		s.after(time.Duration(1+s.random.IntN(3))*time.Millisecond, func() {
			if x.peer == peer && !x.frozen {
				x.pending = false
				s.step(x, &Published{Incarnation: incarnation, Version: observers.Version, Span: span})
			} else if x.peer == peer {
				x.pending = false
			}
		})
	})
}

func (s *storm) staleness() int {
	if s.calm {
		return 5
	}
	return 400
}

// step passes an event into a peer, sends what it says, and checks the world.
func (s *storm) step(x *seat, event Event) {
	now := s.clock(x)
	before := x.peer.Standing(now)
	standing := x.peer.Step(event, now, &x.out)
	if before.MayHold != standing.MayHold {
		incarnation, _ := x.peer.Incarnation()
		s.log("node %d/%d may hold: %t %s", x.lnn, incarnation, standing.MayHold, standing.Reason)
	}
	switch {
	case !standing.Lapsed:
		x.lapsed = time.Time{}
	case x.lapsed.IsZero():
		x.lapsed = s.now
	}
	for _, f := range x.out.Findings {
		s.log("node %d: up to incarnation %d of node %d is over: %s", x.lnn, f.Over, f.LNN, f.How)
		s.over[f.LNN] = max(s.over[f.LNN], f.Over)
		s.found[x.lnn] = append(s.found[x.lnn], f)
	}
	for _, o := range x.out.Messages {
		s.send(x, o)
	}
	x.out.Reset()
	s.publish(x)
	s.check()
	s.schedule(x)
}

// schedule has the peer look again when it wants to.
func (s *storm) schedule(x *seat) {
	wake := x.peer.Wake(s.clock(x))
	if !x.wake.IsZero() && !wake.Before(x.wake) && x.wake.After(s.clock(x)) {
		return
	}
	x.wake = wake
	peer := x.peer
	s.after(max(wake.Sub(s.clock(x)), 0)+time.Microsecond, func() {
		if x.peer != peer || x.frozen || !x.wake.Equal(wake) {
			return
		}
		x.wake = time.Time{}
		if x.peer.Ended() || !x.lapsed.IsZero() && s.now.Sub(x.lapsed) > 3*time.Second {
			if incarnation, _ := x.peer.Incarnation(); incarnation == x.drawn {
				x.lapsed = time.Time{}
				s.draw(x)
			}
		}
		s.step(x, &Due{})
	})
}

func (s *storm) send(x *seat, o Outgoing) {
	m, to := o.Message, s.seats[o.To-1]
	if s.flaw.shortSpan && m.Kind == Heartbeat {
		m.Span -= m.Interval
	}
	copies := 1
	if !s.calm && s.random.IntN(50) == 0 {
		copies = 2
	}
	for range copies {
		if s.cut[[2]int{x.lnn, o.To}] || !s.calm && s.random.Float64() < s.loss {
			continue
		}
		way := s.delay/2 + time.Duration(s.random.Int64N(int64(s.delay)))
		if !s.calm && s.random.IntN(200) == 0 {
			way += time.Duration(s.random.IntN(300)) * time.Millisecond
		}
		life := to.life
		s.after(way, func() { s.arrive(to, life, Received{Message: &m, From: x.lnn, Arrived: s.clock(to)}) })
	}
}

func (s *storm) arrive(to *seat, life int, r Received) {
	if to.peer == nil || to.life != life || s.cut[[2]int{r.From, to.lnn}] {
		return
	}
	r.Arrived = s.clock(to)
	if to.frozen {
		to.waiting = append(to.waiting, r)
		return
	}
	s.step(to, &r)
	if to.peer != nil {
		s.step(to, &Due{})
	}
}

// check is the safety: whoever anybody has found over does not hold.
func (s *storm) check() {
	for _, x := range s.seats {
		if x.peer == nil || x.frozen { // what a frozen node's kernel keeps is the guard's business
			continue
		}
		incarnation, _ := x.peer.Incarnation()
		if standing := x.peer.Standing(s.clock(x)); standing.MayHold && incarnation <= s.over[x.lnn] {
			s.fail("at %s node %d holds under incarnation %d, which somebody has found over", s.now.Sub(epoch), x.lnn, incarnation)
		}
	}
}

// fail ends the history with what is wrong.
func (s *storm) fail(format string, args ...any) { panic(wrong(fmt.Sprintf(format, args...))) }

type wrong string

// run plays until a moment.
func (s *storm) run(until time.Duration) {
	for len(s.due) > 0 && !s.due[0].at.After(epoch.Add(until)) {
		next := heap.Pop(&s.due).(happening)
		s.now = next.at
		next.do()
	}
	s.now = epoch.Add(until)
}

// holders are the nodes that may hold now.
func (s *storm) holders() []int {
	var lnns []int
	for _, x := range s.seats {
		if x.peer != nil && !x.frozen && x.peer.Standing(s.clock(x)).MayHold {
			lnns = append(lnns, x.lnn)
		}
	}
	return lnns
}

func (s *storm) kill(x *seat) {
	s.log("node %d dies", x.lnn)
	x.peer, x.frozen, x.lapsed, x.wake = nil, false, time.Time{}, time.Time{}
	x.life++
}

func (s *storm) freeze(x *seat) {
	s.log("node %d freezes", x.lnn)
	x.frozen = true
}

func (s *storm) thaw(x *seat) {
	s.log("node %d goes on", x.lnn)
	x.frozen = false
	waiting := x.waiting
	x.waiting = nil
	for i := range waiting {
		s.step(x, &waiting[i])
	}
	x.wake = time.Time{}
	s.read(x)
	s.step(x, &Due{})
}

// blow is one random fault, or its end.
func (s *storm) blow() {
	x := s.seats[s.random.IntN(len(s.seats))]
	y := s.seats[s.random.IntN(len(s.seats))]
	switch s.random.IntN(14) {
	case 0:
		if x.peer != nil {
			s.kill(x)
		}
	case 1, 2:
		if x.peer == nil {
			s.start(x)
		}
	case 3:
		if x.peer != nil && !x.frozen {
			s.freeze(x)
		}
	case 4, 5:
		if x.peer != nil && x.frozen {
			s.thaw(x)
		}
	case 6:
		s.log("cut %d to %d", x.lnn, y.lnn)
		s.cut[[2]int{x.lnn, y.lnn}] = true
	case 7:
		s.log("cut %d from all", x.lnn)
		for _, z := range s.seats {
			s.cut[[2]int{x.lnn, z.lnn}], s.cut[[2]int{z.lnn, x.lnn}] = true, true
		}
	case 8, 9:
		s.log("heal")
		clear(s.cut)
	case 10:
		s.loss = []float64{0, 0, 0.05, 0.3}[s.random.IntN(4)]
	case 11:
		s.store = !s.store
		s.log("store answers: %t", s.store)
	case 12:
		if x.peer != nil && !x.frozen {
			x.timing = Timing{Interval: time.Duration(10+s.random.IntN(90)) * time.Millisecond, Multiplier: 3}
			s.log("node %d has another span: %s", x.lnn, x.timing.Span())
			s.configure(x)
		}
	case 13:
		if x.peer != nil && !x.frozen && s.random.IntN(4) == 0 { // restarts at once
			s.kill(x)
			s.start(x)
		}
	}
}

// settle ends all faults but deaths, and starts what is off.
func (s *storm) settle() {
	s.log("=== calm")
	s.calm, s.loss, s.store = true, 0, true
	clear(s.cut)
	for _, x := range s.seats {
		switch {
		case x.peer == nil:
			s.start(x)
		case x.frozen:
			s.thaw(x)
		}
	}
}

// play is one whole random history. It returns what went wrong, if anything did.
func play(t testing.TB, seed uint64, trace bool, f flaw) (failure string) {
	defer func() {
		switch found := recover().(type) {
		case nil:
		case wrong:
			failure = string(found)
		default:
			panic(found)
		}
	}()
	random := rand.New(rand.NewPCG(seed, 2))
	nodes := 1 + random.IntN(7)
	s := newStorm(t, seed, nodes, Timing{Interval: time.Duration(10+random.IntN(90)) * time.Millisecond, Multiplier: 2 + random.IntN(3)}, f)
	s.trace = trace
	for _, x := range s.seats {
		x.slow = random.IntN(900 + f.wildClock)
	}
	end := 2 * time.Second
	s.run(end)
	for range 5 + random.IntN(60) {
		s.blow()
		end += time.Duration(random.IntN(400)) * time.Millisecond
		s.run(end)
	}
	s.settle()
	end += patience
	s.run(end)
	if len(s.holders()) != nodes {
		s.fail("%s after the last fault only %v of %d nodes may hold", patience, s.holders(), nodes)
	}
	return ""
}

// patience is within what everybody must hold again once all faults have ended: a lapse that nobody can resume is given up after
// three seconds.
const patience = 15 * time.Second

// TestStorms: whatever the network, the store, clocks and processes do, nobody holds under an incarnation that somebody has found
// over; and once it stops, everybody that runs holds.
func TestStorms(t *testing.T) {
	seeds := uint64(400)
	if testing.Short() {
		seeds = 50
	}
	for seed := range seeds {
		if failure := play(t, seed, false, flaw{}); failure != "" {
			play(t, seed, true, flaw{})
			t.Fatalf("seed %d: %s", seed, failure)
		}
	}
}

// TestStormsFindFlaws: a rule that is broken by little is found within a thousand histories.
func TestStormsFindFlaws(t *testing.T) {
	for _, f := range []flaw{
		{name: "the lease rule is broken by one interval", shortSpan: true},
		{name: "clocks are off by more than the margin covers", wildClock: 500_000},
	} {
		t.Run(f.name, func(t *testing.T) {
			for seed := range uint64(1000) {
				if failure := play(t, seed, false, f); failure != "" {
					t.Logf("seed %d: %s", seed, failure)
					return
				}
			}
			t.Error("no history of a thousand shows it")
		})
	}
}
