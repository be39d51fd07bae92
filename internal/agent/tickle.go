package agent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/internal/address"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/linux/sockdiag"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// How closely clients' connections are followed. A death of this node loses what came within followEvery, and on a host with so many
// sockets that a look takes long, within followShare times that: looking takes at most a fiftieth of one processor.
const (
	followEvery   = 200 * time.Millisecond
	followShare   = 50
	followIdle    = time.Second // on a node that owns nothing
	pushTimeout   = 500 * time.Millisecond
	lateFor       = 5 * time.Second // how long the new owner is told of connections that came while their address left
	maxLateClient = 1024            // of those; more are not told
)

// connectionPusher tells another node of connections.
type connectionPusher interface {
	Connections(ctx context.Context, lnn int, request *holdfastv1.ConnectionsRequest) (lost bool, err error)
}

// clients are the connections of clients: those to addresses of this node, of which it tells their successors, and those to addresses
// of which this node is the successor, to wake them. It is safe for concurrent use.
type clients struct {
	*Agent
	tracker *address.Tracker
	tickler *address.Tickler
	wake    chan struct{}
	seldom  atomic.Bool  // there was nothing to follow at the last look
	pushing atomic.Int64 // messages that are under way

	mu          sync.Mutex
	incarnation tenure.Incarnation // of the streams
	streams     map[int]*stream
	tracked     map[address.Connection]bool      // as of the last look; replaced, never changed
	late        map[address.Connection]time.Time // came while their address left; until when they are told
	world       *steering.World                  // of which moving is
	moving      map[netip.Addr]tenure.Statement
}

// stream is what one successor is told, in one of its lives: another life knows nothing of what the one before was told.
type stream struct {
	address.Outbox
	incarnation tenure.Incarnation
}

func newClients(a *Agent, e edges) *clients {
	c := &clients{
		Agent: a, wake: make(chan struct{}, 1), streams: map[int]*stream{}, late: map[address.Connection]time.Time{},
		tracker: address.NewTracker(address.TrackerOptions{
			Established: e.connections, Destroy: e.destroy, Logger: a.log, Board: a.board, Registerer: a.registry, Now: a.now,
		}),
	}
	c.tickler = address.NewTickler(address.TicklerOptions{
		Sender: e.tickles, Established: e.connections, Permit: a.tenancy.Permitted, Woke: c.woke, Logger: a.log, Board: a.board, Registerer: a.registry, Now: a.now,
	})
	return c
}

// establishedConnections are the kernel's.
func establishedConnections(visit func(address.Connection)) error {
	return sockdiag.EachServed(func(c sockdiag.Connection) { visit(address.Connection(c)) })
}

// destroyConnections ends the kernel's.
func destroyConnections(on func(netip.Addr) bool) ([]address.Connection, error) {
	ended, err := sockdiag.Destroy(on)
	list := make([]address.Connection, 0, len(ended))
	for _, c := range ended {
		list = append(list, address.Connection(c))
	}
	return list, err
}

func (c *clients) woke(addr netip.Addr, connections int) {
	c.event("address.tickled", addr.String(), fmt.Sprintf("%d connections to %s are being woken, so that their clients learn of the move", connections, addr), nil)
}

// follow looks at the connections again and again, and tells successors what changed.
func (c *clients) follow(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		pause := c.look(ctx)
		timer := time.NewTimer(max(pause, followShare*time.Since(began)))
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// look is one look. It returns how long nothing more need be done.
func (c *clients) look(ctx context.Context) time.Duration {
	v := c.view.Load()
	if v == nil {
		return followEvery
	}
	moving := c.statements(v.world)
	owns := false
	tracked, err := c.tracker.Look(
		func(a netip.Addr) bool { // owned
			st := moving[a]
			return st.Owner.LNN == c.self.LNN && st.Owner.Incarnation == v.incarnation
		},
		func(a netip.Addr) bool { // elsewhere
			st := moving[a]
			return !st.Owner.IsZero() && st.Owner.LNN != c.self.LNN
		})
	if err != nil {
		c.log.Warn("cannot look at the connections of clients", "error", err)
		return followIdle
	}
	c.tickler.Prune(func(a netip.Addr, from address.Source) bool {
		return steering.Expects(moving[a], c.self.LNN, from.LNN, from.Incarnation)
	})
	for _, st := range moving {
		owns = owns || st.Owner.LNN == c.self.LNN
	}
	c.mu.Lock()
	c.tracked = tracked
	c.mu.Unlock()
	if c.tenancy.Permitted() { // a node that has lapsed says nothing: what its successors know is what they will need
		c.tell(ctx, v, moving)
	}
	c.mu.Lock()
	seldom := !owns && len(c.streams) == 0
	c.mu.Unlock()
	if c.seldom.Store(seldom); seldom {
		return followIdle
	}
	return followEvery
}

// statements are those about the addresses that move.
func (c *clients) statements(w *steering.World) map[netip.Addr]tenure.Statement {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.world != w {
		c.world, c.moving = w, steering.Moving(w)
	}
	return c.moving
}

// tell sends each successor what changed for it.
func (c *clients) tell(ctx context.Context, v *view, moving map[netip.Addr]tenure.Statement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.incarnation != v.incarnation {
		c.incarnation, c.streams = v.incarnation, map[int]*stream{}
	}
	wanted := map[int]map[address.Connection]bool{}
	want := func(lnn int, connection address.Connection) {
		if wanted[lnn] == nil {
			wanted[lnn] = map[address.Connection]bool{}
		}
		wanted[lnn][connection] = true
	}
	successors := map[netip.Addr][]int{}
	for addr, st := range moving {
		successors[addr] = steering.Successors(st, c.self.LNN, v.incarnation)
	}
	for connection := range c.tracked {
		for _, lnn := range successors[connection.Local.Addr()] {
			want(lnn, connection)
		}
	}
	for connection, until := range c.late {
		st := moving[connection.Local.Addr()]
		to := st.Owner.LNN
		if to == c.self.LNN {
			to = st.To.LNN
		}
		if c.now().After(until) {
			delete(c.late, connection)
		} else if to != 0 && to != c.self.LNN {
			want(to, connection)
		}
	}
	for lnn := range wanted {
		if node := v.world.Nodes[lnn]; c.streams[lnn] == nil || c.streams[lnn].incarnation != node.Incarnation {
			c.streams[lnn] = &stream{incarnation: node.Incarnation}
		}
	}
	for lnn, s := range c.streams {
		switch {
		case !v.world.Nodes[lnn].Present, wanted[lnn] == nil && s.Idle():
			delete(c.streams, lnn) // it begins with everything when it begins again
		default:
			c.push(ctx, lnn, s, wanted[lnn])
		}
	}
}

// push sends one message without waiting for it. c.mu is held.
func (c *clients) push(ctx context.Context, lnn int, s *stream, wanted map[address.Connection]bool) {
	push, news := s.Next(wanted)
	if !news {
		return
	}
	request := connectionsRequest(c.incarnation, push)
	c.pushing.Add(1)
	c.wg.Go(func() {
		defer c.pushing.Add(-1)
		try, cancel := context.WithTimeout(ctx, pushTimeout)
		defer cancel()
		lost, err := c.edges.pushes.Connections(try, lnn, request)
		c.mu.Lock()
		defer c.mu.Unlock()
		s.Answered(err == nil && !lost)
		if lost || err == nil && len(push.Opened)+len(push.Closed) >= address.MaxPush {
			c.note()
		}
	})
}

// note makes the next look come at once.
func (c *clients) note() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// leave resets the clients of addresses that are about to leave this node by a planned move, while the address is still there, so
// that the reset reaches them. The returned function does the same for those that came until the address was off: no reset can reach
// them any more, so that the new owner is told of them. before is what was on the interfaces, after what will be.
func (c *clients) leave(w wish, before map[netip.Addr]bool) (afterwards func()) {
	here, stays := []netip.Addr{}, map[netip.Addr]bool{}
	for _, h := range w.holdings {
		here, stays[h.Address] = append(here, h.Address), true
	}
	var going []netip.Addr
	gone := map[netip.Addr]bool{}
	for addr := range before {
		if !stays[addr] && w.leaving[addr] {
			going, gone[addr] = append(going, addr), true
		}
		here = append(here, addr)
	}
	c.tracker.Here(here)
	if len(going) == 0 {
		return func() {}
	}
	counts := map[netip.Addr]int{}
	for _, connection := range c.tracker.Reset(going) {
		counts[connection.Local.Addr()]++
	}
	for addr, n := range counts {
		c.event("address.connections-reset", addr.String(), fmt.Sprintf("%d connections to %s were reset before it leaves this node", n, addr), nil)
	}
	return func() {
		late := c.tracker.Reset(going)
		c.mu.Lock()
		for _, connection := range late[:min(len(late), max(maxLateClient-len(c.late), 0))] {
			c.late[connection] = c.now().Add(lateFor)
		}
		c.tracked = maps.Clone(c.tracked)
		maps.DeleteFunc(c.tracked, func(connection address.Connection, _ bool) bool { return gone[connection.Local.Addr()] })
		c.mu.Unlock()
		if v := c.view.Load(); v != nil && c.tenancy.Permitted() {
			c.tell(c.ctx, v, c.statements(v.world)) // who came late waits for it, and who was reset need not be woken; a look comes too late
		}
	}
}

// changed takes in what a wish did to the interfaces: the clients of what came are woken.
func (c *clients) changed(w wish, done applied) {
	c.tickler.Here(func(a netip.Addr) bool { return done.held[a] })
	if len(done.taken) > 0 {
		c.tickler.Taken(done.taken, func(a netip.Addr) bool { return !w.moving[a].from.IsZero() })
		if c.seldom.Load() {
			c.note() // a node that had nothing
		}
	}
}

// silenced says that every moving address was taken off at once.
func (c *clients) silenced() { c.tickler.Here(func(netip.Addr) bool { return false }) }
