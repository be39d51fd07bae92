package cluster

import (
	"fmt"
	"strings"
	"testing"
)

// TestSilentCutOfTheClientsNetwork: what reaches one node over the clients' network is lost, with the carrier there and the cluster's
// own network well. Its addresses go to the others, and return when the network is mended; the node keeps its right to hold all along.
func TestSilentCutOfTheClientsNetwork(t *testing.T) {
	need(t, "nft:nftables")
	var list strings.Builder
	for i := 1; i <= 4; i++ {
		fmt.Fprintf(&list, "- {name: node%d, lnn: %d, interfaces: [eth1, eth0], addresses: [10.99.0.1%d, 10.10.0.1%d]}\n", i, i, i, i)
	}
	l := startLab(t, 4, cast{nodes: 4, clients: 1, resolver: "none", list: list.String(), multiplier: 6}.file())
	l.oneNetworkEach(t)
	w := l.watch(t)
	l.spread(t, l.nodes, 3, 3, 3, 3)
	l.must(t, "node2", "nft", "add table netdev cut; add chain netdev cut in { type filter hook ingress device eth0 priority 0; policy drop; }")
	l.spread(t, without(l.nodes, "node2"), 4, 4, 4)
	l.holdsNothing(t, "node2")
	if err := l.problem("node1", "node.unfit", "node2"); err != nil {
		t.Error(err)
	}
	if text := l.must(t, "node1", "holdfast", "status"); !strings.Contains(text, "are not heard over 10.10.0.0/24") {
		t.Errorf("status does not say why:\n%s", text)
	}
	if text := l.must(t, "node2", "holdfast", "explain", "node2"); !strings.Contains(text, "It may hold") || !strings.Contains(text, "Incarnation 1,") {
		t.Errorf("the right did not survive the cut:\n%s", text)
	}
	l.must(t, "node2", "nft", "delete", "table", "netdev", "cut")
	l.spread(t, l.nodes, 3, 3, 3, 3)
	w.check(t)
}
