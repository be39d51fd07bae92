package neigh_test

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/linux/neigh"
)

// holdOnPeer has the kernel of the space hold an address at the far end of its pair, or not any more.
func (s *space) holdOnPeer(address netip.Addr, hold bool) {
	s.t.Helper()
	l := s.link("ext0-peer")
	ip := &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(address.BitLen(), address.BitLen())}
	s.must(func() error {
		if !hold {
			return netlink.AddrDel(l, &netlink.Addr{IPNet: ip})
		}
		return netlink.AddrAdd(l, &netlink.Addr{IPNet: ip, Flags: unix.IFA_F_NODAD})
	})
}

// asker asks on ext0 until it is answered.
type asker struct {
	t     *testing.T
	asks  *neigh.Asker
	heard chan struct{}
}

func newAsker(t *testing.T, a *neigh.Announcer, address string) *asker {
	t.Helper()
	asks, err := a.Asker("ext0", netip.MustParseAddr(address))
	if err != nil {
		t.Fatal(err)
	}
	k := &asker{t, asks, make(chan struct{}, 1000)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- asks.Run(ctx, func() { k.heard <- struct{}{} }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("what asks for %s ended: %v", address, err)
		}
	})
	return k
}

// answered asks until there is an answer; a device that is not up yet is asked again.
func (k *asker) answered() {
	k.t.Helper()
	for range 500 {
		_ = k.asks.Ask()
		select {
		case <-k.heard:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	k.t.Fatal("nobody answers")
}

// A neighbour that is there answers, one that is not there does not, and what others say of it is no answer.
func TestAsker(t *testing.T) {
	for name, c := range map[string]struct{ gateway, other string }{"ARP": {"10.0.0.1", "10.0.0.2"}, "NDP": {"fd00::1", "fd00::2"}} {
		t.Run(name, func(t *testing.T) {
			s := newSpace(t)
			a := s.open()
			gateway, other := netip.MustParseAddr(c.gateway), netip.MustParseAddr(c.other)
			s.holdOnPeer(gateway, true)
			s.holdOnPeer(other, true)
			asks, marks := newAsker(t, a, c.gateway), newAsker(t, a, c.other)
			asks.answered()
			asks.answered()
			s.setUp("ext0-peer", false)
			_ = asks.asks.Ask()
			s.setUp("ext0-peer", true)
			if gateway.Is6() {
				s.must(func() error { // the kernel takes global addresses away when the device goes down
					l, err := netlink.LinkByName("ext0-peer")
					if err != nil {
						return err
					}
					for _, address := range []netip.Addr{gateway, other} {
						ip := &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(128, 128)}
						_ = netlink.AddrReplace(l, &netlink.Addr{IPNet: ip, Flags: unix.IFA_F_NODAD})
					}
					return nil
				})
			}
			asks.answered()
			s.holdOnPeer(gateway, false)
			marks.answered()
			for len(asks.heard) > 0 { // of questions before
				<-asks.heard
			}
			if err := asks.asks.Ask(); err != nil {
				t.Fatal(err)
			}
			if err := a.Announce("ext0", []netip.Addr{gateway}); err != nil { // our own word for it
				t.Fatal(err)
			}
			marks.answered() // whatever would have been said to the question before has been said
			if len(asks.heard) > 0 {
				t.Fatal("an address that is nowhere answers")
			}
		})
	}
}

// Whoever answered is asked alone; when it does not answer, all are asked again: another machine may have the address by then.
func TestAskerAsksOneAlone(t *testing.T) {
	s := newSpace(t)
	a := s.open()
	gateway := netip.MustParseAddr("10.0.0.1")
	var conn *packet.Conn
	s.must(func() error {
		peer, err := net.InterfaceByName("ext0-peer")
		if err == nil {
			conn, err = packet.Listen(peer, packet.Raw, unix.ETH_P_ARP, nil)
		}
		return err
	})
	defer conn.Close()
	asks := newAsker(t, a, "10.0.0.1")
	to := func() string {
		if err := asks.asks.Ask(); err != nil {
			t.Fatal(err)
		}
		for {
			if f := nextFrame(t, conn); f[21] == 1 {
				return net.HardwareAddr(f[:6]).String()
			}
		}
	}
	const all = "ff:ff:ff:ff:ff:ff"
	alone := s.link("ext0-peer").Attrs().HardwareAddr.String()
	if got := to(); got != all {
		t.Errorf("the first question goes to %s", got)
	}
	s.holdOnPeer(gateway, true)
	if got := to(); got != all {
		t.Errorf("the question after one without an answer goes to %s", got)
	}
	<-asks.heard
	s.holdOnPeer(gateway, false)
	if got := to(); got != alone {
		t.Errorf("the question after an answer goes to %s, wanted %s", got, alone)
	}
	if got := to(); got != all {
		t.Errorf("the question after one without an answer goes to %s", got)
	}
}
