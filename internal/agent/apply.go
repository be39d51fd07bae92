package agent

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/address"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// applier puts what this node should have onto its interfaces, one wish at a time, the latest first.
// It is safe for concurrent use.
type applier struct {
	stills     stills
	reconciler *address.Reconciler
	hooks      *hookRelay
	coming     func(context.Context, wish, map[netip.Addr]bool)    // called before addresses are put on, with what is there; must not block
	released   func(wish, []netip.Addr) (told <-chan struct{})     // called as soon as addresses are off; must not block
	leave      func(wish, map[netip.Addr]bool) (afterwards func()) // resets clients of what is about to leave
	mayHold    func() bool
	log        *slog.Logger
	done       func(wish, applied) // called after each; must not block
	mu         sync.Mutex
	wanted     wish
	last       applied
	carried    []steering.Holding  // what was last put on the interfaces; only carryOut uses it
	known      map[netip.Addr]bool // addresses that this agent has held: no stranger had them; only carryOut uses it
	wake       chan struct{}
}

// wish is what a generation of the loop's decisions wants on the interfaces.
type wish struct {
	generation uint64
	silences   uint64 // how often the node had been silenced when it was decided
	holdings   []steering.Holding
	managed    func(netip.Addr) bool // the cluster's addresses
	routes     []address.SubnetRoute
	moving     map[netip.Addr]moveEnds         // addresses on their way, for the hooks
	causes     map[netip.Addr]string           // by which failover addresses come here
	leaving    map[netip.Addr]bool             // addresses that go to other nodes, or nowhere
	handing    map[netip.Addr]tenure.Statement // those whose new owners are told as soon as they are off
}

type moveEnds struct{ from, to cluster.Member }

// applied is what became of a wish.
type applied struct {
	generation uint64
	held       map[netip.Addr]bool
	left       map[netip.Addr]bool // on an interface although they should not be, or not so
	blind      bool                // the kernel could not be read
	failed     map[netip.Addr]string
	unlawful   bool // some failed because there was no right to them at that moment
	taken      []netip.Addr
	released   []netip.Addr
	put        time.Time // when what was taken was on the interfaces, by the agent's clock
	announced  time.Time // when its first announcements were out; zero: they could not be sent
	at         time.Time
	took       time.Duration
}

// there is what is on an interface, whether it should be or not: nobody else may have it.
func (a applied) there() map[netip.Addr]bool {
	all := make(map[netip.Addr]bool, len(a.held)+len(a.left))
	maps.Copy(all, a.held)
	maps.Copy(all, a.left)
	return all
}

// Want sets the wish; an older one that was not begun is dropped.
func (a *applier) Want(w wish) {
	a.mu.Lock()
	a.wanted = w
	a.mu.Unlock()
	a.again()
}

// Last is what became of the wish that was carried out last.
func (a *applier) Last() applied {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

// AtRest reports whether the last wish was carried out, and the clients of what left were seen to.
func (a *applier) AtRest() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last.generation == a.wanted.generation
}

// When what could not be taken is tried again. A right that is missing is back soon, or the next wish is without what moves: an agent that
// was late for its own deadline by a moment must not be without its addresses for much longer.
const (
	retryFailedAfter   = time.Second
	retryUnlawfulAfter = 20 * time.Millisecond
)

// wordFirst is for how long the new owners are told of addresses before anything else is done.
const wordFirst = 5 * time.Millisecond

// Run carries wishes out until the context ends.
func (a *applier) Run(ctx context.Context) {
	defer a.hooks.gates.Wait()
	for {
		retry := time.Hour
		switch last := a.Last(); {
		case last.unlawful:
			retry = retryUnlawfulAfter
		case len(last.failed) > 0 || last.blind:
			retry = retryFailedAfter
		}
		timer := time.NewTimer(retry)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-a.wake:
		case s := <-a.stills:
			timer.Stop()
			s.still(ctx.Done())
			continue
		case <-a.reconciler.Changed():
			a.refresh()
			timer.Stop()
			continue
		case <-timer.C:
		}
		timer.Stop()
		a.mu.Lock()
		w := a.wanted
		a.mu.Unlock()
		if w.generation > 0 {
			a.carryOut(ctx, w)
		}
	}
}

// refresh takes in what the background work of the reconciler changed: an interface that vanished or came back.
func (a *applier) refresh() {
	status := a.reconciler.Status()
	a.mu.Lock()
	a.last.held, a.last.failed, a.last.left, a.last.blind = heldOf(status), failedOf(status), leftOf(status), status.Unread != nil
	a.last.unlawful = unlawful(status)
	now := a.last
	a.mu.Unlock()
	now.taken, now.released = nil, nil
	a.done(wish{}, now)
}

func heldOf(result address.Result) map[netip.Addr]bool {
	held := make(map[netip.Addr]bool, len(result.Held))
	for _, holding := range result.Held {
		held[holding.Address] = true
	}
	return held
}

// offInterfaces are the addresses that were taken off, as far as the kernel could be read afterwards.
func offInterfaces(result address.Result) []netip.Addr {
	if result.Unread != nil {
		return nil
	}
	held, left := heldOf(result), leftOf(result)
	return slices.DeleteFunc(slices.Clone(result.Released), func(addr netip.Addr) bool { return held[addr] || left[addr] })
}

func leftOf(result address.Result) map[netip.Addr]bool {
	left := make(map[netip.Addr]bool, len(result.Left))
	for _, addr := range result.Left {
		left[addr] = true
	}
	return left
}

// unlawful reports whether some addresses were refused for want of the right to them.
func unlawful(result address.Result) bool {
	for _, err := range result.Failed {
		if errors.Is(err, address.ErrNoRight) {
			return true
		}
	}
	return false
}

func failedOf(result address.Result) map[netip.Addr]string {
	failed := make(map[netip.Addr]string, len(result.Failed))
	for addr, err := range result.Failed {
		failed[addr] = err.Error()
	}
	return failed
}

// carryOut puts one wish into effect and remembers what really came of it.
func (a *applier) carryOut(ctx context.Context, w wish) {
	began := time.Now()
	before := a.Last()
	w.holdings = a.withHooks(ctx, w, before.held)
	withheld := !a.mayHold()
	if withheld {
		w.holdings = slices.DeleteFunc(w.holdings, func(h steering.Holding) bool { return h.Kind != steering.Static })
	}
	a.coming(ctx, w, before.held)
	afterwards := a.leave(w, before.there())
	result := a.reconciler.SetUnder(ctx, w.desired(a.known), w.silences)
	told := a.released(w, offInterfaces(result))
	switch mayHold := a.mayHold(); {
	case !mayHold:
		// The right ran out while the addresses were put on: take everything off again.
		a.reconciler.Silence("the right to hold ran out meanwhile")
		result.Held = slices.DeleteFunc(result.Held, func(h address.Holding) bool { return h.Lifetime })
	case withheld:
		a.again() // it came back meanwhile, and the loop has no reason to want anything else
	}
	select { // looking for late clients takes a processor for milliseconds: those who wait for the address come first
	case <-told:
	case <-time.After(wordFirst):
	}
	afterwards()
	now := applied{
		generation: w.generation, at: began, took: time.Since(began),
		held: heldOf(result), left: leftOf(result), blind: result.Unread != nil, failed: failedOf(result), unlawful: unlawful(result), taken: result.Taken, released: result.Released,
		put: result.Put, announced: result.Announced,
	}
	for addr, why := range now.failed {
		if before.failed[addr] != why {
			a.log.Error("address not taken", "address", addr, "error", why)
		}
	}
	a.mu.Lock()
	a.last = now
	a.mu.Unlock()
	a.carried = w.holdings
	a.remember(now.held)
	a.hooks.afterTake(ctx, w, before.held, now.held)
	a.done(w, now)
}

// remember notes what was held. What is taken again after a lapse need not be probed: that would take longer than the lapse.
func (a *applier) remember(held map[netip.Addr]bool) {
	if a.known == nil {
		a.known = map[netip.Addr]bool{}
	}
	maps.Copy(a.known, held)
}

// withHooks is what a wish wants on the interfaces while some addresses wait for their hooks: what leaves stays until they have run,
// as long as it is there, and what comes is left out. When they have run, the wish is carried out once more.
func (a *applier) withHooks(ctx context.Context, w wish, held map[netip.Addr]bool) []steering.Holding {
	stay, notYet := a.hooks.due(ctx, w, held, a.again)
	holdings := slices.DeleteFunc(slices.Clone(w.holdings), func(h steering.Holding) bool { return notYet[h.Address] })
	for _, h := range a.carried {
		if stay[h.Address] {
			holdings = append(holdings, h)
		}
	}
	return holdings
}

// again carries the present wish out once more.
func (a *applier) again() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// clusterAddress says which addresses are the cluster's: those that are configured, and those of an earlier configuration that the
// records still fix to this node. An agent that was stopped leaves static ones behind.
func (l *loop) clusterAddress(w *steering.World) func(netip.Addr) bool {
	configured := l.groundOf(w.Config).addresses
	fixed := map[netip.Addr]bool{}
	w.Concerning(func(id cluster.PoolID, addr netip.Addr, st tenure.Statement) bool {
		if (id != cluster.PoolID{}) && st.Fixed && st.Owner.LNN == w.Self {
			fixed[addr] = true
		}
		return true
	})
	return func(addr netip.Addr) bool { return configured[addr] || fixed[addr] }
}

// desired is the wish in the words of the address room. An address is probed for strangers before it is taken where nobody of the
// cluster ever held it, as far as the record and this agent know.
func (w wish) desired(known map[netip.Addr]bool) address.Desired {
	desired := address.Desired{Routes: w.routes, Managed: w.managed}
	for _, h := range w.holdings {
		desired.Holdings = append(desired.Holdings, address.Holding{
			Address: h.Address, Interface: h.Interface, Lifetime: h.Kind != steering.Static, Epoch: h.Epoch,
			Probe: h.Kind != steering.Static && h.Epoch <= 1 && !known[h.Address],
		})
	}
	return desired
}
