package steering

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

// What is foreseen for the service addresses is what happens: the same addresses leave the same nodes, those that are not raced for go
// where it was said, and the same number of moves does it.
func TestWhatIsForeseenOfServiceAddressesIsWhatHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, rapid.IntRange(1, 6).Draw(t, "nodes"), 4, "")
		m.settle()
		if rapid.Bool().Draw(t, "uneven") { // after a death and a return one node has two
			m.kill(2%len(m.nodes) + 1)
			m.settle()
			m.start(2%len(m.nodes) + 1)
			m.settle()
		}
		who := rapid.IntRange(1, len(m.nodes)).Draw(t, "who")
		var foreseen ServiceForesight
		var happens func()
		switch rapid.SampledFrom([]string{"drain", "death", "deaths", "add", "delete"}).Draw(t, "what") {
		case "drain":
			happens = func() { m.nodes[who].Draining = true }
		case "death":
			foreseen = ForeseeServicesDown(m.world(1), []int{who}, m.now)
			happens = func() { m.kill(who) }
		case "deaths":
			other := who%len(m.nodes) + 1
			foreseen = ForeseeServicesDown(m.world(1), []int{who, other}, m.now)
			happens = func() { m.kill(who); m.kill(other) }
		case "add":
			happens = func() { m.config = withServiceAddresses(m.config, "10.0.0.4-10.0.0.8") }
		case "delete":
			happens = func() { m.config = withoutNode(m.config, who) }
		}
		if foreseen.Services == nil { // the world as it then is tells the same as the world as it would be
			happens()
			foreseen = ForeseeServices(m.world(1), m.now)
			happens = func() {}
		}
		before := maps.Clone(m.services)
		m.moves = nil
		happens()
		m.settle()
		compareServices(t, m, before, foreseen)
	})
}

func compareServices(t *rapid.T, m *model, before map[ServiceKey]tenure.Statement, foreseen ServiceForesight) {
	happened := slices.DeleteFunc(m.moves, func(story string) bool {
		return !strings.HasPrefix(story, "10.0.0.") || len(strings.Fields(story)[0]) > len("10.0.0.99")
	})
	if len(happened) != len(foreseen.Moves) || foreseen.Unsettled {
		t.Errorf("foreseen (unsettled: %v): %v\nhappened: %q", foreseen.Unsettled, foreseen.Moves, happened)
	}
	for _, move := range foreseen.Moves {
		key := ServiceKey{move.Subnet, move.Address}
		if had := before[key].Owner.Member(); had != move.From && len(foreseen.Moves) == 1 {
			t.Errorf("%s was with %s, not with %s", move.Address, had, move.From)
		}
		now := m.services[key].Owner
		if now.IsZero() != foreseen.Services[key].Owner.IsZero() || !move.Race && now.Member() != foreseen.Services[key].Owner.Member() {
			t.Errorf("%s is with %s, foreseen was %s", move.Address, now.Member(), foreseen.Services[key].Owner.Member())
		}
		if move.Reason == "" || move.Race != strings.Contains(move.Reason, "probably") {
			t.Errorf("the reason of %v", move)
		}
	}
}

func withServiceAddresses(config *cluster.Config, ranges string) *cluster.Config {
	after, err := cluster.ModifySubnet(config, poolID.SubnetID(), []cluster.Edit{{Setting: "sc-service-addrs", Op: cluster.Set, Value: ranges}})
	if err != nil {
		panic(err)
	}
	return after
}

func withoutNode(config *cluster.Config, lnn int) *cluster.Config {
	after := config.Clone()
	after.Nodes = slices.DeleteFunc(after.Nodes, func(n cluster.Node) bool { return n.LNN == lnn })
	pool, _, _, _ := after.Pool(poolID)
	pool.Interfaces = slices.DeleteFunc(pool.Interfaces, func(m cluster.Member) bool { return m.LNN == lnn })
	return after
}

// The reasons say which moves are certain and which are a race.
func TestThePlanForServiceAddressesSaysWhatIsARace(t *testing.T) {
	m := newModel(t, 4, 4, "")
	m.settle()
	key := ServiceKey{poolID.SubnetID(), netip.MustParseAddr("10.0.0.4")}
	owner, next := m.services[key].Owner.LNN, m.services[key].Next.LNN
	moves := ForeseeServicesDown(m.world(owner), []int{owner}, m.now).Moves
	if len(moves) != 1 || moves[0].To.LNN != next || moves[0].Race || !strings.Contains(moves[0].Reason, "successor on record") {
		t.Errorf("the death of %d, whose successor is %d: %v", owner, next, moves)
	}
	moves = ForeseeServicesDown(m.world(owner), []int{owner, next}, m.now).Moves
	if len(moves) != 1 || !moves[0].Race || !strings.Contains(moves[0].Reason, "the quickest ready node takes it, probably node") {
		t.Errorf("with its successor: %v", moves)
	}
	if all := ForeseeServicesDown(m.world(1), []int{1, 2, 3, 4}, m.now); len(all.Moves) != 0 || all.Unsettled {
		t.Errorf("when all die: %v", all)
	}
	m.nodes[owner].Draining = true
	moves = ForeseeServices(m.world(next), m.now).Moves
	if len(moves) != 1 || moves[0].Race || moves[0].From.LNN != owner || !strings.Contains(moves[0].Reason, "is being drained") {
		t.Errorf("a drain: %v", moves)
	}
}

// What rebalance-ssips would do is shown whole, not only its first move.
func TestSpreadIsForeseenToItsEnd(t *testing.T) {
	m := newModel(t, 3, 3, "")
	m.kill(2)
	m.kill(3)
	m.settle()
	m.start(2)
	m.start(3)
	m.settle()
	if spread := m.serviceSpread(); spread[1] != 3 {
		t.Fatalf("the spread is %v", spread)
	}
	moves := ForeseeSpread(m.world(1), poolID.SubnetID(), m.now)
	if len(moves) != 2 || moves[0].To.LNN == moves[1].To.LNN || moves[0].Address == moves[1].Address {
		t.Errorf("got %v", moves)
	}
}

// The largest cluster does not make anybody wait for its plan.
func BenchmarkForeseeServices(b *testing.B) {
	w := largeModel(b)
	now := time.Unix(1000, 0)
	for b.Loop() {
		ForeseeServicesDown(w, []int{1, 2, 3}, now)
	}
}
