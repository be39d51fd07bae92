package agent

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

// hooksAtOnce bounds for how many addresses this node runs hooks at the same time. The others wait their turn, which
// holdfast_agent_hooks_waiting shows; what needs no hook waits for nothing.
const hooksAtOnce = 16

// hookGates keep the order of the phases for each address, without making one address wait for the hooks of another: a gate holds
// one address where it is until its hooks have run. The zero value is ready. It is safe for concurrent use.
type hookGates struct {
	mu      sync.Mutex
	gates   map[netip.Addr]*hookGate
	last    map[netip.Addr]chan struct{} // closed when the last thing that was begun for an address has ended
	slots   chan struct{}
	waiting atomic.Int64
	running sync.WaitGroup
}

// hookGate is one address that waits for its hooks.
type hookGate struct {
	ends    moveEnds
	leaving bool
	passed  bool
}

// due says which addresses wait for their hooks: one that leaves by a planned move stays on its interface until prepare has run
// everywhere and release here; one that comes by failover is not taken until prepare has run everywhere, as nobody ran it
// before. What has not begun begins now; passed is called whenever an address need not wait any more, and must not block.
func (h *hookRelay) due(ctx context.Context, w wish, held map[netip.Addr]bool, passed func()) (stay, notYet map[netip.Addr]bool) {
	stay, notYet = map[netip.Addr]bool{}, map[netip.Addr]bool{}
	prepares, releases := h.has(cluster.HookPrepare), h.has(cluster.HookRelease)
	wanted := w.wanted()
	h.gates.mu.Lock()
	defer h.gates.mu.Unlock()
	waiting := map[netip.Addr]*hookGate{}
	for addr, ends := range w.moving {
		gate := hookGate{ends: ends, leaving: held[addr] && !wanted[addr]}
		comes := wanted[addr] && !held[addr] && ends.from.IsZero()
		if !(gate.leaving && (prepares || releases)) && !(comes && prepares) {
			continue
		}
		known := h.gates.gates[addr]
		if known == nil || known.ends != gate.ends || known.leaving != gate.leaving {
			known = &gate
			h.open(ctx, addr, known, passed)
		}
		waiting[addr] = known
		if !known.passed && known.leaving {
			stay[addr] = true
		} else if !known.passed {
			notYet[addr] = true
		}
	}
	h.gates.gates = waiting
	return stay, notYet
}

// open begins the hooks that a gate waits for. The caller has the lock.
func (h *hookRelay) open(ctx context.Context, addr netip.Addr, gate *hookGate, passed func()) {
	h.gates.inTurn(ctx, addr, func() {
		h.everywhere(ctx, cluster.HookPrepare, addr, gate.ends)
		if gate.leaving {
			h.here(ctx, cluster.HookRelease, addr, gate.ends)
		}
		h.gates.mu.Lock()
		gate.passed = true
		h.gates.mu.Unlock()
		passed()
	})
}

// afterTake runs take and done here for what came.
func (h *hookRelay) afterTake(ctx context.Context, w wish, before, held map[netip.Addr]bool) {
	if !h.has(cluster.HookTake) && !h.has(cluster.HookDone) {
		return
	}
	h.gates.mu.Lock()
	defer h.gates.mu.Unlock()
	for _, holding := range w.holdings {
		addr, ends := holding.Address, w.moving[holding.Address]
		if held[addr] && !before[addr] {
			h.gates.inTurn(ctx, addr, func() {
				h.here(ctx, cluster.HookTake, addr, ends)
				h.here(ctx, cluster.HookDone, addr, ends)
			})
		}
	}
}

// inTurn does something for an address after what was begun for it before, and when there is room. The caller has the lock.
func (g *hookGates) inTurn(ctx context.Context, addr netip.Addr, do func()) {
	if g.slots == nil {
		g.slots, g.last = make(chan struct{}, hooksAtOnce), map[netip.Addr]chan struct{}{}
	}
	before, done := g.last[addr], make(chan struct{})
	g.last[addr] = done
	g.waiting.Add(1)
	g.running.Go(func() {
		defer func() {
			close(done)
			g.mu.Lock()
			if g.last[addr] == done {
				delete(g.last, addr)
			}
			g.mu.Unlock()
		}()
		if before != nil {
			<-before // ends: every hook is bounded, and ends with the context
		}
		select {
		case g.slots <- struct{}{}:
			defer func() { <-g.slots }()
			g.waiting.Add(-1)
			do()
		case <-ctx.Done():
			g.waiting.Add(-1)
		}
	})
}

// Wait waits until nothing runs any more; the context that it was begun with should be over.
func (g *hookGates) Wait() { g.running.Wait() }

// rest reports whether no hook runs or waits any more within a time. None is begun meanwhile.
func (g *hookGates) rest(limit time.Duration) bool {
	done := make(chan struct{})
	go func() {
		g.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(limit):
		return false
	}
}

func (w wish) wanted() map[netip.Addr]bool {
	wanted := make(map[netip.Addr]bool, len(w.holdings))
	for _, holding := range w.holdings {
		wanted[holding.Address] = true
	}
	return wanted
}
