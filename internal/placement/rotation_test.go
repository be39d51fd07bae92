package placement

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/holdfast/holdfast/internal/cluster"
	"pgregory.net/rapid"
)

// choicesOf are eligible nodes with LNN 1 and up; their weights are 1 unless given.
func choicesOf(nodes int, weights ...int) []Choice {
	choices := make([]Choice, nodes)
	for i := range choices {
		choices[i] = Choice{LNN: i + 1, Name: fmt.Sprintf("n%d", i+1), Weight: 1, Eligible: true}
		if i < len(weights) {
			choices[i].Weight = weights[i]
		}
	}
	return choices
}

// picks gives the names of the next answers.
func picks(r *Rotation, policy cluster.Policy, choices []Choice, count int) string {
	var names []string
	for range count {
		if i := r.Pick(policy, choices); i >= 0 {
			names = append(names, choices[i].Name)
		} else {
			names = append(names, "-")
		}
	}
	return strings.Join(names, " ")
}

func TestRoundRobinOrder(t *testing.T) {
	for _, example := range []struct {
		name    string
		weights []int
		want    string
	}{
		{"equal", []int{1, 1, 1}, "n1 n2 n3 n1 n2 n3 n1 n2 n3"},
		{"heavy nodes are spread among light ones", []int{4, 1, 1}, "n1 n1 n2 n3 n1 n1 n1 n1 n2 n3 n1 n1"},
		{"equal weights above one are the same as one", []int{7, 7}, "n1 n2 n1 n2"},
		{"below one counts as one", []int{0, -3, 1}, "n1 n2 n3 n1 n2 n3"},
	} {
		var r Rotation
		count := len(strings.Fields(example.want))
		if got := picks(&r, cluster.RoundRobin, choicesOf(len(example.weights), example.weights...), count); got != example.want {
			t.Errorf("%s: %s, want %s", example.name, got, example.want)
		}
	}
}

func TestPickAmongNone(t *testing.T) {
	var r Rotation
	choices := choicesOf(2)
	choices[0].Eligible, choices[1].Eligible = false, false
	if got := picks(&r, cluster.RoundRobin, choices, 2) + picks(&r, cluster.ConnCount, nil, 1); got != "- --" {
		t.Errorf("picked %q", got)
	}
}

// While the same nodes are eligible, any n answers in a row name n nodes, whatever happened before.
func TestRoundRobinIsEvenOverAnyWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Rotation
		choices := choicesOf(rapid.IntRange(1, 9).Draw(t, "nodes"))
		var window []int // LNNs since the set of eligible nodes last changed
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			if rapid.IntRange(0, 5).Draw(t, "toggle") == 0 {
				c := &choices[rapid.IntRange(0, len(choices)-1).Draw(t, "node")]
				c.Eligible = !c.Eligible
				window = nil
			}
			i := r.Pick(cluster.RoundRobin, choices)
			if i < 0 {
				continue
			}
			if !choices[i].Eligible {
				t.Fatalf("%s is not eligible", choices[i].Name)
			}
			window = append(window, choices[i].LNN)
			eligible := 0
			for _, c := range choices {
				if c.Eligible {
					eligible++
				}
			}
			last := slices.Clone(window[max(0, len(window)-eligible):])
			slices.Sort(last)
			if len(slices.Compact(last)) != min(len(window), eligible) {
				t.Fatalf("of %d eligible nodes the last answers were %v", eligible, window)
			}
		}
	})
}

// A node that was away for long is not given what it missed: it gets its share and no more, at any weights.
func TestReturningNodeIsNotHerded(t *testing.T) {
	for _, policy := range []cluster.Policy{cluster.RoundRobin, cluster.ConnCount} {
		var r Rotation
		choices := choicesOf(5, 1, 2, 3, 1, 1)
		choices[4].Eligible = false
		picks(&r, policy, choices, 10000)
		choices[4].Eligible = true
		if got := strings.Count(picks(&r, policy, choices, 80), "n5"); got < 9 || got > 11 {
			t.Errorf("%s: %d of 80 answers named the node that came back with an eighth of the weight", policy, got)
		}
	}
}

// Over a long run every node gets its weight's share. Light nodes whose turns coincide let a heavy one run ahead by at most half of
// what they get together in a round: two answers with weights up to ten on eight nodes.
func TestRoundRobinKeepsToTheWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Rotation
		weights := rapid.SliceOfN(rapid.IntRange(1, 10), 1, 8).Draw(t, "weights")
		sum := 0
		for _, w := range weights {
			sum += w
		}
		choices := choicesOf(len(weights), weights...)
		got := make([]int, len(weights))
		answers := rapid.IntRange(1, 500).Draw(t, "answers")
		for range answers {
			got[r.Pick(cluster.RoundRobin, choices)]++
		}
		for i, w := range weights {
			if want := float64(answers*w) / float64(sum); math.Abs(float64(got[i])-want) > 2.1 {
				t.Fatalf("of %d answers node %d at weight %d of %v got %d, its share is %.2f", answers, i+1, w, weights, got[i], want)
			}
		}
	})
}

// The bar of a shared rotation: 50 nodes, 10 answers from the first service address, then 40 from the second: 50 nodes.
func TestSecondHolderGoesOnWhereTheFirstWas(t *testing.T) {
	for _, policy := range []cluster.Policy{cluster.RoundRobin, cluster.ConnCount, cluster.Throughput, cluster.CPUUsage} {
		var first, second, independent Rotation
		choices := choicesOf(50)
		for i := range choices {
			choices[i].Load = Load{Known: true, Connections: 20, Throughput: 0.5, CPU: 0.5}
		}
		named := map[int]bool{}
		for range 10 {
			i := first.Pick(policy, choices)
			named[i] = true
			second.Merge(choices[i].LNN, 1)
		}
		for range 40 {
			named[second.Pick(policy, choices)] = true
		}
		if len(named) != 50 {
			t.Errorf("%s: 50 answers named %d nodes", policy, len(named))
		}
		if got := independent.Pick(policy, choices); got != 0 {
			t.Errorf("%s: an independent holder starts with node %d, want the first", policy, got+1)
		}
	}
}

// The bar of a shared rotation: 7 nodes, 3 service addresses in turn: any 7 answers in a row name 7 nodes, also when one
// holder dies and a node takes over that had only been told of the answers.
func TestHoldersInTurnNameAllNodesAlsoAcrossATakeover(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		holders := make([]Rotation, 4) // the fourth waits
		serving := []int{0, 1, 2}
		choices := choicesOf(7)
		takeover := rapid.IntRange(0, 60).Draw(t, "takeover")
		var named []int
		for step := range 100 {
			if step == takeover {
				serving[rapid.IntRange(0, 2).Draw(t, "dies")] = 3
			}
			holder := serving[step%3]
			i := holders[holder].Pick(cluster.RoundRobin, choices)
			named = append(named, i)
			for other := range holders {
				if other != holder {
					holders[other].Merge(choices[i].LNN, 1)
				}
			}
			if last := slices.Clone(named[max(0, len(named)-7):]); len(last) == 7 {
				slices.Sort(last)
				if len(slices.Compact(last)) != 7 {
					t.Fatalf("takeover before answer %d: the last answers were %v", takeover, named)
				}
			}
		}
	})
}

// Three holders asked at random. Each tells the others what it answered once for so many
// answers of all; at full rate that is after many rounds. However late they hear, the sum stays even: within three at full
// rate and where they hear at once; between the two, where nobody can know who makes up for what, little more.
func TestHoldersAtRandomStayEvenHoweverLateTheyHear(t *testing.T) {
	for _, example := range []struct{ every, within int }{
		{1, 2}, {2, 3}, {5, 3}, {10, 5}, {20, 5}, {30, 5}, {60, 3}, {100, 3}, {300, 3}, {1000, 3}, {5000, 3},
	} {
		for seed := range int64(3) {
			random := rand.New(rand.NewSource(seed))
			var holders [3]Rotation
			var untold [3][7]uint32
			var tellAt [3]int
			for h := range tellAt {
				tellAt[h] = 1 + random.Intn(example.every)
			}
			choices := choicesOf(7)
			given := make([]int, 7)
			for answer := range 12000 {
				asked := random.Intn(3)
				i := holders[asked].Pick(cluster.RoundRobin, choices)
				given[i]++
				untold[asked][i]++
				if spread := slices.Max(given) - slices.Min(given); spread > example.within {
					t.Fatalf("told every %d answers: max - min is %d after %d, want at most %d: %v",
						example.every, spread, answer+1, example.within, given)
				}
				for teller := range holders {
					if answer < tellAt[teller] {
						continue
					}
					tellAt[teller] = answer + example.every
					for other := range holders {
						for node, count := range untold[teller] {
							if other != teller {
								holders[other].Merge(node+1, count)
							}
						}
					}
					untold[teller] = [7]uint32{}
				}
			}
		}
	}
}

// A holder that only listened for long, and then answers for the first time when a node returns, does not herd either.
func TestLateHolderDoesNotHerdAReturningNode(t *testing.T) {
	for _, batch := range []uint32{1, 30} {
		var serving, waiting Rotation
		choices := choicesOf(4)
		choices[3].Eligible = false
		for range 1000 {
			told := map[int]uint32{}
			for range 3 * batch {
				told[serving.Pick(cluster.RoundRobin, choices)+1]++
			}
			for lnn := 1; lnn <= 3; lnn++ {
				waiting.Merge(lnn, told[lnn])
			}
		}
		choices[3].Eligible = true
		if got := strings.Count(picks(&waiting, cluster.RoundRobin, choices, 400), "n4"); got < 100 || got > 100+int(batch) {
			t.Errorf("told in batches of %d: %d of 400 answers named the returning node", batch, got)
		}
	}
}

// The same for a holder that had answered before it only listened: it does not make up for rounds that passed it by.
func TestIdleHolderDoesNotHerdANodeThatWasAwayElsewhere(t *testing.T) {
	var idle Rotation
	choices := choicesOf(4)
	picks(&idle, cluster.RoundRobin, choices, 8)
	for range 1000 {
		for lnn := 1; lnn <= 3; lnn++ {
			idle.Merge(lnn, 1)
		}
	}
	if got := strings.Count(picks(&idle, cluster.RoundRobin, choices, 400), "n4"); got < 100 || got > 108 {
		t.Errorf("%d of 400 answers named n4, want its quarter and at most 8 more", got)
	}
}

// A node that another holder already named again after its return is not named at once a second time.
func TestReturnSeenLaterThanItsFirstAnswer(t *testing.T) {
	var first, second Rotation
	choices, behind := choicesOf(4), choicesOf(4)
	choices[3].Eligible, behind[3].Eligible = false, false
	var named []string
	for step := range 40 {
		if step == 20 {
			choices[3].Eligible = true // the first holder sees it
		}
		if step == 21 {
			behind[3].Eligible = true // and the second just after
		}
		asked, other, seen := &first, &second, choices
		if step%2 == 1 {
			asked, other, seen = &second, &first, behind
		}
		i := asked.Pick(cluster.RoundRobin, seen)
		other.Merge(seen[i].LNN, 1)
		named = append(named, seen[i].Name)
	}
	if got, want := strings.Join(named[20:28], " "), "n4 n3 n1 n2 n4 n3 n1 n2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A window of equal answers is spread: between two samples the least loaded node gets only what it is ahead.
func TestMeasuredPoliciesCountAnswersSinceTheSample(t *testing.T) {
	choices := choicesOf(3)
	for i, connections := range []int{10, 13, 10} {
		choices[i].Load = Load{Known: true, Connections: connections, CPU: float64(connections) / 100}
	}
	for _, policy := range []cluster.Policy{cluster.ConnCount, cluster.CPUUsage} {
		var r Rotation
		if got, want := picks(&r, policy, choices, 9), "n1 n3 n1 n3 n1 n3"; got[:len(want)] != want {
			t.Errorf("%s: %s, want %s and then all three", policy, got, want)
		} else if last := strings.Fields(got)[6:]; len(slices.Compact(slices.Sorted(slices.Values(last)))) != 3 {
			t.Errorf("%s: %v at equal loads", policy, last)
		}
	}
	// A sample that shows the answers starts the count anew; answers of other holders count as one's own.
	var r Rotation
	picks(&r, cluster.ConnCount, choices, 6)
	choices[0].Load.Connections, choices[2].Load.Connections = 13, 13
	r.Sampled(1)
	r.Sampled(3)
	r.Merge(2, 1)
	if got := picks(&r, cluster.ConnCount, choices, 2); got != "n1 n3" {
		t.Errorf("after the sample: %s, want n1 n3", got)
	}
}

func TestConnCountLooksAtConnectionsForEachUnitOfWeight(t *testing.T) {
	choices := choicesOf(2, 1, 3)
	choices[0].Load = Load{Known: true, Connections: 10}
	choices[1].Load = Load{Known: true, Connections: 24}
	var r Rotation
	if got := picks(&r, cluster.ConnCount, choices, 6); got != "n2 n2 n2 n2 n2 n2" {
		t.Errorf("%s, want n2 up to its 30 connections", got)
	}
}

// A node whose sample is stale or that never had one is treated like the mean of the others: neither starved nor herded,
// for as long as it lasts.
func TestStaleNodeIsCountedAtTheMean(t *testing.T) {
	for name, load := range map[string]Load{"stale": {Known: true, Stale: true}, "unknown": {}, "not a number": {Known: true, CPU: math.NaN()}} {
		var r Rotation
		choices := choicesOf(3)
		choices[2].Load = load
		given := make([]int, 3)
		for range 100 { // windows of nine answers, after which the samples of n1 and n2 are fresh
			for i := range 2 {
				choices[i].Load = Load{Known: true, CPU: 0.5, Age: time.Second}
				r.Sampled(i + 1)
			}
			for range 9 {
				given[r.Pick(cluster.CPUUsage, choices)]++
			}
		}
		if given[2] < 250 || given[2] > 350 {
			t.Errorf("%s: answers %v, want about 300 for n3", name, given)
		}
	}
	choices := choicesOf(3)
	choices[0].Load = Load{Known: true, Connections: 10, Age: 400 * time.Millisecond}
	choices[1].Load = Load{Known: true, Connections: 20, Age: 900 * time.Millisecond}
	choices[2].Load = Load{Known: true, Connections: 0, Stale: true, Age: time.Minute}
	var r Rotation
	d := r.Explain(cluster.ConnCount, choices, time.Unix(5, 0))
	want := Decision{
		Chosen: "n1", Reason: "conn_count: n1 has the least load", DataAge: 900 * time.Millisecond, At: time.Unix(5, 0),
		Among: []Considered{
			{"n1", 1, 10, "10 connections, sampled 400ms ago; 0 answers since the last sample"},
			{"n2", 1, 20, "20 connections, sampled 900ms ago; 0 answers since the last sample"},
			{"n3", 1, 15, "its load is stale and counts as the mean of the others; 0 answers since the last sample"},
		},
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestExplainRoundRobin(t *testing.T) {
	choices := choicesOf(3)
	choices[1].Eligible, choices[1].Why = false, "suspended"
	var r Rotation
	r.Pick("", choices)
	want := Decision{
		Chosen: "n3", Reason: "round_robin: it is n3's turn",
		Among:   []Considered{{"n1", 1, 1, "its turn is 1.00 later"}, {"n3", 1, 0, "its turn is next"}},
		LeftOut: []Excluded{{"n2", "suspended"}},
	}
	if diff := cmp.Diff(want, r.Explain("", choices, time.Time{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for reason, choices := range map[string][]Choice{
		"no node is eligible":  {{LNN: 1, Name: "n1"}},
		"the pool has no node": nil,
		"cpu_usage: no load is known and fresh, so the nodes take turns; it is n1's": choicesOf(2),
	} {
		var r Rotation
		if got := r.Explain(cluster.CPUUsage, choices, time.Time{}).Reason; got != reason {
			t.Errorf("%q, want %q", got, reason)
		}
	}
}

// stepRotation does one random thing to a rotation; and every Pick must be what Explain had said, which must have changed
// nothing.
func stepRotation(t *rapid.T, r *Rotation, choices []Choice) {
	lnn := rapid.IntRange(0, len(choices)+1).Draw(t, "lnn")
	c := &choices[min(lnn, len(choices)-1)]
	switch rapid.IntRange(0, 9).Draw(t, "step") {
	case 0:
		c.Eligible = !c.Eligible
	case 1:
		c.Weight = rapid.IntRange(-1, 5).Draw(t, "weight")
	case 2:
		c.Load = Load{Known: rapid.Bool().Draw(t, "known"), Stale: rapid.Bool().Draw(t, "stale"),
			Connections: rapid.IntRange(-1, 9).Draw(t, "connections"), CPU: rapid.Float64().Draw(t, "cpu"), Throughput: rapid.Float64().Draw(t, "throughput")}
	case 3:
		r.Merge(lnn, rapid.Uint32().Draw(t, "answers"))
	case 4:
		r.Merge(lnn, rapid.Uint32Range(0, 3).Draw(t, "answers"))
	case 5:
		r.Sampled(lnn)
	case 6:
		at := rapid.IntRange(0, len(choices)-1).Draw(t, "swap")
		choices[at], choices[0] = choices[0], choices[at]
	default:
		policy := rapid.SampledFrom([]cluster.Policy{cluster.RoundRobin, cluster.ConnCount, cluster.Throughput, cluster.CPUUsage}).Draw(t, "policy")
		before := r.Clone()
		said := r.Explain(policy, choices, time.Time{})
		if diff := cmp.Diff(before, r, cmp.AllowUnexported(Rotation{}, turnOf{})); diff != "" {
			t.Fatalf("Explain changed the state:\n%s", diff)
		}
		name := ""
		if i := r.Pick(policy, choices); i >= 0 {
			name = choices[i].Name
			if !choices[i].Eligible {
				t.Fatalf("picked %s, which is not eligible", name)
			}
		} else if slices.ContainsFunc(choices, func(c Choice) bool { return c.Eligible }) {
			t.Fatal("picked none of the eligible")
		}
		if said.Chosen != name || said.Reason == "" {
			t.Fatalf("Explain said %q (%s), Pick gave %q", said.Chosen, said.Reason, name)
		}
	}
}

func TestExplainSaysWhatPickWillDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Rotation
		choices := choicesOf(rapid.IntRange(1, 6).Draw(t, "nodes"))
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			stepRotation(t, &r, choices)
		}
	})
}

// Bounds: nodes on account, a count from a peer that cannot be true, and positions that come near their end.
func TestRotationBounds(t *testing.T) {
	var r Rotation
	for lnn := range MaxTurns + 5 {
		r.Merge(lnn+1, 1)
	}
	if r.Ignored() != 5 || len(r.turns) != MaxTurns {
		t.Errorf("%d merges ignored and %d nodes on account, want 5 and %d", r.Ignored(), len(r.turns), MaxTurns)
	}

	r = Rotation{}
	choices := choicesOf(3)
	picks(&r, cluster.RoundRobin, choices, 3)
	for range 100 {
		r.Merge(2, math.MaxUint32)
	}
	if got := strings.Count(picks(&r, cluster.RoundRobin, choices, 30), "n2"); got < 9 {
		t.Errorf("after counts from a peer that cannot be true a node got %d of 30 answers", got)
	}

	r = Rotation{}
	picks(&r, cluster.RoundRobin, choices, 4)
	for i := range r.turns {
		r.turns[i].start += rebaseAt - 3*turn
	}
	r.now += rebaseAt - 3*turn
	if got := picks(&r, cluster.RoundRobin, choices, 12); got != "n2 n3 n1 n2 n3 n1 n2 n3 n1 n2 n3 n1" {
		t.Errorf("across the end of the positions: %s", got)
	}
	if r.now >= rebaseAt {
		t.Error("positions were not moved down")
	}
}

func TestPickAllocatesNothingWhenWarm(t *testing.T) {
	for _, policy := range []cluster.Policy{cluster.RoundRobin, cluster.ConnCount} {
		var r Rotation
		choices := choicesOf(50)
		choices[3].Load = Load{Known: true, Connections: 4} // the others have none, so that this is not the quick way
		r.Pick(policy, choices)
		if got := testing.AllocsPerRun(1000, func() {
			choices[7].Eligible = !choices[7].Eligible
			r.Merge(9, 1)
			r.Sampled(9)
			r.Pick(policy, choices)
		}); got != 0 {
			t.Errorf("%s: %v allocations for an answer", policy, got)
		}
	}
}
