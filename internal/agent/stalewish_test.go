package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast/holdfast/internal/address"
	"github.com/holdfast/holdfast/internal/bubble"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/linux/link/linktest"
	"github.com/holdfast/holdfast/internal/linux/neigh/neightest"
	"github.com/holdfast/holdfast/internal/steering"
)

// hangingNode is another node whose hook does not return before it is let go.
type hangingNode struct{ release chan struct{} }

func (h hangingNode) Hook(ctx context.Context, _ int, _ cluster.HookPhase, _ netip.Addr, _, _ cluster.Member) (string, error) {
	select {
	case <-h.release:
	case <-ctx.Done():
	}
	return "", nil
}

// hungApplier is an applier whose prepare hook hangs on another node until that is let go.
func hungApplier() (*applier, *linktest.Fake, hangingNode) {
	kernel, announcer := linktest.New(linktest.Ethernet(2, "eth0")), neightest.New()
	announcer.SetInterface("eth0", linktest.Ethernet(2, "eth0").MAC)
	hang := hangingNode{make(chan struct{})}
	hooks := []cluster.Hook{{Phase: cluster.HookPrepare, Command: []string{"/bin/true"}, Timeout: time.Hour}}
	told := make(chan struct{})
	close(told)
	a := &applier{
		reconciler: address.New(address.Options{Kernel: kernel, Announcer: announcer}),
		hooks: &hookRelay{
			peers: hang, others: func() []int { return []int{2} }, hooks: func() []cluster.Hook { return hooks },
			event: func(string, string, string, map[string]string) {}, log: slog.New(slog.DiscardHandler),
		},
		coming:   func(context.Context, wish, map[netip.Addr]bool) {},
		released: func(wish, []netip.Addr) <-chan struct{} { return told },
		leave:    func(wish, map[netip.Addr]bool) func() { return func() {} },
		mayHold:  func() bool { return true }, log: slog.New(slog.DiscardHandler), done: func(wish, applied) {}, wake: make(chan struct{}, 1),
	}
	return a, kernel, hang
}

// A wish that waits behind a hook while the node lapses and registers anew belongs to the life that is over: nothing of it is
// put on an interface.
func TestAWishOfAnEarlierLifeIsNotCarriedOut(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a, kernel, hang := hungApplier()
		addr := netip.MustParseAddr("10.0.0.100")
		w := wish{
			generation: 1, silences: a.reconciler.Silences(),
			holdings: []steering.Holding{{Address: addr, Interface: "eth0", Kind: steering.Dynamic, Epoch: 7}},
			moving:   map[netip.Addr]moveEnds{addr: {to: cluster.Member{LNN: 1, Interface: "eth0"}}},
		}
		a.carryOut(t.Context(), w)
		if last := a.Last(); last.held[addr] {
			t.Fatal("it was taken before its hook had run")
		}
		a.reconciler.Silence("the right to hold ran out") // and the next life begins at once: mayHold says yes again
		close(hang.release)
		<-a.wake
		a.carryOut(t.Context(), w)
		a.hooks.gates.Wait()
		addresses, err := kernel.Addresses()
		if err != nil || len(addresses) != 0 {
			t.Errorf("on the interface is %v, %v", addresses, err)
		}
		if last := a.Last(); last.held[addr] || last.failed[addr] == "" {
			t.Errorf("it is said to be held, or not to have failed: %+v", last)
		}
	})
}

// A wish is begun without the right to hold, which comes back before it ends: nobody silences the node any more, and the loop wants nothing
// new. The applier has to carry it out once more by itself (found by the simulator, seed 1127).
func TestTheRightComesBackWhileAWishIsCarriedOut(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a, _, _ := hungApplier()
		asked := 0
		a.mayHold = func() bool { asked++; return asked > 1 }
		addr := netip.MustParseAddr("10.0.0.100")
		w := wish{
			generation: 1, silences: a.reconciler.Silences(),
			holdings: []steering.Holding{{Address: addr, Interface: "eth0", Kind: steering.Dynamic, Epoch: 7}},
		}
		a.carryOut(t.Context(), w)
		if last := a.Last(); last.held[addr] {
			t.Fatal("it was taken without the right to it")
		}
		select {
		case <-a.wake:
		default:
			t.Fatal("nothing carries the wish out again")
		}
		a.carryOut(t.Context(), w)
		if last := a.Last(); !last.held[addr] {
			t.Errorf("it is not held: %+v", last)
		}
	})
}

// An agent that is late for its own deadline by a moment is silenced by the guard, and has its right back with the next acknowledgement,
// without having lapsed: it must not wait for long before it puts back what the guard took off (found by the simulator, seed 21970).
func TestWhatWasRefusedForAMomentIsSoonBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		kernel, announcer := linktest.New(linktest.Ethernet(2, "eth0")), neightest.New()
		announcer.SetInterface("eth0", linktest.Ethernet(2, "eth0").MAC)
		var permitted atomic.Bool
		a, _, _ := hungApplier()
		a.reconciler = address.New(address.Options{Kernel: kernel, Announcer: announcer, Permit: permitted.Load})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { a.Run(ctx) })
		addr := netip.MustParseAddr("10.0.0.100")
		a.Want(wish{
			generation: 1, silences: a.reconciler.Silences(),
			holdings: []steering.Holding{{Address: addr, Interface: "eth0", Kind: steering.Dynamic, Epoch: 7}},
		})
		synctest.Wait()
		if last := a.Last(); last.held[addr] || last.failed[addr] == "" {
			t.Fatalf("it was taken without the right to it: %+v", last)
		}
		permitted.Store(true)
		time.Sleep(2 * retryUnlawfulAfter)
		synctest.Wait()
		if last := a.Last(); !last.held[addr] {
			t.Errorf("it is not back: %+v", last)
		}
		cancel()
		running.Wait()
	})
}

// A lapse may be over before the loop sees that there was one, and the silence that it began with comes all the same. What the node may
// hold is taken again.
func TestASilenceIsMadeUpForWhenTheRightIsBack(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		node := c.nodes[3].agent
		before := c.onKernel(3)
		node.silence("it lapsed for a moment")
		if left := c.onKernel(3); len(left) > 0 || !node.tenancy.Standing().MayHold {
			t.Fatalf("%v are left of %v; that is no silence under a right that is there", left, before)
		}
		c.eventually("it has its addresses again", func() bool { return len(c.onKernel(3)) == len(before) })
	})
}
