package linktest

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/linux/link"
)

// Kernel is what link.Kernel and Fake have in common.
type Kernel interface {
	Interfaces() ([]link.Interface, error)
	Addresses() ([]link.Address, error)
	Rules() ([]link.Rule, error)
	Routes() ([]link.Route, error)
	Findings([]link.Uses) ([]link.Finding, error)
	Apply([]link.Operation) []error
	Changes(ctx context.Context, notify func(link.Change)) error
}

var (
	_ Kernel = (*Fake)(nil)
	_ Kernel = (*link.Kernel)(nil)
)

// Contract checks that a kernel behaves as the package says. iface is an Ethernet interface that is up and has no
// addresses but IPv6 link-local ones.
func Contract(t *testing.T, k Kernel, iface string) {
	t.Run("addresses", func(t *testing.T) { addressContract(t, k, iface) })
	t.Run("results in order", func(t *testing.T) { orderContract(t, k, iface) })
	t.Run("rules and routes", func(t *testing.T) { routingContract(t, k, iface) })
	t.Run("changes", func(t *testing.T) { changesContract(t, k, iface) })
}

func addressContract(t *testing.T, k Kernel, iface string) {
	for _, addr := range []string{"10.9.0.7", "fd00:9::7"} {
		a := link.Address{Interface: iface, Prefix: link.Host(netip.MustParseAddr(addr)), Valid: 100 * time.Second, Preferred: 50 * time.Second}
		do(t, k, link.Add, a, nil)
		do(t, k, link.Add, a, link.ErrExists)
		wantAddress(t, k, a)
		a.Valid, a.Preferred = 200*time.Second, 0
		do(t, k, link.Renew, a, nil)
		wantAddress(t, k, a)
		a.Valid, a.Preferred = link.Forever, link.Forever
		do(t, k, link.Renew, a, nil)
		wantAddress(t, k, a)
		do(t, k, link.Remove, a, nil)
		do(t, k, link.Remove, a, link.ErrMissing)
		do(t, k, link.Renew, a, nil) // adds what has expired
		wantAddress(t, k, a)
		do(t, k, link.Remove, a, nil)
		a.Interface = "nowhere0"
		do(t, k, link.Add, a, link.ErrNoInterface)
		do(t, k, link.Remove, a, link.ErrNoInterface)
	}
}

// orderContract sends more operations than fit one datagram, the failing ones spread among them.
func orderContract(t *testing.T, k Kernel, iface string) {
	var add, remove []link.Operation
	addr := netip.MustParseAddr("10.8.0.0")
	for i := range 350 {
		if i%7 != 3 {
			addr = addr.Next()
		}
		a := link.Address{Interface: iface, Prefix: link.Host(addr), Valid: link.Forever, Preferred: link.Forever}
		add = append(add, link.Operation{Verb: link.Add, Object: a})
		remove = append(remove, link.Operation{Verb: link.Remove, Object: a})
	}
	for i, err := range k.Apply(add) {
		if want := i%7 == 3; errors.Is(err, link.ErrExists) != want || (err != nil) != want {
			t.Errorf("%v: error %v, want failure %v", add[i], err, want)
		}
	}
	for i, err := range k.Apply(remove) {
		if want := i%7 == 3; errors.Is(err, link.ErrMissing) != want || (err != nil) != want {
			t.Errorf("%v: error %v, want failure %v", remove[i], err, want)
		}
	}
}

func routingContract(t *testing.T, k Kernel, iface string) {
	for _, family := range []struct{ subnet, all, gateway string }{
		{"10.9.0.0/24", "0.0.0.0/0", "10.9.0.1"},
		{"fd00:9::/64", "::/0", "fd00:9::1"},
	} {
		subnet, all := netip.MustParsePrefix(family.subnet), netip.MustParsePrefix(family.all)
		rule := link.Rule{From: subnet, Table: 7001, Priority: 700}
		local := link.Route{Table: 7001, Destination: subnet, Interface: iface, Metric: 1}
		out := link.Route{Table: 7001, Destination: all, Gateway: netip.MustParseAddr(family.gateway), Interface: iface, Metric: 1, MTU: 1400}
		main := link.Route{Table: link.MainTable, Destination: all, Gateway: netip.MustParseAddr(family.gateway), Interface: iface, Metric: 7000}
		for _, o := range []link.Object{rule, local, out, main} {
			do(t, k, link.Add, o, nil)
			do(t, k, link.Add, o, link.ErrExists)
		}
		rules, err := k.Rules()
		if err != nil || !slices.Contains(rules, rule) {
			t.Errorf("rules are %v (%v), want %v among them", rules, err, rule)
		}
		routes, err := k.Routes()
		for _, want := range []link.Route{local, out, main} {
			if err != nil || !slices.Contains(routes, want) {
				t.Errorf("routes are %v (%v), want %v among them", routes, err, want)
			}
		}
		for _, o := range []link.Object{main, out, local, rule} {
			do(t, k, link.Remove, o, nil)
			do(t, k, link.Remove, o, link.ErrMissing)
		}
		if err := k.Apply([]link.Operation{{Verb: link.Renew, Object: rule}})[0]; err == nil {
			t.Error("a rule could be renewed")
		}
		local.Interface = "nowhere0"
		do(t, k, link.Add, local, link.ErrNoInterface)
	}
}

func changesContract(t *testing.T, k Kernel, iface string) {
	ctx, cancel := context.WithCancel(t.Context())
	changes := make(chan link.Change, 100)
	ended := make(chan error, 1)
	go func() { ended <- k.Changes(ctx, func(c link.Change) { changes <- c }) }()
	if first := <-changes; first.Kind != link.Overrun {
		t.Errorf("first change is %+v, want an overrun: read everything", first)
	}
	a := link.Address{Interface: iface, Prefix: netip.MustParsePrefix("10.9.0.7/32"), Valid: link.Forever, Preferred: link.Forever}
	do(t, k, link.Add, a, nil)
	do(t, k, link.Renew, a, nil)
	do(t, k, link.Remove, a, nil)
	if got := <-changes; got.Kind != link.AddressRemoved || got.Address != a.Prefix {
		t.Errorf("change is %+v, want the removal of %v and nothing of the addition", got, a.Prefix)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the subscription ended with %v, want nil when its context is done", err)
	}
}

func do(t *testing.T, k Kernel, verb link.Verb, o link.Object, want error) {
	t.Helper()
	if err := k.Apply([]link.Operation{{Verb: verb, Object: o}})[0]; !errors.Is(err, want) {
		t.Errorf("%s %v: error %v, want %v", verb, o, err, want)
	}
}

// wantAddress checks that the address is there with its lifetimes, of which up to two seconds may have passed.
func wantAddress(t *testing.T, k Kernel, want link.Address) {
	t.Helper()
	list, err := k.Addresses()
	if err != nil {
		t.Fatal(err)
	}
	near := func(got, want time.Duration) bool { return got == want || got < want && got >= want-2*time.Second }
	for _, got := range list {
		if got.Interface == want.Interface && got.Prefix == want.Prefix {
			if !near(got.Valid, want.Valid) || !near(got.Preferred, want.Preferred) {
				t.Errorf("there is %v, want %v", got, want)
			}
			return
		}
	}
	t.Errorf("%v is not among %v", want, list)
}
