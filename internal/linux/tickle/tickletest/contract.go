package tickletest

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/holdfast/holdfast/internal/linux/tickle"
)

// Sender is what tickle.Sender and Fake have in common.
type Sender interface {
	Send([]tickle.Connection) []error
}

var (
	_ Sender = (*Fake)(nil)
	_ Sender = (*tickle.Sender)(nil)
)

// Site is what the contract runs on: a host that has Four and Six, can reach FarFour and FarSix, and lacks Absent.
type Site struct {
	Four, Six, FarFour, FarSix, Absent, AbsentSix netip.Addr
	SetHere                                       func(netip.Addr, bool)
}

// Contract checks that a sender behaves as the package says.
func Contract(t *testing.T, s Sender, site Site) {
	at := func(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }
	text := netip.MustParseAddrPort
	good4 := tickle.Connection{Local: at(site.Four, 2049), Remote: at(site.FarFour, 700)}
	good6 := tickle.Connection{Local: at(site.Six, 2049), Remote: at(site.FarSix, 700)}
	for _, c := range []struct {
		name          string
		local, remote netip.AddrPort
		want          error
	}{
		{"a connection", good4.Local, good4.Remote, nil},
		{"a connection over IPv6", good6.Local, good6.Remote, nil},
		{"an address that is not here", at(site.Absent, 2049), good4.Remote, tickle.ErrNotHere},
		{"an IPv6 address that is not here", at(site.AbsentSix, 2049), good6.Remote, tickle.ErrNotHere},
		{"nothing", netip.AddrPort{}, netip.AddrPort{}, tickle.ErrUnfit},
		{"no port", at(site.Four, 0), good4.Remote, tickle.ErrUnfit},
		{"no far port", good4.Local, at(site.FarFour, 0), tickle.ErrUnfit},
		{"two families", good4.Local, good6.Remote, tickle.ErrUnfit},
		{"a group", good4.Local, text("224.0.0.1:1"), tickle.ErrUnfit},
		{"nobody", good4.Local, text("0.0.0.0:1"), tickle.ErrUnfit},
		{"the host itself", good4.Local, at(site.Four, 700), tickle.ErrUnfit},
		{"the loopback", text("127.0.0.1:1"), text("127.0.0.2:1"), tickle.ErrUnfit},
		{"an address of one link", good6.Local, text("[fe80::1]:1"), tickle.ErrUnfit},
		{"one with its interface", good6.Local, text("[fe80::1%eth0]:1"), tickle.ErrUnfit},
		{"IPv4 inside IPv6", text("[::ffff:10.0.0.7]:1"), text("[::ffff:10.0.0.8]:1"), tickle.ErrUnfit},
	} {
		errs := s.Send([]tickle.Connection{{Local: c.local, Remote: c.remote}})
		if len(errs) != 1 || !errors.Is(errs[0], c.want) {
			t.Errorf("%s: %v, want %v", c.name, errs, c.want)
		}
	}
	mixed := s.Send([]tickle.Connection{good4, {}, good6})
	if len(mixed) != 3 || mixed[0] != nil || !errors.Is(mixed[1], tickle.ErrUnfit) || mixed[2] != nil {
		t.Errorf("one bad among three: %v", mixed)
	}
	for _, c := range []tickle.Connection{good4, good6} {
		site.SetHere(c.Local.Addr(), false)
		if errs := s.Send([]tickle.Connection{c}); !errors.Is(errs[0], tickle.ErrNotHere) {
			t.Errorf("after %v left this host: %v, want %v", c.Local.Addr(), errs[0], tickle.ErrNotHere)
		}
	}
	if errs := s.Send(nil); len(errs) != 0 {
		t.Errorf("no connection at all: %v", errs)
	}
}
