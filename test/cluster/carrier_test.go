package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestOneInterfaceOfTwoLosesItsCarrier: both interfaces of node1 are members of the pool, and one loses its carrier. Its addresses go to
// other members, of which the node's other interface is one; what that one and the other nodes have stays where it is, and so does the
// node's right to hold. When the carrier is back every member has its share again. The pool is rebalanced by hand only, so that what
// moves moves for the carrier.
func TestOneInterfaceOfTwoLosesItsCarrier(t *testing.T) {
	var list strings.Builder
	for i := 1; i <= 3; i++ {
		fmt.Fprintf(&list, "- {name: node%d, lnn: %d, interfaces: [eth0, eth1], addresses: [10.10.0.1%d, 10.99.0.1%d]}\n", i, i, i, i)
	}
	l := startLab(t, 3, cast{nodes: 3, clients: 1, resolver: "none", list: list.String(), multiplier: 10, pool: "rebalance-policy: manual",
		addresses: "10.10.0.100-10.10.0.111", members: `"1:eth0", "1:eth1", "2:eth0", "3:eth0"`}.file())
	l.oneNetworkEach(t)
	w := l.watch(t)
	members := []string{"node1 eth0", "node1 eth1", "node2 eth0", "node3 eth0"}
	before := l.spreadOverMembers(t, members, 3, 3, 3, 3)
	lost := "node1 eth1"
	l.do(t, "cut", "--carrier", "--interface", "eth1", "node1")
	after := l.spreadOverMembers(t, without(members, lost))
	t.Logf("what %s had: the members have %v now", lost, counts(after, members))
	for address, member := range before {
		if member != lost && after[address] != member {
			t.Errorf("%s moved from %s, which is well, to %s", address, member, after[address])
		}
		l.must(t, "client1", "ping", "-c", "3", "-W", "5", "-i", "0.2", address)
	}
	if s, err := l.status("node2"); err != nil || s.Nodes[0].Name != "node1" || s.Nodes[0].Incarnation.Lapses != 0 || s.Nodes[0].Incarnation.Start != 1 {
		t.Errorf("node1's right to hold did not outlast one of its interfaces: %+v %v", s.Nodes, err)
	}
	l.do(t, "heal", "node1")
	eventually(t, "1:eth1 is fit again, and has its share when it is asked for", func() error {
		if _, err := l.get("node1", "holdfast", "network", "pools", "rebalance-ips", pool0); err != nil {
			return err
		}
		_, err := l.memberHoldings(members, 3, 3, 3, 3)
		return err
	})
	l.spreadOverMembers(t, members, 3, 3, 3, 3)
	w.check(t)
}

// oneNetworkEach makes each interface answer for its own addresses only: all networks of a lab are on one switch.
func (l *lab) oneNetworkEach(t *testing.T) {
	t.Helper()
	for _, node := range l.nodes {
		l.must(t, node, "sh", "-c", `for i in all eth0 eth1; do
			echo 1 >/proc/sys/net/ipv4/conf/$i/arp_ignore; echo 2 >/proc/sys/net/ipv4/conf/$i/arp_announce; done; ip neigh flush all`)
	}
}

// spreadOverMembers waits until the members ("node1 eth0") hold the pool's addresses, in these numbers if any are given (the largest first), and
// nobody else holds any, by the word of every node and by the kernels, and returns which member has which.
func (l *lab) spreadOverMembers(t *testing.T, members []string, want ...int) map[string]string {
	t.Helper()
	var held map[string]string
	eventually(t, fmt.Sprintf("%v hold %v", members, want), func() (err error) {
		held, err = l.memberHoldings(members, want...)
		return err
	})
	return held
}

// memberHoldings is which member has which address, if the members hold all of them, in the numbers that are wanted, if any are.
func (l *lab) memberHoldings(members []string, want ...int) (map[string]string, error) {
	if _, _, err := l.agreed(l.nodes); err != nil {
		return nil, err
	}
	list, err := l.holdings(l.nodes[0])
	if err != nil {
		return nil, err
	}
	held := map[string]string{}
	for _, h := range list {
		if h.Kind != "dynamic" {
			continue
		}
		held[h.Address] = h.Node + " " + h.Interface
		if !slices.Contains(members, held[h.Address]) {
			return nil, fmt.Errorf("%s is with %s", h.Address, held[h.Address])
		}
	}
	shares := counts(held, members)
	have := slices.Sorted(maps.Values(shares))
	slices.Reverse(have)
	if len(want) > 0 && !slices.Equal(have, want) {
		return nil, fmt.Errorf("the addresses lie %v", shares)
	}
	for _, node := range l.nodes {
		err = errors.Join(err, l.onInterfaces(node, held))
	}
	return held, err
}

// onInterfaces says which of the addresses that a node holds its kernel does not have on the interface on record.
func (l *lab) onInterfaces(node string, held map[string]string) error {
	out, err := l.get(node, "ip", "-j", "addr")
	if err != nil {
		return err
	}
	var links []struct {
		Name      string                   `json:"ifname"`
		Addresses []struct{ Local string } `json:"addr_info"`
	}
	if err := json.Unmarshal([]byte(out), &links); err != nil {
		return err
	}
	for _, link := range links {
		for _, address := range link.Addresses {
			if member, ours := held[address.Local]; ours && member != node+" "+link.Name {
				err = errors.Join(err, fmt.Errorf("%s is on record with %s, and on %s of %s", address.Local, member, link.Name, node))
			}
		}
	}
	return err
}
