package verdict

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/cluster"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// usual are the rules of a check that was configured with nothing but its kind.
var usual = RulesFor(cluster.Check{Interval: time.Second, Timeout: 500 * time.Millisecond, Rise: 2, Fall: 3}, Damping{})

// play feeds one event for each character, a second apart, and returns the state after each: g good, b bad, . nothing
// (a tick); U up, D down, ? unknown.
func play(m *Machine, from time.Time, script string) string {
	var states strings.Builder
	events := map[rune]EventKind{'g': Good, 'b': Bad, '.': Tick}
	letters := map[State]string{Unknown: "?", Up: "U", Down: "D"}
	for i, letter := range []rune(script) {
		kind, known := events[letter]
		if !known {
			panic("unknown letter in script: " + string(letter))
		}
		v, _ := m.Step(Event{Kind: kind, Evidence: fmt.Sprintf("result %d", i)}, from.Add(time.Duration(i)*time.Second))
		states.WriteString(letters[v.State])
	}
	return states.String()
}

func TestMachineByScript(t *testing.T) {
	for _, tc := range []struct{ name, script, states string }{
		{"first good decides at once", "g", "U"},
		{"first bad decides at once", "b", "D"},
		{"a slow service at start comes up after rise, without hold-down", "bbgg", "DDDU"},
		{"two bad of three are not enough", "gbbgbbg", "UUUUUUU"},
		{"three bad in a row leave", "gbbb", "UUUD"},
		{"coming back takes rise and the hold-down of 5 s", "gbbbgggggg", "UUUDDDDDDU"},
		{"a bad result begins the hold-down anew", "gbbbggggbgggggg", "UUUDDDDDDDDDDDU"},
		{"the second flap is held down for 10 s", "gbbbggggggbbbggggggggggg", "UUUDDDDDDUUUDDDDDDDDDDDU"},
		{"no result for 4.5 s is stale", "g.....g", "UUUUU?U"},
		{"stale after Down is Unknown too", "b....." + "b", "DDDDD?D"},
		{"a flapper cannot hide its flaps behind a hole", "gbbb.....gggggg", "UUUDDDDD?" + "?????U"},
		{"good results before a hole do not count for the hold-down", "gbbbg.....gggggg", "UUUDDDDDD?" + "?????U"},
		{"nothing at all stays unknown", "...", "???"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.states, play(NewMachine(usual), start, tc.script)); diff != "" {
				t.Errorf("script %s (-want +got):\n%s", tc.script, diff)
			}
		})
	}
}

// TestHolesThatNobodyTicked has results after times in which the shell did not run at all, as after a suspension.
func TestHolesThatNobodyTicked(t *testing.T) {
	m := NewMachine(usual)
	play(m, start, "g")
	if got := play(m, start.Add(time.Hour), "b"); got != "D" {
		t.Errorf("a bad result after an hour without any: %s, want D: the old good one is no evidence", got)
	}
	m = NewMachine(usual)
	play(m, start, "gbbbgggggg")
	if got := play(m, start.Add(time.Hour), "g"); got != "U" || m.Verdict().Flaps != 1 {
		t.Errorf("a good result after a silent hour: %s with %d flaps, want U with 1: silence is not quiet", got, m.Verdict().Flaps)
	}
}

func TestStatusSaysWhy(t *testing.T) {
	m := NewMachine(usual)
	if got := m.Verdict(); got.Reason != "no result yet" || !got.Pending() {
		t.Errorf("a new machine says %+v", got)
	}
	for _, tc := range []struct{ letter, reason string }{
		{"g", "the first result was good"},
		{"b", "1 of 3 bad results in a row"},
		{"b", "2 of 3 bad results in a row"},
		{"g", "the last result was good"},
		{"b", "1 of 3 bad results in a row"},
		{"b", "2 of 3 bad results in a row"},
		{"b", "3 bad in a row"},
		{"b", "the last result was bad"},
		{"g", "1 of 2 good results in a row"},
		{"g", "good again, held down for another 4s (5s after 1 flaps)"},
		{"g", "good again, held down for another 3s (5s after 1 flaps)"},
		{".", "good again, held down for another 3s (5s after 1 flaps)"},
		{"g", "good again, held down for another 1s (5s after 1 flaps)"},
		{"g", "2 good in a row for 5s"},
		{".", "2 good in a row for 5s"},
		{".", "2 good in a row for 5s"},
		{".", "2 good in a row for 5s"},
		{".", "2 good in a row for 5s"},
		{".", "no result for 5s"},
	} {
		now := start
		if !m.last.IsZero() {
			now = m.last.Add(time.Second)
		}
		play(m, now, tc.letter)
		if got := m.Verdict().Reason; got != tc.reason {
			t.Errorf("%s after %s: reason %q, want %q", tc.letter, now.Sub(start), got, tc.reason)
		}
	}
}

// TestVerdictSaysUntilWhenItHolds: while the results are good and nothing but the hold-down keeps a target back, the verdict says so.
func TestVerdictSaysUntilWhenItHolds(t *testing.T) {
	m := NewMachine(usual)
	for i, tc := range []struct {
		letter string
		passed bool
		until  int // seconds after the start; 0: it is not held down
	}{
		{"g", true, 0}, {"b", false, 0}, {"b", false, 0}, {"b", false, 0}, {"g", true, 0}, {"g", true, 9}, {"g", true, 9}, {"b", false, 0},
		{"g", true, 0}, {"g", true, 13}, {".", true, 13}, {"g", true, 13}, {"g", true, 13}, {"g", true, 0}, {"g", true, 0},
	} {
		play(m, start.Add(time.Duration(i)*time.Second), tc.letter)
		var want time.Time
		if tc.until > 0 {
			want = start.Add(time.Duration(tc.until) * time.Second)
		}
		v := m.Verdict()
		if v.Passed != tc.passed || !v.HeldUntil.Equal(want) || (v.HoldDown > 0) != (tc.until > 0) {
			t.Errorf("at second %d: %+v; want passed %v, held until %v", i, v, tc.passed, want)
		}
	}
}

// TestReport6Flapping is keepalived #296, #1515, #1652, #1893 (flapping) and #2379 (the opposite trap: with weights and
// nopreempt the address stayed although the check went on failing).
// https://github.com/acassen/keepalived/issues/2379
func TestReport6Flapping(t *testing.T) {
	const interval = 100 * time.Millisecond
	for _, tc := range []struct {
		name       string
		rise, fall int
	}{
		{"usual thresholds", 2, 3},
		{"most nervous thresholds", 1, 1},
		{"thresholds as long as a phase", 10, 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			check := cluster.Check{Interval: interval, Timeout: interval / 2, Rise: tc.rise, Fall: tc.fall}
			m := NewMachine(RulesFor(check, Damping{}))
			m.Step(Event{Kind: Good}, start)
			moves, now := 0, start
			for tick := range int(60 * time.Second / interval) {
				now = start.Add(time.Duration(tick+1) * interval)
				kind := Good
				if now.Sub(start)/time.Second%2 == 1 {
					kind = Bad
				}
				if _, changed := m.Step(Event{Kind: kind}, now); changed {
					moves++
				}
			}
			if moves > 1 {
				t.Errorf("health toggled each second for 60 s: %d moves, want at most 1", moves)
			}
			for range tc.fall {
				now = now.Add(interval)
				m.Step(Event{Kind: Bad}, now)
			}
			if got := m.Verdict(); got.State != Down {
				t.Errorf("after %d bad results in a row: %s (%s), want down", tc.fall, got.State, got.Reason)
			}
		})
	}
}

// TestReport6SlowFlapping toggles too slowly for a fixed hold-down: the growing one makes the moves rarer and rarer.
func TestReport6SlowFlapping(t *testing.T) {
	m := NewMachine(usual)
	states := play(m, start, strings.Repeat(strings.Repeat("g", 20)+strings.Repeat("b", 20), 45)) // 30 minutes
	moves := strings.Count(states, "UD") + strings.Count(states, "DU")
	if moves > 5 { // down, up after 5 s, down, up after 10 s, down; never up again, because 20 s never pass
		t.Errorf("good and bad for 20 s each, half an hour long: %d moves, want at most 5", moves)
	}
	calm := play(m, m.last.Add(time.Second), strings.Repeat("g", 3600))
	if !strings.HasSuffix(calm, "U") || m.Verdict().Flaps != 0 {
		t.Errorf("after a quiet hour: %s with %d flaps, want up and all forgiven", m.Verdict().State, m.Verdict().Flaps)
	}
}

func TestHoldDownGrowsAndShrinks(t *testing.T) {
	damping := Damping{}.withDefaults()
	var got []time.Duration
	for flaps := range 9 {
		got = append(got, damping.HoldDown(flaps))
	}
	want := []time.Duration{0, 5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second,
		160 * time.Second, 5 * time.Minute, 5 * time.Minute}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hold-down by flaps (-want +got):\n%s", diff)
	}
	endless := Damping{Base: 1, Max: 1<<63 - 1, Quiet: 1}
	if got := endless.HoldDown(1000); got != endless.Max {
		t.Errorf("hold-down after 1000 flaps: %d, want the longest", got)
	}
	if got := damping.maxFlaps(); got != 7 {
		t.Errorf("%d flaps are counted, want 7: the first number that reaches the longest hold-down", got)
	}
}

func TestTableHasOneLineForEachPair(t *testing.T) {
	lines := map[string]int{}
	for _, line := range transitions {
		lines[line.From.String()+" "+line.On.String()]++
		if line.From == line.To && line.Stay == "" && line.unless == nil {
			t.Errorf("%s on %s stays without a reason", line.From, line.On)
		}
	}
	for _, from := range []State{Unknown, Up, Down} {
		for _, on := range []EventKind{Good, Bad, Tick} {
			if n := lines[from.String()+" "+on.String()]; n != 1 {
				t.Errorf("%s on %s has %d lines, want 1", from, on, n)
			}
		}
	}
	if len(lines) != 9 {
		t.Errorf("%d pairs in the table, want 9", len(lines))
	}
}

func TestTheImpossiblePanics(t *testing.T) {
	for name, impossible := range map[string]func(){
		"event":      func() { NewMachine(usual).Step(Event{Kind: 9}, start) },
		"rules":      func() { NewMachine(Rules{}) },
		"full state": func() { m := NewMachine(usual); m.verdict.State = Full; m.Step(Event{Kind: Good}, start) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			impossible()
		})
	}
}

func TestChangedRulesKeepTheVerdict(t *testing.T) {
	m := NewMachine(usual)
	play(m, start, "g")
	stricter := usual
	stricter.Fall = 1
	m.SetRules(stricter)
	if got := m.Verdict().State; got != Up {
		t.Errorf("after new rules: %s, want up", got)
	}
	if got := play(m, start.Add(time.Second), "b"); got != "D" {
		t.Errorf("first bad result under fall 1: %s, want D", got)
	}
}

func TestClockThatRunsBackwards(t *testing.T) {
	m := NewMachine(usual)
	m.Step(Event{Kind: Good}, start)
	v, changed := m.Step(Event{Kind: Good}, start.Add(-time.Hour))
	if changed || v.State != Up || !v.At.Equal(start) {
		t.Errorf("an hour back: %+v, changed %v; want up as of the latest time seen", v, changed)
	}
}

// anyRules draws rules that RulesFor could yield.
func anyRules(t *rapid.T) Rules {
	check := cluster.Check{
		Interval: time.Duration(rapid.IntRange(1, 5000).Draw(t, "interval-ms")) * time.Millisecond,
		Timeout:  time.Duration(rapid.IntRange(1, 5000).Draw(t, "timeout-ms")) * time.Millisecond,
		Rise:     rapid.IntRange(0, 5).Draw(t, "rise"),
		Fall:     rapid.IntRange(0, 5).Draw(t, "fall"),
	}
	base := time.Duration(rapid.IntRange(1, 20_000).Draw(t, "base-ms")) * time.Millisecond
	return RulesFor(check, Damping{Base: base, Max: base * time.Duration(rapid.IntRange(1, 100).Draw(t, "max"))})
}

func TestPropertiesOfAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := anyRules(t)
		m := NewMachine(rules)
		now := start
		step := func(kind EventKind, gap time.Duration) {
			before := m.Verdict()
			now = now.Add(gap)
			after, changed := m.Step(Event{Kind: kind, Evidence: kind.String()}, now)
			if changed != (before.State != after.State) {
				t.Fatalf("changed is %v from %s to %s", changed, before.State, after.State)
			}
			if changed && !after.Since.Equal(now) || !changed && !after.Since.Equal(before.Since) {
				// A result after a hole passes through Unknown and may come out where it was.
				if kind == Tick || !after.Since.Equal(now) {
					t.Fatalf("since %v at %v, before %v, changed %v", after.Since, now, before.Since, changed)
				}
			}
			if after.Reason == "" {
				t.Fatalf("no reason for %s after %s", after.State, kind)
			}
			if kind == Good && before.State != Down && after.State == Down {
				t.Fatalf("a good result led from %s to down", before.State)
			}
			if kind == Bad && after.State == Up && before.State != Up {
				t.Fatalf("a bad result led from %s to up", before.State)
			}
		}
		for range rapid.IntRange(0, 200).Draw(t, "events") {
			kind := rapid.SampledFrom([]EventKind{Good, Good, Good, Bad, Bad, Tick}).Draw(t, "kind")
			step(kind, time.Duration(rapid.IntRange(0, 4000).Draw(t, "gap-ms"))*time.Millisecond)
		}
		switch rapid.SampledFrom([]string{"fails", "recovers", "falls silent"}).Draw(t, "end") {
		case "fails": // whatever happened before, 'fall' bad results in a row leave
			for range rules.Fall {
				step(Bad, rules.StaleAfter/4)
			}
			if got := m.Verdict(); got.State != Down {
				t.Fatalf("after %d bad in a row: %s, %s", rules.Fall, got.State, got.Reason)
			}
		case "recovers": // and good results for the longest hold-down bring it back
			for held := time.Duration(0); held <= rules.Damping.Max+rules.StaleAfter*5; held += rules.StaleAfter / 2 {
				step(Good, rules.StaleAfter/2)
			}
			if got := m.Verdict(); got.State != Up {
				t.Fatalf("good for longer than any hold-down: %s, %s", got.State, got.Reason)
			}
		case "falls silent":
			step(Tick, rules.StaleAfter)
			if got := m.Verdict(); got.State != Unknown {
				t.Fatalf("silent for %s: %s, %s", rules.StaleAfter, got.State, got.Reason)
			}
		}
	})
}

func TestAll(t *testing.T) {
	up, full, down, unknown := Verdict{State: Up}, Verdict{State: Full}, Verdict{State: Down, Evidence: "first"}, Verdict{}
	for _, tc := range []struct {
		name string
		in   []Verdict
		want Verdict
	}{
		{"nothing asked for", nil, Verdict{State: Up, Reason: "no checks are configured"}},
		{"all good", []Verdict{up, up}, up},
		{"full outweighs up", []Verdict{up, full}, full},
		{"unknown outweighs full", []Verdict{full, unknown}, unknown},
		{"down outweighs all, and the first speaks", []Verdict{up, unknown, down, {State: Down, Evidence: "second"}}, down},
	} {
		if diff := cmp.Diff(tc.want, All(tc.in...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func BenchmarkStep(b *testing.B) {
	m := NewMachine(usual)
	now := start
	for b.Loop() {
		now = now.Add(time.Second)
		m.Step(Event{Kind: Good, Evidence: "answered"}, now)
	}
}
