package address

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/holdfast/holdfast/internal/linux/link"
)

// DefaultMetric is the metric of the default routes in the main table. It is higher than what people, DHCP clients and routers'
// announcements give theirs (0 to 1024 as a rule), so that a default route of the operator wins.
const DefaultMetric = 7000

// defaultRoutes are the node's default routes, at most one of each family: by the gateway of the lowest priority whose interface
// works; of equals, by the lowest network, and the first interface by name. Without any that works there is none.
func defaultRoutes(parts []SubnetRoute, interfaces []link.Interface) []link.Route {
	best := map[bool]SubnetRoute{} // by whether it is IPv4
	devices := map[string]link.Interface{}
	for _, i := range interfaces {
		devices[i.Name] = i
	}
	for _, part := range parts {
		device := devices[part.Interface]
		if part.Priority == 0 || !part.Gateway.IsValid() || !device.Up || !device.Carrier {
			continue
		}
		ipv4 := part.Gateway.Is4()
		if other, rival := best[ipv4]; !rival || comparePriority(part, other) < 0 {
			best[ipv4] = part
		}
	}
	var routes []link.Route
	for _, ipv4 := range []bool{true, false} {
		if part, any := best[ipv4]; any {
			routes = append(routes, link.Route{
				Table: link.MainTable, Destination: netip.PrefixFrom(unspecified(part.Gateway), 0), Gateway: part.Gateway,
				Interface: part.Interface, Metric: DefaultMetric, MTU: routeMTU(part.MTU, devices[part.Interface]),
			})
		}
	}
	return routes
}

func comparePriority(a, b SubnetRoute) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), comparePrefixes(a.Prefix.Masked(), b.Prefix.Masked()),
		cmp.Compare(a.Interface, b.Interface), a.Gateway.Compare(b.Gateway))
}

// routeMTU is the MTU that a route carries: what is configured, unless the interface takes less. A larger one would have the kernel
// make packets that the interface drops.
func routeMTU(configured int, device link.Interface) int {
	if configured > device.MTU {
		return 0
	}
	return configured
}

// leastMTU is the smallest MTU that any part of a subnet asks for; 0 if none does.
func leastMTU(parts []SubnetRoute) int {
	least := 0
	for _, part := range parts {
		if part.MTU != 0 && (least == 0 || part.MTU < least) {
			least = part.MTU
		}
	}
	return least
}

// smallInterfaces finds the interfaces that take less than a subnet that they are in is configured with: each once, with the largest.
func smallInterfaces(parts []SubnetRoute, interfaces []link.Interface) []found {
	var list []found
	for _, i := range interfaces {
		var largest SubnetRoute
		for _, part := range parts {
			if part.Interface == i.Name && part.MTU > largest.MTU {
				largest = part
			}
		}
		if largest.MTU > i.MTU {
			list = append(list, found{problemMTU, i.Name, fmt.Sprintf(
				"%s has an MTU of %d, and %v is configured with %d: `ip link set dev %[1]s mtu %[4]d`", i.Name, i.MTU, largest.Prefix.Masked(), largest.MTU)})
		}
	}
	slices.SortFunc(list, func(a, b found) int { return cmp.Compare(a.subject, b.subject) })
	return list
}
