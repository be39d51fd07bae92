package tenure

import (
	"math/rand/v2"
	"testing"
	"time"
)

// gambler passes events that come out of bytes into a peer, and keeps its own account of what was acknowledged.
type gambler struct {
	t      *testing.T
	bytes  []byte
	peer   *Peer
	now    time.Time
	out    Outbox
	sent   map[uint64]time.Time // until when a heartbeat of this incarnation may be counted at most
	given  map[int]time.Time    // until when what an observer acknowledged may be counted at most
	alone  bool                 // some configuration allowed it to have no observers
	number uint64               // of the last round
	under  Incarnation          // to which sent and given belong
}

// gambles names what may happen, so that the first bytes of an input are readable.
var gambles = [...]string{"time", "due", "entered", "configured", "recorded", "published", "told", "message", "message", "message", "message",
	"acknowledged", "acknowledged", "acknowledged", "grounded"}

func (g *gambler) next() int {
	if len(g.bytes) == 0 {
		return 0
	}
	b := g.bytes[0]
	g.bytes = g.bytes[1:]
	return int(b)
}

// large is a small number, mostly.
func (g *gambler) large() uint64 {
	b := g.next()
	if b >= 250 {
		return 1<<64 - 1 - uint64(b-250)
	}
	return uint64(b % 12)
}

func (g *gambler) span() time.Duration {
	return []time.Duration{300 * time.Millisecond, 30 * time.Millisecond, 0, -1, time.Hour, 1<<63 - 1, time.Millisecond, 10 * time.Second}[g.next()%8]
}

func (g *gambler) set() (lnns []int) {
	bits := g.next()
	if bits&1 == 1 {
		lnns = append(lnns, Ground)
	}
	for lnn := 1; lnn <= 8; lnn++ {
		if bits>>lnn&1 == 1 {
			lnns = append(lnns, lnn)
		}
	}
	return lnns
}

func (g *gambler) message() *Received {
	m := &Message{Kind: Kind(1 + g.next()%int(kinds-1)), Lapsed: g.next()%3 == 0, Reason: Denied(g.next() % int(denials)), Subject: 1 + g.next()%9,
		Incarnation: Incarnation(g.large()), Number: g.large(), Span: g.span(), Interval: g.span(), Life: g.large(), Version: g.large()}
	return &Received{Message: m, From: 1 + g.next()%9, Network: g.next()%12 - 2, Arrived: g.now.Add(-time.Duration(g.next()) * time.Millisecond)}
}

// acknowledgement is one of a heartbeat that was sent lately, under the right incarnation or another one.
func (g *gambler) acknowledgement() *Received {
	e := g.message()
	m := e.Message
	m.Kind, m.Subject, m.Incarnation, m.Number = Acknowledgement, g.peer.self, g.peer.right.incarnation, g.peer.right.number-m.Number
	if g.next() > 240 {
		m.Incarnation--
	}
	return e
}

func (g *gambler) configured() Event {
	e := &Configured{Timing: Timing{Interval: g.span(), Multiplier: int(g.large())}}
	named := false
	for _, lnn := range g.set() {
		if e.NoWitness = e.NoWitness || lnn == Ground; lnn == Ground {
			continue
		}
		e.Voices = append(e.Voices, Voice{LNN: lnn, Rack: string(rune('a' + lnn%2))})
		named = named || lnn == g.peer.self
	}
	if named && (len(e.Voices) == 1 || len(e.Voices) == 2 && e.Voices[0].LNN == g.peer.self) {
		g.alone = true
	}
	return e
}

func (g *gambler) event() Event {
	switch gambles[g.next()%len(gambles)] {
	case "time":
		g.now = g.now.Add(time.Duration(1+g.next()*g.next()/8) * time.Millisecond)
		return &Due{}
	case "entered":
		return &Entered{Incarnation: Incarnation(g.large())}
	case "configured":
		return g.configured()
	case "recorded":
		o := Observers{Version: g.large(), Current: g.set(), Previous: g.set(), Changing: g.next()%2 == 0}
		return &Recorded{LNN: 1 + g.next()%9, Incarnation: Incarnation(g.large()), Observers: o, Span: g.span()}
	case "published":
		o, span := g.peer.OnRecord()
		return &Published{Incarnation: g.peer.right.incarnation, Version: o.Version + uint64(g.next()%3) - 1, Span: span}
	case "told":
		return &Told{LNN: 1 + g.next()%9, Over: Incarnation(g.large())}
	case "message":
		return g.message()
	case "acknowledged":
		return g.acknowledgement()
	case "grounded":
		return &Grounded{Arrived: g.now.Add(-time.Duration(g.next()) * time.Millisecond)}
	}
	return &Due{}
}

// account notes what an observer gives.
func (g *gambler) account(event Event) {
	if _, grounded := event.(*Grounded); grounded {
		g.given[Ground] = later(g.given[Ground], g.sent[g.peer.ground.number])
	}
	if e, received := event.(*Received); received && e.Message.Kind == Acknowledgement {
		if end, there := g.sent[e.Message.Number]; there && e.Message.Incarnation == g.under {
			g.given[e.From] = later(g.given[e.From], end)
		}
	}
}

// check says no to a right that does not rest on what was acknowledged, by each set that counts.
func (g *gambler) check(standing Standing) {
	r := &g.peer.right
	if g.under != r.incarnation {
		g.under = r.incarnation
		clear(g.sent)
		clear(g.given)
	}
	for _, o := range g.out.Messages {
		if o.To == g.peer.self {
			g.t.Fatalf("the node says to itself: %v", o.Message)
		}
	}
	if r.number != g.number { // also a round that went to nobody: whoever acknowledges that lies
		g.number = r.number
		g.sent[r.number] = g.now.Add(r.timing.Span())
	}
	g.out.Reset()
	if wake := g.peer.Wake(g.now); wake.Before(g.now) || wake.After(g.now.Add(time.Second)) {
		g.t.Fatalf("at %s the node wants to look again at %s", g.now, wake)
	}
	if !standing.MayHold {
		return
	}
	sets := [][]int{r.set.Current}
	if r.set.Changing {
		sets = append(sets, r.set.Previous)
	}
	for _, set := range sets {
		alive := 0
		for _, lnn := range set {
			if g.given[lnn].After(g.now) {
				alive++
			}
		}
		if alive < Need(len(set)) {
			g.t.Fatalf("the node may hold with %d leases of %v, until %s", alive, set, standing.Until)
		}
		if len(set) == 0 && !g.alone {
			g.t.Fatalf("the node may hold without observers, and no configuration says so")
		}
	}
}

// FuzzPeer: no events, in whatever order, bring a peer to panic, to a right without leases, or to be woken in the past.
func FuzzPeer(f *testing.F) {
	f.Add([]byte{1, 3, 0, 3, 0x0e, 2, 7, 1, 1})
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 3))
		b := []byte{byte(seed), 3, 0, 3, byte(seed)<<1 | 6, 2, 1, 1}
		for range 400 {
			b = append(b, byte(random.IntN(256)))
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		g := &gambler{t: t, bytes: b, now: epoch, sent: map[uint64]time.Time{}, given: map[int]time.Time{}}
		g.peer = NewPeer(1+g.next()%3, uint64(g.next()), usual, g.now)
		for steps := 0; len(g.bytes) > 0 && steps < 2000; steps++ {
			event := g.event()
			g.account(event)
			g.check(g.peer.Step(event, g.now, &g.out))
		}
	})
}
