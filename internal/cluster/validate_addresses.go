package cluster

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// claim is a range of addresses that something uses, and where that is written.
type claim struct {
	Range
	at    place
	what  string // "the pool groupnet0.subnet0.pool0", "the gateway of groupnet0.subnet0"
	fixed bool   // a gateway or a node's own address: what overlaps it is to blame
	order int    // later claims are to blame
}

// addressClaims lists everything that claims addresses: pools, service addresses, gateways, nodes.
func (v *validator) addressClaims() []claim {
	var out []claim
	add := func(r Range, at place, what string, fixed bool) {
		if checkRange(r) == nil && !v.broken(at) {
			out = append(out, claim{r, at, what, fixed, len(out)})
		}
	}
	gateways := map[netip.Addr]bool{}
	for _, s := range v.subnets {
		for i, r := range s.subnet.ServiceAddrs {
			add(r, s.field("sc-service-addrs").item(i), "the service addresses of "+s.name, false)
		}
		// Two subnets over one link may share a gateway.
		if g := s.subnet.Gateway; g.IsValid() && !gateways[g] {
			gateways[g] = true
			add(Range{g, g}, s.field("gateway"), "the gateway of "+s.name, true)
		}
	}
	for _, p := range v.pools {
		for i, r := range p.pool.Ranges {
			add(r, p.field("ranges").item(i), "the pool "+p.name, false)
		}
	}
	seen := map[netip.Addr]bool{}
	for i := range v.c.Nodes {
		n := &v.c.Nodes[i]
		at := place{"nodes", "nodes"}.object(place{}, i, n.Name, false).field("addresses")
		for j, a := range n.Addresses {
			if !seen[a] { // two nodes with one address are reported elsewhere
				seen[a] = true
				add(Range{a, a}, at.item(j), "the node "+n.Name, true)
			}
		}
	}
	return out
}

// overlaps reports each claim that shares addresses with an earlier one. After sorting by the lower end, only the claim
// that reaches furthest so far can overlap the next.
func (v *validator) overlaps(claims []claim) {
	slices.SortStableFunc(claims, func(a, b claim) int { return cmp.Or(a.Low.Compare(b.Low), a.High.Compare(b.High)) })
	for i, furthest := 1, 0; i < len(claims); i++ {
		first, second := claims[furthest], claims[i]
		if first.Overlaps(second.Range) {
			v.overlap(first, second)
		}
		if !first.Overlaps(second.Range) || first.High.Less(second.High) {
			furthest = i
		}
	}
}

func (v *validator) overlap(first, second claim) {
	shared := Range{second.Low, second.High}
	if first.High.Less(shared.High) {
		shared.High = first.High
	}
	if second.fixed && !first.fixed || second.fixed == first.fixed && second.order < first.order {
		first, second = second, first
	}
	v.collision(second.at, first.at, "%s overlaps %s, %s: %s would be used twice", second, first.what, first, shared)
}

// subnet checks the addresses of one subnet against each other.
func (v *validator) subnet(s subnetAt) {
	cidr := s.subnet.CIDR
	if !cidr.IsValid() || v.broken(s.field("cidr")) {
		return
	}
	cidr = cidr.Masked()
	if g := s.subnet.Gateway; g.IsValid() {
		v.inside(s.field("gateway"), Range{g, g}, cidr)
	}
	for i, r := range s.subnet.ServiceAddrs {
		v.inside(s.field("sc-service-addrs").item(i), r, cidr)
	}
	if s.subnet.MTU != 0 && s.subnet.MTU < 1280 && cidr.Addr().Is6() {
		v.fault(s.field("mtu"), "%d is less than 1280, the least that IPv6 works with (RFC 8200)", s.subnet.MTU)
	}
	if s.subnet.GatewayPriority != 0 && !s.subnet.Gateway.IsValid() {
		v.warn(s.field("gateway-priority"), "has no effect: the subnet has no gateway for a default route to lead to")
	}
	v.serviceAddresses(s)
	v.reverseZones(s)
	for _, other := range v.subnets {
		if other.index == s.index {
			break
		}
		if o := other.subnet.CIDR; o.IsValid() && o.Overlaps(cidr) {
			v.warn(s.field("cidr"), "%s overlaps %s of %s; replies may leave by the other one", cidr, o, other.name)
		}
	}
}

func (v *validator) serviceAddresses(s subnetAt) {
	at := s.field("sc-service-addrs")
	total := 0
	for _, r := range s.subnet.ServiceAddrs {
		total += r.Size(1 << 20)
	}
	switch {
	case total > MaxServiceAddresses:
		v.fault(at, "has %s addresses; at most %d are taken, and two to six do well", countText(total), MaxServiceAddresses)
	case total > ManyServiceAddresses:
		v.warn(at, "has %d addresses; more than %d make each failing query slower and add no safety", total, ManyServiceAddresses)
	}
	if total > 0 && s.subnet.ServiceName == "" {
		v.warn(at, "the subnet has no sc-service-name; zones cannot be delegated to these addresses")
	}
}

func countText(n int) string {
	if n >= 1<<20 {
		return "over a million"
	}
	return fmt.Sprint(n)
}

// inside checks that a range lies in its subnet and has none of the addresses that no host may have.
func (v *validator) inside(at place, r Range, cidr netip.Prefix) {
	if v.broken(at) || checkRange(r) != nil {
		return
	}
	if r.Low.Is4() != cidr.Addr().Is4() {
		v.fault(at, "%s is %s, but the subnet is %s (%s)", r, family(r.Low), family(cidr.Addr()), cidr)
		return
	}
	if !cidr.Contains(r.Low) || !cidr.Contains(r.High) {
		v.fault(at, "%s is not in the subnet %s", r, cidr)
		return
	}
	hostBits := cidr.Addr().BitLen() - cidr.Bits()
	if hostBits < 2 { // RFC 3021, RFC 6164: both addresses of a point-to-point link are hosts
		return
	}
	first, last := cidr.Addr(), lastAddress(cidr)
	if r.Contains(first) {
		v.fault(at, "%s, which is the address of the network itself", hasOrIs(r, first))
	}
	if r.Contains(last) && first.Is4() {
		v.fault(at, "%s, which is the broadcast address of %s", hasOrIs(r, last), cidr)
	}
}

// hasOrIs writes "10.0.0.0-10.0.0.9 has 10.0.0.0", or the address alone when it is the whole range.
func hasOrIs(r Range, a netip.Addr) string {
	if r.Low == r.High {
		return "is " + a.String()
	}
	return fmt.Sprintf("%s has %s", r, a)
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// lastAddress is the highest address of a network.
func lastAddress(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(bytes)*8; i++ {
		bytes[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}
