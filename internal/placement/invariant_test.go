package placement

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/holdfast/holdfast/internal/cluster"
	"pgregory.net/rapid"
)

// world is what the invariants need to know of a request, found in the plainest way.
type world struct {
	req       Request
	candidate map[cluster.Member]Candidate
	recorded  map[netip.Addr]Statement
	open      map[cluster.Member]bool // may be given something
}

func worldOf(req Request) world {
	w := world{req, map[cluster.Member]Candidate{}, map[netip.Addr]Statement{}, map[cluster.Member]bool{}}
	for _, c := range req.Candidates {
		w.candidate[c.Member] = c
	}
	for _, s := range req.Current {
		w.recorded[s.Address] = s
	}
	for m, c := range w.candidate {
		if c.Fit && !c.HoldDown {
			w.open[m] = true
		}
	}
	if len(w.open) == 0 {
		for m, c := range w.candidate {
			if c.Fit {
				w.open[m] = true
			}
		}
	}
	return w
}

func (w world) fit(m cluster.Member) bool { return w.candidate[m].Fit }

func (w world) anyFit() bool { return len(w.open) > 0 }

// home is where an address belongs without a choice, or nobody: its pin, its fit owner, its fit next.
func (w world) home(address netip.Addr) (owner cluster.Member, pinned bool) {
	s := w.recorded[address]
	pin := w.req.Pins[address]
	if w.fit(pin) && (w.open[pin] || pin == s.Owner) {
		return pin, true
	}
	for _, m := range []cluster.Member{s.Owner, s.Next} {
		if w.fit(m) {
			return m, false
		}
	}
	return cluster.Member{}, false
}

// movable reports whether the address may go anywhere, and how it does when it is homeless.
func (w world) movable(address netip.Addr) bool {
	home, pinned := w.home(address)
	if home.IsZero() {
		return true
	}
	return w.req.Rebalance && !pinned && (w.req.Movable == nil || w.req.Movable[address])
}

// breaches lists what is wrong with a result. It is the package comment in code.
func breaches(req Request, result Result) []string {
	var found []string
	breach := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	w := worldOf(req)

	want := slices.Clone(req.Addresses)
	slices.SortFunc(want, netip.Addr.Compare)
	want = slices.Compact(want)
	got := make([]netip.Addr, 0, len(want))
	for _, s := range result.Statements {
		got = append(got, s.Address)
	}
	if !slices.Equal(want, got) {
		breach("statements are on %v, want %v", got, want)
		return found
	}
	for _, s := range result.Statements {
		if !w.anyFit() {
			if _, candidate := w.candidate[s.Owner]; !s.Owner.IsZero() && !candidate {
				breach("%v: owner %v is no candidate", s.Address, s.Owner)
			}
			continue
		}
		if !w.fit(s.Owner) {
			breach("%v: owner %v is not fit", s.Address, s.Owner)
		}
		if home, _ := w.home(s.Address); !w.movable(s.Address) && s.Owner != home {
			breach("%v: left %v for %v", s.Address, home, s.Owner)
		}
		for _, problem := range w.nextBreaches(s) {
			breach("%v: %s", s.Address, problem)
		}
	}
	found = append(found, reportBreaches(req, w, result)...)
	return found
}

func (w world) nextBreaches(s Statement) (found []string) {
	var others, offNode, openOffNode int
	for m, c := range w.candidate {
		if !c.Fit || m == s.Owner {
			continue
		}
		others++
		if m.LNN != s.Owner.LNN {
			offNode++
			if w.open[m] {
				openOffNode++
			}
		}
	}
	switch {
	case s.Next.IsZero() && others > 0:
		found = append(found, "has no next")
	case s.Next.IsZero():
	case !w.fit(s.Next):
		found = append(found, "its next is not fit")
	case s.Next == s.Owner:
		found = append(found, "is its owner's own next")
	case s.Next.LNN == s.Owner.LNN && offNode > 0:
		found = append(found, "its next is on the owner's node")
	case openOffNode > 0 && !w.open[s.Next]:
		found = append(found, "its next is in hold-down")
	}
	return found
}

// reportBreaches compares moves and decisions with what changed.
func reportBreaches(req Request, w world, result Result) (found []string) {
	moves := map[netip.Addr]Move{}
	for _, m := range result.Moves {
		moves[m.Address] = m
		if m.Reason == "" {
			found = append(found, fmt.Sprintf("%v: a move without a reason", m.Address))
		}
	}
	decisions := map[string]Decision{}
	for _, d := range result.Decisions {
		decisions[d.Subject] = d
	}
	for _, s := range result.Statements {
		was := w.recorded[s.Address]
		if m, moved := moves[s.Address]; moved != (was.Owner != s.Owner) || moved && (m.From != was.Owner || m.To != s.Owner) {
			found = append(found, fmt.Sprintf("%v: %v -> %v is reported as %+v", s.Address, was.Owner, s.Owner, m))
		}
		delete(moves, s.Address)
		d, decided := decisions[s.Address.String()]
		if decided != (was.Owner != s.Owner || was.Next != s.Next) {
			found = append(found, fmt.Sprintf("%v: changed and decided differ", s.Address))
		}
		if decided && (d.Reason == "" || !s.Owner.IsZero() && d.Chosen != s.Owner.String()) {
			found = append(found, fmt.Sprintf("%v: decision %+v", s.Address, d))
		}
	}
	for address, m := range moves {
		if was := w.recorded[address]; slices.Contains(req.Addresses, address) || m.From != was.Owner || !m.To.IsZero() {
			found = append(found, fmt.Sprintf("%v: stray move %+v", address, m))
		}
	}
	return found
}

func TestAllocateKeepsItsInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := drawRequest(t)
		result := Allocate(req)
		for _, b := range breaches(req, result) {
			t.Error(b)
		}
		if t.Failed() {
			t.Logf("result:\n%s", show(result.Statements))
		}
	})
}

// A second proposal on top of the first changes nothing: nodes that propose one after the other do not play ping-pong.
func TestAllocateIsAFixpoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := drawRequest(t)
		first := Allocate(req)
		req.Current = first.Statements
		second := Allocate(req)
		if diff := cmp.Diff(show(first.Statements), show(second.Statements)); diff != "" {
			t.Fatalf("the second proposal differs (-first +second):\n%s", diff)
		}
		if len(second.Moves) > 0 || len(second.Decisions) > 0 {
			t.Fatalf("nothing changed, but: %+v", second)
		}
	})
}

// All nodes must propose the same, whatever order their maps and lists happen to have; and the request is not touched.
func TestAllocateIgnoresOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := drawRequest(t)
		shuffled := req
		shuffled.Addresses = rapid.Permutation(slices.Concat(req.Addresses, req.Addresses)).Draw(t, "addresses shuffled")
		shuffled.Candidates = rapid.Permutation(slices.Concat(req.Candidates, req.Candidates)).Draw(t, "candidates shuffled")
		shuffled.Current = rapid.Permutation(slices.Concat(req.Current, req.Current)).Draw(t, "current shuffled")
		before := slices.Clone(shuffled.Candidates)
		addressesBefore, currentBefore := slices.Clone(shuffled.Addresses), slices.Clone(shuffled.Current)
		want, got := Allocate(req), Allocate(shuffled)
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("another order, another result:\n%s", diff)
		}
		if !slices.Equal(before, shuffled.Candidates) || !slices.Equal(addressesBefore, shuffled.Addresses) ||
			!slices.Equal(currentBefore, shuffled.Current) {
			t.Fatal("the request was changed")
		}
	})
}

// Explain tells of every address what Allocate would do with it.
func TestExplainAgreesWithAllocate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := drawRequest(t)
		result := Allocate(req)
		for _, s := range result.Statements {
			d, known := Explain(req, s.Address)
			if !known || d.Reason == "" || !s.Owner.IsZero() && d.Chosen != s.Owner.String() {
				t.Fatalf("%v is with %v, but: %+v", s.Address, s.Owner, d)
			}
		}
		if _, known := Explain(req, addressAt(500)); known {
			t.Fatal("explained an address that is not in the pool")
		}
	})
}
