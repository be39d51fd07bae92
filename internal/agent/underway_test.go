package agent

import (
	"net/netip"
	"testing"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// A node takes a service address as its next, slowly, and reads meanwhile that it is next no more. As long as that wish is under way it must
// not acknowledge: whoever is next now would take the address as well (found by the simulator, seed 200117: "both hold").
func TestWhatAFormerNextMayBeTakingCountsAsHeld(t *testing.T) {
	l := &loop{Agent: &Agent{self: cluster.Node{LNN: 3}}}
	subnet := cluster.SubnetID{Groupnet: "groupnet0", Subnet: "subnet0"}
	key := func(address string) steering.ServiceKey {
		return steering.ServiceKey{Subnet: subnet, Address: netip.MustParseAddr(address)}
	}
	l.replica = newReplica()
	l.replica.services = map[steering.ServiceKey]serviceEntry{
		key("10.0.0.2"): {statement: tenure.Statement{Owner: tenure.Claim{LNN: 3}}},
		key("10.0.0.3"): {statement: tenure.Statement{Owner: tenure.Claim{LNN: 2}, Next: tenure.Claim{LNN: 1}, Former: tenure.Claim{LNN: 3}}},
		key("10.0.0.4"): {statement: tenure.Statement{Owner: tenure.Claim{LNN: 1}, Next: tenure.Claim{LNN: 2}}},
	}
	held := l.assumeHeld(nil)
	for address, want := range map[string]bool{"10.0.0.2": true, "10.0.0.3": true, "10.0.0.4": false} {
		if held[netip.MustParseAddr(address)] != want {
			t.Errorf("%s is assumed to be held: %t", address, !want)
		}
	}
}
