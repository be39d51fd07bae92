package agent

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast/holdfast/internal/address"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/problem"
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
        gateway-priority: 20
        mtu: 9000
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
        gateway: 10.0.2.1
        gateway-priority: 10
        sc-service-name: ssip.test
        sc-service-addrs: [10.0.2.4]
`

// Replies leave by every interface of the node in the subnet, with the static routes of the pools that the interface is in;
// also where the subnet has no gateway, since the node may have no address of its own there; also where the node only hosts a
// service address; and by none where the node has no part in the subnet. A service address, which may go again, is no reason for a
// default route by the gateway of its subnet.
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
		{Prefix: ipv4, Gateway: gateway, Interface: "eth0", MTU: 9000, Priority: 20},
		{Prefix: ipv4, Gateway: gateway, Interface: "eth1", MTU: 9000, Priority: 20, Static: []cluster.Route{
			{Destination: netip.MustParsePrefix("198.51.100.0/24"), Gateway: netip.MustParseAddr("10.0.0.2")},
		}},
		{Prefix: services, Gateway: netip.MustParseAddr("10.0.2.1"), Interface: "eth2"},
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

// The settings of a subnet take effect on every node while the cluster runs, and go with the setting: the default route by its
// gateway, the MTU of its routes, and the problem of an interface that takes less.
func TestSubnetSettingsTakeEffect(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		with := func(settings string) {
			c.apply("cidr: 10.0.0.0/24", "cidr: 10.0.0.0/24\n        gateway: 10.0.0.1\n        "+settings)
		}
		c.defaultRoutes("nothing sets a priority, and no node has one", "", "", "", "")
		with("gateway-priority: 5\n        mtu: 1400")
		const route = "route 0.0.0.0/0 via 10.0.0.1 dev eth0 table 254 metric 7000 mtu 1400"
		c.defaultRoutes("every node has one", route, route, route, route)
		c.nodes[3].kernel.SetCarrier("eth0", false)
		c.defaultRoutes("the one without carrier has none", route, route, "", route)
		c.nodes[3].kernel.SetCarrier("eth0", true)
		c.defaultRoutes("all have one again", route, route, route, route)
		with("mtu: 9000")
		c.defaultRoutes("they go with the setting", "", "", "", "")
		c.eventually("every node's status says that its interface takes less", func() bool {
			for _, n := range c.nodes {
				if !slices.ContainsFunc(n.agent.board.List(), func(a problem.Active) bool { return a.Kind.Code == "interface.mtu" && a.Subject == "eth0" }) {
					return false
				}
			}
			return c.everybodyServes()
		})
	})
}

// defaultRoutes waits until the nodes, in the order of their numbers, have these routes of Holdfast's own in the main table.
func (c *testCluster) defaultRoutes(what string, want ...string) {
	c.t.Helper()
	c.eventually(what, func() bool {
		for i, text := range want {
			got := ""
			routes, _ := c.nodes[i+1].kernel.Routes()
			for _, r := range routes {
				if r.Table == link.MainTable {
					got += r.String()
				}
			}
			if got != text {
				return false
			}
		}
		return true
	})
}
