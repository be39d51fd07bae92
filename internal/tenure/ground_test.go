package tenure

import (
	"slices"
	"testing"
	"time"
)

// pair is two nodes that ask the ground, in steps of a millisecond. A message takes one step, and so does an answer of the ground. The
// store answers who reaches it, at once.
type pair struct {
	t      *testing.T
	now    time.Time
	asked  bool     // the setting
	peers  [3]*Peer // by LNN; nil: the agent does not run
	deaf   [3]bool  // what the other sends does not arrive at it
	ground [3]bool  // the ground answers it
	store  [3]bool  // and the store
	drawn  [3]Incarnation
	lapsed [3]time.Time
	told   [3]Recorded
	sent   [3][]Message // what arrives with the next step
	probe  [3]bool
	probes [3]int
	over   [3]Incarnation // the highest that the other has found
	both   int            // milliseconds that a node held under an incarnation that was found over
	shared bool           // who finds the other over writes it into the store
	out    Outbox
}

// newPair is two nodes that both hold.
func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t, now: epoch, asked: true, ground: [3]bool{false, true, true}, store: [3]bool{false, true, true}}
	p.start(1)
	p.start(2)
	p.run(3000)
	p.wants(1, 2)
	for lnn := 1; lnn <= 2; lnn++ {
		if o, _ := p.peers[lnn].OnRecord(); o.Changing || !slices.Equal(o.Current, []int{Ground, 3 - lnn}) {
			t.Fatalf("node %d is observed by %v", lnn, o)
		}
	}
	return p
}

func (p *pair) start(lnn int) {
	p.peers[lnn] = NewPeer(lnn, uint64(p.now.UnixNano())+uint64(lnn), usual, p.now)
	p.told[lnn], p.lapsed[lnn] = Recorded{}, time.Time{}
	p.configure(lnn)
	if other := p.told[3-lnn]; other.Incarnation > 0 && p.store[lnn] {
		p.step(lnn, &other)
	}
}

func (p *pair) configure(lnn int) {
	p.step(lnn, &Configured{Timing: usual, Voices: voices(2), NoWitness: p.asked})
}

func (p *pair) set(asked bool) {
	p.asked = asked
	for lnn := 1; lnn <= 2; lnn++ {
		if p.peers[lnn] != nil && p.store[lnn] {
			p.configure(lnn)
		}
	}
}

func (p *pair) step(lnn int, event Event) {
	peer := p.peers[lnn]
	standing := peer.Step(event, p.now, &p.out)
	switch {
	case !standing.Lapsed:
		p.lapsed[lnn] = time.Time{}
	case p.lapsed[lnn].IsZero():
		p.lapsed[lnn] = p.now
	}
	for _, o := range p.out.Messages {
		if o.To != 3-lnn {
			p.t.Fatalf("node %d sends %d a %s", lnn, o.To, o.Message.Kind)
		}
		p.sent[o.To] = append(p.sent[o.To], o.Message)
	}
	found := slices.Clone(p.out.Findings)
	if p.out.Probe {
		p.probe[lnn] = true
		p.probes[lnn]++
	}
	p.out.Reset()
	for _, f := range found {
		if testing.Verbose() {
			p.t.Logf("%s: node %d finds %d of node %d over: %s", p.now.Sub(epoch), lnn, f.Over, f.LNN, f.How)
		}
		p.over[f.LNN] = max(p.over[f.LNN], f.Over)
		if p.shared && p.store[lnn] && p.store[f.LNN] && p.peers[f.LNN] != nil {
			p.step(f.LNN, &Told{LNN: f.LNN, Over: f.Over, By: "the store says so"})
		}
	}
}

// run lets so many milliseconds pass.
func (p *pair) run(milliseconds int) {
	for range milliseconds {
		p.now = p.now.Add(time.Millisecond)
		sent, probe := p.sent, p.probe
		p.sent, p.probe = [3][]Message{}, [3]bool{}
		for lnn := 1; lnn <= 2; lnn++ {
			if p.peers[lnn] == nil {
				continue
			}
			for i := range sent[lnn] {
				if !p.deaf[lnn] {
					p.step(lnn, &Received{Message: &sent[lnn][i], From: 3 - lnn, Arrived: p.now})
				}
			}
			if probe[lnn] && p.ground[lnn] {
				p.step(lnn, &Grounded{Arrived: p.now})
			}
			p.step(lnn, &Due{})
			p.tend(lnn)
		}
		for lnn := 1; lnn <= 2; lnn++ {
			if p.peers[lnn] != nil && p.peers[lnn].Standing(p.now).MayHold && p.peers[lnn].right.incarnation <= p.over[lnn] {
				p.both++
			}
		}
	}
}

// tend is what a node does with the store.
func (p *pair) tend(lnn int) {
	peer := p.peers[lnn]
	if !p.store[lnn] {
		return
	}
	if peer.Ended() || !p.lapsed[lnn].IsZero() && p.now.Sub(p.lapsed[lnn]) > 3*time.Second {
		p.drawn[lnn]++
		p.step(lnn, &Entered{Incarnation: p.drawn[lnn]})
	}
	incarnation, begun := peer.Incarnation()
	observers, span := peer.OnRecord()
	report := Recorded{LNN: lnn, Incarnation: incarnation, Observers: observers, Span: span}
	if !begun || peer.Ended() || p.told[lnn].Incarnation == incarnation && p.told[lnn].Observers.Equal(observers) {
		return
	}
	p.told[lnn] = report
	p.step(lnn, &Published{Incarnation: incarnation, Version: observers.Version, Span: span})
	if p.peers[3-lnn] != nil && p.store[3-lnn] {
		p.step(3-lnn, &report)
	}
}

// isolate cuts a node off from all, or not any more.
func (p *pair) isolate(lnn int, cut bool) {
	p.cut(cut)
	p.ground[lnn], p.store[lnn] = !cut, !cut
}

// cut cuts the link between the two, or not any more.
func (p *pair) cut(cut bool) { p.deaf = [3]bool{false, cut, cut} }

func (p *pair) wants(holders ...int) {
	p.t.Helper()
	var got []int
	for lnn := 1; lnn <= 2; lnn++ {
		if p.peers[lnn] != nil && p.peers[lnn].Standing(p.now).MayHold {
			got = append(got, lnn)
		}
	}
	if !slices.Equal(got, holders) {
		p.t.Fatalf("after %s nodes %v may hold, wanted %v", p.now.Sub(epoch), got, holders)
	}
}

// wantsOver says that the first incarnations of just these nodes have been found over.
func (p *pair) wantsOver(lnns ...int) {
	p.t.Helper()
	for lnn := 1; lnn <= 2; lnn++ {
		if over := p.over[lnn]; (over == 1) != slices.Contains(lnns, lnn) || over > 1 {
			p.t.Fatalf("after %s incarnations of node %d up to %d are over, wanted the first of %v", p.now.Sub(epoch), lnn, over, lnns)
		}
	}
}

// wantsNobodyHeldOver says that nobody held under an incarnation that was over.
func (p *pair) wantsNobodyHeldOver() {
	p.t.Helper()
	if p.both > 0 {
		p.t.Fatalf("after %s a node has held for %d ms under an incarnation that was found over", p.now.Sub(epoch), p.both)
	}
}

// steady lets time pass in which exactly these hold at every moment.
func (p *pair) steady(milliseconds int, holders ...int) {
	p.t.Helper()
	for range milliseconds {
		p.run(1)
		p.wants(holders...)
	}
}

// What two nodes that ask the ground go through, whichever of them it is.
func TestTwoNodesAndTheGround(t *testing.T) {
	for name, play := range map[string]func(p *pair, one, other int){
		"the other dies": func(p *pair, one, other int) {
			p.peers[other] = nil
			p.steady(450, one)
			p.wantsOver(other)
			p.store[one] = false // the other was its only member
			p.steady(20_000, one)
		},
		"the other is stopped, and comes back": func(p *pair, one, other int) {
			p.step(other, &Resigned{Reason: "its agent was stopped"})
			p.run(2)
			p.peers[other] = nil
			p.steady(5000, one)
			p.start(other)
			p.run(600)
			p.steady(2000, 1, 2)
			p.wantsNobodyHeldOver()
		},
		"the other's agent restarts at once": func(p *pair, one, other int) {
			p.peers[other] = nil
			p.steady(50, one)
			p.start(other)
			p.steady(2, one)
			p.run(600)
			p.steady(2000, 1, 2)
		},
		"one is cut off from all": func(p *pair, one, other int) {
			p.isolate(one, true)
			p.run(450)
			p.wants(other)
			p.steady(20_000, other)
			p.isolate(one, false)
			p.run(200)
			p.steady(2000, 1, 2)
			p.wantsOver(one)
			p.wantsNobodyHeldOver()
		},
		"only the link between is cut": func(p *pair, one, other int) {
			p.cut(true)
			p.steady(20_000, 1, 2)
			p.wantsOver(1, 2)
			p.both = 0
			p.cut(false)
			p.run(150)
			p.both = max(0, p.both-usualOverlap)
			p.wantsNobodyHeldOver()
			p.steady(5000, 1, 2)
			p.wantsOver(1, 2)
		},
		"one way of the link is cut": func(p *pair, one, other int) {
			p.deaf[one] = true
			p.run(450)
			p.steady(5000, one)
			p.wantsOver(other)
			p.both = max(0, p.both-1) // the word is on its way
			p.wantsNobodyHeldOver()
			p.deaf[one] = false
			p.run(200)
			p.steady(2000, 1, 2)
		},
		"the gateway dies": func(p *pair, one, other int) {
			p.ground = [3]bool{}
			p.steady(5000, 1, 2)
			for lnn := 1; lnn <= 2; lnn++ {
				if g := p.peers[lnn].Grounding(); !g.Asks || !g.Since.IsZero() {
					p.t.Fatalf("node %d knows of the ground: %+v", lnn, g)
				}
			}
			p.ground = [3]bool{false, true, true}
			p.run(1100)
			if g := p.peers[one].Grounding(); g.Since.IsZero() {
				p.t.Fatalf("the ground is back, and the node knows of it: %+v", g)
			}
		},
		"the gateway and the other die together": func(p *pair, one, other int) {
			p.ground, p.peers[other] = [3]bool{}, nil
			p.run(300)
			p.steady(2000)
			p.wantsOver()
			p.ground[one] = true
			p.run(3000) // the lapse is given up
			p.steady(5000, one)
			p.wantsOver(other)
		},
		"the gateway flaps": func(p *pair, one, other int) {
			for range 20 {
				p.ground = [3]bool{}
				p.steady(170, 1, 2)
				p.ground = [3]bool{false, true, true}
				p.steady(90, 1, 2)
			}
			p.wantsOver()
		},
		"one starts alone": func(p *pair, one, other int) {
			p.peers = [3]*Peer{}
			p.run(1000)
			p.start(one)
			p.steady(390)
			p.run(200)
			p.steady(5000, one)
			p.wantsOver(other)
		},
	} {
		for one := 1; one <= 2; one++ {
			t.Run(name+", seen from node "+string(rune('0'+one)), func(t *testing.T) { play(newPair(t), one, 3-one) })
		}
	}
}

// usualOverlap is for how long each of two that hold, and hear each other again, may go on until the other has refused it.
const usualOverlap = 2 * 101

// observed says by whom a node is observed.
func (p *pair) observed(lnn int, by ...int) {
	p.t.Helper()
	if o, _ := p.peers[lnn].OnRecord(); o.Changing || !slices.Equal(o.Current, by) {
		p.t.Fatalf("after %s node %d is observed by %v, wanted %v", p.now.Sub(epoch), lnn, o, by)
	}
}

// The setting changes while both run: nobody lapses, and afterwards the other rule is in effect.
func TestGroundIsAskedOrNotAnyMore(t *testing.T) {
	p := newPair(t)
	p.set(false)
	p.steady(2000, 1, 2)
	p.observed(1)
	p.observed(2, 1)
	before := p.probes
	p.steady(3000, 1, 2)
	if p.probes != before {
		t.Fatal("the ground is asked although its word does not count")
	}
	p.set(true)
	p.steady(2000, 1, 2)
	p.observed(1, Ground, 2)
	p.observed(2, Ground, 1)
	p.peers[1] = nil
	p.steady(1000, 2)
	p.wantsOver(1)
}

// Leaving the mode while the two do not hear each other waits until they do: before that nobody may hold by a rule of which the other does
// not know.
func TestGroundIsLeftWhileApart(t *testing.T) {
	p := newPair(t)
	p.cut(true)
	p.store[2] = false
	p.run(1000)
	p.set(false)
	p.steady(5000, 1, 2)
	if o, _ := p.peers[1].OnRecord(); !o.Changing {
		t.Fatalf("node 1 is observed by %v without the other's word", o)
	}
	p.ground[1] = false
	p.run(400)
	p.wants(2) // it held by the ground until then
	p.cut(false)
	p.store[2], p.ground[1] = true, true
	p.configure(2)
	p.run(1000)
	p.steady(3000, 1, 2)
	p.observed(1)
	p.observed(2, 1)
	t.Run("in time", func(t *testing.T) {
		p := newPair(t)
		p.cut(true)
		p.set(false)
		p.run(150) // the change is on record, and known to both; nobody was found over
		p.cut(false)
		p.run(500) // the second depends on the first from here on, and may have lapsed
		p.steady(3000, 1, 2)
		p.wantsOver()
		p.observed(1)
	})
}

// Entering the mode when the other is dead does not help who depended on it, and costs nothing who did not.
func TestGroundIsAskedFromNowOn(t *testing.T) {
	p := newPair(t)
	p.set(false)
	p.run(2000)
	p.peers[2] = nil
	p.steady(1000, 1)
	p.set(true)
	p.steady(3000, 1)
	p.observed(1, Ground, 2)
	p.set(false)
	p.steady(3000, 1)
}

// While the link between is cut and both reach the store, each is told there that it is over. The second yields, the first goes on; and when
// they hear each other again both hold.
func TestOfTwoThatReachTheStoreTheFirstGoesOn(t *testing.T) {
	p := newPair(t)
	p.shared = true
	p.cut(true)
	p.run(3000)
	p.steady(20_000, 1)
	p.cut(false)
	p.run(1000)
	p.steady(3000, 1, 2)
	p.peers[1] = nil // it counts again
	p.run(500)
	p.steady(5000, 2)
}

// An operator's word that the other is dead leaves a node alone, whatever the ground says.
func TestOtherIsDeclaredDead(t *testing.T) {
	for one := 1; one <= 2; one++ {
		p := newPair(t)
		p.ground, p.peers[3-one] = [3]bool{}, nil
		p.run(1000)
		p.wants()
		p.step(one, &Told{LNN: 3 - one, Over: 1, By: "an operator", Declared: true})
		p.run(4000)
		p.steady(1000, one)
	}
}

// A short cut of the link between costs nothing, whenever it comes: who is silent for a span has another interval.
func TestShortCutBetween(t *testing.T) {
	p := newPair(t)
	for range 100 {
		p.run(1001)
		p.cut(true)
		p.steady(230, 1, 2)
		p.cut(false)
		p.steady(200, 1, 2)
		p.wantsOver()
	}
}

// The ground has no memory: its answer to a marked heartbeat brings no right back.
func TestGroundHasNoMemory(t *testing.T) {
	p := newPair(t)
	p.isolate(1, true)
	p.run(350)
	p.wants(2)
	p.ground[1] = true
	p.steady(5000, 2)
}
