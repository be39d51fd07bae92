package neightest

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/linux/neigh"
)

// Announcer is what neigh.Announcer and Fake have in common.
type Announcer interface {
	Announce(iface string, addresses []netip.Addr) error
	Probe(ctx context.Context, iface string, addresses []netip.Addr, wait time.Duration) ([]neigh.Claim, error)
	Watch(ctx context.Context, iface string, heard func(neigh.Claim)) error
}

var (
	_ Announcer = (*Fake)(nil)
	_ Announcer = (*neigh.Announcer)(nil)
)

// Site is what the contract runs on.
type Site struct {
	Near, Far    string                        // two Ethernet interfaces on one link
	NearMAC      net.HardwareAddr              // the MAC of Near
	NotEthernet  string                        // an interface that is not Ethernet
	HoldOnFar    func(netip.Addr)              // lets Far hold an address, so that it answers for it
	FarMAC       net.HardwareAddr              // the MAC of Far
	AwaitWatcher func(claims chan neigh.Claim) // returns when a watch that was started hears
}

// Contract checks that an announcer behaves as the package says.
func Contract(t *testing.T, a Announcer, s Site) {
	t.Run("refusals", func(t *testing.T) { refusalContract(t, a, s) })
	t.Run("announcements are heard as claims", func(t *testing.T) { claimContract(t, a, s) })
	t.Run("probe", func(t *testing.T) { probeContract(t, a, s) })
}

func refusalContract(t *testing.T, a Announcer, s Site) {
	good := []netip.Addr{netip.MustParseAddr("10.0.0.7")}
	for _, refused := range []struct {
		iface   string
		address netip.Addr
		want    error
	}{
		{"nowhere0", good[0], neigh.ErrNoInterface},
		{s.NotEthernet, good[0], neigh.ErrNotEthernet},
		{s.Near, netip.Addr{}, neigh.ErrNotUnicast},
		{s.Near, netip.MustParseAddr("0.0.0.0"), neigh.ErrNotUnicast},
		{s.Near, netip.MustParseAddr("ff02::1"), neigh.ErrNotUnicast},
		{s.Near, netip.MustParseAddr("::ffff:10.0.0.7"), neigh.ErrNotUnicast},
		{s.Near, netip.MustParseAddr("fe80::1%eth0"), neigh.ErrNotUnicast},
	} {
		list := []netip.Addr{refused.address}
		if err := a.Announce(refused.iface, list); !errors.Is(err, refused.want) {
			t.Errorf("announcing %v on %s: %v, want %v", refused.address, refused.iface, err, refused.want)
		}
		if _, err := a.Probe(t.Context(), refused.iface, list, time.Second); !errors.Is(err, refused.want) {
			t.Errorf("probing %v on %s: %v, want %v", refused.address, refused.iface, err, refused.want)
		}
	}
	for iface, want := range map[string]error{"nowhere0": neigh.ErrNoInterface, s.NotEthernet: neigh.ErrNotEthernet} {
		if err := a.Watch(t.Context(), iface, nil); !errors.Is(err, want) {
			t.Errorf("watching %s: %v, want %v", iface, err, want)
		}
	}
}

func claimContract(t *testing.T, a Announcer, s Site) {
	ctx, cancel := context.WithCancel(t.Context())
	claims, ended := make(chan neigh.Claim, 100), make(chan error, 1)
	go func() { ended <- a.Watch(ctx, s.Far, func(c neigh.Claim) { claims <- c }) }()
	s.AwaitWatcher(claims)
	for _, text := range []string{"10.0.0.7", "fd00::7"} {
		address := netip.MustParseAddr(text)
		if err := a.Announce(s.Near, []netip.Addr{address}); err != nil {
			t.Fatal(err)
		}
		for c := range claims {
			if c.Address != address {
				continue // of the waiting, or of the other form
			}
			if c.MAC.String() != s.NearMAC.String() || c.Interface != s.Far {
				t.Errorf("heard %+v, want the MAC %v on %s", c, s.NearMAC, s.Far)
			}
			break
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the watch ended with %v, want nil when its context is done", err)
	}
}

func probeContract(t *testing.T, a Announcer, s Site) {
	held := []netip.Addr{netip.MustParseAddr("10.0.0.8"), netip.MustParseAddr("fd00::8")}
	free := []netip.Addr{netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00::9")}
	for _, address := range held {
		s.HoldOnFar(address)
	}
	answers, err := a.Probe(t.Context(), s.Near, append(free, held...), 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if len(answers) != len(held) {
		t.Fatalf("answers are %+v, want one for each of %v", answers, held)
	}
	for i, c := range answers {
		if c.Address != held[i] || c.MAC.String() != s.FarMAC.String() || c.Interface != s.Near {
			t.Errorf("answer %+v, want %v at %v heard on %s", c, held[i], s.FarMAC, s.Near)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Probe(ctx, s.Near, free, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("a probe whose context is done returned %v, want that it was cancelled", err)
	}
}
