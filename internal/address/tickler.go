package address

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/linux/tickle"
	"github.com/holdfast/holdfast/internal/problem"
)

// The pace of tickles: a batch, then a pause. It bounds what leaves a node that takes over many clients to some 50,000 packets a
// second, of 40 or 60 bytes.
const (
	tickleBatch = 256
	ticklePause = 5 * time.Millisecond
)

// TickleSender is what the Tickler needs of tickle.Sender.
type TickleSender interface {
	Send([]tickle.Connection) []error
}

var _ TickleSender = (*tickle.Sender)(nil)

// TicklerOptions are what NewTickler needs. Sender is required.
type TicklerOptions struct {
	Sender TickleSender
	// Established calls back for every established connection of this node: one that is there again is not woken.
	Established func(visit func(Connection)) error
	Permit      func() bool                               // whether this node may hold moving addresses now; default: always
	Woke        func(address netip.Addr, connections int) // told once for each address whose clients are woken; must not block
	Logger      *slog.Logger                              // default: none
	Board       *problem.Board                            // default: one of its own
	Registerer  prometheus.Registerer                     // default: metrics are not registered
	Now         func() time.Time                          // default time.Now
}

// Tickler keeps the tables of connections to other nodes' addresses of which this node is the successor, and wakes the clients of
// an address once it is here. It is safe for concurrent use; Run does the waking.
//
// It guarantees that nobody is woken for an address that has left this node, or while the node has no right to hold.
type Tickler struct {
	TicklerOptions
	metrics *tickleMetrics
	found   findings
	mu      sync.Mutex
	tables  Tables
	courses courses
	here    map[netip.Addr]bool
	late    []Connection             // told when their address was about to come, or after; woken at once, and then in its course
	recent  map[Connection]time.Time // told within recently of addresses that are not here
	wake    chan struct{}
}

// recently is how long before a planned move a connection was told that may be one which the old owner did not reset: the word that an
// address may be taken and the word on who came late go side by side.
const recently = 50 * time.Millisecond

// NewTickler returns a Tickler that knows of nothing.
func NewTickler(o TicklerOptions) *Tickler {
	if o.Established == nil {
		o.Established = func(func(Connection)) error { return nil }
	}
	if o.Permit == nil {
		o.Permit = func() bool { return true }
	}
	if o.Woke == nil {
		o.Woke = func(netip.Addr, int) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Board == nil {
		o.Board = &problem.Board{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Tickler{
		TicklerOptions: o, metrics: newTickleMetrics(o.Registerer), here: map[netip.Addr]bool{}, recent: map[Connection]time.Time{}, wake: make(chan struct{}, 1),
		found: findings{board: o.Board, last: map[string][]found{}},
	}
}

// Receive takes in a message of an owner. It returns true when the owner has to begin anew, since a message is missing. Connections
// to an address that is already here are those that the old owner could not reset: they are woken now.
func (t *Tickler) Receive(from Source, push Push) (lost bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh, lost := t.tables.Take(from, push)
	if lost {
		t.metrics.resyncs.Inc()
		return true
	}
	var late []Connection
	for _, c := range fresh {
		if t.here[c.Local.Addr()] {
			late = append(late, c)
		} else if len(t.recent) < MaxKept {
			t.recent[c] = t.Now()
		}
	}
	for _, a := range addressesOf(late) {
		if !t.courses.runs(a) {
			t.courses.start(a, false, t.Now())
			late = slices.DeleteFunc(late, func(c Connection) bool { return c.Local.Addr() == a })
		}
	}
	t.hurry(late)
	t.gauge()
	return false
}

// hurry has connections woken at once, as far as there is room. t.mu is held.
func (t *Tickler) hurry(late []Connection) {
	t.late = append(t.late, late[:min(len(late), max(MaxKept-len(t.late), 0))]...)
	notify(t.wake)
}

// gauge shows how much is kept. t.mu is held.
func (t *Tickler) gauge() {
	t.metrics.kept.Set(float64(t.tables.Len()))
	var list []found
	if n := t.tables.Omitted(); n > 0 && t.tables.Len() >= MaxKept {
		list = append(list, found{problemUntracked, "successor", fmt.Sprintf("this node keeps %d connections of other nodes' clients; %d were left out so far", MaxKept, n)})
	}
	t.found.replace("kept", t.Now(), list)
}

// Taken says that addresses have come onto this node's interfaces. planned says whether the old owner let one go by itself.
func (t *Tickler) Taken(addresses []netip.Addr, planned func(netip.Addr) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	came := map[netip.Addr]bool{}
	for _, a := range addresses {
		t.here[a], came[a] = true, true
		t.courses.start(a, planned(a), t.Now())
	}
	var late []Connection
	for c, at := range t.recent {
		if a := c.Local.Addr(); came[a] {
			if delete(t.recent, c); planned(a) && t.Now().Sub(at) < recently {
				late = append(late, c)
			}
		}
	}
	t.hurry(late)
}

// Here says which addresses are still on this node's interfaces: for all others nobody is woken any more.
func (t *Tickler) Here(held func(netip.Addr) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for a := range t.here {
		if !held(a) {
			delete(t.here, a)
			t.courses.stop(a)
		}
	}
	t.late = slices.DeleteFunc(t.late, func(c Connection) bool { return !t.here[c.Local.Addr()] })
}

// Prune drops the tables that nobody will need: needed says whether, by the records, this node may come to take the address from
// that source, or has just done so.
func (t *Tickler) Prune(needed func(netip.Addr, Source) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.recent, func(_ Connection, at time.Time) bool { return t.Now().Sub(at) >= recently })
	t.tables.Prune(t.Now(), func(a netip.Addr, from Source) bool { return t.courses.runs(a) || needed(a, from) })
	t.gauge()
}

// Run wakes clients until the context ends.
func (t *Tickler) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		t.mu.Lock()
		at, running := t.courses.next()
		if len(t.late) > 0 {
			at, running = t.Now(), true
		}
		t.mu.Unlock()
		timer.Stop()
		if running {
			timer.Reset(max(at.Sub(t.Now()), 0))
		}
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
			continue
		case <-timer.C:
		}
		t.round(ctx)
	}
}

// round wakes the clients of all addresses whose time has come.
func (t *Tickler) round(ctx context.Context) {
	t.mu.Lock()
	rounds := t.courses.due(t.Now())
	list := t.late
	t.late = nil
	again := len(list) > 0 // a client may have connected anew by now
	for _, r := range rounds {
		connections := t.tables.Of(r.address)
		list = append(list, connections...)
		again = again || !r.first && len(connections) > 0
		if r.first && len(connections) > 0 {
			t.Woke(r.address, len(connections))
		}
	}
	t.mu.Unlock()
	if again {
		list = t.withoutEstablished(list)
	}
	failure := t.send(ctx, list)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range rounds {
		if r.last && !t.courses.runs(r.address) {
			t.tables.Forget(r.address)
		}
	}
	t.gauge()
	if len(list) > 0 {
		var problems []found
		if failure != nil {
			problems = append(problems, found{problemTickle, "tickle", failure.Error()})
		}
		t.found.replace("send", t.Now(), problems)
	}
}

// withoutEstablished leaves out the connections that are established here.
func (t *Tickler) withoutEstablished(list []Connection) []Connection {
	there := map[Connection]bool{}
	wanted := make(map[Connection]bool, len(list))
	for _, c := range list {
		wanted[c] = true
	}
	if err := t.Established(func(c Connection) {
		if wanted[c] {
			there[c] = true
		}
	}); err != nil {
		t.Logger.Warn("cannot tell which clients have connected anew; all are woken", "error", err)
	}
	var rest []Connection
	for _, c := range list {
		if !there[c] {
			rest = append(rest, c)
		}
	}
	return rest
}

// send sends tickles at the pace that is allowed, and stops for addresses that have left.
func (t *Tickler) send(ctx context.Context, list []Connection) (failure error) {
	for start := 0; start < len(list); start += tickleBatch {
		batch := t.lawful(list[start:min(start+tickleBatch, len(list))])
		for _, err := range t.Sender.Send(batch) {
			switch {
			case err == nil:
				t.metrics.tickles.Inc()
			case errors.Is(err, tickle.ErrNotHere):
				t.metrics.failures.Inc() // it has left meanwhile, or the client is not reachable from here
			default:
				t.metrics.failures.Inc()
				failure = err
			}
		}
		if start+tickleBatch < len(list) {
			select {
			case <-ctx.Done():
				return failure
			case <-time.After(ticklePause):
			}
		}
	}
	return failure
}

// lawful leaves out what may not be sent at this moment.
func (t *Tickler) lawful(batch []Connection) []Connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.Permit() {
		return nil
	}
	var rest []Connection
	for _, c := range batch {
		if t.here[c.Local.Addr()] {
			rest = append(rest, c)
		}
	}
	return rest
}
