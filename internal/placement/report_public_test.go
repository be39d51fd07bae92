package placement

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

// flap plays a node that fails and recovers each second for a minute and is then quiet for five, with a hold-down that
// grows with each return, and counts the moves of its addresses meanwhile.
func flap(policy cluster.RebalancePolicy) (movesWhileFlapping int, req Request, fitSince, end time.Time, holdDown time.Duration) {
	req = evenPool(3, 6)
	start := time.Unix(0, 0)
	holdDown = time.Second
	step := func(second int) int {
		now := start.Add(time.Duration(second) * time.Second)
		recovery := Recovery{Policy: policy, HoldDown: holdDown, FitSince: fitSince, Outage: time.Second}
		req.Rebalance = MayRebalance(recovery, now).May
		result := Allocate(req)
		req.Current = result.Statements
		return len(result.Moves)
	}
	for second := 1; second <= 60; second++ {
		now := start.Add(time.Duration(second) * time.Second)
		if second%2 == 1 {
			setFit(&req, 2, false, "check nfs failed")
			fitSince = time.Time{}
		} else {
			setFit(&req, 2, true, "")
			fitSince, holdDown = now, min(2*holdDown, 2*time.Minute)
		}
		movesWhileFlapping += step(second)
	}
	return movesWhileFlapping, req, fitSince, start.Add(60 * time.Second), holdDown
}

// keepalived #296, #1515, #1652, #1893, #2469: a flapping node makes addresses go to and fro. An address moves at most
// once while its node flaps, and returns when the node has been quiet.
func TestReport6Flapping(t *testing.T) {
	moves, req, fitSince, end, holdDown := flap(cluster.RebalanceAuto)
	if moves != 2 {
		t.Errorf("%d moves during a minute of flapping, want one for each of the node's 2 addresses", moves)
	}
	permission := MayRebalance(Recovery{HoldDown: holdDown, FitSince: fitSince}, end)
	if permission.May || permission.Wait != holdDown {
		t.Errorf("may return at once: %v, after %v; want after the hold-down of %v", permission.May, permission.Wait, holdDown)
	}
	req.Rebalance = MayRebalance(Recovery{HoldDown: holdDown, FitSince: fitSince}, end.Add(permission.Wait)).May
	result := Allocate(req)
	if got := heldBy(req, result.Statements); !slices.Equal(got, []int{2, 2, 2}) || len(result.Moves) != 2 {
		t.Errorf("after the hold-down nodes hold %v by %d moves, want 2 each by 2", got, len(result.Moves))
	}
}

// keepalived #2379, the opposite trap: with nopreempt an address stayed although the check kept failing. Whoever fails
// leaves, whatever the policy says about coming back, and whatever it is told in hold-down.
func TestReport6FailedOwnerAlwaysLeaves(t *testing.T) {
	for _, policy := range []cluster.RebalancePolicy{cluster.RebalanceAuto, cluster.RebalanceManual, cluster.RebalanceIdle, cluster.RebalanceShortOutage} {
		req := evenPool(3, 6)
		setFit(&req, 2, false, "check nfs failed")
		req.Candidates[1].HoldDown = true
		req.Rebalance = MayRebalance(Recovery{Policy: policy}, time.Unix(0, 0)).May
		if got := counts(Allocate(req).Statements)[2]; got != 0 {
			t.Errorf("%s: the failed node still holds %d", policy, got)
		}
	}
}

// A node in hold-down keeps what it has, is given nothing more and is nobody's next.
func TestReport6HoldDownKeepsButDoesNotGet(t *testing.T) {
	req := evenPool(4, 12)
	req.Candidates[1].HoldDown, req.Candidates[1].Why = true, "flapped 5 times"
	for _, rebalance := range []bool{false, true} {
		req.Rebalance = rebalance
		result := PlanDown(req, 1)
		if got := counts(result.Statements)[2]; rebalance && got > 4 || !rebalance && got > 4 {
			t.Errorf("n2 holds %d", got)
		}
		for _, s := range Allocate(req).Statements {
			if s.Next == member(2) {
				t.Errorf("%v: n2 is next while in hold-down", s.Address)
			}
		}
	}
}

// weave #1245, golang/go #13283, mesos-dns #507, unbound #215: with all addresses in each answer, getaddrinfo's sorting or
// one caching resolver sends everyone to one of them. One address for each answer, chosen by the server: 10,000 queries
// from one resolver differ by at most one, from one service address and over several.
func TestReport16UnevenDNSSpread(t *testing.T) {
	for _, holders := range []int{1, 2, 6} {
		t.Run(fmt.Sprintf("%d service addresses", holders), func(t *testing.T) {
			rotations := make([]Rotation, holders)
			choices := choicesOf(7)
			given := make([]int, 7)
			for query := range 10000 {
				holder := query * 5 % 11 % holders // no pattern that goes with 7
				i := rotations[holder].Pick(cluster.RoundRobin, choices)
				given[i]++
				for other := range rotations {
					if other != holder {
						rotations[other].Merge(choices[i].LNN, 1)
					}
				}
				if spread := slices.Max(given) - slices.Min(given); spread > 1 {
					t.Fatalf("after %d queries: %v", query+1, given)
				}
			}
		})
	}
}
