package steering

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/cluster"
)

// evenness is what a node sees of the pool when nothing moves.
func (m *model) evenness() Evenness {
	m.t.Helper()
	p, _, ok := ProposePool(m.world(2), poolID, false, m.now)
	if ok {
		m.t.Fatalf("the pool is not at rest: %v", p.Moves)
	}
	return p.Evenness
}

// back kills a node of a pool of 4 with 12 addresses and starts it again after an outage.
func back(t *testing.T, more string, outage time.Duration) *model {
	m := newModel(t, 4, 12, more)
	m.settle()
	m.kill(1)
	m.settle()
	m.now = m.now.Add(outage)
	m.start(1)
	m.nodes[1].Outage = outage
	m.settle()
	return m
}

func TestAPoolThatIsUnevenSaysWhatItWaitsFor(t *testing.T) {
	for _, example := range []struct {
		name, setting string
		outage        time.Duration
		want          Evenness
	}{
		{"auto returns by itself", "", time.Hour, Evenness{}},
		{"a short outage returns by itself", ", rebalance-policy: short_outage", 9 * time.Minute, Evenness{}},
		{"a long outage", ", rebalance-policy: short_outage", 11 * time.Minute,
			Evenness{Moves: 3, Operator: true, Reason: "the outage lasted 11m0s, and after ten minutes or more an operator decides"}},
		{"manual", ", rebalance-policy: manual", time.Minute,
			Evenness{Moves: 3, Operator: true, Reason: "the pool's rebalance policy is manual: an operator decides"}},
		{"a delay", ", sc-rebalance-delay: 7", time.Minute, Evenness{Moves: 3, Reason: "rebalance delay of 7s after the return", Wait: 7 * time.Second}},
		{"idle and all are busy", ", rebalance-policy: idle", time.Minute,
			Evenness{Moves: 3, Reason: "the pool's rebalance policy is idle: an address moves when it has no connections"}},
	} {
		m := back(t, example.setting, example.outage)
		if got := m.evenness(); got != example.want {
			t.Errorf("%s: %+v, want %+v", example.name, got, example.want)
		}
		m.ask()
		if got := m.evenness(); got != (Evenness{}) {
			t.Errorf("%s: after an operator's rebalance: %+v", example.name, got)
		}
	}
}

// Under short_outage a failing check counts by how long it failed, not by when its node was down last.
func TestTheOutageOfACheckIsItsOwn(t *testing.T) {
	m := back(t, ", rebalance-policy: short_outage", time.Hour)
	m.ask()
	m.now = m.now.Add(time.Hour)
	for _, example := range []struct {
		failed time.Duration
		asks   bool
	}{{time.Minute, false}, {time.Hour, true}} {
		m.failCheck(1)
		m.settle()
		m.now = m.now.Add(example.failed)
		m.mendCheck(1)
		m.now = m.now.Add(ReturnWindow)
		m.settle()
		if got := m.evenness(); got.Operator != example.asks {
			t.Errorf("after a failure of %s: %+v", example.failed, got)
		}
	}
}

// All that fails one after the other leaves everything on the last node; under manual it stays there, and that is said.
func TestAPileUpUnderManualWaitsForAnOperator(t *testing.T) {
	m := newModel(t, 4, 12, ", rebalance-policy: manual")
	m.settle()
	for _, lnn := range []int{1, 2, 3} {
		m.failCheck(lnn)
		m.settle()
	}
	m.mendCheck(1, 2, 3)
	m.now = m.now.Add(time.Hour)
	m.settle()
	expect(t, "piled up", m.owned(), map[int]int{4: 12})
	if got := m.evenness(); got.Moves != 9 || !got.Operator {
		t.Errorf("12/0/0/0 under manual: %+v", got)
	}
}

// idle takes the addresses that become idle, one after the other, and stops when the pool is even.
func TestIdleAddressesGoHomeOneByOne(t *testing.T) {
	m := back(t, ", rebalance-policy: idle", time.Minute)
	expect(t, "all busy", m.spread(), map[int]int{1: 0, 2: 4, 3: 4, 4: 4})
	m.moves = nil
	for _, address := range m.config.Addresses(poolID) {
		m.idle = map[netip.Addr]bool{address: true}
		m.settle()
	}
	expect(t, "each was idle once", m.spread(), map[int]int{1: 3, 2: 3, 3: 3, 4: 3})
	if n := m.poolMoves(); n != 3 {
		t.Errorf("%d addresses moved, 3 suffice", n)
	}
}

// An operator who gives addresses to a node in hold-down trusts it: it may be a successor at once, so that the death or the drain
// of another node that follows finds an even plan. Without that, what the others had would be divided between two of three.
func TestAnAskedRebalanceEndsTheHoldDown(t *testing.T) {
	for _, example := range []struct {
		addresses int
		want      []int
	}{{12, []int{4, 4, 4}}, {4, []int{2, 1, 1}}} {
		for other := 2; other <= 4; other++ {
			for what, leave := range map[string]func(*model){
				"drained": func(m *model) { m.nodes[other].Draining = true },
				"killed":  func(m *model) { m.kill(other) },
			} {
				m := newModel(t, 4, example.addresses, ", rebalance-policy: manual")
				m.settle()
				m.kill(1)
				m.settle()
				m.start(1)
				m.nodes[1].HoldDown = time.Minute
				m.settle()
				if m.ask() == 0 {
					t.Fatal("the rebalance moved nothing")
				}
				leave(m)
				m.settle()
				left := m.spread()
				delete(left, other)
				expect(t, what, left, spreadOf(left, example.want...))
			}
		}
	}
}

// A node that flaps, however fast, loses what it has to its successors, who may have taken it without asking; while it is held down it
// is nobody's successor.
func TestAFlappingNodeIsNotTrusted(t *testing.T) {
	m := newModel(t, 4, 12, "")
	m.settle()
	m.lapse(1)
	m.nodes[1].HoldDown = time.Minute
	m.settle()
	if m.spread()[1] != 0 {
		t.Fatal("it kept something")
	}
	for address, st := range m.pools[poolID] {
		if st.Next.LNN == 1 {
			t.Errorf("it is the successor for %s", address)
		}
	}
}

// The plan for a change is what happens: the same addresses, in the same number of moves, to the same nodes.
func TestWhatIsForeseenIsWhatHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom([]string{"", ", rebalance-policy: manual", ", rebalance-policy: short_outage", ", sc-rebalance-delay: 3"}).Draw(t, "policy")
		m := newModel(t, rapid.IntRange(3, 5).Draw(t, "nodes"), rapid.IntRange(1, 12).Draw(t, "addresses"), policy)
		m.settle()
		who := cluster.Member{LNN: rapid.IntRange(1, len(m.nodes)).Draw(t, "who"), Interface: "eth0"}
		m.now = m.now.Add(time.Minute)
		switch rapid.SampledFrom([]string{"pins", "drain", "return", "checks"}).Draw(t, "what") {
		case "pins":
			pool, _, _, _ := m.config.Pool(poolID)
			pool.Pins = map[netip.Addr]cluster.Member{}
			for _, address := range m.config.Addresses(poolID) {
				if rapid.Bool().Draw(t, "pinned") {
					pool.Pins[address] = who
				}
			}
		case "drain":
			m.nodes[who.LNN].Draining = true
		case "return":
			m.kill(who.LNN)
			m.settle()
			m.start(who.LNN)
			m.nodes[who.LNN].HoldDown, m.nodes[who.LNN].Outage = 4*time.Second, time.Minute
		case "checks":
			for lnn := range m.nodes {
				m.failCheck(lnn)
			}
			m.settle()
			m.mendCheck(who.LNN)
		}
		foreseen := Foresee(m.world(1), poolID, false, m.now)
		want := map[netip.Addr]cluster.Member{}
		for address, st := range foreseen.Record {
			want[address] = st.Owner.Member()
		}
		m.poolMoves()
		for range 30 {
			m.settle()
			m.now = m.now.Add(time.Second)
		}
		for address, st := range m.pools[poolID] {
			if st.Owner.Member() != want[address] {
				t.Errorf("%s is with %s, foreseen was %s", address, st.Owner.Member(), want[address])
			}
		}
		if n := m.poolMoves(); n != len(foreseen.Moves) || foreseen.Unsettled {
			t.Errorf("%d moves happened, %d were foreseen (unsettled: %v):\n%v", n, len(foreseen.Moves), foreseen.Unsettled, foreseen.Moves)
		}
	})
}

// A pin moves one address, and evening out moves another one back: the plan shows both. What has to wait says how long.
func TestAPlanShowsWhatFollowsFromItself(t *testing.T) {
	m := newModel(t, 4, 12, "")
	m.settle()
	m.now = m.now.Add(time.Minute)
	pool, _, _, _ := m.config.Pool(poolID)
	for address, st := range m.pools[poolID] {
		if st.Owner.LNN == 1 {
			pool.Pins = map[netip.Addr]cluster.Member{address: {LNN: 2, Interface: "eth0"}}
		}
	}
	moves := Foresee(m.world(1), poolID, false, m.now).Moves
	if len(moves) != 2 || moves[0].To.LNN != 2 || moves[1].From.LNN != 2 || moves[1].To.LNN != 1 {
		t.Errorf("a pin from node 1 to node 2 moves %v", moves)
	}
	if down := ForeseeDown(m.world(1), poolID, []int{3}, m.now); len(down.Moves) != 3+2 {
		t.Errorf("with the pin on its way, the death of node 3 moves %v", down.Moves)
	}
	m = back(t, ", sc-rebalance-delay: 7", time.Minute)
	if moves := Foresee(m.world(2), poolID, false, m.now).Moves; len(moves) != 3 || !strings.HasPrefix(moves[0].Reason, "in 7s: ") {
		t.Errorf("a return with a delay: %v", moves)
	}
}
