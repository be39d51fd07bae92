package placement

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/holdfast/holdfast/internal/cluster"
	"pgregory.net/rapid"
)

// The sizing examples, for real: whoever dies, this is how the survivors stand.
func TestDeathOfAnyNodeLeavesTheSpreadOfTheSizingExamples(t *testing.T) {
	for _, example := range []struct {
		nodes, addresses int
		want             []int
	}{
		{4, 12, []int{4, 4, 4}},
		{4, 4, []int{2, 1, 1}},
		{3, 6, []int{3, 3}},
		{5, 20, []int{5, 5, 5, 5}},
		{4, 6, []int{2, 2, 2}},
		{2, 3, []int{3}},
	} {
		for dead := 1; dead <= example.nodes; dead++ {
			t.Run(fmt.Sprintf("%d nodes %d addresses, n%d dies", example.nodes, example.addresses, dead), func(t *testing.T) {
				req := evenPool(example.nodes, example.addresses)
				before := counts(req.Current)[dead]
				result := PlanDown(req, dead)
				setFit(&req, dead, false, "down")
				if got := heldBy(req, result.Statements); !slices.Equal(got, example.want) {
					t.Errorf("survivors hold %v, want %v", got, example.want)
				}
				if len(result.Moves) != before {
					t.Errorf("%d moves for %d orphans", len(result.Moves), before)
				}
				took := map[int]int{}
				for i, s := range req.Current {
					if s.Owner.LNN != dead {
						continue
					}
					if got := result.Statements[i].Owner; got != s.Next {
						t.Errorf("%v went to %v, its next on record is %v", s.Address, got, s.Next)
					}
					took[s.Next.LNN]++
				}
				for lnn, count := range took {
					if before < example.nodes && count > 1 {
						t.Errorf("n%d took %d of %d orphans, while others took none", lnn, count, before)
					}
				}
			})
		}
	}
}

// Two nodes at once: what went to the other dead one is placed anew, and nothing is lost.
func TestDeathOfTwoNodesAtOnce(t *testing.T) {
	req := evenPool(4, 12)
	for first := 1; first <= 4; first++ {
		for second := first + 1; second <= 4; second++ {
			after := req
			setFit(&after, first, false, "down")
			setFit(&after, second, false, "down")
			if got := heldBy(after, PlanDown(req, first, second).Statements); !slices.Equal(got, []int{6, 6}) {
				t.Errorf("n%d and n%d die: survivors hold %v, want 6 and 6", first, second, got)
			}
		}
	}
}

// PlanDown is what Allocate does once the nodes are unfit, and says nothing of evening out.
func TestPlanDownIsWhatAllocateDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := drawRequest(t)
		planned := PlanDown(req, 1, 3)
		req.Rebalance = false
		setFit(&req, 1, false, "")
		setFit(&req, 3, false, "")
		if diff := cmp.Diff(show(planned.Statements), show(Allocate(req).Statements)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// Any size, any weights: nobody could give one of its addresses to another and thereby lessen the sum of n*n/weight.
// For equal weights that is max-min <= 1.
func TestLargePoolsAreEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := Request{Rebalance: true, Addresses: addresses(rapid.IntRange(0, 300).Draw(t, "addresses"))}
		weights := rapid.SampledFrom([]int{1, 1, 2, 9, 1000, MaxWeight + 1}).Draw(t, "greatest weight")
		for lnn := range rapid.IntRange(1, 40).Draw(t, "nodes") {
			weight := rapid.IntRange(1, weights).Draw(t, "weight")
			req.Candidates = append(req.Candidates, Candidate{Member: member(lnn + 1), Weight: weight, Fit: true})
		}
		for i := range req.Addresses {
			owner := rapid.IntRange(1, len(req.Candidates)+1).Draw(t, "owner")
			req.Current = append(req.Current, Statement{Address: addressAt(i), Owner: member(min(owner, 3))})
		}
		held := counts(Allocate(req).Statements)
		for _, a := range req.Candidates {
			for _, b := range req.Candidates {
				have, had := held[a.Member.LNN], held[b.Member.LNN]
				if have > 0 && (2*have-1)*clampWeight(b.Weight) > (2*had+1)*clampWeight(a.Weight) {
					t.Fatalf("%v holds %d at weight %d, and %v only %d at weight %d",
						a.Member, have, a.Weight, b.Member, had, b.Weight)
				}
			}
		}
	})
}

// Across many pools what does not divide evenly must not pile up on the first node.
func TestRemaindersOfManyPoolsDoNotPileUp(t *testing.T) {
	total := map[int]int{}
	elsewhere := map[cluster.Member]int{}
	for p := range 40 {
		req := evenPool(4, 5)
		req.Pool.Pool = fmt.Sprintf("pool%d", p)
		req.Current = nil
		for lnn, count := range counts(Allocate(req).Statements) {
			total[lnn] += count
		}
		req.Elsewhere = elsewhere
		for _, s := range Allocate(req).Statements {
			elsewhere[s.Owner]++
		}
	}
	for lnn := 1; lnn <= 4; lnn++ {
		if total[lnn] < 40 || total[lnn] > 65 {
			t.Errorf("n%d holds %d of 200 addresses", lnn, total[lnn])
		}
		if got := elsewhere[member(lnn)]; got != 50 {
			t.Errorf("with regard to the other pools n%d holds %d of 200 addresses, want 50", lnn, got)
		}
	}
}

// A returning node gets its share from those who hold most, and a node that holds some already may get more.
func TestRebalanceAfterReturnMovesTheFewest(t *testing.T) {
	req := evenPool(4, 12)
	req.Current = PlanDown(req, 2).Statements
	if moves := Allocate(req).Moves; len(moves) != 0 {
		t.Fatalf("nothing was asked for, but: %v", moves)
	}
	req.Rebalance = true
	result := Allocate(req)
	if got := heldBy(req, result.Statements); !slices.Equal(got, []int{3, 3, 3, 3}) || len(result.Moves) != 3 {
		t.Errorf("after the rebalance nodes hold %v by %d moves, want 3 each by 3", got, len(result.Moves))
	}
	for _, m := range result.Moves {
		if m.To != member(2) {
			t.Errorf("%+v, want all moves to go to n2", m)
		}
	}
}

// Under the idle policy only the addresses without connections move.
func TestRebalanceMovesOnlyMovableAddresses(t *testing.T) {
	req := evenPool(2, 4)
	req.Current = PlanDown(req, 2).Statements
	req.Rebalance = true
	req.Movable = map[netip.Addr]bool{addressAt(3): true}
	result := Allocate(req)
	if len(result.Moves) != 1 || result.Moves[0].Address != addressAt(3) || result.Moves[0].To != member(2) {
		t.Errorf("moves %+v, want 10.0.0.4 to n2 alone", result.Moves)
	}
}

func TestPinnedAddressGoesElsewhereWhileItsPinIsUnfitAndReturns(t *testing.T) {
	req := evenPool(3, 3)
	pinned := req.Current[0].Address
	req.Pins = map[netip.Addr]cluster.Member{pinned: member(3)}
	steps := []struct {
		name   string
		change func()
		want   cluster.Member
		reason string
	}{
		{"obeyed at once", func() {}, member(3), "pinned to 3:ext-1"},
		{"pin down", func() { setFit(&req, 3, false, "carrier lost") }, cluster.Member{},
			"pinned to 3:ext-1, which is not fit (carrier lost): the address returns when it is"},
		{"pin in hold-down", func() {
			setFit(&req, 3, true, "flapping")
			req.Candidates[2].HoldDown = true
		}, cluster.Member{}, "pinned to 3:ext-1, which is in hold-down (flapping)"},
		{"pin back", func() { req.Candidates[2].HoldDown = false }, member(3), "pinned to 3:ext-1"},
		{"a rebalance leaves it", func() { req.Rebalance = true }, member(3), "pinned to 3:ext-1"},
	}
	for _, step := range steps {
		step.change()
		result := Allocate(req)
		got := result.Statements[0].Owner
		if step.want.IsZero() && (got == member(3) || got.IsZero()) || !step.want.IsZero() && got != step.want {
			t.Errorf("%s: with %v, want %v", step.name, got, step.want)
		}
		d, _ := Explain(req, pinned)
		if !strings.Contains(d.Reason, step.reason) {
			t.Errorf("%s: reason %q, want it to say %q", step.name, d.Reason, step.reason)
		}
		req.Current = result.Statements
	}
}

// A node with two member interfaces can lose one; while another node lives, next is there.
func TestInterfaceLoss(t *testing.T) {
	req := evenPool(2, 0)
	second := cluster.Member{LNN: 1, Interface: "ext-2"}
	req.Candidates = append(req.Candidates, Candidate{Member: second, Node: "n1", Weight: 1, Fit: true})
	req.Addresses = addresses(6)
	req.Current = Allocate(req).Statements
	for _, s := range req.Current {
		if s.Next.LNN == s.Owner.LNN {
			t.Errorf("%v: owner %v and next %v are one node", s.Address, s.Owner, s.Next)
		}
	}
	req.Candidates[2].Fit = false
	after := Allocate(req)
	if len(after.Moves) != 2 {
		t.Errorf("moves %+v, want the two addresses of 1:ext-2", after.Moves)
	}
	// With the other node gone too, the two interfaces are all there is.
	req.Candidates[2].Fit = true
	setFit(&req, 2, false, "down")
	for _, s := range Allocate(req).Statements {
		if s.Owner.LNN != 1 || s.Next.LNN != 1 || s.Next == s.Owner {
			t.Errorf("%+v, want n1's interfaces to be each other's next", s)
		}
	}
}

// While nobody is fit the record stays: whoever comes back finds what it held.
func TestNobodyFit(t *testing.T) {
	req := evenPool(3, 6)
	result := PlanDown(req, 1, 2, 3)
	if diff := cmp.Diff(show(req.Current), show(result.Statements)); diff != "" || len(result.Moves) > 0 {
		t.Errorf("the record changed: %s", diff)
	}
	if d, _ := Explain(Request{Addresses: addresses(1)}, addressAt(0)); d.Chosen != "" || d.Reason != "no member is fit to hold it; nobody can be next" {
		t.Errorf("a pool without members: %+v", d)
	}
}

func TestAddressThatLeftThePoolIsLetGo(t *testing.T) {
	req := evenPool(2, 2)
	owner := req.Current[1].Owner
	req.Addresses = req.Addresses[:1]
	want := []Move{{Address: addressAt(1), From: owner, Reason: "the address is no longer in the pool"}}
	if diff := cmp.Diff(want, Allocate(req).Moves, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

// loadedPool is three survivors with these numbers of connections beside n4, which holds two addresses without a fit
// next and is about to die.
func loadedPool(connections ...int) Request {
	req := Request{Addresses: addresses(2), FailoverPolicy: cluster.ConnCount}
	for i, count := range connections {
		req.Candidates = append(req.Candidates, Candidate{
			Member: member(i + 1), Weight: 1, Fit: true, Load: Load{Known: true, Connections: count, Age: time.Second},
		})
	}
	return req
}

func TestOrphansGoToTheLeastLoaded(t *testing.T) {
	req := loadedPool(90, 10, 50, 40)
	req.Current = []Statement{{Address: addressAt(0), Owner: member(4)}, {Address: addressAt(1), Owner: member(4)}}
	result := PlanDown(req, 4)
	for _, s := range result.Statements {
		if s.Owner != member(2) && s.Owner != member(3) {
			t.Errorf("%+v, want the orphans with n2 and n3, which have the least connections", s)
		}
	}
	if !strings.Contains(result.Moves[0].Reason, "has the least load") {
		t.Errorf("reason: %q", result.Moves[0].Reason)
	}
	if result.Decisions[0].DataAge != time.Second {
		t.Errorf("data age %v, want the age of the samples", result.Decisions[0].DataAge)
	}
}

// An address brings its load along: a dead node's addresses do not herd on the least loaded survivor.
func TestOrphansDoNotHerdOnTheLeastLoaded(t *testing.T) {
	req := loadedPool(100, 101, 102, 100)
	req.Addresses = addresses(6)
	for i := range req.Addresses {
		req.Current = append(req.Current, Statement{Address: addressAt(i), Owner: member(4)})
	}
	req.Current = Allocate(req).Statements // only chooses nexts
	after := req
	setFit(&after, 4, false, "down")
	if got := heldBy(after, PlanDown(req, 4).Statements); !slices.Equal(got, []int{2, 2, 2}) {
		t.Errorf("survivors hold %v, want 2 each", got)
	}
}

// The same where there was no next on record to go to.
func TestOrphansWithoutNextDoNotHerd(t *testing.T) {
	req := loadedPool(100, 101, 102, 60)
	req.Addresses = addresses(6)
	for i := range req.Addresses {
		req.Current = append(req.Current, Statement{Address: addressAt(i), Owner: member(4)})
	}
	after := req
	setFit(&after, 4, false, "down")
	if got := heldBy(after, PlanDown(req, 4).Statements); !slices.Equal(got, []int{2, 2, 2}) {
		t.Errorf("survivors hold %v, want 2 each", got)
	}
}

// Where any of a node's addresses may leave, the last ones do, and a member listed twice is as fit as its worst.
func TestWhichAddressesLeave(t *testing.T) {
	req := evenPool(1, 4)
	req.Candidates = append(req.Candidates, Candidate{Member: member(2), Weight: 1, Fit: true}, Candidate{Member: member(3), Weight: 1, Fit: true},
		Candidate{Member: member(3), Weight: 1})
	req.Rebalance = true
	var moved []netip.Addr
	for _, m := range Allocate(req).Moves {
		moved = append(moved, m.Address)
		if m.To != member(2) {
			t.Errorf("%+v, want it to go to n2", m)
		}
	}
	if want := []netip.Addr{addressAt(2), addressAt(3)}; !slices.Equal(moved, want) {
		t.Errorf("%v move, want %v", moved, want)
	}
}

// Under a measured policy the plan on record changes only for a gain over 10%.
func TestMeasuredNextStaysUnlessTheGainIsOverTenPercent(t *testing.T) {
	for _, example := range []struct {
		recorded int // connections of n2, the next on record; n3 has 100
		want     cluster.Member
	}{{100, member(2)}, {109, member(2)}, {111, member(2)}, {112, member(3)}, {300, member(3)}} {
		// The owner has 10 connections on its one address, so that n3 would have 110 after its death.
		req := loadedPool(10, example.recorded, 100)
		req.Addresses = addresses(1)
		req.Current = []Statement{{Address: addressAt(0), Owner: member(1), Next: member(2)}}
		if got := Allocate(req).Statements[0].Next; got != example.want {
			t.Errorf("n2 with %d connections against 100: next is %v, want %v", example.recorded, got, example.want)
		}
	}
}

// A load that is stale or unknown counts as the mean of the others, and the Decision says so.
func TestStaleLoadCountsAsTheMean(t *testing.T) {
	req := loadedPool(10, 80, 20, 0)
	req.Addresses = addresses(1)
	req.Current = []Statement{{Address: addressAt(0), Owner: member(1)}}
	req.Candidates[3].Load.Stale = true // would be the least loaded if it were believed
	result := Allocate(req)
	if got := result.Statements[0].Next; got != member(3) {
		t.Errorf("next is %v, want n3", got)
	}
	note := result.Decisions[0].Among[3]
	if !strings.Contains(note.Note, "stale") || note.Score != (10.0+80+20)/3 {
		t.Errorf("considered %+v, want it at the mean and called stale", note)
	}
}

// Without a single load that counts a measured policy spreads by number.
func TestMeasuredPolicyWithoutLoads(t *testing.T) {
	req := evenPool(4, 12)
	req.FailoverPolicy = cluster.CPUUsage
	if got := Allocate(req); len(got.Moves)+len(got.Decisions) > 0 {
		t.Errorf("the plan changed: %+v", got.Decisions)
	}
}
