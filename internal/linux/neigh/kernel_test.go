package neigh_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/linux/neigh"
	"github.com/holdfast/holdfast/internal/linux/neigh/neightest"
)

// space is a network namespace with the veth pair ext0, ext0-peer, both up. Its thread dies with the test.
type space struct {
	t     *testing.T
	tasks chan func()
}

func newSpace(t *testing.T) *space {
	t.Helper()
	s := &space{t, make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock
		err := unix.Unshare(unix.CLONE_NEWNET)
		made <- err
		for task := range s.tasks {
			task()
		}
	}()
	if err := <-made; err != nil {
		t.Skipf("no permission to make a network namespace: %v", err)
	}
	t.Cleanup(func() { close(s.tasks) })
	s.must(func() error {
		// Addresses are usable at once also where the test lets the kernel have them.
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0o644); err != nil {
			return err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "ext0"
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "ext0-peer"})
	})
	s.setUp("ext0", true)
	s.setUp("ext0-peer", true)
	return s
}

// run calls f on the thread of the namespace.
func (s *space) run(f func() error) error {
	result := make(chan error)
	s.tasks <- func() { result <- f() }
	return <-result
}

func (s *space) must(f func() error) {
	s.t.Helper()
	if err := s.run(f); err != nil {
		s.t.Fatal(err)
	}
}

func (s *space) link(name string) (l netlink.Link) {
	s.t.Helper()
	s.must(func() (err error) { l, err = netlink.LinkByName(name); return err })
	return l
}

func (s *space) setUp(name string, up bool) {
	s.t.Helper()
	l := s.link(name)
	s.must(func() error {
		if up {
			return netlink.LinkSetUp(l)
		}
		return netlink.LinkSetDown(l)
	})
}

func (s *space) open() *neigh.Announcer {
	s.t.Helper()
	a, err := neigh.Open(s.run)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(a.Close)
	return a
}

func TestAnnouncerContract(t *testing.T) {
	s := newSpace(t)
	a := s.open()
	neightest.Contract(t, a, neightest.Site{
		Near: "ext0", Far: "ext0-peer", NotEthernet: "lo",
		NearMAC: s.link("ext0").Attrs().HardwareAddr, FarMAC: s.link("ext0-peer").Attrs().HardwareAddr,
		HoldOnFar: func(address netip.Addr) {
			s.must(func() error {
				l, err := netlink.LinkByName("ext0-peer")
				if err != nil {
					return err
				}
				flags := unix.IFA_F_NODAD
				ip := &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(address.BitLen(), address.BitLen())}
				return netlink.AddrAdd(l, &netlink.Addr{IPNet: ip, Flags: flags})
			})
		},
		AwaitWatcher: func(claims chan neigh.Claim) {
			for { // announce something else until it is heard
				if err := a.Announce("ext0", []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}); err != nil {
					t.Fatal(err)
				}
				select {
				case <-claims:
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
		},
	})
}

func TestFakeContract(t *testing.T) {
	f := neightest.New()
	near, far := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	f.SetInterface("ext0", near)
	f.SetInterface("ext0-peer", far)
	f.SetInterface("lo", nil)
	neightest.Contract(t, f, neightest.Site{
		Near: "ext0", Far: "ext0-peer", NotEthernet: "lo", NearMAC: near, FarMAC: far,
		HoldOnFar: func(a netip.Addr) { f.Hold(a, far) },
		AwaitWatcher: func(chan neigh.Claim) {
			for len(f.Watched()) == 0 {
				runtime.Gosched()
			}
		},
	})
}

// frame is the next frame on conn that begins an ARP announcement or a neighbour advertisement for address.
func nextFrame(t *testing.T, conn *packet.Conn) []byte {
	t.Helper()
	b := make([]byte, 256)
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	n, _, err := conn.ReadFrom(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// Public report 3 (keepalived #1112: the MAC of a bond changed, and the old one was announced): the frames name the MAC
// that the device has when they are sent.
func TestReport3CurrentMAC(t *testing.T) {
	s := newSpace(t)
	a := s.open()
	var conn *packet.Conn
	s.must(func() (err error) {
		peer, err := net.InterfaceByName("ext0-peer")
		if err != nil {
			return err
		}
		conn, err = packet.Listen(peer, packet.Raw, unix.ETH_P_ARP, nil)
		return err
	})
	defer conn.Close()
	for _, mac := range []string{"02:00:00:00:00:aa", "02:00:00:00:00:bb"} {
		want, _ := net.ParseMAC(mac)
		s.must(func() error {
			l, err := netlink.LinkByName("ext0")
			if err != nil {
				return err
			}
			return netlink.LinkSetHardwareAddr(l, want)
		})
		if err := a.Announce("ext0", []netip.Addr{netip.MustParseAddr("10.0.0.7")}); err != nil {
			t.Fatal(err)
		}
		for _, operation := range []byte{1, 2} {
			f := nextFrame(t, conn)
			got := fmt.Sprintf("from %v operation %d sender %v %v target %v", net.HardwareAddr(f[6:12]), f[21],
				net.HardwareAddr(f[22:28]), net.IP(f[28:32]), net.IP(f[38:42]))
			wanted := fmt.Sprintf("from %s operation %d sender %s 10.0.0.7 target 10.0.0.7", mac, operation, mac)
			if got != wanted {
				t.Errorf("frame %s, want %s", got, wanted)
			}
		}
	}
}

// A watch outlives its interface going down and up, and a device of the same name that is made anew can be announced on.
func TestDownAndUpAndAnew(t *testing.T) {
	s := newSpace(t)
	a := s.open()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	claims := make(chan neigh.Claim, 1000)
	ended := make(chan error, 1)
	go func() { ended <- a.Watch(ctx, "ext0-peer", func(c neigh.Claim) { claims <- c }) }()
	seven := []netip.Addr{netip.MustParseAddr("10.0.0.7")}
	hear := func() {
		t.Helper()
		for range 500 {
			if err := a.Announce("ext0", seven); err != nil {
				t.Fatal(err)
			}
			select {
			case <-claims:
				return
			case err := <-ended:
				t.Fatalf("the watch ended: %v", err)
			case <-time.After(10 * time.Millisecond):
			}
		}
		t.Fatal("nothing was heard")
	}
	hear()
	s.setUp("ext0-peer", false)
	for len(claims) > 0 {
		<-claims
	}
	s.setUp("ext0-peer", true)
	hear()
	l := s.link("ext0")
	s.must(func() error { return netlink.LinkDel(l) })
	if err := <-ended; err == nil {
		t.Error("the watch ended without an error though its interface is gone")
	}
	s.must(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "ext0"
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "ext0-peer"})
	})
	s.setUp("ext0", true)
	if err := a.Announce("ext0", seven); err != nil {
		t.Errorf("announcing on the new device: %v", err)
	}
}
