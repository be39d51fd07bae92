package address

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/linux/neigh/neightest"
)

func TestSilence(t *testing.T) {
	inBubble(t, true, func(n *node) {
		n.set(holdings(moving("10.0.0.7", "ext0"), moving("fd00::7", "ext1"), still("10.0.0.5", "ext0")))
		n.Silence("test")
		n.wantThere("10.0.0.5")
		n.link.Sent()
		n.link.Claim(addr("10.0.0.7"), stranger)
		n.after(time.Minute)
		n.wantThere("10.0.0.5")
		for _, s := range n.link.Sent() {
			if s.Address != addr("10.0.0.5") {
				t.Errorf("%v was announced after the silence", s.Address)
			}
		}
		if got := n.Status(); addresses(got.Held) != "10.0.0.5" || got.Failed != nil {
			t.Errorf("status is %+v, want the static address and no failure", got)
		}
		got := n.set(holdings(moving("10.0.0.7", "ext0")))
		if addresses(got.Held) != "10.0.0.7" {
			t.Errorf("the next Set holds %+v", got)
		}
	})
}

// A silence that comes while a Set waits for an earlier one: what the later one was to take is not taken any more.
func TestSilenceBeforeAWaitingSet(t *testing.T) {
	inBubble(t, true, func(n *node) {
		before := n.silences.Load()
		n.Silence("test")
		got := n.SetUnder(n.t.Context(), holdings(moving("10.0.0.7", "ext0"), still("10.0.0.5", "ext0")), before)
		if addresses(got.Held) != "10.0.0.5" || !errors.Is(got.Failed[addr("10.0.0.7")], ErrSilenced) {
			t.Errorf("got %+v, want only the static address", got)
		}
		n.after(time.Minute)
		n.wantThere("10.0.0.5")
	})
}

// A silence that comes in the middle of a Set, or of a renewal, waits only for the batch that the kernel is working on.
func TestSilenceStopsWorkInProgress(t *testing.T) {
	var many []Holding
	for i := range 10 * batchSize {
		many = append(many, moving(fmt.Sprintf("10.0.%d.%d", i/250, i%250+1), "ext0"))
	}
	for _, verb := range []link.Verb{link.Add, link.Renew} {
		kernel, announcer := testKernel(), neightest.New()
		announcer.SetInterface("ext0", ownMAC0)
		r := New(Options{Kernel: kernel, Announcer: announcer})
		if verb == link.Renew {
			r.Set(t.Context(), holdings(many...))
			announcer.Sent()
		}
		var once sync.Once
		silenced := make(chan struct{})
		kernel.Applied()
		kernel.Fail(func(o link.Operation) error {
			if o.Verb == verb {
				once.Do(func() {
					go func() { r.Silence("test"); close(silenced) }()
					for r.silences.Load() == 0 {
						runtime.Gosched()
					}
				})
			}
			return nil
		})
		if verb == link.Add {
			got := r.Set(t.Context(), holdings(many...))
			if !errors.Is(got.Failed[many[0].Address], ErrSilenced) || len(got.Failed) != len(many) || got.Taken != nil {
				t.Errorf("%d failed and %d taken, want all silenced", len(got.Failed), len(got.Taken))
			}
		} else {
			r.renew()
		}
		<-silenced
		worked := 0
		for _, o := range kernel.Applied() {
			if o.Verb == verb {
				worked++
			}
		}
		if worked > batchSize {
			t.Errorf("%s: %d operations after the silence began, want at most one batch", verb, worked)
		}
		if list, _ := kernel.Addresses(); len(list) > 0 {
			t.Errorf("%s: there are %d addresses after the silence", verb, len(list))
		}
		if sent := announcer.Sent(); len(sent) > 0 {
			t.Errorf("%s: %d announcements after the silence began", verb, len(sent))
		}
	}
}

// What a silence cannot remove is tried again, and leaves by its lifetime at the latest.
func TestSilenceOfAStubbornKernel(t *testing.T) {
	inBubble(t, true, func(n *node) {
		n.set(holdings(moving("10.0.0.7", "ext0")))
		n.kernel.Fail(func(o link.Operation) error { return errors.New("busy") })
		n.Silence("test")
		n.wantThere("10.0.0.7")
		n.after(RenewInterval)
		n.wantProblems("address.remove-failed 10.0.0.7")
		n.after(ValidLifetime)
		n.wantThere("")
	})
}

// A process that was stopped and goes on must not act on a right that ran out meanwhile.
func TestWithoutPermissionNothingIsRenewedOrTaken(t *testing.T) {
	inBubble(t, true, func(n *node) {
		n.set(holdings(moving("10.0.0.7", "ext0"), still("10.0.0.5", "ext0")))
		n.after(3 * time.Second)
		n.link.Sent()
		n.allowed = false
		n.link.Claim(addr("10.0.0.7"), stranger)
		n.after(ValidLifetime)
		n.wantThere("10.0.0.5")
		got := n.set(holdings(moving("10.0.0.8", "ext0"), still("10.0.0.6", "ext0")))
		if addresses(got.Held) != "10.0.0.6" || !errors.Is(got.Failed[addr("10.0.0.8")], ErrNoRight) {
			t.Errorf("without the right to hold: %+v", got)
		}
		for _, s := range n.link.Sent() {
			if s.Address == addr("10.0.0.7") || s.Address == addr("10.0.0.8") {
				t.Errorf("%v was announced without the right to hold it", s.Address)
			}
		}
	})
}

// A silence does not wait for a probe, and what was probed for is not taken after it.
func TestSilenceDuringProbe(t *testing.T) {
	inBubble(t, true, func(n *node) {
		probed := moving("10.0.0.7", "ext0")
		probed.Probe = true
		done := make(chan Result)
		go func() { done <- n.set(holdings(probed, moving("10.0.0.8", "ext0"))) }()
		n.after(ProbeWait / 2)
		n.wantThere("10.0.0.8")
		start := time.Now()
		n.Silence("test")
		if took := time.Since(start); took != 0 {
			t.Errorf("the silence waited %v for the probe", took)
		}
		got := <-done
		if got.Held != nil || !errors.Is(got.Failed[addr("10.0.0.7")], ErrSilenced) || !errors.Is(got.Failed[addr("10.0.0.8")], ErrSilenced) {
			t.Errorf("got %+v, want nothing held and both silenced", got)
		}
		n.after(time.Minute)
		n.wantThere("")
	})
}

// Set, Silence, renewal and reading run against each other; after each silence nothing moving is on the interfaces
// until the next Set. Run with -race.
func TestNothingIsResurrected(t *testing.T) {
	kernel, announcer := testKernel(), neightest.New()
	announcer.SetInterface("ext0", ownMAC0)
	r := New(Options{Kernel: kernel, Announcer: announcer})
	var many []Holding
	for i := range 200 {
		many = append(many, moving(fmt.Sprintf("10.0.1.%d", i+1), "ext0"))
	}
	stop := make(chan struct{})
	var group sync.WaitGroup
	for _, work := range []func(){r.renew, func() { r.pass(t.Context(), true) }, func() { r.claimed(many[0].Address, stranger) }} {
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					work()
				}
			}
		})
	}
	for range 30 {
		set := make(chan Result)
		go func() { set <- r.Set(t.Context(), holdings(many...)) }()
		r.Silence("while a Set may be running")
		<-set
		r.Silence("after it")
		for range 5 {
			r.renew()
			if list, _ := kernel.Addresses(); len(list) > 0 {
				t.Fatalf("after a silence there are %v", list)
			}
		}
		r.Set(t.Context(), holdings(many[:100]...))
		r.Set(t.Context(), holdings(many[:50]...))
		if list, _ := kernel.Addresses(); len(list) != 50 {
			t.Fatalf("there are %d addresses, want 50", len(list))
		}
	}
	close(stop)
	group.Wait()
}
