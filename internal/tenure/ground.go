package tenure

import (
	"slices"
	"time"
)

// Of two nodes neither can tell the other's death from a cut between them. With Configured.NoWitness each asks a third: the gateways of
// its subnets, which are called the ground. It answers questions, and has no memory. So its word is worth less than a node's:
//
//   - Each of the two has the other and the ground for its observers, and holds by the word of one. The other is Down by both: by this
//     node's own word, and the ground's, which answered this node a question that it put when the other had been silent for a span and an
//     interval. A node that is cut off from both lapses before that.
//   - A right that has lapsed is never resumed by the ground's word: a node would have to remember that it has not confirmed ("no-memory").
//   - The ground's word begins an incarnation, or finds the other Down, only where nothing is heard of the other although the ground has
//     answered for as long as it takes to hear it: a node that comes back from a cut may be answered by the ground first ("early-ground").
//   - The one that was found over tells nobody by itself whom it does not hear. So the finder tells it, too; and the second of the two, once
//     the store has told it, begins nothing without the first ("yields").
//
// If nothing but the link between the two is cut, each finds the other Down, and both hold, until they hear each other again. Then
// each refuses the other, both lapse for good, and what is on record decides who takes.

// Ground is the ground's number among the observers. No node has it.
const Ground = 0

// groundPace is how often the ground is asked while the other's acknowledgements come in time: so that somebody knows whether it answers.
const groundPace = time.Second

// Grounded says that the ground has answered: every gateway, since it was last asked. Arrived is when the last of the answers came.
type Grounded struct{ Arrived time.Time }

func (*Grounded) event() {}

// ground is what a node knows of the ground. Answers bear no number, so that one is taken for the answer to the oldest question that has none.
type ground struct {
	number   uint64    // of the round of heartbeats that the oldest question without an answer went with; zero: there is none
	asked    time.Time // when that question went
	last     time.Time // when the last question went
	answered time.Time // when the last question went that has its answer; zero: none has
	arrived  time.Time // when that answer came
	since    time.Time // since when it has answered without a gap; zero: it does not
}

// Grounding is what a node knows of the ground, for people.
type Grounding struct {
	Asks    bool      // it asks: it has the ground for an observer, or observes with it
	Asked   time.Time // when the last question went; zero: none has
	Arrived time.Time // when the last answer came; zero: none has
	Since   time.Time // since when it has answered without a gap; zero: it does not answer
}

// Grounding shows what this node knows of the ground.
func (p *Peer) Grounding() Grounding {
	g := &p.ground
	return Grounding{Asks: p.asksGround(), Asked: g.last, Arrived: g.arrived, Since: g.since}
}

// both reports whether this node and the other are to have the ground for an observer, and which node the other is.
func (p *Peer) both() (other int, grounded bool) {
	if !p.noWitness || len(p.voices) != 2 || !p.configured(p.self) {
		return 0, false
	}
	other = p.voices[0].LNN
	if other == p.self {
		other = p.voices[1].LNN
	}
	return other, !p.Declared(other)
}

// asksGround reports whether the ground's word counts for this node's right, or for its word about another.
func (p *Peer) asksGround() bool {
	return p.right.leases[Ground] != nil || slices.ContainsFunc(p.order, func(w *watch) bool {
		return w.mine && w.incarnation > w.over && w.record.Observers.has(Ground)
	})
}

// askGround has the ground asked with a round of heartbeats: with each, unless another observer's lease lasts beyond the next and the
// other node is heard.
func (p *Peer) askGround(now time.Time, out *Outbox) {
	if !p.asksGround() {
		p.ground = ground{}
		return
	}
	r := &p.right
	soon := now.Add(r.timing.Interval + r.timing.Interval/2)
	late := r.phase != holding
	if !r.until.IsZero() {
		late = late || !slices.ContainsFunc(r.asked, func(lnn int) bool { return lnn != Ground && r.leases[lnn].until.After(soon) })
	}
	for _, w := range p.order {
		late = late || w.mine && w.incarnation > w.over && now.Sub(w.sounded) > soon.Sub(now)
	}
	if late || !now.Before(p.ground.last.Add(groundPace)) {
		p.putQuestion(now, out)
	}
}

// putQuestion puts a question to the ground now. A lease that comes of it counts from the last round of heartbeats: whoever heard that, and
// none after it, finds this node Down no sooner than a span after it.
func (p *Peer) putQuestion(now time.Time, out *Outbox) {
	g := &p.ground
	if g.last = now; g.number == 0 {
		g.number, g.asked = p.right.number, now
	} else if now.Sub(g.asked) >= 2*p.right.timing.Interval {
		g.since = time.Time{}
	}
	out.Probe = true
}

// grounded takes in the ground's answer.
func (p *Peer) grounded(e *Grounded, now time.Time) {
	g := &p.ground
	b := p.right.beats[g.number%beats]
	if g.number == 0 {
		return
	}
	number := g.number
	g.number = 0
	if b.number != number { // it is of another incarnation, or too old
		return
	}
	g.answered, g.arrived = g.asked, e.Arrived
	if g.since.IsZero() {
		g.since = e.Arrived
	}
	p.right.grounded(b, p.alone(now), e.Arrived, now)
}

// alone reports whether the ground's word suffices to begin an incarnation: nothing of the other has been heard for its span, while the ground
// answered for as long ("early-ground").
func (p *Peer) alone(now time.Time) bool {
	other, grounded := p.both()
	if !grounded || p.told && other < p.self { // "yields"
		return false
	}
	span, interval := p.right.timing.Span(), p.right.timing.Interval
	if w := p.watches[other]; w == nil || w.incarnation == 0 {
		if !p.waited {
			return false
		}
	} else {
		heard, between := w.timing(p.right.timing)
		if span, interval = max(span, heard), max(interval, between); now.Before(p.listens(w)) || p.Sounds(other, now) {
			return false
		}
	}
	return p.ground.throughout(span+interval, now)
}

// throughout reports whether the ground has answered for so long without a gap.
func (g *ground) throughout(d time.Duration, at time.Time) bool {
	return !g.since.IsZero() && !at.Before(promised(g.since, d))
}

// vouches reports whether the ground confirms that a node has stopped: it has answered for as long as it takes to hear that node
// ("early-ground"), and a question that was put when it had been silent for another interval.
func (p *Peer) vouches(w *watch) bool {
	span, interval := w.timing(p.right.timing)
	g := &p.ground
	return !w.declared.IsZero() && !g.answered.Before(w.declared.Add(interval)) && g.throughout(span+interval, g.answered)
}

// grounded takes in the ground's word, for a round of heartbeats. It extends a right that is there, and begins one if begins says so, but
// never brings one back ("no-memory").
func (r *right) grounded(b beat, begins bool, arrived, now time.Time) {
	l := r.leases[Ground]
	if l == nil {
		return
	}
	r.judge(arrived)
	l.heard[0] = later(l.heard[0], arrived)
	if b.marked || r.phase == lapsed || r.phase == entering && !begins {
		return
	}
	r.leased(l, b, arrived, now)
}
