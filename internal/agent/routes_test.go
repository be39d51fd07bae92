package agent

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast/holdfast/internal/address"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
)

const routesConfig = `
cluster: {name: test}
nodes:
  - {name: node1, lnn: 1, interfaces: [eth0, eth1, eth2], addresses: [192.0.2.11]}
  - {name: node2, lnn: 2, interfaces: [eth0, eth1, eth2], addresses: [192.0.2.12]}
groupnets:
  - name: groupnet0
    subnets:
      - name: gateway
        cidr: 10.0.0.0/24
        gateway: 10.0.0.1
        pools:
          - {name: first, ranges: [10.0.0.100-10.0.0.103], ifaces: ["1:eth0", "1:eth1", "2:eth0"], alloc-method: dynamic}
          - {name: second, ranges: [10.0.0.104-10.0.0.107], ifaces: ["1:eth1", "2:eth2"], alloc-method: dynamic,
             static-routes: [198.51.100.0/24-10.0.0.2]}
      - name: without
        cidr: 2001:db8::/64
        pools:
          - {name: pool0, ranges: ["2001:db8::100-2001:db8::103"], ifaces: ["1:eth0", "2:eth0"], alloc-method: dynamic}
      - name: elsewhere
        cidr: 10.0.1.0/24
        pools:
          - {name: pool0, ranges: [10.0.1.100-10.0.1.103], ifaces: ["2:eth0"], alloc-method: dynamic}
      - name: services
        cidr: 10.0.2.0/24
        sc-service-name: ssip.test
        sc-service-addrs: [10.0.2.4]
`

// Replies leave by every interface of the node in the subnet, with the static routes of the pools that the interface is in;
// also where the subnet has no gateway, since the node may have no address of its own there; also where the node only hosts a
// service address; and by none where the node has no part in the subnet.
func TestRoutesBySubnetAndInterface(t *testing.T) {
	config, err := cluster.Parse("test", []byte(routesConfig))
	if err != nil {
		t.Fatal(err)
	}
	self, _ := config.Node(1)
	l := &loop{Agent: &Agent{self: self}}
	ipv4, ipv6, gateway := netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("2001:db8::/64"), netip.MustParseAddr("10.0.0.1")
	services := netip.MustParsePrefix("10.0.2.0/24")
	want := []address.SubnetRoute{
		{Prefix: ipv4, Gateway: gateway, Interface: "eth0"},
		{Prefix: ipv4, Gateway: gateway, Interface: "eth1", Static: []cluster.Route{
			{Destination: netip.MustParsePrefix("198.51.100.0/24"), Gateway: netip.MustParseAddr("10.0.0.2")},
		}},
		{Prefix: services, Interface: "eth2"},
		{Prefix: ipv6, Interface: "eth0"},
	}
	holdings := []steering.Holding{{
		Address: netip.MustParseAddr("10.0.2.4"), Interface: "eth2", Kind: steering.Service,
		Subnet: cluster.SubnetID{Groupnet: "groupnet0", Subnet: "services"},
	}}
	got := l.routes(&steering.World{Self: 1, Config: config}, holdings)
	same := cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()}
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
}
