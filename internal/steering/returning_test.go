package steering

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/cluster"
)

// failCheck lets the pool's checks fail on nodes, as their reports would say.
func (m *model) failCheck(lnns ...int) {
	for _, lnn := range lnns {
		m.nodes[lnn].PoolFaults = map[cluster.PoolID]string{poolID: "nfs: connection refused"}
		m.nodes[lnn].faultySince = m.now
	}
}

// mendCheck lets them pass again.
func (m *model) mendCheck(lnns ...int) {
	for _, lnn := range lnns {
		n := m.nodes[lnn]
		n.PoolFaults = nil
		n.MendedPools = map[cluster.PoolID]Mend{poolID: {At: m.now, Lasted: m.now.Sub(n.faultySince)}}
	}
}

// owned is how many addresses the records give to each node.
func (m *model) owned() map[int]int {
	counts := map[int]int{}
	for _, st := range m.pools[poolID] {
		counts[st.Owner.LNN]++
	}
	return counts
}

// poolMoves is how many pool addresses changed hands since the last call.
func (m *model) poolMoves() int {
	n := 0
	for _, move := range m.moves {
		if strings.HasPrefix(move, "10.0.0.1") {
			n++
		}
	}
	m.moves = nil
	return n
}

// A cause that all nodes share, such as a directory server, lets the check fail on one node after the other and pass again on one
// after the other. On the way down addresses go to whoever is fit, as ever. When nobody is, they stay. On the way up the first
// ones get their share and no more, so that each address goes home in one move.
func TestACommonCauseDoesNotPileUpOnTheFirstThatReturns(t *testing.T) {
	m := newModel(t, 4, 12, "")
	m.settle()
	m.poolMoves()
	for _, failing := range []int{1, 2, 3} {
		m.failCheck(failing)
		m.settle()
		m.now = m.now.Add(time.Second)
	}
	expect(t, "all on the last that is fit", m.owned(), map[int]int{4: 12})
	m.poolMoves()
	m.failCheck(4)
	m.settle()
	expect(t, "nobody is fit", m.owned(), map[int]int{4: 12})
	if n := m.poolMoves(); n != 0 {
		t.Errorf("%d addresses moved although nobody is fit", n)
	}
	for _, step := range []struct {
		back int
		want map[int]int
	}{
		{1, map[int]int{1: 3, 4: 9}},
		{2, map[int]int{1: 3, 2: 3, 4: 6}},
		{3, map[int]int{1: 3, 2: 3, 3: 3, 4: 3}},
		{4, map[int]int{1: 3, 2: 3, 3: 3, 4: 3}},
	} {
		m.now = m.now.Add(time.Second)
		m.mendCheck(step.back)
		m.settle()
		expect(t, fmt.Sprintf("node %d is back", step.back), m.owned(), step.want)
	}
	if n := m.poolMoves(); n != 9 {
		t.Errorf("%d moves brought 9 addresses home", n)
	}
	m.now = m.now.Add(time.Hour)
	m.settle()
	if n := m.poolMoves(); n != 0 {
		t.Errorf("and later %d more", n)
	}
}

// When all fail at once and return one by one, each finds its own, and nothing moves at all.
func TestWhoeverReturnsFindsItsOwn(t *testing.T) {
	m := newModel(t, 4, 12, "")
	m.settle()
	m.failCheck(1, 2, 3, 4)
	m.settle()
	m.poolMoves()
	for lnn := 1; lnn <= 4; lnn++ {
		m.now = m.now.Add(time.Second)
		m.mendCheck(lnn)
		m.settle()
	}
	if n := m.poolMoves(); n != 0 {
		t.Errorf("%d addresses moved", n)
	}
}

// Who does not follow in time loses what it has to those who did, and says meanwhile why not yet.
func TestTheReturnWindowEnds(t *testing.T) {
	m := newModel(t, 4, 12, "")
	m.settle()
	m.failCheck(1, 2, 3, 4)
	m.now = m.now.Add(time.Minute)
	m.mendCheck(2)
	m.settle()
	expect(t, "in the window", m.owned(), map[int]int{1: 3, 2: 3, 3: 3, 4: 3})
	kept, why := Kept(m.world(2), poolID, m.now)
	for address, st := range m.pools[poolID] {
		if kept[address] != (st.Owner.LNN != 2) || !strings.Contains(why, "for another 10s") {
			t.Errorf("%s with node %d is kept: %v, %q", address, st.Owner.LNN, kept[address], why)
		}
	}
	m.now = m.now.Add(time.Second)
	if _, wait, _ := ProposePool(m.world(2), poolID, false, m.now); wait != ReturnWindow-time.Second {
		t.Errorf("the next look is in %s, want %s", wait, ReturnWindow-time.Second)
	}
	m.now = m.now.Add(ReturnWindow)
	m.settle()
	expect(t, "after it", m.owned(), map[int]int{2: 12})
}

// An operator who asks does not wait, and a node that drains or dies meanwhile loses what it has at once.
func TestTheReturnWindowHoldsNobodyElseUp(t *testing.T) {
	returned := func(t *testing.T) *model {
		m := newModel(t, 4, 12, "")
		m.settle()
		m.failCheck(1, 2, 3, 4)
		m.now = m.now.Add(time.Minute)
		m.mendCheck(2)
		m.settle()
		return m
	}
	m := returned(t)
	m.ask()
	expect(t, "asked for", m.owned(), map[int]int{2: 12})
	m = returned(t)
	m.nodes[3].Draining = true
	m.settle()
	expect(t, "drained", m.owned(), map[int]int{1: 3, 2: 6, 4: 3})
	m = returned(t)
	m.kill(1)
	m.settle()
	expect(t, "died", m.owned(), map[int]int{2: 6, 3: 3, 4: 3})
}

// A check that fails on one node while others are fit is no common cause: its addresses leave at once, also when another node's
// check passed again only a moment ago. And when it passes, the window damps its return: a check that comes and goes moves little.
func TestOneFailingCheckIsNotDamped(t *testing.T) {
	m := newModel(t, 4, 12, "")
	m.settle()
	m.failCheck(1)
	m.settle()
	expect(t, "failed", m.owned(), map[int]int{2: 4, 3: 4, 4: 4})
	m.mendCheck(1)
	m.failCheck(2)
	m.settle()
	if m.owned()[2] != 0 {
		t.Errorf("node 2 still owns %v", m.owned())
	}
	m.mendCheck(2)
	before := m.owned()
	m.settle()
	expect(t, "in the window", m.owned(), before)
	if _, wait, _ := ProposePool(m.world(3), poolID, false, m.now); wait != ReturnWindow {
		t.Errorf("the next look is in %s, want %s", wait, ReturnWindow)
	}
	m.now = m.now.Add(ReturnWindow)
	m.settle()
	expect(t, "even again", m.owned(), map[int]int{1: 3, 2: 3, 3: 3, 4: 3})
}

// However checks come and go: nothing moves while nobody is fit, the first that return are never given more than their share while
// the window lasts, and long after all is well the pool is even.
func TestRandomChecks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(3, 5).Draw(t, "nodes")
		addresses := rapid.IntRange(1, 12).Draw(t, "addresses")
		m := newModel(t, nodes, addresses, "")
		m.settle()
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			who := rapid.IntRange(1, nodes).Draw(t, "who")
			if m.nodes[who].PoolFaults == nil {
				m.failCheck(who)
			} else {
				m.mendCheck(who)
			}
			m.now = m.now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond)
			fit := 0
			stable := false
			for _, n := range m.nodes {
				if n.PoolFaults == nil {
					fit++
					stable = stable || m.now.Sub(n.MendedPools[poolID].At) >= ReturnWindow
				}
			}
			before := m.owned()
			m.settle()
			share := (addresses + nodes - 1) / nodes
			for lnn, n := range m.owned() {
				if fit == 0 && n != before[lnn] {
					t.Fatalf("nobody is fit, and %v became %v", before, m.owned())
				}
				if !stable && n > max(before[lnn], share) {
					t.Fatalf("all have just returned, and node %d was given %d of %d; its share is %d", lnn, n, addresses, share)
				}
			}
		}
		for who, n := range m.nodes {
			if n.PoolFaults != nil {
				m.mendCheck(who)
			}
		}
		m.settle()
		m.now = m.now.Add(ReturnWindow)
		m.settle()
		least, most := addresses, 0
		for lnn := range m.nodes {
			least, most = min(least, m.owned()[lnn]), max(most, m.owned()[lnn])
		}
		if most-least > 1 {
			t.Fatalf("in the end the spread is %v", m.owned())
		}
	})
}

// A carrier that comes and goes is a common cause too: a switch that reboots takes it from all.
func TestASwitchThatRebootsIsACommonCause(t *testing.T) {
	m := newModel(t, 3, 6, "")
	m.settle()
	for lnn := range m.nodes {
		m.nodes[lnn].Faults = map[string]string{"eth0": "no carrier"}
	}
	m.settle()
	m.poolMoves()
	for _, lnn := range slices.Sorted(maps.Keys(m.nodes)) {
		m.nodes[lnn].Faults = nil
		m.nodes[lnn].Mended = map[string]Mend{"eth0": {At: m.now, Lasted: time.Minute}}
		m.settle()
		m.now = m.now.Add(time.Second)
	}
	if n := m.poolMoves(); n != 0 {
		t.Errorf("%d addresses moved", n)
	}
}
