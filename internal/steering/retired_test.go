package steering

import (
	"net/netip"
	"testing"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

// TestRetiredAddressWaitsForItsFormerNext: the statement of an address that is no longer configured stays on record until whoever was
// next has acknowledged that it is not, or is over: it may not have read any of this, and would take the address when its old owner
// dies, also when the configuration has it again and another holds it.
func TestRetiredAddressWaitsForItsFormerNext(t *testing.T) {
	m := newModel(t, 3, 2, "")
	m.settle()
	retired := netip.MustParseAddr("10.0.0.199")
	former := tenure.Claim{LNN: 3, Interface: "eth0", Incarnation: m.nodes[3].Incarnation}
	m.pools[poolID][retired] = tenure.Statement{Former: former, Epoch: 2}
	if p, _, ok := ProposePool(m.world(1), poolID, false, m.now); ok {
		t.Errorf("%s is to become %+v although %s has not acknowledged", retired, p.Record[retired], former)
	}
	m.kill(3)
	p, _, ok := ProposePool(m.world(1), poolID, false, m.now)
	if _, there := p.Record[retired]; !ok || there {
		t.Errorf("%s stays on record although %s is over", retired, former)
	}
	gone := map[cluster.PoolID]tenure.Record{{Groupnet: "groupnet0", Subnet: "subnet0", Pool: "gone"}: {retired: {Former: tenure.Claim{LNN: 2, Interface: "eth0", Incarnation: m.nodes[2].Incarnation}, Epoch: 2}}}
	for id, record := range gone {
		m.pools[id] = record
		if p, _, ok := ProposePool(m.world(1), id, false, m.now); ok {
			t.Errorf("of a pool that is no longer configured %+v is to stay", p.Record)
		}
	}
}
