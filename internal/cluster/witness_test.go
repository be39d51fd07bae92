package cluster

import (
	"fmt"
	"slices"
	"testing"
)

// A node asks the gateways of those subnets where something of it may move, on each interface where it may.
func TestGateways(t *testing.T) {
	c, err := Parse("two", []byte(`cluster: {name: demo, no-witness: true}
nodes:
  - {name: node1, lnn: 1, interfaces: [eth0, eth1], addresses: [192.168.7.1, 10.0.0.11]}
  - {name: node2, lnn: 2, interfaces: [eth0], addresses: [192.168.7.2]}
groupnets:
  - name: groupnet0
    subnets:
      - name: subnet0
        cidr: 10.0.0.0/24
        gateway: 10.0.0.1
        pools:
          - {name: pool0, ranges: [10.0.0.100-10.0.0.101], ifaces: ["1:eth0", "2:eth0"], alloc-method: dynamic}
          - {name: pool1, ranges: [10.0.0.110-10.0.0.111], ifaces: ["1:eth0", "1:eth1"], alloc-method: dynamic}
      - name: subnet1
        cidr: 10.0.1.0/24
        gateway: 10.0.1.1
        sc-service-name: ns.company.com
        sc-service-addrs: [10.0.1.4]
        pools:
          - {name: pool2, ranges: [10.0.1.100-10.0.1.101], ifaces: ["1:eth1"], alloc-method: static}
      - name: subnet2
        cidr: 10.0.2.0/24
        pools:
          - {name: pool3, ranges: [10.0.2.100-10.0.2.101], ifaces: ["1:eth1", "2:eth0"], alloc-method: static}
`))
	if err != nil {
		t.Fatal(err)
	}
	text := func(lnn int) (out []string) {
		for _, g := range c.Gateways(lnn) {
			out = append(out, fmt.Sprintf("%s %s on %s", g.Subnet, g.Address, g.Interface))
		}
		return out
	}
	for lnn, want := range map[int][]string{
		1: {"groupnet0.subnet0 10.0.0.1 on eth0", "groupnet0.subnet0 10.0.0.1 on eth1", "groupnet0.subnet1 10.0.1.1 on eth1"},
		2: {"groupnet0.subnet0 10.0.0.1 on eth0"},
		3: nil,
	} {
		if got := text(lnn); !slices.Equal(got, want) {
			t.Errorf("node %d asks %q, wanted %q", lnn, got, want)
		}
	}
	if !c.NoWitness() {
		t.Error("no-witness is not in effect with two nodes")
	}
	c.Nodes = c.Nodes[:1]
	if c.NoWitness() {
		t.Error("no-witness is in effect with one node")
	}
}
