package placement

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// What is said to be plainly even is left as it is by a rebalance that is worked out.
func TestWhatIsPlainlyEvenIsMovedByNoRebalance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := drawRequest(t)
		req.Movable = nil
		if rapid.Bool().Draw(t, "after a rebalance") {
			req.Rebalance, req.Pins = true, nil // a pool with pins is never said to be
			req.Current = Allocate(req).Statements
			if len(req.Current) > 0 && len(req.Candidates) > 0 && rapid.Bool().Draw(t, "but for one") {
				req.Current[rapid.IntRange(0, len(req.Current)-1).Draw(t, "which")].Owner = rapid.SampledFrom(req.Candidates).Draw(t, "with").Member
			}
		}
		req.Rebalance = false
		if result := Allocate(req); !result.Even || len(result.Moves) > 0 {
			return
		}
		req.Rebalance = true
		if moves := Allocate(req).Moves; len(moves) > 0 {
			t.Fatalf("%+v\nsaid to be even, and a rebalance moves %+v", req, moves)
		}
	})
}

// It is seen of the usual pool, and not of one with two addresses too many on one node.
func TestAnEvenPoolIsPlainlyEven(t *testing.T) {
	req := evenPool(4, 10)
	req.Current = Allocate(req).Statements
	if !Allocate(req).Even {
		t.Error("a pool as placement spread it is not seen to be even")
	}
	for i := range req.Current {
		req.Current[i].Owner = member(1 + i%3)
	}
	if Allocate(req).Even {
		t.Error("a pool in which one of four nodes has nothing passes for even")
	}
}

// A workspace that has served for one request gives to another what a new one would.
func TestAWorkspaceRemembersNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w Workspace
		for range 3 {
			req := drawRequest(t)
			allocate, used := Allocate, w.Allocate
			if rapid.Bool().Draw(t, "static") {
				allocate, used = AllocateStatic, w.AllocateStatic
			}
			if want, got := allocate(req), used(req); !reflect.DeepEqual(want, got) {
				t.Fatalf("%+v\nworked out anew: %+v\non a used workspace: %+v", req, want, got)
			}
		}
	})
}
