package placement

import (
	"testing"

	"github.com/holdfast/holdfast/internal/cluster"
	"pgregory.net/rapid"
)

// Whoever adopts where another holder stands gives the same answers from there on, whatever both did before.
func TestAdoptedRotationsGoOnAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(1, 12).Draw(t, "nodes")
		choices := choicesOf(nodes)
		for i := range choices {
			choices[i].Weight = rapid.SampledFrom([]int{1, 1, 1, 2, 4}).Draw(t, "weight")
		}
		var first, second Rotation
		for _, r := range []*Rotation{&first, &second} {
			for range rapid.IntRange(0, 40).Draw(t, "answers") {
				if rapid.Bool().Draw(t, "own") {
					r.Pick(cluster.RoundRobin, choices)
				} else {
					r.Merge(rapid.IntRange(1, nodes).Draw(t, "node"), 1)
				}
			}
		}
		first.Pick(cluster.RoundRobin, choices) // one that has never answered has nothing to go on from
		if first.crowded {
			return // it keeps its own answers even for a while, as others answer at the same time
		}
		second.Adopt(first.Standing())
		if first.Digest() != second.Digest() || second.Known() < first.Known() {
			t.Fatalf("adopted, and yet apart: %+v and %+v", first.Standing(), second.Standing())
		}
		for i := range 60 {
			holders := []*Rotation{&first, &second}
			giver, hearer := holders[i%2], holders[1-i%2]
			expected := choices[hearer.Clone().Pick(cluster.RoundRobin, choices)].LNN
			got := choices[giver.Pick(cluster.RoundRobin, choices)].LNN
			if got != expected {
				t.Fatalf("answer %d: one gives node %d, the other would give node %d", i, got, expected)
			}
			hearer.Merge(got, 1)
		}
	})
}

// A standing that claims nonsense neither overflows nor herds.
func TestAdoptingNonsense(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		choices := choicesOf(5)
		var r Rotation
		picks(&r, cluster.RoundRobin, choices, rapid.IntRange(0, 9).Draw(t, "before"))
		s := Standing{Known: rapid.Uint64().Draw(t, "known")}
		for range rapid.IntRange(0, 9).Draw(t, "entries") {
			s.Nodes = append(s.Nodes, NodeStanding{LNN: rapid.IntRange(-2, 7).Draw(t, "lnn"), Ahead: rapid.Uint64().Draw(t, "ahead"), Recent: rapid.Bool().Draw(t, "recent")})
		}
		for range rapid.IntRange(1, 3).Draw(t, "times") {
			r.Adopt(s)
		}
		seen := map[int]int{}
		for range 100 {
			seen[r.Pick(cluster.RoundRobin, choices)]++
		}
		for i := range choices {
			if seen[i] < 3 || seen[i] > 40 {
				t.Fatalf("100 answers over five nodes: %v", seen)
			}
		}
	})
}

func TestAdoptingNamesMoreNodesThanAreCounted(t *testing.T) {
	var s Standing
	for lnn := range MaxTurns + 5 {
		s.Nodes = append(s.Nodes, NodeStanding{LNN: lnn + 1})
	}
	var r Rotation
	r.Merge(MaxTurns+1000, 1)
	r.Adopt(s)
	if len(r.turns) != MaxTurns || r.Ignored() != 1 {
		t.Errorf("%d nodes on account, %d not counted", len(r.turns), r.Ignored())
	}
}
