package placement

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/holdfast/holdfast/internal/cluster"
	"pgregory.net/rapid"
)

// cost is what a spread costs, the most important part first; exact, as 60 is a multiple of all weights in the tests.
type cost struct{ seats, nodes, repeats, moves int }

func (c cost) compare(d cost) int {
	return slices.Compare([]int{c.seats, c.nodes, c.repeats, c.moves}, []int{d.seats, d.nodes, d.repeats, d.moves})
}

// spreadCost is the sum of n*n/weight over members and over nodes.
func (w world) spreadCost(held map[cluster.Member]int) cost {
	var c cost
	nodeHeld, nodeWeight := map[int]int{}, map[int]int{}
	for m, candidate := range w.candidate {
		if candidate.Fit {
			c.seats += held[m] * held[m] * 60 / candidate.Weight
			nodeHeld[m.LNN] += held[m]
			nodeWeight[m.LNN] += candidate.Weight
		}
	}
	for lnn, n := range nodeHeld {
		c.nodes += n * n * 60 / nodeWeight[lnn]
	}
	return c
}

// everyChoice calls visit with every way to give each of count things one of the choices.
func everyChoice(count int, choices []cluster.Member, visit func([]cluster.Member)) {
	chosen := make([]cluster.Member, count)
	var choose func(int)
	choose = func(i int) {
		if i == count {
			visit(chosen)
			return
		}
		for _, c := range choices {
			chosen[i] = c
			choose(i + 1)
		}
	}
	choose(0)
}

// ownerCost is the cost of owners for all addresses; false if the owners break a rule.
func (w world) ownerCost(owners map[netip.Addr]cluster.Member) (cost, bool) {
	held, had := map[cluster.Member]int{}, map[cluster.Member]int{}
	moves := 0
	for address, owner := range owners {
		held[owner]++
		home, _ := w.home(address)
		had[home]++
		if owner != home {
			moves++
		}
	}
	for m, n := range held {
		if !w.open[m] && n > had[m] {
			return cost{}, false // in hold-down, and given more
		}
	}
	c := w.spreadCost(held)
	c.moves = moves
	return c, true
}

// bestOwners finds the least cost by trying everything.
func (w world) bestOwners() cost {
	owners := map[netip.Addr]cluster.Member{}
	var loose []netip.Addr
	for _, address := range w.req.Addresses {
		if w.movable(address) {
			loose = append(loose, address)
		} else {
			owners[address], _ = w.home(address)
		}
	}
	var fit []cluster.Member
	for m, c := range w.candidate {
		if c.Fit {
			fit = append(fit, m)
		}
	}
	best, found := cost{}, false
	everyChoice(len(loose), fit, func(chosen []cluster.Member) {
		for i, address := range loose {
			owners[address] = chosen[i]
		}
		if c, allowed := w.ownerCost(owners); allowed && (!found || c.compare(best) < 0) {
			best, found = c, true
		}
	})
	return best
}

// Against the slow and obvious way: no spread is more even over members, then over nodes, with fewer moves.
func TestOwnersAreAsEvenAsPossibleWithFewestMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := drawRequest(t)
		if measureOf(req.FailoverPolicy) != byNumber && !req.Rebalance {
			req.FailoverPolicy = cluster.RoundRobin // loads decide otherwise, see TestOrphansGoToTheLeastLoaded
		}
		if req.Rebalance {
			req.Movable = nil // with it, see TestMovableAddressesGoOnlyStepsOfTheWholeWay
		}
		w := worldOf(req)
		if !w.anyFit() {
			return
		}
		result := Allocate(req)
		owners := map[netip.Addr]cluster.Member{}
		for _, s := range result.Statements {
			owners[s.Address] = s.Owner
		}
		got, allowed := w.ownerCost(owners)
		if want := w.bestOwners(); !allowed || got.compare(want) != 0 {
			t.Fatalf("cost %+v (allowed: %v), the best is %+v:\n%s", got, allowed, want, show(result.Statements))
		}
	})
}

// nextCost is the cost of the nexts of one node's addresses: of the spread after its death, of several addresses of it on
// one survivor, and of changes.
func (w world) nextCost(statements []Statement, lnn int, allowed []cluster.Member, nexts []cluster.Member) cost {
	held, planned := map[cluster.Member]int{}, map[cluster.Member]int{}
	changes, at := 0, 0
	for _, s := range statements {
		if s.Owner.LNN != lnn {
			held[s.Owner]++
			continue
		}
		next := nexts[at]
		at++
		held[next]++
		planned[next]++
		if was := w.recorded[s.Address].Next; slices.Contains(allowed, was) && was != next {
			changes++
		}
	}
	c := w.spreadCost(held)
	for _, n := range planned {
		c.repeats += n * n
	}
	c.moves = changes
	return c
}

// Against the slow and obvious way: no plan for the death of a node leaves a more even spread, and among equal ones none
// scatters its addresses more, with fewer changes of the record.
func TestNextsLeaveTheMostEvenSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := drawRequest(t)
		req.FailoverPolicy = cluster.RoundRobin
		w := worldOf(req)
		result := Allocate(req)
		for lnn := 1; w.anyFit() && lnn <= 4; lnn++ {
			var nexts, open, fit []cluster.Member
			for _, s := range result.Statements {
				if s.Owner.LNN == lnn {
					nexts = append(nexts, s.Next)
				}
			}
			for m, c := range w.candidate {
				if c.Fit && m.LNN != lnn {
					fit = append(fit, m)
					if w.open[m] {
						open = append(open, m)
					}
				}
			}
			if len(open) == 0 {
				open = fit
			}
			if len(open) == 0 || len(nexts) == 0 {
				continue
			}
			got := w.nextCost(result.Statements, lnn, open, nexts)
			best := got
			everyChoice(len(nexts), open, func(chosen []cluster.Member) {
				if c := w.nextCost(result.Statements, lnn, open, chosen); c.compare(best) < 0 {
					best = c
				}
			})
			if got.compare(best) != 0 {
				t.Fatalf("death of node %d costs %+v, the best plan %+v:\n%s", lnn, got, best, show(result.Statements))
			}
		}
	})
}
