package choice

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/rules"
)

var (
	now  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	self = rules.Author{Origin: "here"}
)

// gateway is a gateway in one line: "key roles disk load5", with the roles as their first letters: c m for the management role, p l n for
// search-primary, search-local and search-minion. Disk "-" is a health that is not known, "down" a gateway that is said to be down.
func gateway(t testing.TB, line string) fleet.Gateway {
	t.Helper()
	var key, letters, disk string
	var load float64
	if n, err := fmt.Sscan(line+" 0", &key, &letters, &disk, &load); err != nil && n < 3 {
		t.Fatalf("%q: %v", line, err)
	}
	names := map[rune]string{'c': "central-management", 'm': "managed-host", 'p': "search-primary", 'l': "search-local", 'n': "search-minion"}
	var roles []string
	for _, letter := range letters {
		roles = append(roles, names[letter])
	}
	g := fleet.Gateway{
		Key: key, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Roles: fleet.ParseRoles(roles), Status: fleet.Available,
		Services: []fleet.Service{{Protocol: fleet.SSH, Port: 22}},
	}
	switch disk {
	case "-":
	case "down":
		g.Status, g.Why = fleet.Unavailable, "the central manager says that it is down"
	default:
		var used float64
		if _, err := fmt.Sscan(disk, &used); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		g.Health = fleet.Health{Known: true, DiskUsed: used, Load1: load + 1, Load5: load, Load15: load + 2, Cores: 4}
	}
	return g
}

// picture is a live view of two seconds of the gateways, of which the first is the central manager.
func picture(t testing.TB, name string, lines ...string) *fleet.Picture {
	t.Helper()
	var gateways []fleet.Gateway
	for _, line := range lines {
		gateways = append(gateways, gateway(t, line))
	}
	view, err := fleet.NewView(gateways[0].Key, gateways)
	if err != nil {
		t.Fatal(err)
	}
	return &fleet.Picture{
		Fleet: name, Asked: gateways[0].Key + ":443", View: view, Source: fleet.Live, FetchedAt: now.Add(-2 * time.Second), CentralSince: now.Add(-2 * time.Second),
		Standings: make([]fleet.Standing, len(gateways)), WarnAge: 10 * time.Minute,
	}
}

// lost is the picture five minutes after the central manager was heard last.
func lost(p *fleet.Picture) *fleet.Picture {
	p.Source, p.CentralDown, p.CentralWhy = fleet.LastGood, true, "no whole answer within 3 s"
	p.FetchedAt, p.CentralSince = now.Add(-5*time.Minute), now.Add(-5*time.Minute)
	return p
}

func standing(t testing.TB, p *fleet.Picture, key string) *fleet.Standing {
	t.Helper()
	i, found := p.View.Find(key)
	if !found {
		t.Fatalf("there is no %s", key)
	}
	return &p.Standings[i]
}

func suspect(t testing.TB, p *fleet.Picture, key string) {
	s := standing(t, p, key)
	s.SuspectSince, s.SuspectWhy = now.Add(-20*time.Second), "tcp 192.0.2.1:22: connection refused"
}

// world is fleets with rules.
func world(t testing.TB, values []rules.Value, pictures ...*fleet.Picture) *World {
	t.Helper()
	b := new(rules.Book)
	for _, v := range values {
		var err error
		if b, err = b.Put(v, self, now); err != nil {
			t.Fatal(err)
		}
	}
	table, faults := b.Compile()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	slices.SortFunc(pictures, func(a, b *fleet.Picture) int { return cmp.Compare(a.Fleet, b.Fleet) })
	return &World{Fleets: pictures, Rules: table}
}

// rule is a network of 10.0.0.0/8 and its gateways, as FLEET/KEY, FLEET/KEY@ORDER or FLEET/KEY*WEIGHT.
func rule(refs ...string) rules.Value {
	n := &rules.Network{Name: "lan", Subnets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for _, ref := range refs {
		n.Members = append(n.Members, member(ref))
	}
	return rules.Value{Network: n}
}

func member(ref string) (m rules.Member) {
	if at := strings.IndexAny(ref, "@*"); at >= 0 {
		number := &m.Order
		if ref[at] == '*' {
			number = &m.Weight
		}
		if _, err := fmt.Sscan(ref[at+1:], number); err != nil {
			panic(err)
		}
		ref = ref[:at]
	}
	m.Fleet, m.Gateway, _ = strings.Cut(ref, "/")
	return m
}

func policy(name, fleetName string) rules.Value {
	return rules.Value{Policy: &rules.Policy{Name: name, Fleet: fleetName}}
}

func request() *Request {
	return &Request{Target: "db", Address: netip.MustParseAddr("10.1.2.3"), Protocol: fleet.SSH, Now: now, Wall: now}
}

// picked is the key of the gateway that is chosen; a refusal ends the test.
func picked(t testing.TB, w *World, r *Request) string {
	t.Helper()
	a, refusal := Choose(w, r)
	if refusal != nil {
		t.Fatal(refusal)
	}
	return a.Gateway.Key
}
