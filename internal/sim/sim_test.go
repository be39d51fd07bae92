package sim

import (
	"context"
	"embed"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

func init() { debug.SetGCPercent(1600) } // what is kept is little, and what is thrown away is much

// playMany plays seeds until there are enough, or the time is over and the least have been played, and fails with what failed, and where not
// even the least are played on a machine that is very slow.
func playMany(t *testing.T, story string, base, least, count uint64, limit time.Duration) {
	t.Helper()
	const patience = 2 * time.Minute
	ctx, enough := context.WithTimeout(t.Context(), patience)
	defer enough()
	over := time.Now().Add(limit)
	so := uint64(0)
	played := Many(ctx, base, count, 2, Options{Story: story}, func(r Result) {
		if r.Failure != "" {
			t.Errorf("seed %d (%s) failed after %s: %s", r.Scenario.Seed, r.Scenario.Story, r.At, r.Failure)
		}
		if so++; so >= least && time.Now().After(over) {
			enough()
		}
	})
	if played < least {
		t.Errorf("%d seeds were played within %s; %d at least are wanted", played, patience, least)
	}
	t.Logf("%d seeds", played)
}

// TestHistories: whatever goes wrong, no two nodes hold one address, and once it is over each has a holder. scripts/simulate plays more.
func TestHistories(t *testing.T) {
	count := uint64(500)
	if testing.Short() {
		count = 40
	}
	playMany(t, "", 0, 40, count, 12*time.Second)
}

// TestStories: the same for each directed scenario.
func TestStories(t *testing.T) {
	count := uint64(15)
	if testing.Short() {
		count = 3
	}
	for _, name := range Stories() {
		t.Run(name, func(t *testing.T) { playMany(t, name, 1000, 3, count, 800*time.Millisecond) })
	}
}

// foundBy plays a story under a broken rule until it is found, in the order of the seeds, and returns by which.
func foundBy(t *testing.T, broken Break, story string, count uint64) (failure string) {
	t.Helper()
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	played := uint64(0)
	Many(ctx, 0, count, 2, Options{Break: broken, Story: story}, func(r Result) {
		if played++; r.Failure != "" && failure == "" {
			failure = fmt.Sprintf("by the %d. seed: %s", played, r.Failure)
			enough()
		}
	})
	return failure
}

// TestBrokenLeaseIsFound: that heartbeats name a span one interval shorter than what their sender counts is found within a thousand
// seeds of any kind.
func TestBrokenLeaseIsFound(t *testing.T) {
	found := foundBy(t, BreakLease, "", 1000)
	if found == "" {
		t.Error("no history of a thousand shows it")
	}
	t.Log(found)
}

// TestBrokenRulesAreFound: so is every other rule that can be broken, in the stories that are about it. TestKept has the rest.
func TestBrokenRulesAreFound(t *testing.T) {
	stories := map[Break]string{
		BreakLease: "a partition that heals after a lapse", BreakWish: "a stall that ends with one late heartbeat",
		BreakFormer: "the owner dies while its successor is replaced", BreakRelease: "rolling restarts",
		BreakRenewal: "a stall that ends with one late heartbeat", BreakGuard: "restart just after a confirmation",
	}
	for _, broken := range Breaks() {
		story, is := stories[broken]
		if !is {
			continue // a kept scenario shows it; among seeds it is rare
		}
		t.Run(string(broken), func(t *testing.T) {
			found := foundBy(t, broken, story, 1000)
			if found == "" {
				t.Error("no history of a thousand shows it")
			}
			t.Log(found)
		})
	}
}

// timeline is every line of a history.
func timeline(s Scenario) string { return timelineBy(s, Options{}) }

func timelineBy(s Scenario, o Options) string {
	var b strings.Builder
	o.Trace = func(line string) { b.WriteString(line + "\n") }
	result := Play(s, o)
	fmt.Fprintf(&b, "%d steps, %s, %s", result.Steps, result.At, result.Failure)
	return b.String()
}

// TestSameSeedSameHistory: byte for byte, also beside others.
func TestSameSeedSameHistory(t *testing.T) {
	seeds := []uint64{3, 7, 11, 30}
	var alone []string
	for _, seed := range seeds {
		alone = append(alone, timeline(Generate(seed)))
	}
	t.Run("beside each other", func(t *testing.T) {
		for i, seed := range seeds {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				if timeline(Generate(seed)) != alone[i] {
					t.Errorf("seed %d has another timeline when it is played again", seed)
				}
			})
		}
	})
	if len(slices.Compact(slices.Sorted(slices.Values(alone)))) != len(seeds) {
		t.Error("two seeds have the same history")
	}
}

// TestLooksLeftOut: a history in which what is known to come to nothing is left out is the one in which nothing is, byte for byte.
func TestLooksLeftOut(t *testing.T) {
	t.Parallel()
	count := uint64(60)
	if testing.Short() {
		count = 15
	}
	breaks := []Break{Unbroken, Unbroken, BreakWish, BreakGiven, BreakRelease}
	for seed := range count {
		broken := breaks[seed%uint64(len(breaks))]
		all := strings.SplitAfter(timelineBy(Generate(seed), Options{Break: broken, everyLook: true}), "\n")
		some := strings.SplitAfter(timelineBy(Generate(seed), Options{Break: broken}), "\n")
		for i := range all {
			if i >= len(some) || all[i] != some[i] {
				t.Fatalf("seed %d, broken %q: with every look it goes on with\n%s", seed, broken, strings.Join(all[i:min(i+3, len(all))], ""))
			}
		}
	}
}

//go:embed testdata
var kept embed.FS

// keptFor says by which broken rule a kept scenario shows what it is kept for, and how that begins.
var keptFor = map[string]struct {
	broken Break
	shows  string
}{
	// The silence of a lapse takes the addresses off; a loop that sees the right again and finds that it wants what it wanted before
	// would leave them off.
	"a-lapse-that-ends-before-the-loop-comes-round": {BreakWish, "nobody holds"},
	// An owner tells the target of a move that it has let go, and in the same look, by what it knew before, takes the move back.
	"a-move-taken-back-while-it-is-told": {BreakGiven, "both hold"},
	// A wish that is begun without the right leaves out what moves; when the right is back before it ends, nothing else asks for another.
	"the-right-comes-back-while-a-wish-is-carried-out": {BreakWithheld, "nobody holds"},
	// An agent that is late for its own deadline by a moment is silenced by the guard without having lapsed: what is refused meanwhile
	// must not wait.
	"silenced-by-the-guard-and-not-lapsed": {BreakRefused, "nobody holds"},
	// A move waits while its record changes, so that its target can be told; but the change may be the owner's word that it has let go.
	"an-owner-whose-move-waits-for-its-own-word": {BreakBack, "holds it and has the right to"},
	// An address that the configuration lacks for a moment must not forget who may still act as its next.
	"a-retired-address-forgets-its-former-next": {BreakRetired, "both hold"},
	// The thread that takes everything off when the right ends may be late: another right must not begin before.
	"another-right-begins-before-the-silence":                 {BreakSilent, "both hold"},
	"another-right-begins-before-the-silence-without-a-guard": {BreakSilent, "both hold"},
	// A next that is putting an address on when it reads that it is next no more must not acknowledge yet.
	"a-former-next-acknowledges-what-it-is-taking": {BreakUnderWay, "both hold"},
	// What stands still answers for nothing, and so it does not end with the power.
	"a-machine-that-stands-still-loses-its-power": {BreakStill, "after its right to hold had ended"},
	// One that has lapsed takes an address when the right is back, which may be later than a planned move takes.
	"a-move-to-a-node-that-has-lapsed": {BreakTarget, "has had no holder"},
}

// shown reports whether a scenario fails as it once did when its rule is broken again. Whatever changes what an agent does when, changes how
// chance falls out: the seeds that follow are tried, too.
func shown(scenario Scenario, broken Break, shows string) bool {
	for range 400 {
		if strings.Contains(Play(scenario, Options{Break: broken}).Failure, shows) {
			return true
		}
		scenario.Seed++
	}
	return false
}

// TestKept: scenarios in which something was wrong once. Each file is named after it.
func TestKept(t *testing.T) {
	files, err := kept.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file.Name(), ".json")
		data, err := kept.ReadFile("testdata/" + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			scenario, err := Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			if result := Play(scenario, Options{}); result.Failure != "" {
				t.Errorf("after %s: %s", result.At, result.Failure)
			}
			if of, is := keptFor[name]; !is {
				t.Error("nothing shows what it is kept for: add a Break that puts it back, and say so in keptFor")
			} else if !shown(scenario, of.broken, of.shows) {
				t.Error("it does not show any more what it is kept for")
			}
		})
	}
}

// TestShrink: what is found is the same, in less.
func TestShrink(t *testing.T) {
	o, never := Options{Break: BreakLease}, func() bool { return false }
	var large Result
	for seed := uint64(0); large.Failure == "" || len(large.Scenario.Faults) < 4; seed++ {
		large = Play(Generate(seed), o)
	}
	small := Shrink(large.Scenario, o, 250, never)
	if small.Kind != large.Kind {
		t.Errorf("%q became %q", large.Failure, small.Failure)
	}
	if len(small.Scenario.Faults) > 2 || small.Scenario.Nodes > large.Scenario.Nodes {
		t.Errorf("it is still large:\n%s", small.Scenario)
	}
	again, err := Decode(small.Scenario.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if result := Play(again, o); result.Failure != small.Failure {
		t.Errorf("read back it ends with %q, not %q", result.Failure, small.Failure)
	}
	if well := Shrink(large.Scenario, Options{}, 400, never); well.Failure != "" || len(well.Scenario.Faults) != len(large.Scenario.Faults) {
		t.Errorf("nothing was wrong, and it became %s", well.Scenario)
	}
}
