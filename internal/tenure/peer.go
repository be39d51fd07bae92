package tenure

import (
	"fmt"
	"slices"
	"time"
)

// Pace of what is said again, and bounds.
const (
	noticeTimes = 5           // how often a finder tells the others
	quickTries  = 8           // so often an observer is asked at the quick pace
	slowAsk     = time.Second // then so often
	maxWatched  = 1024        // nodes that are watched; more are refused

	maxQuestions = 256 // questions in one batch; more are left unanswered, and are asked again

	// unheardPatience is how long after its start a node counts those among its observers of whom it knows nothing.
	unheardPatience = 5 * time.Second
)

// AllNetworks as the network of an Outgoing message is every one that both nodes share.
const AllNetworks = -1

// Event is one thing that a Peer learns. Events are passed as pointers, so that a datagram costs no allocation.
type Event interface{ event() }

// Received is a message that came in. Arrived is the kernel's time of its arrival, not later than now.
type Received struct {
	Message       *Message
	From, Network int
	Arrived       time.Time
}

// Due says that time has passed. It is also the end of a batch of messages: what arrived before now has been passed in.
type Due struct{}

// Entered gives the node the number of a new incarnation, drawn from the store.
type Entered struct{ Incarnation Incarnation }

// Configured says who the nodes are and how this node's heartbeats go.
type Configured struct {
	Timing Timing
	Voices []Voice // all nodes of the cluster; Over is ignored: the peer knows

	NoWitness bool // of two nodes each asks the ground whether it may go on without the other
}

// Recorded is what is on record about another node: its incarnation, its observers, and the longest span that it uses.
type Recorded struct {
	LNN         int
	Incarnation Incarnation
	Observers   Observers
	Span        time.Duration
}

// Published says that what OnRecord showed about this node is now on record.
type Published struct {
	Incarnation Incarnation
	Version     uint64
	Span        time.Duration
}

// Told is proof from outside the protocol that incarnations are over: an operator's word, or a record that says so.
type Told struct {
	LNN      int
	Over     Incarnation
	By       string
	Declared bool // an operator's word that the node is dead: it is nobody's observer until a later incarnation of it is heard
}

// Resigned says that this node gives its right up: its agent stops, and everything is off its interfaces.
type Resigned struct{ Reason string }

func (*Received) event()   {}
func (*Due) event()        {}
func (*Entered) event()    {}
func (*Configured) event() {}
func (*Recorded) event()   {}
func (*Published) event()  {}
func (*Told) event()       {}
func (*Resigned) event()   {}

// Outgoing is a message to send.
type Outgoing struct {
	To, Network int
	Message     Message
}

// Finding is the news that incarnations of a node are over.
type Finding struct {
	LNN      int
	Over     Incarnation
	How      string    // for people
	By       int       // the node that said so; zero: this node found it itself, or it was told from outside the protocol
	Heard    time.Time // when this node last heard it; zero: never
	Declared time.Time // when this node had heard nothing for a span; zero: it had not
	Asked    time.Time // when its first question about it went to another observer; zero: none did
	Words    []Word    // what the others had said to its questions, by then
}

// Outbox takes what a step says and finds. The caller empties it; its slices are used again.
type Outbox struct {
	Messages []Outgoing
	Findings []Finding
	Probe    bool // the ground is to be asked now
}

// Reset empties it.
func (o *Outbox) Reset() { o.Messages, o.Findings, o.Probe = o.Messages[:0], o.Findings[:0], false }

// Standing is a node's own right at one moment.
type Standing struct {
	MayHold bool
	Until   time.Time // when the right runs out unless it is renewed; zero: never, or it is not there
	Reason  string    // why not, when not
	Lapsed  bool      // it is not there, and may come back under the same incarnation
}

// Peer is one node's whole part in the protocol. NewPeer makes one.
type Peer struct {
	self    int
	life    uint64
	born    time.Time
	asked   Timing // as configured; right.timing is what is in effect
	voices  []Voice
	right   right
	watches map[int]*watch
	order   []*watch // the same, by LNN, so that equal steps send equal messages
	number  uint64   // of questions; begins anywhere, so that no answer to an earlier life's question fits
	stale   bool     // the observers are to be chosen anew
	waited  bool     // it has been long enough since the start to take those for dead of whom nothing was heard

	questions []question // which wait for the end of the batch

	noWitness bool   // of two nodes each asks the ground
	ground    ground // what is known of it
	told      bool   // something outside the protocol said that this node's incarnation was over, and no node has acknowledged it since
}

// NewPeer makes the peer of a node whose agent starts now. Life is drawn at random for each start.
func NewPeer(self int, life uint64, timing Timing, now time.Time) *Peer {
	timing = timing.bounded()
	return &Peer{self: self, life: life, born: now, number: life, asked: timing, right: right{timing: timing, why: "it has no incarnation yet"}, watches: map[int]*watch{}}
}

// Step is the one door in. It returns the node's right as of now, and adds to out what is to be sent and what was found.
func (p *Peer) Step(event Event, now time.Time, out *Outbox) Standing {
	switch e := event.(type) {
	case *Received:
		p.receive(e, now, out)
	case *Due:
		p.due(now, out)
	case *Entered:
		if e.Incarnation > p.right.incarnation {
			p.choose()
			p.right.enter(e.Incarnation, now)
			p.ground = ground{} // while there are no heartbeats it is not asked
		}
	case *Configured:
		p.configure(e, now)
	case *Recorded:
		p.record(e, now, out)
	case *Published:
		p.published(e, now)
	case *Grounded:
		p.grounded(e, now)
	case *Told:
		p.told = p.told || e.LNN == p.self && e.Over >= p.right.incarnation
		p.learn(e.LNN, e.Over, 0, e.By, out)
		p.declare(e)
	case *Resigned:
		p.right.lose(e.Reason)
		p.tellAll(Message{Kind: Farewell, Subject: p.self, Incarnation: p.right.incarnation}, out)
	default:
		panic(fmt.Sprintf("tenure: unknown event %T", event))
	}
	return p.Standing(now)
}

// Standing is the right at a moment not before the last step; what ran out since is not there any more.
func (p *Peer) Standing(now time.Time) Standing {
	r := &p.right
	switch {
	case r.phase == holding && (r.until.IsZero() || r.until.After(now)):
		return Standing{MayHold: true, Until: r.until}
	case r.phase == holding:
		return Standing{Reason: fmt.Sprintf("incarnation %d is about to lapse", r.incarnation), Lapsed: true}
	}
	return Standing{Reason: r.why, Lapsed: r.phase == lapsed}
}

// Incarnation is this node's present one, and whether it has ever had enough leases, so that a record may name it ("unleased").
func (p *Peer) Incarnation() (incarnation Incarnation, begun bool) {
	return p.right.incarnation, !p.right.began.IsZero()
}

// Ended reports whether the incarnation is over for good, so that another has to be drawn.
func (p *Peer) Ended() bool { return p.right.phase == over || p.right.phase == idle }

// OnRecord is what should be on record about this node: its observers and the longest span that it uses.
func (p *Peer) OnRecord() (Observers, time.Duration) {
	return p.right.onRecord(), max(p.right.timing.Span(), p.asked.Span())
}

// Over is the latest incarnation of a node that is known to be over.
func (p *Peer) Over(lnn int) Incarnation {
	if w := p.watches[lnn]; w != nil {
		return w.over
	}
	return 0
}

// Listening reports whether this node has just started, so that its word about others does not count yet.
func (p *Peer) Listening(now time.Time) bool { return now.Before(p.listens(nil)) }

// Quiet reports whether this node, as an observer, has heard nothing of another for its span.
func (p *Peer) Quiet(lnn int, now time.Time) bool {
	w := p.watches[lnn]
	return w != nil && w.silent(now)
}

// Wake is when Due must be passed in next, at the latest.
func (p *Peer) Wake(now time.Time) time.Time {
	r := &p.right
	next := now.Add(time.Second)
	if r.phase != idle && r.phase != over {
		next = sooner(next, r.beatDue)
	}
	if r.phase == holding && !r.until.IsZero() {
		next = sooner(next, r.until)
	}
	for _, w := range p.order {
		switch {
		case w.incarnation <= w.over || w.quiet.IsZero():
		case w.quiet.After(now):
			next = sooner(next, w.quiet)
		default:
			next = sooner(next, sooner(w.hintDue, w.inquiry.due()))
		}
		if w.notices > 0 {
			next = sooner(next, w.noticeDue)
		}
	}
	return later(next, now)
}

// due is the end of a batch.
func (p *Peer) due(now time.Time, out *Outbox) {
	p.right.judge(now)
	for i := range p.questions {
		p.reply(&p.questions[i], now, out)
	}
	p.questions = p.questions[:0]
	p.adopt(now)
	if !p.waited && !now.Before(p.born.Add(unheardPatience)) {
		p.waited, p.stale = true, true
	}
	if p.stale {
		p.choose()
	}
	p.right.change(now)
	for _, w := range p.order {
		p.tellAgain(w, now, out)
		if w.silent(now) {
			p.pursue(w, now, out)
		}
	}
	if b, ok := p.right.nextBeat(now); ok {
		p.sendBeat(b, out)
		p.askGround(now, out)
	}
}

func (p *Peer) sendBeat(b beat, out *Outbox) {
	r := &p.right
	m := Message{Kind: Heartbeat, Subject: p.self, Incarnation: r.incarnation, Number: b.number, Span: b.span, Interval: r.timing.Interval,
		Lapsed: b.marked, Version: r.set.Version}
	for _, lnn := range r.asked {
		if lnn == Ground {
			continue
		}
		if m.Life = 0; b.marked {
			m.Life = r.leases[lnn].life
		}
		out.Messages = append(out.Messages, Outgoing{lnn, AllNetworks, m})
	}
}

func (p *Peer) tellAll(m Message, out *Outbox) {
	for _, v := range p.voices {
		if v.LNN != p.self && v.LNN != m.Subject {
			out.Messages = append(out.Messages, Outgoing{v.LNN, AllNetworks, m})
		}
	}
}

// configure takes in who the nodes are and how the heartbeats should go.
func (p *Peer) configure(e *Configured, now time.Time) {
	p.asked = e.Timing.bounded()
	p.voices, p.noWitness = slices.Clone(e.Voices), e.NoWitness
	slices.SortFunc(p.voices, func(a, b Voice) int { return a.LNN - b.LNN })
	// The watch of a node that left stays: should its number come back, what was confirmed about its old life still counts.
	p.adopt(now)
	p.choose()
}

// adopt puts the configured heartbeats into effect. A longer span only when it is on record, since an observer that restarts listens
// for the longest span in use.
func (p *Peer) adopt(now time.Time) {
	r := &p.right
	if p.asked == r.timing {
		return
	}
	named := r.phase == holding || r.phase == lapsed
	if p.asked.Span() > r.timing.Span() && named && p.recordedSpan() < p.asked.Span() {
		return
	}
	r.retime(p.asked, now)
}

func (p *Peer) recordedSpan() time.Duration { return p.right.recordedSpan }

// choose says which observers this node should have.
func (p *Peer) choose() {
	p.stale = false
	voices := make([]Voice, 0, len(p.voices))
	for _, v := range p.voices {
		w := p.watches[v.LNN]
		if w == nil || w.incarnation == 0 {
			v.Over = p.waited
		} else {
			v.Over = w.incarnation <= w.over
		}
		v.Declared = w != nil && w.dead
		voices = append(voices, v)
	}
	wanted := ChooseObservers(p.self, voices, p.right.set.Current)
	if other, grounded := p.both(); grounded {
		wanted = []int{Ground, other}
	}
	p.right.stranger = !p.configured(p.self)
	if p.right.stranger && len(wanted) == 0 {
		return // it keeps those that it has: nothing says that it is alone
	}
	if !slices.Equal(wanted, p.right.wanted) {
		p.right.want(wanted)
	}
}

// published is this node's knowledge of what is on record about it.
func (p *Peer) published(e *Published, now time.Time) {
	if e.Incarnation != p.right.incarnation {
		return
	}
	p.right.recorded = max(p.right.recorded, e.Version)
	_, shown := p.OnRecord()
	p.right.recordedSpan = min(e.Span, shown) // a write from before the span was made shorter says nothing about the next longer one
	p.adopt(now)
	p.right.change(now)
}

// watchOf is the watch of a node; nil if there are too many, or the node is this one.
func (p *Peer) watchOf(lnn int) *watch {
	w := p.watches[lnn]
	if w == nil && lnn > 0 && lnn != p.self && len(p.watches) < maxWatched {
		w = &watch{lnn: lnn}
		p.watches[lnn] = w
		at, _ := slices.BinarySearchFunc(p.order, lnn, func(w *watch, lnn int) int { return w.lnn - lnn })
		p.order = slices.Insert(p.order, at, w)
	}
	return w
}

// known is the watch of a node of which there is one, or that is configured: a message of a stranger makes none.
func (p *Peer) known(lnn int) *watch {
	if w := p.watches[lnn]; w != nil || !p.configured(lnn) {
		return w
	}
	return p.watchOf(lnn)
}

func (p *Peer) configured(lnn int) bool {
	_, found := slices.BinarySearchFunc(p.voices, lnn, func(v Voice, lnn int) int { return v.LNN - lnn })
	return found
}

// record takes in what is on record about another node.
func (p *Peer) record(e *Recorded, now time.Time, out *Outbox) {
	w := p.watchOf(e.LNN)
	if w == nil || e.Incarnation < w.record.Incarnation || e.Incarnation == w.record.Incarnation && e.Observers.Version < w.record.Observers.Version {
		return
	}
	observed := w.mine
	if e.Incarnation != w.record.Incarnation || !e.Observers.Equal(w.record.Observers) { // whom to ask may have changed
		w.declared, w.hintDue, w.inquiry = time.Time{}, time.Time{}, inquiry{}
	}
	w.record = *e
	w.record.Span = min(e.Span, MaxSpan)
	w.record.Observers = e.Observers.clone()
	w.mine = e.Observers.has(p.self)
	if e.Incarnation > w.incarnation {
		p.later(w, e.Incarnation, "a later incarnation of it is on record", out)
	}
	if w.incarnation > w.over && (w.quiet.IsZero() || !observed) { // not heard yet: it has as long as one that was heard now
		span, interval := w.timing(p.right.timing)
		w.quiet = later(w.quiet, later(promised(now, span+interval), p.listens(w)))
	}
}

// later begins a later incarnation of another node, which proves those before it over.
func (p *Peer) later(w *watch, incarnation Incarnation, how string, out *Outbox) {
	p.stale = true
	before := w.over
	finding := w.finding(incarnation-1, 0, how)
	known := w.incarnation > 0
	w.begin(incarnation)
	finding.Over = w.over
	if known && w.over > before || w.over == incarnation {
		out.Findings = append(out.Findings, finding)
	}
}

// hearsay takes in another node's word that incarnations are over. It is believed of those that were heard or are on record; of a
// later one it is kept in mind, and counts when just that one appears. So no node can bar another from the incarnations to come.
func (p *Peer) hearsay(m *Message, by int, how string, out *Outbox) {
	gone := m.Incarnation
	if m.Subject != p.self {
		w := p.known(m.Subject)
		if w == nil {
			return
		}
		if gone > w.incarnation {
			w.rumoured, gone = gone, w.incarnation
		}
	}
	p.learn(m.Subject, gone, by, how, out)
}

// learn takes in that incarnations of a node are over. By is the node that says so, if one does.
func (p *Peer) learn(lnn int, gone Incarnation, by int, how string, out *Outbox) {
	if lnn == p.self {
		if gone >= p.right.incarnation && gone > 0 {
			p.right.lose(fmt.Sprintf("incarnation %d is over: %s", p.right.incarnation, how))
		}
		return
	}
	w := p.watchOf(lnn)
	if w == nil || gone <= w.over {
		return
	}
	p.stale = true
	out.Findings = append(out.Findings, w.finding(gone, by, how))
	w.over = gone
	w.incarnation = max(w.incarnation, gone)
	if w.incarnation <= gone {
		w.declared, w.hintDue, w.inquiry, w.quiet = time.Time{}, time.Time{}, inquiry{}, time.Time{}
	}
}

// listens is until when this node, which has just started, neither acknowledges nor confirms a node: it may have done either before
// it started ("restart-acknowledges", "restart-declares").
func (p *Peer) listens(w *watch) time.Time {
	span, interval := max(p.asked.Span(), p.right.timing.Span()), max(p.asked.Interval, p.right.timing.Interval)
	if w != nil {
		span, interval = max(span, w.span, w.record.Span), max(interval, w.interval)
	}
	return promised(p.born, max(span+interval, leastWait))
}
