package link_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/linux/link/linktest"
)

// inNamespace opens a kernel in a new network namespace with the veth pairs named, ends up, and gives it to f. The
// namespace is made on a thread of its own, which dies with it.
func inNamespace(t testing.TB, pairs []string, f func(k *link.Kernel)) {
	t.Helper()
	opened := make(chan any, 1)
	go func() {
		runtime.LockOSThread() // and never unlock
		opened <- func() any {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Sprintf("no permission to make a network namespace: %v", err)
			}
			for _, name := range pairs {
				if err := makePair(name); err != nil {
					return err
				}
			}
			k, err := link.Open()
			if err != nil {
				return err
			}
			return k
		}()
	}()
	switch result := (<-opened).(type) {
	case string:
		t.Skip(result)
	case error:
		t.Fatal(result)
	case *link.Kernel:
		defer result.Close()
		f(result)
	}
}

// makePair makes the veth pair NAME and NAME-peer and sets both ends up.
func makePair(name string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: name + "-peer"}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("adding the veth pair %s: %w", name, err)
	}
	for _, end := range []string{name, name + "-peer"} {
		l, err := netlink.LinkByName(end)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
	}
	return nil
}

func TestKernelContract(t *testing.T) {
	inNamespace(t, []string{"ext0"}, func(k *link.Kernel) { linktest.Contract(t, k, "ext0") })
}

func TestFakeContract(t *testing.T) {
	linktest.Contract(t, linktest.New(linktest.Ethernet(2, "ext0")), "ext0")
}

// A route that somebody else made is neither listed nor replaced nor removed, even where it is for the same destination with the
// same metric.
func TestForeignRoutesStay(t *testing.T) {
	inNamespace(t, []string{"ext0"}, func(k *link.Kernel) {
		for _, c := range []struct{ all, gateway string }{{"0.0.0.0/0", "10.9.0.1"}, {"::/0", "fd00:9::1"}} {
			own := link.Route{
				Table: link.MainTable, Destination: netip.MustParsePrefix(c.all), Gateway: netip.MustParseAddr(c.gateway), Interface: "ext0", Metric: 7000,
			}
			foreign := func() (list []netlink.Route, err error) {
				err = k.In(func() error {
					family := unix.AF_INET
					if own.Destination.Addr().Is6() {
						family = unix.AF_INET6
					}
					list, err = netlink.RouteListFiltered(family, &netlink.Route{Protocol: unix.RTPROT_BOOT, Table: link.MainTable},
						netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
					return err
				})
				return list, err
			}
			mustApply(t, k, link.Add, own.Gateway.Next().String()) // the kernel takes no gateway where it never had an address
			if err := k.In(func() error {
				ext0, err := netlink.LinkByName("ext0")
				if err != nil {
					return err
				}
				return netlink.RouteAdd(&netlink.Route{
					LinkIndex: ext0.Attrs().Index, Gw: own.Gateway.AsSlice(), Priority: own.Metric, Table: link.MainTable,
					Protocol: unix.RTPROT_BOOT, Flags: int(netlink.FLAG_ONLINK),
				})
			}); err != nil {
				t.Fatal(err)
			}
			for verb, want := range map[link.Verb]error{link.Add: link.ErrExists, link.Remove: link.ErrMissing} {
				if err := k.Apply([]link.Operation{{Verb: verb, Object: own}})[0]; !errors.Is(err, want) {
					t.Errorf("%s %v beside somebody else's: error %v, want %v", verb, own, err, want)
				}
			}
			if listed, err := k.Routes(); err != nil || len(listed) != 0 {
				t.Errorf("listed as Holdfast's own are %v (%v), want none", listed, err)
			}
			if left, err := foreign(); err != nil || len(left) != 1 {
				t.Errorf("somebody else's routes are %v (%v), want the one that was made", left, err)
			}
		}
	})
}

// Removing one address must not take its siblings along, whatever promote_secondaries says: host prefixes have none.
func TestSiblingsStay(t *testing.T) {
	inNamespace(t, []string{"ext0"}, func(k *link.Kernel) {
		for _, addr := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
			mustApply(t, k, link.Add, addr)
		}
		mustApply(t, k, link.Remove, "10.0.0.1")
		list, err := k.Addresses()
		if err != nil || len(list) != 2 {
			t.Errorf("left are %v (%v), want 10.0.0.2 and 10.0.0.3", list, err)
		}
	})
}

func mustApply(t *testing.T, k *link.Kernel, verb link.Verb, addr string) {
	t.Helper()
	a := link.Address{Interface: "ext0", Prefix: link.Host(netip.MustParseAddr(addr)), Valid: link.Forever, Preferred: link.Forever}
	if err := k.Apply([]link.Operation{{Verb: verb, Object: a}})[0]; err != nil {
		t.Fatal(err)
	}
}

// Public report 11 (resource-agents #180): duplicate address detection made takeovers fail. The address must be usable
// at once: neither tentative nor waiting.
func TestReport11NoDetectionWait(t *testing.T) {
	inNamespace(t, []string{"ext0"}, func(k *link.Kernel) {
		mustApply(t, k, link.Add, "fd00::7")
		err := k.In(func() error {
			l, err := netlink.LinkByName("ext0")
			if err != nil {
				return err
			}
			list, err := netlink.AddrList(l, unix.AF_INET6)
			for _, a := range list {
				if a.IP.String() == "fd00::7" {
					if a.Flags&unix.IFA_F_NODAD == 0 || a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 {
						return fmt.Errorf("flags are %#x, want NODAD and neither TENTATIVE nor DADFAILED", a.Flags)
					}
					return nil
				}
			}
			return errors.Join(err, errors.New("fd00::7 is not there"))
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// An IPv6 address that was added is answered on when that has returned: the kernel's own acknowledgement comes before it, and
// packets that come in between are lost.
func TestAddedIPv6AddressesAreAnsweredOn(t *testing.T) {
	inNamespace(t, []string{"ext0"}, func(k *link.Kernel) {
		k.WaitForAnswers(time.Minute)
		for round := range 20 {
			var operations []link.Operation
			for i := range 50 {
				operations = append(operations, link.Operation{Verb: link.Add, Object: link.Address{
					Interface: "ext0", Prefix: link.Host(netip.MustParseAddr(fmt.Sprintf("fd00::%d:%d", round, i))), Valid: link.Forever, Preferred: link.Forever,
				}})
			}
			if err := errors.Join(k.Apply(operations)...); err != nil {
				t.Fatal(err)
			}
			last := operations[len(operations)-1].Object.(link.Address).Prefix.Addr()
			if err := k.In(func() error {
				routes, err := netlink.RouteGet(last.AsSlice())
				if err == nil && routes[0].Type != unix.RTN_LOCAL {
					err = fmt.Errorf("packets to %s go %v", last, routes[0])
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestInterfacesAndCarrier(t *testing.T) {
	inNamespace(t, []string{"ext0"}, func(k *link.Kernel) {
		carrier := func() (ext0, lo link.Interface) {
			list, err := k.Interfaces()
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range list {
				switch i.Name {
				case "ext0":
					ext0 = i
				case "lo":
					lo = i
				}
			}
			return ext0, lo
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		changes := make(chan link.Change, 100)
		go func() { _ = k.Changes(ctx, func(c link.Change) { changes <- c }) }()
		<-changes
		ext0, lo := carrier()
		for !ext0.Carrier { // the kernel takes a moment after setting it up, and says so
			<-changes
			ext0, lo = carrier()
		}
		if !ext0.Up || !ext0.Ethernet || len(ext0.MAC) != 6 || ext0.MTU != 1500 {
			t.Errorf("ext0 is %+v, want an Ethernet interface that works", ext0)
		}
		if lo.Ethernet {
			t.Errorf("lo is %+v, want it not to be Ethernet", lo)
		}
		setDown(t, k, "ext0-peer")
		for ext0.Carrier {
			<-changes
			ext0, _ = carrier()
		}
		if !ext0.Up {
			t.Error("ext0 is down; it lost only its carrier")
		}
	})
}

func setDown(t *testing.T, k *link.Kernel, name string) {
	t.Helper()
	err := k.In(func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(l)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFindingsOfTheKernel(t *testing.T) {
	inNamespace(t, []string{"ext0"}, func(k *link.Kernel) {
		found, err := k.Findings([]link.Uses{{Interface: "ext0", IPv4: true, IPv6: true}})
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, f := range found {
			fmt.Fprintln(&text, f)
		}
		for _, want := range []string{"net.ipv4.conf.ext0.arp_notify is 0", "net.ipv4.ip_nonlocal_bind is 0"} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("findings of a fresh namespace do not say %q:\n%s", want, text.String())
			}
		}
	})
}

func BenchmarkRemove1000(b *testing.B) {
	inNamespace(b, []string{"ext0"}, func(k *link.Kernel) {
		var add, remove []link.Operation
		addr := netip.MustParseAddr("10.8.0.0")
		for range 1000 {
			addr = addr.Next()
			a := link.Address{Interface: "ext0", Prefix: link.Host(addr), Valid: link.Forever, Preferred: link.Forever}
			add = append(add, link.Operation{Verb: link.Add, Object: a})
			remove = append(remove, link.Operation{Verb: link.Remove, Object: a})
		}
		for b.Loop() {
			b.StopTimer()
			k.Apply(add)
			b.StartTimer()
			k.Apply(remove)
		}
	})
}
