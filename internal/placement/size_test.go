package placement

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The sizing examples (the lab scenario sizing), which come from the original's white paper.
func TestSizeFourNodesFourAddresses600Clients(t *testing.T) {
	got := Size(SizeRequest{Nodes: 4, Addresses: 4, Clients: 600})
	want := []Group{{Nodes: 1, Addresses: 2, Clients: 300}, {Nodes: 2, Addresses: 1, Clients: 150}}
	if diff := cmp.Diff(want, got.Losses[1].Groups); diff != "" {
		t.Errorf("after one loss (-want +got):\n%s", diff)
	}
	if got.Losses[1].WorstOverPercent != 50 {
		t.Errorf("worst survivor %v%% over the even share, want 50%%", got.Losses[1].WorstOverPercent)
	}
}

func TestSizeFourNodesTwelveAddresses600Clients(t *testing.T) {
	got := Size(SizeRequest{Nodes: 4, Addresses: 12, Clients: 600})
	want := Sizing{
		Recommended: 12,
		Losses: [3]Loss{
			{Lost: 0, Groups: []Group{{Nodes: 4, Addresses: 3, Clients: 150}}},
			{Lost: 1, Groups: []Group{{Nodes: 3, Addresses: 4, Clients: 200}}},
			{Lost: 2, Groups: []Group{{Nodes: 2, Addresses: 6, Clients: 300}}},
		},
		Needed:       12,
		NeededForTwo: 12,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSizeNeeded(t *testing.T) {
	for _, example := range []struct {
		name        string
		req         SizeRequest
		needed, two int
	}{
		{"exactly even takes N*(N-1)", SizeRequest{Nodes: 5, Addresses: 5}, 20, 60},
		{"within 50 percent one each will do", SizeRequest{Nodes: 4, Addresses: 4, WithinPercent: 50}, 4, 4},
		{"within 34 percent", SizeRequest{Nodes: 4, Addresses: 4, WithinPercent: 34}, 6, 6},
		{"never fewer than there are", SizeRequest{Nodes: 4, Addresses: 13}, 24, 24},
		{"no number up to 4096 is exactly even", SizeRequest{Nodes: 256, Addresses: 256}, 0, 0},
		{"one node cannot lose any", SizeRequest{Nodes: 1, Addresses: 1}, 0, 0},
		{"two nodes cannot lose two", SizeRequest{Nodes: 2, Addresses: 1}, 2, 0},
		{"nothing at all", SizeRequest{}, 0, 0},
		{"nonsense", SizeRequest{Nodes: -1, Addresses: -1, Clients: -1, WithinPercent: -1}, 0, 0},
	} {
		got := Size(example.req)
		if got.Needed != example.needed || got.NeededForTwo != example.two {
			t.Errorf("%s: %d, for two %d; want %d and %d", example.name, got.Needed, got.NeededForTwo, example.needed, example.two)
		}
	}
}

// What Size says of losses is what Allocate and PlanDown do, one death after the other.
func TestSizeSaysWhatAllocateDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, count := rapid.IntRange(1, 8).Draw(t, "nodes"), rapid.IntRange(0, 40).Draw(t, "addresses")
		req := evenPool(nodes, count)
		sizing := Size(SizeRequest{Nodes: nodes, Addresses: count})
		for lost := range min(3, nodes) {
			var want []int
			for _, g := range sizing.Losses[lost].Groups {
				want = append(want, slices.Repeat([]int{g.Addresses}, g.Nodes)...)
			}
			if got := heldBy(req, req.Current); !slices.Equal(got, want) {
				t.Fatalf("after %d losses nodes hold %v, Size says %v", lost, got, want)
			}
			var alive []int
			for _, c := range req.Candidates {
				if c.Fit {
					alive = append(alive, c.Member.LNN)
				}
			}
			setFit(&req, rapid.SampledFrom(alive).Draw(t, "dies"), false, "down")
			req.Current = Allocate(req).Statements
		}
	})
}

func TestSizeNotes(t *testing.T) {
	got := Size(SizeRequest{Nodes: 12, Addresses: 8, Clients: 5}).Notes
	want := []string{
		"There are fewer addresses than nodes: some nodes hold none.",
		"There are more addresses than clients: those beyond serve nobody.",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
