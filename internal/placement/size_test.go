package placement

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The sizing examples of spec/steering.md section 4, which come from the original's white paper.
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
	want := []Group{{Nodes: 3, Addresses: 4, Clients: 200}}
	if diff := cmp.Diff(want, got.Losses[1].Groups); diff != "" {
		t.Errorf("after one loss (-want +got):\n%s", diff)
	}
	if got.Recommended != 12 || got.Losses[1].WorstOverPercent != 0 || got.Needed != 12 {
		t.Errorf("got %+v", got)
	}
}
