package choice

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/rules"
)

var update = flag.Bool("update", false, "write the golden files anew; commit only differences that you understand")

// situation is one state of the world, and what is chosen in it.
type situation struct {
	name    string
	world   func(t *testing.T) *World
	request func(r *Request)
}

// tell makes the choice and tells all of it.
func (s *situation) tell(t *testing.T) string {
	r := request()
	if s.request != nil {
		s.request(r)
	}
	a, refusal := Choose(s.world(t), r)
	if refusal == nil {
		return a.Explain()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", refusal)
	for i := range refusal.LeftOut {
		fmt.Fprintf(&b, "not: %s: %s\n", refusal.LeftOut[i].Ref, refusal.LeftOut[i].Says(now))
	}
	return b.String()
}

// golden compares what is told of situations with testdata/NAME.golden.
func golden(t *testing.T, name string, situations []situation) {
	t.Helper()
	var told strings.Builder
	for i := range situations {
		fmt.Fprintf(&told, "## %s\n\n%s\n", situations[i].name, situations[i].tell(t))
	}
	file := "testdata/" + name + ".golden"
	if *update {
		if err := os.WriteFile(file, []byte(told.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; write it with go test ./internal/broker/choice -update", err)
	}
	if diff := cmp.Diff(string(want), told.String()); diff != "" {
		t.Errorf("told otherwise (-want +got):\n%s", diff)
	}
}

// three is a fleet of a central manager and two managed hosts.
func three(t testing.TB) *fleet.Picture {
	return picture(t, "f", "cm cl 50 1", "gw1 ml 40 2", "gw2 mn 30 30")
}

// The six rows of the contract, in the order of its table.
func TestContract(t *testing.T) {
	down := func(p *fleet.Picture, t *testing.T, keys ...string) *fleet.Picture {
		for _, key := range keys {
			i, _ := p.View.Find(key)
			p.View.Gateways[i].Status, p.View.Gateways[i].Why = fleet.Unavailable, "the central manager says that it is down"
			p.Standings[i].DownSince = now.Add(-90 * time.Second)
		}
		return p
	}
	golden(t, "contract", []situation{
		{"1. all up", func(t *testing.T) *World { return world(t, nil, three(t)) }, nil},
		{"2. a managed host down", func(t *testing.T) *World { return world(t, nil, down(three(t), t, "gw1")) }, nil},
		{"2. a managed host that is back", func(t *testing.T) *World { return world(t, nil, three(t)) }, nil},
		{"3. the central manager down", func(t *testing.T) *World { return world(t, nil, lost(three(t))) }, nil},
		{"3. the central manager down, a host has died since, strict: it may be picked", func(t *testing.T) *World {
			p := lost(three(t))
			p.Mode = fleet.Strict
			suspect(t, p, "gw1")
			return world(t, nil, p)
		}, nil},
		{"3. the central manager down, a host has died since, probe: the next best", func(t *testing.T) *World {
			p := lost(three(t))
			suspect(t, p, "gw1")
			return world(t, nil, p)
		}, nil},
		{"3. the central manager down, a host has died since, strict, but the rule was narrowed meanwhile", func(t *testing.T) *World {
			p := lost(three(t))
			p.Mode = fleet.Strict
			override := rules.Value{Override: &rules.Override{Network: "lan", Members: []rules.Member{member("f/gw2")}, Note: "gw1 burnt down"}}
			return world(t, []rules.Value{rule("f/gw1", "f/gw2"), override}, p)
		}, nil},
		{"4. no central manager and no host", func(t *testing.T) *World {
			p := lost(three(t))
			suspect(t, p, "gw1")
			suspect(t, p, "gw2")
			return world(t, nil, p)
		}, nil},
		{"5. any broker down: another one, which was linked later and has its own view, goes by the same rules", func(t *testing.T) *World {
			p := three(t)
			p.FetchedAt = now.Add(-9 * time.Second)
			return world(t, nil, p)
		}, nil},
		{"6. only a search-primary", func(t *testing.T) *World { return world(t, nil, picture(t, "f", "cm cp 1 1")) }, nil},
	})
}

// Each error, with its exact text.
func TestErrorTexts(t *testing.T) {
	to := func(policy string) func(*Request) { return func(r *Request) { r.Policy = policy } }
	golden(t, "errors", []situation{
		{"no fleet is linked", func(t *testing.T) *World { return world(t, nil) }, nil},
		{"nothing was ever heard", func(t *testing.T) *World {
			return world(t, nil, &fleet.Picture{Fleet: "f", Asked: "cm:443", CentralSince: now.Add(-400 * time.Millisecond)})
		}, nil},
		{"nothing was ever heard, and asking fails", func(t *testing.T) *World {
			return world(t, nil, &fleet.Picture{Fleet: "f", Asked: "cm:443", CentralSince: now.Add(-time.Minute), CentralWhy: "connection refused"})
		}, nil},
		{"the view is beyond its limit", func(t *testing.T) *World {
			p := lost(three(t))
			p.HardLimit = 4 * time.Minute
			return world(t, nil, p)
		}, nil},
		{"only search-primaries, with a rule", func(t *testing.T) *World {
			return world(t, []rules.Value{rule("f/cm")}, picture(t, "f", "cm cp 1 1", "x mp 1 1", "y - 1 1"))
		}, nil},
		{"all are said to be down", func(t *testing.T) *World {
			p := picture(t, "f", "cm cp 1 1", "gw1 m down", "gw2 m down")
			standing(t, p, "gw1").DownSince = now.Add(-time.Hour)
			return world(t, nil, p)
		}, nil},
		{"all of two fleets are down", func(t *testing.T) *World {
			return world(t, nil, picture(t, "f", "cm cp 1 1", "gw1 m down"), picture(t, "g", "cm cp 1 1", "gw9 m down"))
		}, nil},
		{"those of the rule are down", func(t *testing.T) *World {
			p := picture(t, "f", "cm c 1 1", "gw1 m down", "gw2 m 1 1", "gw3 m 1 1")
			standing(t, p, "gw2").SilentSince = now.Add(-55 * time.Second)
			return world(t, []rules.Value{rule("f/gw1", "f/gw2", "f/gone", "h/x")}, p)
		}, nil},
		{"those of the rule are down, and so are all others", func(t *testing.T) *World {
			return world(t, []rules.Value{rule("f/gw1")}, picture(t, "f", "cm cp 1 1", "gw1 m down", "gw2 m down"))
		}, nil},
		{"the network of an assignment is gone", func(t *testing.T) *World {
			with, _ := new(rules.Book).Put(rule("f/gw1"), self, now)
			assigned, _ := with.Put(rules.Value{Assignment: &rules.Assignment{Target: "db", Network: "lan"}}, rules.Author{Origin: "there"}, now)
			without, _ := with.Remove(rules.Key{Kind: rules.KindNetwork, Name: "lan"}, self, now)
			merged, err := rules.Merge(assigned, without)
			if err != nil {
				t.Fatal(err)
			}
			w := world(t, nil, three(t))
			w.Rules, _ = merged.Compile()
			return w
		}, nil},
		{"there is no such policy", func(t *testing.T) *World { return world(t, nil, three(t)) }, to("dba")},
		{"the policy's fleet is not linked", func(t *testing.T) *World { return world(t, []rules.Value{policy("dba", "g")}, three(t)) }, to("dba")},
		{"the policy and the rule name different fleets", func(t *testing.T) *World {
			return world(t, []rules.Value{policy("dba", "g"), rule("f/gw1")}, three(t), picture(t, "g", "cm c 1 1"))
		}, to("dba")},
		{"none has the protocol", func(t *testing.T) *World { return world(t, nil, three(t)) }, func(r *Request) { r.Protocol = fleet.RDP }},
		{"none of the rule has the protocol", func(t *testing.T) *World {
			p := three(t)
			p.View.Gateways[0].Services = []fleet.Service{{Protocol: fleet.RDP, Port: 3389}}
			return world(t, []rules.Value{rule("f/gw1")}, p)
		}, func(r *Request) { r.Protocol = fleet.RDP }},
		{"the launch got through to none, by an old view", func(t *testing.T) *World { return world(t, nil, lost(three(t))) },
			func(r *Request) { r.Tried = []fleet.Ref{{Fleet: "f", Gateway: "gw1"}, {Fleet: "f", Gateway: "gw2"}} }},
		{"the launch got through to none, by a live view", func(t *testing.T) *World { return world(t, nil, three(t)) }, func(r *Request) {
			r.Tried = []fleet.Ref{{Fleet: "f", Gateway: "gw1"}, {Fleet: "f", Gateway: "gw2"}, {Fleet: "f", Gateway: "cm"}}
		}},
	})
}

// The traps of the reference, and what the rules and the formula say.
func TestTraps(t *testing.T) {
	golden(t, "traps", []situation{
		{"the central manager is down, however healthy the last good view has it", func(t *testing.T) *World {
			return world(t, nil, lost(picture(t, "f", "cm c 1 0", "gw1 m 90 50")))
		}, nil},
		{"the central manager answers nonsense: its view ages, and it is not down", func(t *testing.T) *World {
			p := lost(picture(t, "f", "cm c 1 0", "gw1 m 90 50"))
			p.CentralDown = false
			return world(t, nil, p)
		}, nil},
		{"higher is better: a busy machine with an empty disk before an idle one with a full disk", func(t *testing.T) *World {
			return world(t, nil, picture(t, "f", "cm cp 1 1", "idle m 95 0", "busy m 10 60"))
		}, nil},
		{"the load of a large machine, as it is", func(t *testing.T) *World {
			p := picture(t, "f", "cm cp 1 1", "large m 50 40", "small m 50 3")
			i, _ := p.View.Find("large")
			p.View.Gateways[i].Health.Cores = 64
			return world(t, nil, p)
		}, nil},
		{"the load of a large machine, normalised", func(t *testing.T) *World {
			p := picture(t, "f", "cm cp 1 1", "large m 50 40", "small m 50 3")
			i, _ := p.View.Find("large")
			p.View.Gateways[i].Health.Cores = 64
			w := world(t, nil, p)
			w.Formula.Normalised = true
			return w
		}, nil},
		{"equal in all: the lowest key", func(t *testing.T) *World {
			return world(t, nil, picture(t, "f", "z cp 1 1", "c m 5 5", "b m 5 5", "a m 5 5"))
		}, nil},
		{"equal in all, in two fleets: the lowest key, then the lowest fleet", func(t *testing.T) *World {
			return world(t, nil, picture(t, "g", "a c 5 5"), picture(t, "f", "a c 5 5"))
		}, nil},
		{"launches since the last sample count", func(t *testing.T) *World {
			p := picture(t, "f", "z cp 1 1", "a m 50 5", "b m 50 6")
			standing(t, p, "a").Launches = 2
			return world(t, nil, p)
		}, nil},
		{"health that is not known comes last", func(t *testing.T) *World { return world(t, nil, picture(t, "f", "z cp 1 1", "a m -", "b m 99 50")) }, nil},
		{"an order comes before fitness", func(t *testing.T) *World {
			return world(t, []rules.Value{rule("f/a@2", "f/b@1")}, picture(t, "f", "z cp 1 1", "a m 1 1", "b m 90 9", "c m 0 0"))
		}, nil},
		{"an order comes before fitness also where only the first two are told", func(t *testing.T) *World {
			return world(t, []rules.Value{rule("f/a@2", "f/b@2", "f/c@1")}, picture(t, "f", "z cp 1 1", "a m 1 1", "b m 2 2", "c m 90 9"))
		}, func(r *Request) { r.MaxAlternates = 1 }},
		{"a weight shares the load", func(t *testing.T) *World {
			return world(t, []rules.Value{rule("f/a", "f/b*4")}, picture(t, "f", "z cp 1 1", "a m 50 10", "b m 50 20"))
		}, nil},
		{"the policy's fleet comes before the rule", func(t *testing.T) *World {
			return world(t, []rules.Value{policy("dba", "g"), rule("f/gw1", "g/gw9")}, picture(t, "g", "cm c 1 1", "gw9 m 99 1"), three(t))
		}, func(r *Request) { r.Policy = "dba" }},
		{"a rule that is exhausted and says so falls back to the default network", func(t *testing.T) *World {
			v := rule("f/gw1", "f/gw9")
			v.Network.Exhausted = rules.UseDefault
			return world(t, []rules.Value{v}, picture(t, "f", "cm c 1 1", "gw1 m down", "gw2 m 1 1"))
		}, nil},
		{"a rule that falls back does not pass over the policy", func(t *testing.T) *World {
			v := rule("f/gw1")
			v.Network.Exhausted = rules.UseDefault
			return world(t, []rules.Value{v, policy("dba", "g")}, three(t), picture(t, "g", "cm c 1 1"))
		}, func(r *Request) { r.Policy = "dba" }},
		{"said to be down by an old view, and reached by a probe since", func(t *testing.T) *World {
			p := lost(picture(t, "f", "cm cp 1 1", "gw1 m down", "gw2 m 99 9"))
			standing(t, p, "gw1").ProvenAt = now.Add(-time.Second)
			return world(t, nil, p)
		}, nil},
		{"old, and of uncertain age", func(t *testing.T) *World {
			p := lost(three(t))
			p.FetchedAt, p.AtLeast = now.Add(-26*time.Hour), true
			return world(t, nil, p)
		}, nil},
		{"one fleet is not known, the other takes it", func(t *testing.T) *World {
			return world(t, []rules.Value{rule("f/gw1", "g/x")}, three(t), &fleet.Picture{Fleet: "g", Asked: "g:443"})
		}, nil},
		{"no more than is asked for", func(t *testing.T) *World {
			return world(t, nil, picture(t, "f", "cm cp 1 1", "a m 1 1", "b m 2 2", "c m 3 3", "d m down", "e m down"))
		}, func(r *Request) { r.MaxAlternates, r.MaxLeftOut = 1, 2 }},
	})
}

func TestFailed(t *testing.T) {
	p := lost(three(t))
	p.Mode = fleet.Strict
	a, refusal := Choose(world(t, nil, p), request())
	if refusal != nil {
		t.Fatal(refusal)
	}
	want := "LAUNCH_FAILED_ON_STALE_VIEW: gateway f/gw1 did not take the session (connection refused); it was chosen by the last good view, which is 5 min 1 s old, " +
		"because the central manager gives no answer that can be used. Launch again with probes (mode probe), or override the network with gateways that are known to be up: holdfast broker override."
	if got := Failed(&a, "connection refused", now.Add(time.Second)); got == nil || got.Error() != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	a.Source = fleet.Live
	if got := Failed(&a, "connection refused", now); got != nil {
		t.Errorf("by a live view: %s", got)
	}
}
