package agent

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

func claimOf(lnn int, incarnation tenure.Incarnation) tenure.Claim {
	return tenure.Claim{LNN: lnn, Interface: "eth0", Incarnation: incarnation}
}

// Node 1 knows that incarnation 7 of node 2 is over.
func TestWhichChangesAreFailovers(t *testing.T) {
	l := &loop{Agent: &Agent{tenancy: newTenancy(1, 1, tenure.Timing{}, time.Now)}}
	l.tenancy.found, l.tenancy.changed, l.tenancy.wake = func(tenure.Finding) {}, func() {}, make(chan struct{}, 1)
	l.tenancy.step(&tenure.Told{LNN: 2, Over: 7, By: "the test"}, time.Now())
	for _, example := range []struct {
		name     string
		old, now tenure.Statement
		want     string
	}{
		{"it had no owner", tenure.Statement{Epoch: 4}, tenure.Statement{Owner: claimOf(1, 1), Epoch: 5}, ""},
		{"it was handed over", tenure.Statement{Owner: claimOf(2, 7), To: claimOf(1, 1), Epoch: 4}, tenure.Statement{Owner: claimOf(1, 1), Epoch: 5}, ""},
		{"it failed over", tenure.Statement{Owner: claimOf(2, 7), Epoch: 4}, tenure.Statement{Owner: claimOf(1, 1), Epoch: 5}, "2.7"},
		{"the record is here before the news", tenure.Statement{Owner: claimOf(3, 9), Epoch: 4}, tenure.Statement{Owner: claimOf(1, 1), Epoch: 5}, "3.9"},
		{"several changes, and it is over", tenure.Statement{Owner: claimOf(2, 7), Epoch: 4}, tenure.Statement{Owner: claimOf(1, 1), Epoch: 7}, "2.7"},
		{"several changes, and nobody is over", tenure.Statement{Owner: claimOf(3, 9), Epoch: 4}, tenure.Statement{Owner: claimOf(1, 1), Epoch: 7}, ""},
	} {
		if got := l.failedOver(example.old, example.now); got != example.want {
			t.Errorf("%s: %q, want %q", example.name, got, example.want)
		}
	}
}

// The successor may act before the record names it; what came otherwise, or under another epoch, has no cause.
func TestByWhichFailoverAddressesCome(t *testing.T) {
	pool, _ := cluster.NewPoolID("groupnet0.subnet0.pool0")
	addr := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, last}) }
	service := steering.ServiceKey{Subnet: pool.SubnetID(), Address: addr(4)}
	w := &steering.World{
		Self: 1, Nodes: map[int]steering.Node{2: {LNN: 2, Incarnation: 7, Over: 7}},
		Pools: map[cluster.PoolID]tenure.Record{pool: {
			addr(100): {Owner: claimOf(2, 7), Next: claimOf(1, 1), Epoch: 3}, // it acts on it before the record
			addr(101): {Owner: claimOf(1, 1), Epoch: 5},
			addr(102): {Owner: claimOf(1, 1), Epoch: 6},
		}},
		Services: map[steering.ServiceKey]tenure.Statement{service: {Owner: claimOf(2, 7), Epoch: 2}},
	}
	l := &loop{causes: map[netip.Addr]cause{addr(101): {"2.6", 5}, addr(102): {"2.6", 5}, addr(103): {"2.6", 1}}}
	holding := func(last byte) steering.Holding {
		return steering.Holding{Address: addr(last), Pool: pool, Subnet: pool.SubnetID()}
	}
	got := l.causesOf(w, []steering.Holding{holding(100), holding(101), holding(102), {Address: addr(4), Subnet: pool.SubnetID()}})
	want := map[netip.Addr]string{addr(100): "2.7", addr(101): "2.6", addr(4): "2.7"}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if len(l.causes) != 1 {
		t.Errorf("it remembers %v, also what is not here", l.causes)
	}
}
