package choice

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/rules"
)

// drawPicture is any picture of up to eight gateways.
func drawPicture(t *rapid.T, name string) *fleet.Picture {
	n := rapid.IntRange(1, 8).Draw(t, "gateways")
	gateways := make([]fleet.Gateway, n)
	for i := range gateways {
		g := fleet.Gateway{
			Key: fmt.Sprint("k", i), Name: "x", Status: fleet.Status(rapid.IntRange(0, 2).Draw(t, "status")),
			Roles: fleet.NewRoles(rapid.SliceOfN(rapid.SampledFrom([]fleet.Role{0, 1, 1, 1, 2, 3, 4}), 0, 3).Draw(t, "roles")...),
		}
		for _, p := range rapid.SampledFrom([]string{"ssh", "ssh", "rdp", "both"}).Draw(t, "protocols") {
			if p == 's' || p == 'b' {
				g.Services = []fleet.Service{{Protocol: fleet.SSH, Port: 22}}
			}
		}
		if rapid.Bool().Draw(t, "known") {
			g.Health = fleet.Health{Known: true, DiskUsed: float64(rapid.IntRange(0, 100).Draw(t, "disk")), Load5: float64(rapid.IntRange(0, 9).Draw(t, "load"))}
		}
		gateways[i] = g
	}
	view, err := fleet.NewView("k0", gateways)
	if err != nil {
		t.Fatal(err)
	}
	p := &fleet.Picture{
		Fleet: name, View: view, Source: rapid.SampledFrom([]fleet.Source{fleet.Live, fleet.LastGood}).Draw(t, "source"),
		FetchedAt: now.Add(-time.Duration(rapid.IntRange(0, 100).Draw(t, "age")) * time.Second),
		Mode:      fleet.Mode(rapid.IntRange(0, 1).Draw(t, "mode")), Standings: make([]fleet.Standing, n),
		CentralDown: rapid.Bool().Draw(t, "down"), HardLimit: time.Duration(rapid.SampledFrom([]int{0, 50}).Draw(t, "limit")) * time.Second,
	}
	for i := range p.Standings {
		s := &p.Standings[i]
		s.Launches = uint32(rapid.IntRange(0, 3).Draw(t, "launches"))
		for _, at := range []*time.Time{&s.SuspectSince, &s.ProvenAt, &s.SilentSince} {
			if rapid.IntRange(0, 3).Draw(t, "so") == 0 {
				*at = now.Add(-time.Duration(rapid.IntRange(0, 100).Draw(t, "since")) * time.Second)
			}
		}
	}
	return p
}

func drawWorld(t *rapid.T) *World {
	w := &World{Fleets: []*fleet.Picture{drawPicture(t, "f"), drawPicture(t, "g")}}
	w.Formula = Formula{Normalised: rapid.Bool().Draw(t, "normalised"), IgnoreLaunches: rapid.Bool().Draw(t, "ignore")}
	b := new(rules.Book)
	if rapid.Bool().Draw(t, "rule") {
		n := &rules.Network{Name: "n", Subnets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Exhausted: rules.Exhausted(rapid.IntRange(0, 1).Draw(t, "exhausted"))}
		for _, ref := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"f/k0", "f/k1", "f/k2", "g/k0", "g/k1", "f/k9", "h/k0"}), 1, 5, rapid.ID).Draw(t, "members") {
			m := member(ref)
			m.Order, m.Weight = rapid.IntRange(0, 1).Draw(t, "order"), rapid.IntRange(1, 3).Draw(t, "weight")
			n.Members = append(n.Members, m)
		}
		b, _ = b.Put(rules.Value{Network: n}, self, now)
	}
	b, err := b.Put(policy("p", rapid.SampledFrom([]string{"f", "g", "h"}).Draw(t, "of")), self, now)
	if err != nil {
		t.Fatal(err)
	}
	w.Rules, _ = b.Compile()
	return w
}

// mayTake is the contract once more, said differently: whether a gateway may be given the session.
func mayTake(w *World, r *Request, p *fleet.Picture, i int) bool {
	g, s := &p.View.Gateways[i], &p.Standings[i]
	_, ssh := g.Port(r.Protocol)
	old := p.Source == fleet.LastGood
	dead := old && p.HardLimit > 0 && now.Sub(p.FetchedAt) >= p.HardLimit
	if of, _ := w.Rules.FleetOf(r.Policy); dead || r.Policy != "" && of != p.Fleet || g.Refuses() != "" || !ssh || p.CentralDown && g.Key == p.View.Central {
		return false
	}
	if slices.Contains(r.Tried, fleet.Ref{Fleet: p.Fleet, Gateway: g.Key}) {
		return false
	}
	saidWell := g.Status != fleet.Unavailable && s.SilentSince.IsZero()
	if p.Mode == fleet.Strict {
		return saidWell
	}
	return s.SuspectSince.IsZero() && (saidWell || old && s.ProvenAt.After(p.FetchedAt))
}

// Whatever the world, the pick may take the session, nobody who may is left out, the order is total, and nothing is changed.
func TestWhateverTheWorld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		r := request()
		r.Policy = rapid.SampledFrom([]string{"", "", "p", "q"}).Draw(t, "policy")
		r.MaxAlternates, r.MaxLeftOut = 100, 100
		if rapid.Bool().Draw(t, "tried") {
			r.Tried = []fleet.Ref{{Fleet: "f", Gateway: "k1"}, {Fleet: "g", Gateway: "k1"}}
		}
		before := []fleet.Standing{}
		for _, p := range w.Fleets {
			before = append(before, p.Standings...)
		}
		a, refusal := Choose(w, r)
		checkOutcome(t, w, r, &a, refusal)
		again, refusedAgain := Choose(w, r)
		if !cmp.Equal(a, again, cmpopts.IgnoreUnexported(fleet.Gateway{}), cmp.Comparer(func(x, y netip.Prefix) bool { return x == y }), cmp.Comparer(func(x, y netip.Addr) bool { return x == y })) || (refusal == nil) != (refusedAgain == nil) {
			t.Fatal("the same call gave another answer")
		}
		if !slices.Equal(before, slices.Concat(w.Fleets[0].Standings, w.Fleets[1].Standings)) {
			t.Fatal("a choice changed what it was given")
		}
	})
}

func checkOutcome(t *rapid.T, w *World, r *Request, a *Answer, refusal *Refusal) {
	rule := w.Rules.Find(r.Target, r.Address, r.Wall)
	could := map[fleet.Ref]bool{}
	inRule := 0
	for _, p := range w.Fleets {
		for i := range p.View.Gateways {
			ref := fleet.Ref{Fleet: p.Fleet, Gateway: p.View.Gateways[i].Key}
			if mayTake(w, r, p, i) {
				could[ref] = true
				if slices.ContainsFunc(rule.Members, func(m rules.Member) bool { return m.Ref == ref }) {
					inRule++
				}
			}
		}
	}
	if refusal != nil {
		if !slices.Contains(codes, refusal.Code) || refusal.Text == "" || refusal.Remedy == "" {
			t.Fatalf("refused by %+v", refusal)
		}
		if inRule > 0 || rule.Members == nil && len(could) > 0 {
			t.Fatalf("%v could take it: %s", could, refusal)
		}
		return
	}
	picks := append([]Pick{a.Pick}, a.Alternates...)
	for i := range picks {
		ref := picks[i].Ref()
		if !could[ref] {
			t.Fatalf("%s cannot take it: %s", ref, a.Explain())
		}
		if rule.Members != nil && !a.FellBack && !slices.ContainsFunc(rule.Members, func(m rules.Member) bool { return m.Ref == ref }) {
			t.Fatalf("%s is not in the rule: %s", ref, a.Explain())
		}
		if i > 0 && !before(&picks[i-1], &picks[i], &w.Formula) {
			t.Fatalf("%s is not in order: %s", ref, a.Explain())
		}
	}
	if want := inRule; rule.Members != nil && !a.FellBack && len(picks) != want || rule.Members == nil && len(picks) != len(could) {
		t.Fatalf("%d may take it and %d in the rule, of which %d are named: %s", len(could), want, len(picks), a.Explain())
	}
	r2 := *r
	r2.MaxAlternates = 1
	if short, _ := Choose(w, &r2); short.Ref() != a.Ref() || 1+len(short.Alternates)+short.More != len(picks) {
		t.Fatalf("with fewer alternates: %s, else: %s", short.Explain(), a.Explain())
	}
}

var codes = []Code{NoClusterInfo, NoSessionCapableNode, AllNodesDown, NetworkExhausted, PolicyFleetMismatch, NoProtocolCapability, LaunchFailedStaleView}
