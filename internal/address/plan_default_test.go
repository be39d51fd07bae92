package address

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/linux/link/linktest"
)

// The routes of a subnet with an MTU, and gateways with a priority.
var (
	jumbo    = SubnetRoute{Prefix: prefix("10.0.0.0/24"), Gateway: addr("10.0.0.1"), Interface: "ext0", MTU: 9000}
	narrow   = SubnetRoute{Prefix: prefix("10.0.0.0/24"), Gateway: addr("10.0.0.1"), Interface: "ext0", MTU: 1400}
	second   = SubnetRoute{Prefix: prefix("10.1.0.0/24"), Gateway: addr("10.1.0.1"), Interface: "ext1", Priority: 2}
	firstWay = SubnetRoute{Prefix: prefix("10.2.0.0/24"), Gateway: addr("10.2.0.1"), Interface: "ext0", Priority: 1, MTU: 1400}
	sixthWay = SubnetRoute{Prefix: prefix("fd00::/64"), Gateway: addr("fd00::1"), Interface: "ext1", Priority: 9}
	noWayOut = SubnetRoute{Prefix: prefix("10.3.0.0/24"), Interface: "ext0", Priority: 1}
)

// withMTU is an interface that works and takes packets of so many bytes.
func withMTU(index int, name string, mtu int) link.Interface {
	i := linktest.Ethernet(index, name)
	i.MTU = mtu
	return i
}

// routeStories are told by TestPlan too.
var routeStories = []planStory{
	{"routes keep to the MTU of their subnet", []planStep{
		{does: "all of them",
			desired: Desired{Routes: []SubnetRoute{narrow}},
			done: `
add route 0.0.0.0/0 via 10.0.0.1 dev ext0 table 7000 metric 10 mtu 1400
add route 10.0.0.0/24 dev ext0 table 7000 metric 10 mtu 1400
add rule 7000 from 10.0.0.0/24 table 7000`,
			state: `
route 0.0.0.0/0 via 10.0.0.1 dev ext0 table 7000 metric 10 mtu 1400
route 10.0.0.0/24 dev ext0 table 7000 metric 10 mtu 1400
rule 7000 from 10.0.0.0/24 table 7000`},
		{does: "as far as the interface takes it; that it does not is reported",
			desired: Desired{Routes: []SubnetRoute{jumbo}},
			done: `
remove route 0.0.0.0/0 via 10.0.0.1 dev ext0 table 7000 metric 10 mtu 1400
remove route 10.0.0.0/24 dev ext0 table 7000 metric 10 mtu 1400
add route 0.0.0.0/0 via 10.0.0.1 dev ext0 table 7000 metric 10
add route 10.0.0.0/24 dev ext0 table 7000 metric 10`,
			refused: "ext0 has an MTU of 1500, and 10.0.0.0/24 is configured with 9000: `ip link set dev ext0 mtu 9000`",
			state: `
route 0.0.0.0/0 via 10.0.0.1 dev ext0 table 7000 metric 10
route 10.0.0.0/24 dev ext0 table 7000 metric 10
rule 7000 from 10.0.0.0/24 table 7000`},
		{does: "once the interface takes more, they do too",
			before:  func(k *linktest.Fake) { k.SetInterface(withMTU(2, "ext0", 9000)) },
			desired: Desired{Routes: []SubnetRoute{jumbo}},
			done: `
remove route 0.0.0.0/0 via 10.0.0.1 dev ext0 table 7000 metric 10
remove route 10.0.0.0/24 dev ext0 table 7000 metric 10
add route 0.0.0.0/0 via 10.0.0.1 dev ext0 table 7000 metric 10 mtu 9000
add route 10.0.0.0/24 dev ext0 table 7000 metric 10 mtu 9000`,
			state: `
route 0.0.0.0/0 via 10.0.0.1 dev ext0 table 7000 metric 10 mtu 9000
route 10.0.0.0/24 dev ext0 table 7000 metric 10 mtu 9000
rule 7000 from 10.0.0.0/24 table 7000`},
	}},
	{"the node's default route is by the gateway of the lowest priority", []planStep{
		{does: "one for each family, beside somebody else's; a subnet without a gateway has none to offer",
			before: func(k *linktest.Fake) {
				k.PutRoute(link.Route{Table: link.MainTable, Destination: prefix("0.0.0.0/0"), Gateway: addr("192.0.2.1"), Interface: "ext0", Metric: 100})
			},
			desired: Desired{Routes: []SubnetRoute{second, firstWay, sixthWay, noWayOut}},
			done: `
add route 0.0.0.0/0 via 10.1.0.1 dev ext1 table 7000 metric 10
add route 10.1.0.0/24 dev ext1 table 7000 metric 10
add route 0.0.0.0/0 via 10.2.0.1 dev ext0 table 7001 metric 10 mtu 1400
add route 10.2.0.0/24 dev ext0 table 7001 metric 10 mtu 1400
add route 10.3.0.0/24 dev ext0 table 7002 metric 10
add route ::/0 via fd00::1 dev ext1 table 7003 metric 10
add route fd00::/64 dev ext1 table 7003 metric 10
add route 0.0.0.0/0 via 10.2.0.1 dev ext0 table 254 metric 7000 mtu 1400
add route ::/0 via fd00::1 dev ext1 table 254 metric 7000
add rule 7000 from 10.1.0.0/24 table 7000
add rule 7000 from 10.2.0.0/24 table 7001
add rule 7000 from 10.3.0.0/24 table 7002
add rule 7000 from fd00::/64 table 7003`,
			state: `
foreign route 0.0.0.0/0 via 192.0.2.1 dev ext0 table 254 metric 100
route 0.0.0.0/0 via 10.1.0.1 dev ext1 table 7000 metric 10
route 0.0.0.0/0 via 10.2.0.1 dev ext0 table 254 metric 7000 mtu 1400
route 0.0.0.0/0 via 10.2.0.1 dev ext0 table 7001 metric 10 mtu 1400
route 10.1.0.0/24 dev ext1 table 7000 metric 10
route 10.2.0.0/24 dev ext0 table 7001 metric 10 mtu 1400
route 10.3.0.0/24 dev ext0 table 7002 metric 10
route ::/0 via fd00::1 dev ext1 table 254 metric 7000
route ::/0 via fd00::1 dev ext1 table 7003 metric 10
route fd00::/64 dev ext1 table 7003 metric 10
rule 7000 from 10.1.0.0/24 table 7000
rule 7000 from 10.2.0.0/24 table 7001
rule 7000 from 10.3.0.0/24 table 7002
rule 7000 from fd00::/64 table 7003`},
		{does: "the next one where the first has lost its carrier: the old goes before the new comes",
			before:  func(k *linktest.Fake) { k.SetCarrier("ext0", false) },
			desired: Desired{Routes: []SubnetRoute{second, firstWay, sixthWay, noWayOut}},
			done: `
remove route 0.0.0.0/0 via 10.2.0.1 dev ext0 table 254 metric 7000 mtu 1400
add route 0.0.0.0/0 via 10.1.0.1 dev ext1 table 254 metric 7000`,
			state: `
foreign route 0.0.0.0/0 via 192.0.2.1 dev ext0 table 254 metric 100
route 0.0.0.0/0 via 10.1.0.1 dev ext1 table 254 metric 7000
route 0.0.0.0/0 via 10.1.0.1 dev ext1 table 7000 metric 10
route 0.0.0.0/0 via 10.2.0.1 dev ext0 table 7001 metric 10 mtu 1400
route 10.1.0.0/24 dev ext1 table 7000 metric 10
route 10.2.0.0/24 dev ext0 table 7001 metric 10 mtu 1400
route 10.3.0.0/24 dev ext0 table 7002 metric 10
route ::/0 via fd00::1 dev ext1 table 254 metric 7000
route ::/0 via fd00::1 dev ext1 table 7003 metric 10
route fd00::/64 dev ext1 table 7003 metric 10
rule 7000 from 10.1.0.0/24 table 7000
rule 7000 from 10.2.0.0/24 table 7001
rule 7000 from 10.3.0.0/24 table 7002
rule 7000 from fd00::/64 table 7003`},
		{does: "none where nothing sets a priority; what somebody else made stays",
			desired: Desired{Routes: []SubnetRoute{six}},
			done: `
remove rule 7000 from 10.1.0.0/24 table 7000
remove rule 7000 from 10.2.0.0/24 table 7001
remove rule 7000 from 10.3.0.0/24 table 7002
remove route 0.0.0.0/0 via 10.1.0.1 dev ext1 table 7000 metric 10
remove route 10.1.0.0/24 dev ext1 table 7000 metric 10
remove route 0.0.0.0/0 via 10.2.0.1 dev ext0 table 7001 metric 10 mtu 1400
remove route 10.2.0.0/24 dev ext0 table 7001 metric 10 mtu 1400
remove route 10.3.0.0/24 dev ext0 table 7002 metric 10
remove route ::/0 via fd00::1 dev ext1 table 254 metric 7000
remove route 0.0.0.0/0 via 10.1.0.1 dev ext1 table 254 metric 7000`,
			state: `
foreign route 0.0.0.0/0 via 192.0.2.1 dev ext0 table 254 metric 100
route ::/0 via fd00::1 dev ext1 table 7003 metric 10
route fd00::/64 dev ext1 table 7003 metric 10
rule 7000 from fd00::/64 table 7003`},
	}},
}

// Of equal priorities the lowest network wins, and in it the first interface by name, so that a node does not change its mind.
func TestEqualPrioritiesAreDecided(t *testing.T) {
	interfaces := []link.Interface{linktest.Ethernet(2, "ext0"), linktest.Ethernet(3, "ext1")}
	parts := []SubnetRoute{
		{Prefix: prefix("10.1.0.0/24"), Gateway: addr("10.1.0.1"), Interface: "ext0", Priority: 1},
		{Prefix: prefix("10.0.0.0/24"), Gateway: addr("10.0.0.1"), Interface: "ext1", Priority: 1},
		{Prefix: prefix("10.0.0.0/24"), Gateway: addr("10.0.0.1"), Interface: "ext0", Priority: 1},
	}
	for range parts {
		parts = append(parts[1:], parts[0])
		got := defaultRoutes(parts, interfaces)
		if len(got) != 1 || got[0].Gateway != addr("10.0.0.1") || got[0].Interface != "ext0" {
			t.Errorf("of %v: %v, want one by 10.0.0.1 dev ext0", parts, got)
		}
	}
}

// checkDefaultRoute: there is one by a gateway of the lowest priority whose interface works, and none else.
func checkDefaultRoute(t *rapid.T, k *linktest.Fake, d Desired) {
	working := map[string]bool{}
	interfaces, _ := k.Interfaces()
	for _, i := range interfaces {
		working[i.Name] = i.Up && i.Carrier
	}
	lowest := 0
	for _, r := range d.Routes {
		if working[r.Interface] && r.Priority != 0 && (lowest == 0 || r.Priority < lowest) {
			lowest = r.Priority
		}
	}
	routes, _ := k.Routes()
	routes = slices.DeleteFunc(routes, func(r link.Route) bool { return r.Table != link.MainTable })
	if want := min(lowest, 1); len(routes) != want {
		t.Fatalf("default routes are %v, want %d of them", routes, want)
	}
	for _, r := range routes {
		if !slices.ContainsFunc(d.Routes, func(part SubnetRoute) bool {
			return part.Priority == lowest && part.Gateway == r.Gateway && part.Interface == r.Interface && working[r.Interface]
		}) {
			t.Errorf("%v is by none of the lowest priority, %d, that works", r, lowest)
		}
	}
}

// A node that lost carrier goes out by the other gateway without being told, and back; an interface of too small an MTU is on the
// board until it is mended; and a default route that an earlier process left goes at the first word of what is desired.
func TestDefaultRouteFollowsTheCarrier(t *testing.T) {
	inBubble(t, true, func(n *node) {
		left := link.Route{Table: link.MainTable, Destination: prefix("0.0.0.0/0"), Gateway: addr("10.9.0.1"), Interface: "ext1", Metric: DefaultMetric}
		for _, err := range n.kernel.Apply([]link.Operation{{Verb: link.Add, Object: left}}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		wide := firstWay
		wide.MTU = 9000
		n.set(Desired{Routes: []SubnetRoute{second, wide}})
		want := func(gateways ...string) {
			t.Helper()
			var got []string
			routes, _ := n.kernel.Routes()
			for _, r := range routes {
				if r.Table == link.MainTable {
					got = append(got, r.Gateway.String())
				}
			}
			if !slices.Equal(got, gateways) {
				t.Errorf("the default routes are by %v, want %v", got, gateways)
			}
		}
		want("10.2.0.1")
		n.wantProblems("interface.mtu ext0")
		n.kernel.SetInterface(withMTU(2, "ext0", 9000))
		n.after(0)
		n.wantProblems()
		n.kernel.SetCarrier("ext0", false)
		n.after(0)
		want("10.1.0.1")
		n.kernel.SetCarrier("ext1", false)
		n.after(0)
		want()
		n.kernel.SetCarrier("ext0", true)
		n.after(0)
		want("10.2.0.1")
	})
}
