package steering

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

func expect(t *testing.T, what string, got, want map[int]int) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// The sizing examples (the lab scenario sizing; docs/failover.md, "Who takes over"), as the whole cluster plays them.
func TestDeathOfAnyNodeKeepsTheSpread(t *testing.T) {
	for dead := 1; dead <= 4; dead++ {
		m := newModel(t, 4, 12, "")
		m.settle()
		expect(t, "before", m.spread(), map[int]int{1: 3, 2: 3, 3: 3, 4: 3})
		expect(t, "service addresses", m.serviceSpread(), spreadOf(m.serviceSpread(), 1, 1, 1))
		m.kill(dead)
		m.settle()
		want := map[int]int{1: 4, 2: 4, 3: 4, 4: 4}
		delete(want, dead)
		expect(t, "after", m.spread(), want)
		m.start(dead)
		m.settle()
		expect(t, "after its return", m.spread(), map[int]int{1: 3, 2: 3, 3: 3, 4: 3})
	}
}

func TestFourAddressesOnFourNodesSplitTwoOneOne(t *testing.T) {
	m := newModel(t, 4, 4, "")
	m.settle()
	m.kill(2)
	m.settle()
	counts := slices.Sorted(maps.Values(m.spread()))
	if !slices.Equal(counts, []int{1, 1, 2}) {
		t.Errorf("got %v, want a split of 2, 1, 1", m.spread())
	}
}

// spreadOf checks that the values are these in any order, and returns what was given if so.
func spreadOf(got map[int]int, want ...int) map[int]int {
	values := slices.Sorted(maps.Values(got))
	slices.Sort(want)
	if slices.Equal(values, want) {
		return got
	}
	return map[int]int{-1: len(want)}
}

func TestADeathMovesNothingElse(t *testing.T) {
	m := newModel(t, 4, 12, "")
	m.settle()
	m.moves = nil
	m.kill(3)
	m.settle()
	pool := 0
	for _, move := range m.moves {
		if move[:8] == "10.0.0.1" {
			pool++
		}
	}
	if pool != 3 {
		t.Errorf("%d pool addresses changed hands after the death of a node that had 3:\n%v", pool, m.moves)
	}
}

func TestManualPoolsAreNotRebalancedUntilAsked(t *testing.T) {
	m := newModel(t, 3, 6, ", rebalance-policy: manual")
	m.settle()
	m.kill(1)
	m.settle()
	m.start(1)
	m.settle()
	expect(t, "after the return", m.spread(), map[int]int{1: 0, 2: 3, 3: 3})
	p, _, ok := ProposePool(m.world(2), poolID, true, m.now)
	if !ok || len(p.Moves) != 2 {
		t.Fatalf("asked for, a rebalance moves %d addresses; want 2", len(p.Moves))
	}
	m.write(poolID, p.Record)
	m.settle()
	expect(t, "after it was asked for", m.spread(), map[int]int{1: 2, 2: 2, 3: 2})
}

func TestHoldDownDelaysTheReturnAndSaysWhenToLookAgain(t *testing.T) {
	m := newModel(t, 3, 6, "")
	m.settle()
	m.kill(1)
	m.settle()
	m.start(1)
	m.nodes[1].HoldDown = 4 * time.Second
	m.settle()
	expect(t, "during the hold-down", m.spread(), map[int]int{1: 0, 2: 3, 3: 3})
	if _, wait, _ := ProposePool(m.world(2), poolID, false, m.now.Add(time.Second)); wait != 3*time.Second {
		t.Errorf("the next look is in %s, want 3s", wait)
	}
	if p, _, ok := ProposePool(m.world(2), poolID, true, m.now); !ok || len(p.Moves) != 2 {
		t.Errorf("an operator's request overrules the hold-down; it would move %v", p.Moves)
	}
	m.now = m.now.Add(4 * time.Second)
	m.settle()
	expect(t, "after it", m.spread(), map[int]int{1: 2, 2: 2, 3: 2})
}

func TestANodeThatDrainsGivesEverythingAwayAndDiesWithNothing(t *testing.T) {
	m := newModel(t, 4, 12, "")
	m.settle()
	m.nodes[2].Draining = true
	m.settle()
	expect(t, "drained", m.spread(), map[int]int{1: 4, 2: 0, 3: 4, 4: 4})
	if m.serviceSpread()[2] != 0 {
		t.Errorf("the drained node hosts %d service addresses", m.serviceSpread()[2])
	}
	m.moves = nil
	m.kill(2)
	m.settle()
	if len(m.moves) != 0 {
		t.Errorf("its death moved %v", m.moves)
	}
}

// A holder that came back before anyone took over gets its addresses under the new incarnation, or its successor does; in
// no case do they stay with nobody (nothing stays orphaned because its holder came back too soon).
func TestNothingStaysOrphanedWhenAHolderComesBackTooSoon(t *testing.T) {
	m := newModel(t, 3, 6, "")
	m.settle()
	m.lapse(2)
	m.settle()
	total := 0
	for _, n := range m.spread() {
		total += n
	}
	if total != 6 {
		t.Errorf("%d of 6 addresses are held: %v", total, m.spread())
	}
}

func TestASilentNodeKeepsWhatItHas(t *testing.T) {
	m := newModel(t, 3, 6, "")
	m.settle()
	n := m.nodes[2]
	n.Present = false // its report is gone, and nobody has found it down: its observers still acknowledge it
	m.moves = nil
	for _, lnn := range []int{1, 3} {
		for m.turn(lnn) {
		}
	}
	for _, st := range m.pools[poolID] {
		if st.Owner.LNN == 2 && st.Owner.Incarnation != n.Incarnation {
			t.Error("it lost an address")
		}
	}
	if len(m.moves) != 0 {
		t.Errorf("moved: %v", m.moves)
	}
}

func TestServiceAddressesStayThroughConfigurationAndMembershipChanges(t *testing.T) {
	m := newModel(t, 3, 4, "")
	m.kill(3)
	m.settle()
	before := maps.Clone(m.services)
	m.config = newModel(t, 3, 8, "").config
	m.start(3)
	m.settle()
	for key, st := range before {
		if m.services[key].Owner != st.Owner {
			t.Errorf("%s went from %s to %s", key.Address, st.Owner, m.services[key].Owner)
		}
	}
}

func TestSpreadGovernsWhoTakesNeverWhoKeeps(t *testing.T) {
	m := newModel(t, 3, 3, "")
	m.settle()
	expect(t, "one each", m.serviceSpread(), map[int]int{1: 1, 2: 1, 3: 1})
	m.kill(3)
	m.settle()
	expect(t, "two on one", m.serviceSpread(), spreadOf(m.serviceSpread(), 2, 1))
	m.start(3)
	m.settle()
	expect(t, "and so it stays after the return", m.serviceSpread(), spreadOf(m.serviceSpread(), 2, 1))
	subnet := poolID.SubnetID()
	p, ok := SpreadService(m.world(1), subnet, m.now)
	if !ok || p.Statement.To.LNN != 3 {
		t.Fatalf("an operator's evening out moves one to node 3; got %+v", p)
	}
	m.services[p.Key] = p.Statement
	m.settle()
	expect(t, "evened out", m.serviceSpread(), map[int]int{1: 1, 2: 1, 3: 1})
	if _, more := SpreadService(m.world(1), subnet, m.now); more {
		t.Error("there is more to even out")
	}
}

func TestAnAddressThatIsNoLongerConfiguredIsLetGoAndForgotten(t *testing.T) {
	m := newModel(t, 3, 6, "")
	m.settle()
	m.config = newModel(t, 3, 4, "").config
	m.settle()
	if len(m.pools[poolID]) != 4 {
		t.Errorf("%d addresses are on record, want 4", len(m.pools[poolID]))
	}
	m.kill(1)
	smaller, err := cluster.DeletePool(m.config, poolID)
	if err != nil {
		t.Fatal(err)
	}
	m.config = smaller
	for range 10 {
		for _, lnn := range []int{2, 3} { // each lets go, and acknowledges what the other let go of
			for _, letting := range LetGo(m.world(lnn), m.nodes[lnn].Incarnation, OnInterfaces{}, m.now) {
				m.pools[letting.Pool] = letting.Record
			}
			if p, _, ok := ProposePool(m.world(lnn), poolID, false, m.now); ok {
				m.pools[poolID] = p.Record
			}
		}
	}
	if left := m.pools[poolID]; len(left) != 0 {
		t.Errorf("the pool is gone and its record still has %v", left)
	}
}

// Whatever happens, in any order of turns: no address on two nodes, no owner robbed, and after the faults every address held.
func TestRandomHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(3, 5).Draw(t, "nodes")
		m := newModel(t, nodes, rapid.IntRange(1, 9).Draw(t, "addresses"), "")
		lnn := rapid.IntRange(1, nodes)
		for range rapid.IntRange(5, 80).Draw(t, "steps") {
			who := lnn.Draw(t, "who")
			n := m.nodes[who]
			switch rapid.IntRange(0, 11).Draw(t, "what") {
			case 0:
				if n.running {
					m.kill(who)
				}
			case 1:
				if !n.running {
					m.start(who)
				}
			case 2:
				n.Draining = !n.Draining
			case 3:
				if n.running {
					m.lapse(who)
				}
			case 4:
				n.Faults = map[string]string{"eth0": "no carrier"}
			case 5:
				n.Faults = nil
			default:
				slow := rapid.Bool().Draw(t, "slow")
				m.slow = func() bool { return slow }
				m.turn(who)
			}
			m.now = m.now.Add(time.Duration(rapid.IntRange(0, 500).Draw(t, "ms")) * time.Millisecond)
		}
		m.slow = nil
		for who, n := range m.nodes {
			n.Draining, n.Faults = false, nil
			if !n.running {
				m.start(who)
			}
		}
		m.settle()
		for addr, st := range m.pools[poolID] {
			if st.State() != tenure.Held || !m.nodes[st.Owner.LNN].held[addr] || st.Next.IsZero() || st.Next.LNN == st.Owner.LNN {
				t.Fatalf("after the faults %s is %s by %s, next %s", addr, st.State(), st.Owner, st.Next)
			}
		}
		least, most := 100, 0
		for _, n := range m.spread() {
			least, most = min(least, n), max(most, n)
		}
		if most-least > 1 {
			t.Fatalf("after the faults the spread is %v", m.spread())
		}
		if held := len(m.services); held != 3 {
			t.Fatalf("%d of 3 service addresses are on record", held)
		}
	})
}

// A node that an operator takes out of the configuration while its agent runs gives away what it has, service addresses too.
func TestANodeThatIsTakenOutGivesItsServiceAddressAway(t *testing.T) {
	m := newModel(t, 4, 4, "")
	m.settle()
	var victim int
	for lnn, n := range m.serviceSpread() {
		if n > 0 {
			victim = max(victim, lnn)
		}
	}
	config := m.config.Clone()
	config.Nodes = slices.DeleteFunc(config.Nodes, func(n cluster.Node) bool { return n.LNN == victim })
	pool, _, _, _ := config.Pool(poolID)
	pool.Interfaces = slices.DeleteFunc(pool.Interfaces, func(member cluster.Member) bool { return member.LNN == victim })
	m.config = config
	m.settle()
	if held := m.nodes[victim].held; len(held) != 0 {
		t.Errorf("node %d was taken out and holds %v", victim, held)
	}
	for key, st := range m.services {
		if st.Owner.LNN == victim || st.Next.LNN == victim {
			t.Errorf("%s: owner %s, next %s", key.Address, st.Owner, st.Next)
		}
	}
}

// The successor on record of a service address is a node that may take it: one whose interface leaves the pool is replaced.
func TestTheSuccessorOfAServiceAddressMayTakeIt(t *testing.T) {
	m := newModel(t, 4, 4, "")
	m.settle()
	key := ServiceKey{poolID.SubnetID(), m.config.ServiceAddresses(poolID.SubnetID())[0]}
	next := m.services[key].Next
	config := m.config.Clone()
	pool, _, _, _ := config.Pool(poolID)
	pool.Interfaces = slices.DeleteFunc(pool.Interfaces, func(member cluster.Member) bool { return member == next.Member() })
	m.config = config
	m.settle()
	if now := m.services[key]; now.Next == next || now.Next.IsZero() {
		t.Errorf("%s is next of %s although its interface is not in the pool any more", now.Next, key.Address)
	}
}
