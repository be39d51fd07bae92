package placement

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/holdfast/holdfast/internal/cluster"
	"pgregory.net/rapid"
)

func TestStaticPool(t *testing.T) {
	a, b, c := addressAt(0), addressAt(1), addressAt(2)
	pin := map[netip.Addr]cluster.Member{a: member(2)}
	for _, example := range []struct {
		name    string
		members int
		pins    map[netip.Addr]cluster.Member
		current []Statement
		want    []cluster.Member
	}{
		{"lowest to lowest, the surplus to nobody", 2, nil, nil, []cluster.Member{member(1), member(2), {}}},
		{"more members than addresses", 5, nil, nil, []cluster.Member{member(1), member(2), member(3)}},
		{"holders stay, gaps are filled", 3, nil, []Statement{{Address: a, Owner: member(3)}}, []cluster.Member{member(3), member(1), member(2)}},
		{"an address whose member left is free", 2, nil, []Statement{{Address: a, Owner: member(9)}, {Address: b, Owner: member(1)}}, []cluster.Member{member(2), member(1), {}}},
		{"from dynamic: each keeps its lowest", 2, nil, []Statement{{Address: a, Owner: member(2), Next: member(1)}, {Address: c, Owner: member(2)}}, []cluster.Member{member(2), member(1), {}}},
		{"a pin", 2, pin, nil, []cluster.Member{member(2), member(1), {}}},
		{"a pin never moves what is held", 2, pin, []Statement{{Address: a, Owner: member(1)}}, []cluster.Member{member(1), member(2), {}}},
		{"a pin to a member that has another", 2, pin, []Statement{{Address: b, Owner: member(2)}}, []cluster.Member{{}, member(2), member(1)}},
		{"no members", 0, nil, nil, []cluster.Member{{}, {}, {}}},
	} {
		t.Run(example.name, func(t *testing.T) {
			req := evenPool(example.members, 3)
			for i := range req.Candidates {
				req.Candidates[i].Fit = false // being fit has no say: the address waits for its node
			}
			req.Current, req.Pins = example.current, example.pins
			result := AllocateStatic(req)
			var got []cluster.Member
			for _, s := range result.Statements {
				got = append(got, s.Owner)
				if !s.Next.IsZero() {
					t.Errorf("%v has a next: %v", s.Address, s.Next)
				}
			}
			if diff := cmp.Diff(example.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestStaticNeverMovesAndSaysWhatItCannotServe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := drawRequest(t)
		first := AllocateStatic(req)
		held := map[cluster.Member]netip.Addr{}
		for _, s := range first.Statements {
			if other, has := held[s.Owner]; has && !s.Owner.IsZero() {
				t.Fatalf("%v holds %v and %v", s.Owner, other, s.Address)
			}
			held[s.Owner] = s.Address
		}
		for i := range req.Candidates {
			req.Candidates[i].Fit = !req.Candidates[i].Fit
		}
		req.Current = first.Statements
		if again := AllocateStatic(req); len(again.Moves)+len(again.Decisions) > 0 {
			t.Fatalf("fitness moved static addresses: %+v", again.Moves)
		}
	})
	req := evenPool(3, 2)
	req.Current = nil
	leftOut := AllocateStatic(req).Decisions[0].LeftOut
	if want := []Excluded{{"3:ext-1", "the pool has no address left for it: 2 for 3 members"}}; !cmp.Equal(leftOut, want) {
		t.Errorf("left out: %+v", leftOut)
	}
}
