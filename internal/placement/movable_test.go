package placement

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/holdfast/holdfast/internal/cluster"
	"pgregory.net/rapid"
)

// heldAs is a pool of nodes that hold these numbers of addresses, the first node the first ones, and so on.
func heldAs(held ...int) Request {
	req := evenPool(len(held), 0)
	for i, count := range held {
		for range count {
			at := len(req.Addresses)
			req.Addresses = append(req.Addresses, addressAt(at))
			req.Current = append(req.Current, Statement{Address: addressAt(at), Owner: member(i + 1)})
		}
	}
	return req
}

// idle makes the addresses with these indices the ones without connections.
func idle(req Request, indices ...int) Request {
	req.Rebalance = true
	req.Movable = map[netip.Addr]bool{}
	for _, i := range indices {
		req.Movable[addressAt(i)] = true
	}
	return req
}

// Four nodes with 4, 4, 4 and 0 addresses need three moves. Whatever becomes idle first, and however much, no address moves
// that could have stayed: a node gives away what it has too much, and not more because others cannot give theirs yet.
func TestIdleAddressesMoveOnlyAsFarAsEvennessNeeds(t *testing.T) {
	for _, example := range []struct {
		name string
		idle []int // of the addresses 0-3 of n1, 4-7 of n2, 8-11 of n3
		want []int
		move int
	}{
		{"all of n1", []int{0, 1, 2, 3}, []int{3, 4, 4, 1}, 1},
		{"all of n1 and one of n3", []int{0, 1, 2, 3, 9}, []int{3, 4, 3, 2}, 2},
		{"one of each", []int{2, 5, 10}, []int{3, 3, 3, 3}, 3},
		{"none", nil, []int{4, 4, 4, 0}, 0},
	} {
		result := Allocate(idle(heldAs(4, 4, 4, 0), example.idle...))
		held := counts(result.Statements)
		if got := []int{held[1], held[2], held[3], held[4]}; !slices.Equal(got, example.want) || len(result.Moves) != example.move {
			t.Errorf("%s: nodes hold %v by %d moves, want %v by %d", example.name, got, len(result.Moves), example.want, example.move)
		}
	}
}

// Ten addresses as 5, 4 and 1 are even as 4, 3, 3 and as 3, 4, 3, both by two moves. The busy ones decide which.
func TestWhoIsBusyKeepsTheRemainder(t *testing.T) {
	result := Allocate(idle(heldAs(5, 4, 1), 0, 1))
	if held := counts(result.Statements); held[1] != 3 || held[2] != 4 || held[3] != 3 {
		t.Errorf("with two idle addresses on n1 the nodes hold %v, want 3, 4, 3", held)
	}
	result = Allocate(idle(heldAs(5, 4, 1), 0, 5))
	if held := counts(result.Statements); held[1] != 4 || held[2] != 3 || held[3] != 3 {
		t.Errorf("with one on n1 and one on n2 the nodes hold %v, want 4, 3, 3", held)
	}
}

// Wherever the idle ones are: what moves now and what a full rebalance would move then are together no more than a full
// rebalance would have moved at once. And nothing waits that could go: no other idle address would bring evenness nearer, at
// least among equal nodes (where weights or interfaces differ, several spreads may be the most even, and one is aimed at).
func TestMovableAddressesGoOnlyStepsOfTheWholeWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := drawRequest(t)
		req.FailoverPolicy, req.Rebalance = cluster.RoundRobin, false
		req.Current = Allocate(req).Statements // everything has an owner
		if !worldOf(req).anyFit() {
			return
		}
		full := req
		full.Rebalance, full.Movable = true, nil
		whole := len(Allocate(full).Moves)
		req.Rebalance = true
		if req.Movable == nil {
			req.Movable = map[netip.Addr]bool{}
			for _, address := range req.Addresses {
				req.Movable[address] = rapid.Bool().Draw(t, "idle")
			}
		}
		result := Allocate(req)
		for _, m := range result.Moves {
			if !req.Movable[m.Address] {
				t.Errorf("%v moved and has connections", m.Address)
			}
		}
		full.Current = result.Statements
		rest := len(Allocate(full).Moves)
		if len(result.Moves)+rest != whole {
			t.Errorf("%d idle addresses moved and %d would be left to move, of %d in all:\n%s", len(result.Moves), rest, whole, show(result.Statements))
		}
		if !equalNodes(req) {
			return
		}
		for _, step := range stepsOf(req, result.Statements) {
			full.Current = step
			if left := len(Allocate(full).Moves); left < rest {
				t.Errorf("%d moves would be left instead of %d with\n%s", left, rest, show(step))
			}
		}
	})
}

// equalNodes reports whether every node has one interface in the pool, and all weigh the same.
func equalNodes(req Request) bool {
	for i, c := range req.Candidates {
		if c.Weight != req.Candidates[0].Weight || i > 0 && c.Member.LNN == req.Candidates[i-1].Member.LNN {
			return false
		}
	}
	return true
}

// stepsOf lists the statements after each further move of one idle address to a member that may be given one.
func stepsOf(req Request, statements []Statement) (steps [][]Statement) {
	w := worldOf(req)
	for i, s := range statements {
		if !req.Movable[s.Address] || !w.movable(s.Address) {
			continue
		}
		for to := range w.open {
			if to != s.Owner {
				step := slices.Clone(statements)
				step[i].Owner = to
				steps = append(steps, step)
			}
		}
	}
	return steps
}

// Over time every address becomes idle once, in any order: the pool becomes even by as few moves as at once.
func TestIdleAddressesOneByOneNeedTheFewestMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		held := rapid.SliceOfN(rapid.IntRange(0, 7), 2, 6).Draw(t, "held")
		req := heldAs(held...)
		full := req
		full.Rebalance = true
		want := len(Allocate(full).Moves)
		order := rapid.Permutation(req.Addresses).Draw(t, "order")
		moved := 0
		for range 2 { // what could not help at its turn may at the second
			for _, address := range order {
				req.Rebalance, req.Movable = true, map[netip.Addr]bool{address: true}
				result := Allocate(req)
				moved += len(result.Moves)
				req.Current = result.Statements
			}
		}
		req.Movable = nil
		if moved != want || len(Allocate(req).Moves) != 0 {
			t.Fatalf("%v became %v by %d moves, at once %d suffice", held, fmt.Sprint(heldBy(req, req.Current)), moved, want)
		}
	})
}
