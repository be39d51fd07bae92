package address

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/linux/link/linktest"
)

func TestSetSaysWhatWasAchieved(t *testing.T) {
	inBubble(t, false, func(n *node) {
		got := n.set(holdings(moving("10.0.0.8", "ext0"), moving("10.0.0.7", "ext0")))
		if addresses(got.Held) != "10.0.0.7 10.0.0.8" || texts(got.Taken) != "10.0.0.7 10.0.0.8" || got.Released != nil || got.Failed != nil {
			t.Errorf("first: %+v", got)
		}
		n.kernel.Applied()
		got = n.set(holdings(moving("10.0.0.8", "ext0"), moving("10.0.0.7", "ext0")))
		if addresses(got.Held) != "10.0.0.7 10.0.0.8" || got.Taken != nil || got.Released != nil {
			t.Errorf("the same again: %+v", got)
		}
		if again := n.kernel.Applied(); len(again) > 0 {
			t.Errorf("the same again did %v", again)
		}
		got = n.set(holdings(moving("10.0.0.8", "ext0"), moving("10.0.0.9", "ext0")))
		if addresses(got.Held) != "10.0.0.8 10.0.0.9" || texts(got.Taken) != "10.0.0.9" || texts(got.Released) != "10.0.0.7" {
			t.Errorf("one for another: %+v", got)
		}
		applied := n.kernel.Applied()
		if len(applied) != 2 || applied[0].Verb != link.Remove || applied[1].Verb != link.Add {
			t.Errorf("done was %v, want the removal before the addition", applied)
		}
	})
}

// The trap of kube-vip (StartVipService): the error of adding the address is logged, and the node goes on as owner.
func TestFailedAddIsNotHeld(t *testing.T) {
	inBubble(t, true, func(n *node) {
		refusal := errors.New("no room")
		n.kernel.Fail(func(o link.Operation) error {
			if a, ok := o.Object.(link.Address); ok && a.Prefix.Addr() == addr("10.0.0.7") && o.Verb == link.Add {
				return refusal
			}
			return nil
		})
		got := n.set(holdings(moving("10.0.0.7", "ext0"), moving("10.0.0.8", "ext0")))
		if addresses(got.Held) != "10.0.0.8" || !errors.Is(got.Failed[addr("10.0.0.7")], refusal) {
			t.Errorf("got %+v, want 10.0.0.8 held and 10.0.0.7 failed", got)
		}
		for _, s := range n.link.Sent() {
			if s.Address == addr("10.0.0.7") {
				t.Error("an address that is not held was announced")
			}
		}
		n.wantProblems("address.add-failed 10.0.0.7")
		n.kernel.Fail(nil)
		n.after(RereadInterval)
		n.wantThere("10.0.0.7 10.0.0.8")
		n.wantProblems()
		select {
		case <-n.Changed():
		default:
			t.Error("nobody was told that the address is held after all")
		}
	})
}

func TestFailedRemovalIsReportedAndTriedAgain(t *testing.T) {
	inBubble(t, true, func(n *node) {
		n.set(holdings(still("10.0.0.7", "ext0")))
		n.kernel.Fail(func(o link.Operation) error {
			if o.Verb == link.Remove {
				return errors.New("busy")
			}
			return nil
		})
		got := n.set(Desired{})
		if got.Failed[addr("10.0.0.7")] == nil {
			t.Errorf("got %+v, want that 10.0.0.7 could not be removed", got)
		}
		n.wantProblems("address.remove-failed 10.0.0.7")
		n.after(5 * time.Second)
		n.wantThere("10.0.0.7")
		n.kernel.Fail(nil)
		n.after(RenewInterval)
		n.wantThere("")
		n.wantProblems()
	})
}

// What could not be taken off is not held, and yet it is there: nobody else may have it.
func TestWhatCannotBeRemovedIsLeft(t *testing.T) {
	inBubble(t, true, func(n *node) {
		n.set(holdings(moving("10.0.0.5", "ext0"), still("10.0.0.6", "ext0")))
		n.kernel.Fail(func(o link.Operation) error {
			if o.Verb == link.Remove {
				return errors.New("busy")
			}
			return nil
		})
		result := n.set(Desired{})
		if addresses(result.Held) != "" || texts(result.Left) != "10.0.0.5 10.0.0.6" {
			t.Errorf("held %v, left %v", result.Held, result.Left)
		}
		n.after(3 * time.Second)
		n.wantThere("10.0.0.6")
		if left := n.Status().Left; texts(left) != "10.0.0.6" {
			t.Errorf("the one with a lifetime went by itself, and still %v is left", left)
		}
		n.kernel.Fail(nil)
		n.after(time.Second)
		n.wantThere("")
		if left := n.Status().Left; len(left) != 0 {
			t.Errorf("still %v is left", left)
		}
	})
}

// An address of the cluster that somebody else put on an interface, such as an agent before this one, goes.
func TestManagedAddressesGoWhoeverPutThemThere(t *testing.T) {
	inBubble(t, true, func(n *node) {
		for _, a := range []string{"10.0.0.5", "10.0.0.6", "10.0.0.7"} {
			n.kernel.Put(addressOf(still(a, "ext0")))
		}
		d := holdings(still("10.0.0.5", "ext0"))
		d.Managed = func(a netip.Addr) bool { return a != netip.MustParseAddr("10.0.0.7") }
		n.set(d)
		n.wantThere("10.0.0.5 10.0.0.7")
		n.kernel.Fail(func(o link.Operation) error {
			if o.Verb == link.Remove {
				return errors.New("busy")
			}
			return nil
		})
		d.Managed = func(netip.Addr) bool { return true }
		if result := n.set(d); texts(result.Left) != "10.0.0.7" {
			t.Errorf("left is %v", result.Left)
		}
	})
}

func TestLifetimesAreRenewed(t *testing.T) {
	inBubble(t, true, func(n *node) {
		n.set(holdings(moving("10.0.0.7", "ext0"), still("10.0.0.5", "ext0")))
		n.after(time.Minute)
		n.wantThere("10.0.0.5 10.0.0.7")
		n.kernel.Fail(func(o link.Operation) error {
			if o.Verb == link.Renew {
				return errors.New("no room")
			}
			return nil
		})
		n.after(RenewInterval)
		n.wantProblems("address.renew-failed 10.0.0.7")
		n.kernel.Fail(nil)
		n.after(RenewInterval)
		n.wantProblems()
		n.wantThere("10.0.0.5 10.0.0.7")
	})
}

// Without its agent an address is gone after its lifetime; a static one stays.
func TestWithoutRunAddressesExpire(t *testing.T) {
	inBubble(t, false, func(n *node) {
		n.set(holdings(moving("10.0.0.7", "ext0"), still("10.0.0.5", "ext0")))
		n.after(ValidLifetime - time.Millisecond)
		n.wantThere("10.0.0.5 10.0.0.7")
		n.after(time.Millisecond)
		n.wantThere("10.0.0.5")
	})
}

func TestInterfaceVanishesAndReturns(t *testing.T) {
	inBubble(t, true, func(n *node) {
		n.set(Desired{
			Holdings: []Holding{moving("10.0.0.7", "ext0"), still("10.0.0.5", "ext0"), moving("10.0.0.8", "ext1")},
			Routes:   []SubnetRoute{{Prefix: prefix("10.0.0.0/24"), Gateway: addr("10.0.0.1"), Interface: "ext0"}},
		})
		n.after(3 * time.Second)
		n.kernel.RemoveInterface("ext0")
		n.after(0)
		if got := n.Status(); addresses(got.Held) != "10.0.0.8" || !errors.Is(got.Failed[addr("10.0.0.7")], link.ErrNoInterface) {
			t.Errorf("with the interface gone: %+v", got)
		}
		select {
		case <-n.Changed():
		default:
			t.Error("nobody was told that addresses are lost")
		}
		n.wantProblems("address.interface-missing ext0")
		n.link.Sent()
		returned := linktest.Ethernet(2, "ext0")
		returned.Index = 9
		n.kernel.SetInterface(returned)
		n.after(0)
		n.wantThere("10.0.0.5 10.0.0.7 10.0.0.8")
		n.wantProblems()
		if sent := n.link.Sent(); len(sent) != 2 {
			t.Errorf("announced were %v, want the two that came back", sent)
		}
		if routes, _ := n.kernel.Routes(); len(routes) != 2 {
			t.Errorf("routes are %v, want those of the subnet back", routes)
		}
		if got := n.link.Watched(); !slices.Equal(got, []string{"ext0", "ext1"}) {
			t.Errorf("watched are %v", got)
		}
	})
}

// Somebody takes a held address off by hand.
func TestLostAddressComesBack(t *testing.T) {
	inBubble(t, true, func(n *node) {
		n.set(holdings(still("10.0.0.5", "ext0")))
		n.kernel.Take("ext0", addr("10.0.0.5"))
		n.after(0)
		n.wantThere("10.0.0.5")
	})
}

// Public report 4(a) (kube-vip #996, MetalLB #589): an agent that was killed left its address, and the next one served
// beside the node that had taken it. Every moving address goes before anything else.
func TestReport4CleanUpAtStart(t *testing.T) {
	inBubble(t, false, func(n *node) {
		for _, a := range []string{"10.0.0.7/32", "10.0.0.100/32", "10.0.0.8/24", "fd00::7/128"} {
			n.kernel.Put(link.Address{Interface: "ext0", Prefix: prefix(a), Valid: link.Forever, Preferred: link.Forever})
		}
		managed := func(a netip.Addr) bool { return a != addr("10.0.0.100") }
		err := n.CleanUp(n.t.Context(), managed)
		if !errors.Is(err, ErrConfigured) {
			t.Errorf("error %v, want that 10.0.0.8/24 was left", err)
		}
		n.wantThere("10.0.0.100 10.0.0.8")
		n.wantProblems("address.configured-elsewhere 10.0.0.8")
	})
}

func TestStrangerHasTheAddress(t *testing.T) {
	inBubble(t, true, func(n *node) {
		n.link.Hold(addr("10.0.0.7"), stranger)
		probed := moving("10.0.0.7", "ext0")
		probed.Probe = true
		clean := moving("10.0.0.8", "ext0")
		clean.Probe = true
		start := time.Now()
		got := n.set(holdings(probed, clean, moving("10.0.0.9", "ext0")))
		if addresses(got.Held) != "10.0.0.8 10.0.0.9" || !errors.Is(got.Failed[addr("10.0.0.7")], ErrInUse) {
			t.Errorf("got %+v, want 10.0.0.7 refused", got)
		}
		if texts(got.Taken) != "10.0.0.8 10.0.0.9" || time.Since(start) != ProbeWait {
			t.Errorf("taken %v in %v, want the others within one probe", got.Taken, time.Since(start))
		}
		n.wantProblems("address.in-use 10.0.0.7")

		n.link.Probed()
		n.set(holdings(probed, clean, moving("10.0.0.9", "ext0")))
		if again := n.link.Probed(); len(again) > 0 {
			t.Errorf("probed %v at once again", again)
		}
		n.after(time.Minute)
		if again := n.link.Probed(); len(again) > 0 {
			t.Errorf("the background probed %v: no endless retry", again)
		}
		n.link.Release(addr("10.0.0.7"))
		got = n.set(holdings(probed, clean))
		if addresses(got.Held) != "10.0.0.7 10.0.0.8" {
			t.Errorf("after the stranger left: %+v", got)
		}
		n.wantProblems()
	})
}

// An address whose interface was not there when it was set is probed for when the interface comes.
func TestProbeOfALateInterface(t *testing.T) {
	inBubble(t, true, func(n *node) {
		n.kernel.RemoveInterface("ext1")
		probed := moving("10.0.0.7", "ext1")
		probed.Probe = true
		n.set(holdings(probed))
		n.kernel.SetInterface(linktest.Ethernet(3, "ext1"))
		n.after(ProbeWait)
		n.wantThere("10.0.0.7")
		if got := n.link.Probed(); len(got) != 1 {
			t.Errorf("probed %v, want 10.0.0.7 once", got)
		}
	})
}

// Settings of the kernel that do not suit are on the board, the harmful ones as warnings.
func TestKernelSettingsAreReported(t *testing.T) {
	inBubble(t, false, func(n *node) {
		n.kernel.SetFindings(
			link.Finding{Setting: "net.ipv4.conf.ext0.rp_filter", Value: "1", Want: "2", Consequence: "drops", Harmful: true},
			link.Finding{Setting: "net.ipv4.ip_nonlocal_bind", Value: "0", Want: "1", Consequence: "cannot bind"})
		n.checkSettings()
		n.wantProblems("address.kernel-setting net.ipv4.conf.ext0.rp_filter", "address.kernel-setting-note net.ipv4.ip_nonlocal_bind")
		n.kernel.SetFindings()
		n.checkSettings()
		n.wantProblems()
	})
}

// unreadable is a kernel that cannot be read.
type unreadable struct{ *linktest.Fake }

func (unreadable) Addresses() ([]link.Address, error) { return nil, errors.New("out of memory") }

func TestKernelCannotBeRead(t *testing.T) {
	inBubble(t, false, func(n *node) {
		n.set(holdings(moving("10.0.0.7", "ext0"), moving("10.0.0.8", "ext0")))
		n.Reconciler.kernel = unreadable{n.kernel}
		got := n.set(holdings(moving("10.0.0.8", "ext0"), moving("10.0.0.9", "ext0")))
		if addresses(got.Held) != "10.0.0.8" || texts(got.Released) != "10.0.0.7" || got.Failed[addr("10.0.0.9")] == nil {
			t.Errorf("got %+v, want 10.0.0.7 released, 10.0.0.8 kept, 10.0.0.9 failed", got)
		}
		n.wantThere("10.0.0.8")
		n.wantProblems("address.kernel-unreadable kernel")
	})
}

func TestFindingsReplaceEachOther(t *testing.T) {
	inBubble(t, false, func(n *node) {
		f := findings{board: n.board, last: map[string][]found{}}
		f.replace("a", time.Now(), []found{{problemRoute, "x", "1"}, {problemRoute, "y", "1"}})
		f.replace("b", time.Now(), []found{{problemDeaf, "x", "1"}})
		f.replace("a", time.Now(), []found{{problemRoute, "y", "2"}})
		n.wantProblems("address.not-watched x", "address.route-failed y")
		if got := n.board.List()[1].Detail; got != "2" {
			t.Error(cmp.Diff("2", got))
		}
	})
}

// A rule or route that fails twice is on the board, and is tried again; the address is held all the same.
func TestFailedRouteIsReported(t *testing.T) {
	inBubble(t, true, func(n *node) {
		n.kernel.Fail(func(o link.Operation) error {
			if r, ok := o.Object.(link.Route); ok && r.Gateway.IsValid() {
				return errors.New("unreachable gateway")
			}
			return nil
		})
		got := n.set(Desired{
			Holdings: []Holding{still("10.0.0.7", "ext0")},
			Routes:   []SubnetRoute{{Prefix: prefix("10.0.0.0/24"), Gateway: addr("10.0.0.1"), Interface: "ext0"}},
		})
		if addresses(got.Held) != "10.0.0.7" || got.Failed != nil {
			t.Errorf("got %+v", got)
		}
		n.wantProblems("address.route-failed 0.0.0.0/0 dev ext0")
		n.kernel.Fail(nil)
		n.after(RereadInterval)
		n.wantProblems()
		if routes, _ := n.kernel.Routes(); len(routes) != 2 {
			t.Errorf("routes are %v", routes)
		}
	})
}

// An interface that gets another name takes its addresses along. They must go off it at once: their holdings are on an
// interface that is not there, so others will have them.
func TestRenamedInterfaceKeepsNothing(t *testing.T) {
	for name, next := range map[string]Desired{
		"still desired":     holdings(moving("10.0.0.7", "ext0")),
		"no longer desired": {},
	} {
		inBubble(t, false, func(n *node) {
			n.set(holdings(moving("10.0.0.7", "ext0")))
			renamed := addressOf(moving("10.0.0.7", "lost0"))
			n.kernel.SetInterface(linktest.Ethernet(9, "lost0"))
			n.kernel.RemoveInterface("ext0")
			n.kernel.Put(renamed)
			got := n.set(next)
			if there := n.there(); there != "" || len(got.Held) > 0 {
				t.Errorf("%s: %q is there, and %v is held", name, there, got.Held)
			}
		})
	}
}
