package watch

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/broker/fleet"
)

// While the central manager answers, only those that are suspected are probed. From the first failed poll on all are, every five seconds.
func TestWhoIsProbed(t *testing.T) {
	p := play(t, Link{})
	if a := p.after(0, Answered{view(t, 1, "a", "b")}); len(a.Probe) != 0 {
		t.Errorf("with a live view %v are probed", keys(a.Probe))
	}
	if a := p.after(time.Second, Launched{Gateway: "a", Outcome: Missed, Evidence: "refused"}); !slices.Equal(keys(a.Probe), []string{"a"}) {
		t.Errorf("after a launch that failed %v are probed", keys(a.Probe))
	}
	if s := p.standing("a"); !s.SuspectSince.Equal(p.now) || s.SuspectWhy != "refused" {
		t.Errorf("suspected: %+v", s)
	}
	p.after(time.Second, Probed{Gateway: "a", Evidence: "timed out"})
	if s := p.standing("a"); !s.SuspectSince.Equal(p.now.Add(-time.Second)) || s.SuspectWhy != "timed out" {
		t.Errorf("still suspected: %+v", s)
	}
	if a := p.after(time.Second, Answered{view(t, 2, "a", "b")}); len(a.Probe) != 0 || p.standing("a").SuspectSince.IsZero() {
		t.Error("a good word of the central manager ends the suspicion")
	}
	if a := p.after(3*time.Second, Tick{}); !slices.Equal(keys(a.Probe), []string{"a"}) {
		t.Errorf("after five seconds %v are probed", keys(a.Probe))
	}
	p.after(0, Probed{Gateway: "a", Reached: true})
	if s := p.standing("a"); !s.SuspectSince.IsZero() || !s.ProvenAt.Equal(p.now) {
		t.Errorf("once it answers: %+v", s)
	}
	if a := p.after(10*time.Second, failed(fleet.TimedOut)); !slices.Equal(keys(a.Probe), []string{"a", "b", "cm"}) {
		t.Errorf("after a failed poll %v are probed", keys(a.Probe))
	}
	p.after(0, Probed{Gateway: "gone"}) // it has left meanwhile
}

func TestStrictProbesNobody(t *testing.T) {
	p := play(t, Link{Mode: fleet.Strict})
	p.after(0, Answered{view(t, 1, "a")})
	p.after(0, Launched{Gateway: "a", Outcome: Missed})
	for range 5 {
		if a := p.after(10*time.Second, failed(fleet.TimedOut)); len(a.Probe) != 0 {
			t.Errorf("%v are probed", keys(a.Probe))
		}
	}
	if got := codes(p.watch.Alarms()); got != "central-manager-down" {
		t.Errorf("alarms %q", got)
	}
}

// No more than MaxProbes are under way; the others have their turn, and probes that never come back are given up.
func TestProbesAreBounded(t *testing.T) {
	var hosts []string
	for i := range 2*MaxProbes + 10 {
		hosts = append(hosts, fmt.Sprintf("h%03d", i))
	}
	p := play(t, Link{})
	p.after(0, Answered{view(t, 1, hosts...)})
	probed := map[string]bool{}
	a := p.after(10*time.Second, failed(fleet.TimedOut))
	for round := range 3 {
		if len(a.Probe) != MaxProbes {
			t.Fatalf("round %d: %d are probed, want %d", round, len(a.Probe), MaxProbes)
		}
		for _, g := range a.Probe {
			probed[g.Key] = true
		}
		if b := p.after(time.Second, Tick{}); round == 0 && len(b.Probe) != 0 {
			t.Fatal("more are under way than may be")
		}
		a = p.after(2*time.Second, Tick{}) // three timeouts: they will not come
	}
	if b := p.after(time.Millisecond, Probed{Gateway: a.Probe[0].Key, Reached: true}); len(b.Probe) != 1 {
		t.Errorf("a result makes room for %d", len(b.Probe))
	}
	if len(probed) != 2*MaxProbes+11 {
		t.Errorf("%d were probed", len(probed))
	}
}

// play any events in any order: what is known only gets better by an answer, never by a failure; ages never shrink but by an answer; there
// is always a next time; and no more is under way than may be.
func TestWhateverHappens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := New(Link{Fleet: "f", Mode: fleet.Mode(rapid.IntRange(0, 1).Draw(rt, "mode")), HardLimit: time.Hour}, start)
		now, since := start, map[string]time.Time{}
		for range rapid.IntRange(1, 60).Draw(rt, "events") {
			now = now.Add(time.Duration(rapid.IntRange(-2, 8).Draw(rt, "passed")) * time.Second)
			event := drawEvent(t, rt)
			before := *w.Picture()
			mono := w.last
			a := w.Step(event, now)
			check(rt, w, &before, event, a, mono)
			there := map[string]time.Time{}
			for _, alarm := range w.Alarms() {
				want, before := since[alarm.Kind.Code]
				if !before {
					want = w.last
				}
				if _, twice := there[alarm.Kind.Code]; twice || !alarm.Since.Equal(want) {
					rt.Fatalf("%s since %s, want %s; twice: %v", alarm.Kind.Code, alarm.Since, want, twice)
				}
				there[alarm.Kind.Code] = alarm.Since
			}
			since = there
		}
	})
}

func drawEvent(t *testing.T, rt *rapid.T) Event {
	key := rapid.SampledFrom([]string{"a", "b", "cm", "gone"}).Draw(rt, "key")
	fleets := [][]string{{"a", "b"}, {"a-", "b"}, {"b"}, {"a-", "b-"}}
	hosts := rapid.SampledFrom(fleets).Draw(rt, "hosts")
	switch rapid.IntRange(0, 6).Draw(rt, "event") {
	case 0:
		return Answered{view(t, rapid.IntRange(0, 3).Draw(rt, "report"), hosts...)}
	case 1, 2:
		return failed(fleet.FailureKind(rapid.IntRange(0, 7).Draw(rt, "kind")))
	case 3:
		return Probed{Gateway: key, Reached: rapid.Bool().Draw(rt, "reached"), Evidence: "x"}
	case 4:
		return Launched{Gateway: key, Outcome: Outcome(rapid.IntRange(0, 2).Draw(rt, "outcome")), Evidence: "x"}
	case 5:
		return Restored{View: view(t, 0, hosts...), Age: time.Duration(rapid.IntRange(-1, 9000).Draw(rt, "age")) * time.Second}
	default:
		return Tick{}
	}
}

func check(t *rapid.T, w *Watch, before *fleet.Picture, event Event, a Actions, mono time.Time) {
	p := w.Picture()
	_, answered := event.(Answered)
	_, restored := event.(Restored)
	if p.View != before.View && !answered && !(restored && before.View == nil) {
		t.Fatalf("%T replaced the view", event)
	}
	if before.View != nil && !answered && !p.FetchedAt.Equal(before.FetchedAt) {
		t.Fatalf("%T made the view younger", event)
	}
	if before.View != nil && p.Age(w.last) < before.Age(mono) && !answered {
		t.Fatalf("the view is %s old, and was %s", p.Age(w.last), before.Age(mono))
	}
	if (p.Source == fleet.None) != (p.View == nil) || p.View != nil && len(p.Standings) != len(p.View.Gateways) {
		t.Fatalf("source %s, view %v", p.Source, p.View)
	}
	if w.state == Live && (p.Source != fleet.Live || p.CentralDown || w.failures > 0) || w.state == Lost && p.Source == fleet.Live {
		t.Fatalf("%s with source %s", w.state, p.Source)
	}
	underWay := 0
	for i := range w.probes {
		if w.probes[i].underWay {
			underWay++
		}
	}
	if underWay > MaxProbes || p.Mode == fleet.Strict && underWay > 0 {
		t.Fatalf("%d probes are under way", underWay)
	}
	if e, ok := event.(Launched); (!ok || e.Outcome != Chosen) && !a.Next.After(w.last) {
		t.Fatalf("next is %s, now is %s", a.Next, w.last)
	}
	if a.Keep && p.View == nil {
		t.Fatal("nothing is to be kept")
	}
}
