package agent

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/linux/boottime"
	"github.com/holdfast/holdfast/internal/store"
	"github.com/holdfast/holdfast/internal/tenure"
	"github.com/holdfast/holdfast/internal/tenure/datagram"
)

// HeartbeatPort is where a node's heartbeats arrive, on each of its addresses of the cluster networks.
const HeartbeatPort = 7703

// wire carries this node's part in the protocol to the others: datagram.Link, or what stands for it in tests.
type wire interface {
	Serve(ctx context.Context, h datagram.Handler) error
	Queue(to, network int, m *tenure.Message) // only in calls of the handler
	Poke()
	SetPeers(peers map[int][]netip.AddrPort)
	Realtime() bool
	Close() error
}

// forever is the deadline of a right that does not run out.
const forever = math.MaxInt64

// timingOf is how a node's heartbeats go by the configuration.
func timingOf(settings cluster.Settings) tenure.Timing {
	return tenure.Timing{Interval: settings.HeartbeatInterval, Multiplier: settings.HeartbeatMultiplier}
}

// tenancy is this node in the protocol that says who may hold: it keeps the peer of package tenure, passes in what the wire and the
// store bring, and acts on what comes of it. All methods are safe for concurrent use; none waits for the network.
type tenancy struct {
	lnn      int
	store    store.Store
	wire     wire
	now      func() time.Time
	log      *slog.Logger
	silence  func(reason string)  // takes every moving address off; runs on a goroutine of its own
	changed  func()               // the standing, or what is known of others, changed; must not block
	found    func(tenure.Finding) // incarnations of another node are over; must not block
	hurry    func()               // some were just found over: what they held is with nobody; must not block
	draw     func(ctx context.Context) (tenure.Incarnation, error)
	probe    func()               // asks the ground; must not block
	handOver func(deadline int64) // tells the guard, without blocking; nil: there is none

	reports   sync.Mutex // held while something is asked of the store, and while another agent is about to take over
	mu        sync.Mutex
	idle      bool // the right is another agent's: this one is about to take over, or was replaced; it learns and does nothing
	retired   bool // it was replaced
	peer      *tenure.Peer
	box       tenure.Outbox
	received  tenure.Received // used again, so that a datagram costs no allocation
	standing  tenure.Standing
	lapsedAt  time.Time
	timing    tenure.Timing
	member    memberRecord // what is to be published
	written   memberRecord // what is known to be in the store
	answered  time.Time    // when the store last answered
	asked     time.Time    // when it was last asked
	began     time.Time    // when it was first asked
	took      time.Time    // when this agent took over from another; zero: it did not
	resigned  chan struct{}
	wake      chan struct{}
	silences  chan string
	silencing int // ends of the right that keepSilent has not seen to yet
	findings  chan tenure.Finding
	deadline  atomic.Int64 // when the right runs out, in nanoseconds of the clock; 0: there is none
}

// dueNow is the event that nothing else happened; one value for all.
var dueNow = &tenure.Due{}

// newTenancy makes the tenancy of a node whose agent starts now.
func newTenancy(lnn int, life uint64, timing tenure.Timing, now func() time.Time) *tenancy {
	return &tenancy{
		lnn: lnn, now: now, timing: timing, peer: tenure.NewPeer(lnn, life, timing, now()),
		hurry: func() {}, probe: func() {}, wake: make(chan struct{}, 1), silences: make(chan string, 1), findings: make(chan tenure.Finding, 128),
	}
}

// Permitted reports whether the right is there at this moment, without waiting for anybody: the reconciler asks it while it
// works on the kernel.
func (t *tenancy) Permitted() bool { return t.now().UnixNano() < t.deadline.Load() }

// Standing is the right as of now.
func (t *tenancy) Standing() tenure.Standing {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peer.Standing(t.now())
}

// Incarnation is the present one that records may name; 0 while there is none.
func (t *tenancy) Incarnation() tenure.Incarnation {
	t.mu.Lock()
	defer t.mu.Unlock()
	if incarnation, begun := t.peer.Incarnation(); begun {
		return incarnation
	}
	return 0
}

// Down is the latest incarnation of a node that is known to be over.
func (t *tenancy) Down(lnn int) tenure.Incarnation {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peer.Over(lnn)
}

// Listening reports whether this node has just started and acknowledges nobody yet.
func (t *tenancy) Listening() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peer.Listening(t.now())
}

// Timing is how this node's heartbeats are configured to go.
func (t *tenancy) Timing() tenure.Timing {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.timing
}

// Configure says who the nodes are, and how the heartbeats go.
func (t *tenancy) Configure(config *cluster.Config) {
	voices := make([]tenure.Voice, 0, len(config.Nodes))
	peers := map[int][]netip.AddrPort{}
	for _, node := range config.Nodes {
		voices = append(voices, tenure.Voice{LNN: node.LNN, Rack: node.Rack, Voter: hosts(config, node.LNN)})
		if node.LNN == t.lnn {
			continue
		}
		for _, addr := range node.Addresses {
			peers[node.LNN] = append(peers[node.LNN], netip.AddrPortFrom(addr, HeartbeatPort))
		}
	}
	t.wire.SetPeers(peers)
	t.mu.Lock()
	t.timing = timingOf(config.Settings)
	t.mu.Unlock()
	t.tell(&tenure.Configured{Timing: timingOf(config.Settings), Voices: voices, NoWitness: config.NoWitness()})
}

// hosts reports whether a node hosts a member of the store.
func hosts(config *cluster.Config, lnn int) bool {
	return len(config.Settings.StoreEndpoints) == 0 && slices.ContainsFunc(config.Voters(), func(n cluster.Node) bool { return n.LNN == lnn })
}

// Recorded takes in another node's report from the store.
func (t *tenancy) Recorded(lnn int, m memberRecord) {
	if m.Over {
		t.tell(&tenure.Told{LNN: lnn, Over: m.Incarnation, By: "its report says so", Declared: m.Declared != nil})
		return
	}
	t.tell(&tenure.Recorded{LNN: lnn, Incarnation: m.Incarnation, Observers: m.Observers, Span: time.Duration(m.SpanMS) * time.Millisecond})
}

// Declare takes in an operator's word that a node is dead. A node that has lapsed does not wait any longer for those whose word would
// let it resume: it begins another incarnation, for which the dead are not needed, as soon as the store gives it a number.
func (t *tenancy) Declare(lnn int, over tenure.Incarnation, by string) {
	t.tell(&tenure.Told{LNN: lnn, Over: over, By: by, Declared: true})
	t.mu.Lock()
	if !t.lapsedAt.IsZero() {
		t.lapsedAt = t.now().Add(-t.resumeWithin())
	}
	t.mu.Unlock()
	t.stir()
}

// Declared reports whether an operator declared a node dead that has not come back.
func (t *tenancy) Declared(lnn int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peer.Declared(lnn)
}

// Opinion is what this node knows of others that an operator wants to declare dead.
func (t *tenancy) Opinion(lnns []int) opinion {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := opinion{latest: map[int]tenure.Incarnation{}}
	for _, lnn := range lnns {
		o.latest[lnn] = t.peer.Latest(lnn)
		if t.peer.Sounds(lnn, t.now()) {
			o.heard = append(o.heard, lnn)
		}
	}
	return o
}

// tell passes an event in from outside the wire's thread; what is to be sent goes at its next turn.
func (t *tenancy) tell(event tenure.Event) {
	t.mu.Lock()
	t.step(event, t.now())
	t.mu.Unlock()
	t.wire.Poke() // there may be something to send, or the right may end sooner than it did
}

// Received takes in a message: the wire calls it.
func (t *tenancy) Received(m *tenure.Message, from, network int, arrived time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.received = tenure.Received{Message: m, From: from, Network: network, Arrived: arrived}
	t.step(&t.received, t.now())
	t.flush()
}

// Turn is the end of a batch of messages, or the time at which the peer wants to look again: the wire calls it.
func (t *tenancy) Turn(now time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.step(dueNow, now)
	t.flush()
	if t.resigned != nil {
		close(t.resigned)
		t.resigned = nil
	}
	return t.peer.Wake(now)
}

// flush queues what is to be sent. The caller has the lock, in a call of the wire.
func (t *tenancy) flush() {
	for i := range t.box.Messages {
		out := &t.box.Messages[i]
		t.wire.Queue(out.To, out.Network, &out.Message)
	}
	t.box.Messages = t.box.Messages[:0]
}

// step passes an event through the peer and acts on what comes of it. The caller has the lock.
func (t *tenancy) step(event tenure.Event, now time.Time) {
	if t.idle {
		return
	}
	before := t.standing
	t.standing = t.peer.Step(event, now, &t.box)
	t.setDeadline(deadlineOf(t.standing))
	for _, f := range t.box.Findings {
		select {
		case t.findings <- f:
		default: // nobody has read a hundred of them; what counts is in the peer
		}
	}
	if t.box.Probe {
		t.box.Probe = false
		t.probe()
	}
	news := len(t.box.Findings) > 0
	if news {
		t.hurry()
	}
	t.box.Findings = t.box.Findings[:0]
	switch {
	case !t.standing.Lapsed:
		t.lapsedAt = time.Time{}
	case t.lapsedAt.IsZero():
		t.lapsedAt = now
	}
	if before.MayHold && !t.standing.MayHold {
		t.endRight(t.standing.Reason)
	}
	if news || before.MayHold != t.standing.MayHold || before.Lapsed != t.standing.Lapsed {
		t.changed()
		t.stir()
	}
}

// endRight has everything taken off, since the right is gone. The caller has the lock.
func (t *tenancy) endRight(reason string) {
	select {
	case t.silences <- reason:
		t.silencing++
	default: // one is about to be
	}
}

// setDeadline is where the deadline changes: what is permitted here is what the guard knows. The caller has the lock.
func (t *tenancy) setDeadline(deadline int64) {
	if t.deadline.Swap(deadline) != deadline && t.handOver != nil {
		t.handOver(deadline)
	}
}

func deadlineOf(standing tenure.Standing) int64 {
	switch {
	case !standing.MayHold:
		return 0
	case standing.Until.IsZero():
		return forever
	}
	return standing.Until.UnixNano()
}

// keepSilent takes everything off when the right is gone. It has a goroutine of its own: heartbeats do not wait for the kernel.
func (t *tenancy) keepSilent(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case reason := <-t.silences:
			t.silence(reason)
			t.mu.Lock()
			t.silencing--
			t.mu.Unlock()
			t.stir() // another incarnation may have waited for it
		}
	}
}

// tellFindings passes findings on. It has a goroutine of its own: heartbeats do not wait for a log.
func (t *tenancy) tellFindings(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-t.findings:
			t.found(f)
		}
	}
}

// resignLimit bounds what a stopping agent waits for its farewell to be sent.
const resignLimit = 200 * time.Millisecond

// resign gives the right up, when nothing is on the interfaces any more, and tells the others.
func (t *tenancy) resign() {
	sent := make(chan struct{})
	t.mu.Lock()
	t.step(&tenure.Resigned{Reason: "the agent stops"}, t.now())
	t.resigned = sent
	t.mu.Unlock()
	t.wire.Poke()
	timer := time.NewTimer(resignLimit)
	defer timer.Stop()
	select {
	case <-sent:
	case <-timer.C:
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (t *tenancy) isRetired() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.retired
}

// withdraw offers the right to another agent. It is called between two turns of the wire, which does not go on meanwhile. Without an error
// the right is the other agent's, and this one does nothing any more; with one it is as it was. Left is how long the offer may stand.
func (t *tenancy) withdraw(offer func(right handoverRight, left time.Duration) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	standing := t.peer.Standing(t.now())
	if !standing.MayHold {
		return errors.New("this node may not hold at this moment: " + standing.Reason)
	}
	left := takeLimit
	if !standing.Until.IsZero() {
		left = min(left, max(leastTake, standing.Until.Sub(t.now())/2))
	}
	if err := offer(handoverRight{Peer: t.peer.Export(boottime.Nanoseconds)}, left); err != nil {
		return err
	}
	t.idle, t.retired = true, true
	t.deadline.Store(0) // the guard is not told: it hears the other agent
	return nil
}

// takeOver goes on under another agent's right, unless accept fails. It comes before the wire is served.
func (t *tenancy) takeOver(right handoverRight, member memberRecord, accept func() error) error {
	peer := tenure.Import(right.Peer, moment)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := accept(); err != nil {
		return err
	}
	now := t.now()
	t.idle, t.peer, t.standing = false, peer, peer.Standing(now)
	t.member, t.written, t.began, t.answered, t.took = member, member, now, now, now
	t.setDeadline(deadlineOf(t.standing))
	if !t.standing.MayHold { // it ran out on the way
		t.endRight(t.standing.Reason)
	}
	return nil
}
