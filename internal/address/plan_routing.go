package address

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/holdfast/holdfast/internal/linux/link"
)

// Each subnet has a rule that sends packets from its addresses to a table of its own, where the subnet is on the link
// and its gateway is the way out.
const (
	RulePriority = 7000 // of every rule; before the main table's 32766
	FirstTable   = 7000 // the lowest table number in use
	TableCount   = 1000 // how many subnets one node can have
	firstMetric  = 10   // of the first interface of a subnet; the next has one more
)

// changeRouting replaces the rules and routes that are there by those that are wanted. What is equal stays.
func (p *plan) changeRouting(s situation) {
	rules, routes := p.wantedRouting(s)
	for _, r := range s.actual.rules {
		if !slices.Contains(rules, r) {
			p.operations = append(p.operations, link.Operation{Verb: link.Remove, Object: r})
		}
	}
	for _, r := range s.actual.routes {
		if !slices.Contains(routes, r) {
			p.operations = append(p.operations, link.Operation{Verb: link.Remove, Object: r})
		}
	}
	for _, r := range routes {
		if !slices.Contains(s.actual.routes, r) {
			p.operations = append(p.operations, link.Operation{Verb: link.Add, Object: r})
		}
	}
	for _, r := range rules {
		if !slices.Contains(s.actual.rules, r) {
			p.operations = append(p.operations, link.Operation{Verb: link.Add, Object: r})
		}
	}
}

// wantedRouting is the rules and routes as they should be, sorted by prefix; the default routes of the node come last.
func (p *plan) wantedRouting(s situation) ([]link.Rule, []link.Route) {
	bySubnet := map[netip.Prefix][]SubnetRoute{}
	for _, r := range s.desired.Routes {
		prefix := r.Prefix.Masked()
		bySubnet[prefix] = append(bySubnet[prefix], r)
	}
	prefixes := slices.SortedFunc(maps.Keys(bySubnet), comparePrefixes)
	tables := assignTables(prefixes, s.actual.rules)
	var rules []link.Rule
	var routes []link.Route
	for _, prefix := range prefixes {
		table, ok := tables[prefix]
		if !ok {
			p.conflicts = append(p.conflicts, found{problemRoute, prefix.String(),
				fmt.Sprintf("all %d routing tables are in use; this node is in too many subnets", TableCount)})
			continue
		}
		rules = append(rules, link.Rule{From: prefix, Table: table, Priority: RulePriority})
		routes = append(routes, p.subnetRoutes(prefix, table, bySubnet[prefix], s.actual.interfaces)...)
	}
	p.conflicts = append(p.conflicts, smallInterfaces(s.desired.Routes, s.actual.interfaces)...)
	return rules, append(routes, defaultRoutes(s.desired.Routes, s.actual.interfaces)...)
}

// assignTables gives each subnet the table that it has already, or the lowest free one.
func assignTables(prefixes []netip.Prefix, rules []link.Rule) map[netip.Prefix]int {
	tables, taken := map[netip.Prefix]int{}, map[int]bool{}
	for _, r := range rules {
		_, known := tables[r.From]
		inRange := r.Table >= FirstTable && r.Table < FirstTable+TableCount
		if slices.Contains(prefixes, r.From) && !known && inRange && !taken[r.Table] {
			tables[r.From], taken[r.Table] = r.Table, true
		}
	}
	free := FirstTable
	for _, prefix := range prefixes {
		if _, known := tables[prefix]; known {
			continue
		}
		for taken[free] {
			free++
		}
		if free < FirstTable+TableCount {
			tables[prefix], taken[free] = free, true
		}
	}
	return tables
}

// subnetRoutes fills the table of one subnet. Where a node has several interfaces in it, all of them carry replies, the
// first by name with the lowest metric; one without carrier does not while another has it.
func (p *plan) subnetRoutes(prefix netip.Prefix, table int, parts []SubnetRoute, interfaces []link.Interface) []link.Route {
	usable, mtu := usableInterfaces(parts, interfaces), leastMTU(parts)
	var routes []link.Route
	seen := map[link.Route]netip.Addr{} // without gateway, to the gateway that was first
	for _, part := range parts {
		at := slices.Index(usable, part.Interface)
		if at < 0 {
			continue
		}
		metric := firstMetric + at
		device := interfaces[slices.IndexFunc(interfaces, func(i link.Interface) bool { return i.Name == part.Interface })]
		add := func(destination netip.Prefix, gateway netip.Addr) {
			r := link.Route{Table: table, Destination: destination.Masked(), Interface: part.Interface, Metric: metric, MTU: routeMTU(mtu, device)}
			if first, double := seen[r]; double {
				if first != gateway {
					p.conflicts = append(p.conflicts, found{problemRoute, prefix.String(), fmt.Sprintf(
						"two gateways for %v on %s: %v is used, %v is not", r.Destination, part.Interface, first, gateway)})
				}
				return
			}
			seen[r] = gateway
			r.Gateway = gateway
			routes = append(routes, r)
		}
		add(prefix, netip.Addr{})
		if part.Gateway.IsValid() {
			add(netip.PrefixFrom(unspecified(part.Gateway), 0), part.Gateway)
		}
		for _, static := range part.Static {
			add(static.Destination, static.Gateway)
		}
	}
	slices.SortStableFunc(routes, func(a, b link.Route) int {
		return cmp.Or(cmp.Compare(a.Metric, b.Metric), comparePrefixes(a.Destination, b.Destination))
	})
	return routes
}

// usableInterfaces are the interfaces of a subnet that are up and have carrier, sorted; without any, those that are up.
func usableInterfaces(parts []SubnetRoute, interfaces []link.Interface) []string {
	var up, running []string
	for _, i := range interfaces {
		named := slices.ContainsFunc(parts, func(part SubnetRoute) bool { return part.Interface == i.Name })
		if named && i.Up {
			up = append(up, i.Name)
		}
		if named && i.Up && i.Carrier {
			running = append(running, i.Name)
		}
	}
	slices.Sort(up)
	slices.Sort(running)
	if len(running) > 0 {
		return running
	}
	return up
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
