package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// The domains of reverse names (RFC 1035 section 3.5, RFC 3596 section 2.5).
const (
	reverse4 = "in-addr.arpa"
	reverse6 = "ip6.arpa"
)

// ReverseZone is a zone of names of addresses.
type ReverseZone struct {
	Name   string // in lower case, without the trailing dot
	Covers Range  // the addresses that have a name in it
	Free   int    // labels that the name of such an address has before the zone's
}

// ParseReverseZone reads a zone of in-addr.arpa or ip6.arpa. The first label of one that is smaller than a /24 may also be the last
// octets that it covers, such as 0-127.10.10.10.in-addr.arpa: the zone above has an alias for each of its addresses (RFC 2317).
func ParseReverseZone(text string) (ReverseZone, error) {
	name := lowerASCII(strings.TrimSuffix(text, "."))
	if rest, ok := strings.CutSuffix(name, "."+reverse4); ok {
		return reverseZone4(name, strings.Split(rest, "."))
	}
	if rest, ok := strings.CutSuffix(name, "."+reverse6); ok {
		return reverseZone6(name, strings.Split(rest, "."))
	}
	return ReverseZone{}, fmt.Errorf("%s is not a reverse zone: write one such as 10.10.10.%s or 8.b.d.0.1.0.0.2.%s", shown(text), reverse4, reverse6)
}

func reverseZone4(name string, labels []string) (ReverseZone, error) {
	var low, high [4]byte
	if len(labels) > len(low) {
		return ReverseZone{}, fmt.Errorf("%s has %d labels before %s; an IPv4 address has 4", shown(name), len(labels), reverse4)
	}
	z := ReverseZone{Name: name, Free: len(low) - len(labels)}
	for i := range low {
		if i >= len(labels) {
			high[i] = 255
			continue
		}
		label := labels[len(labels)-1-i]
		first, last, two := strings.Cut(label, "-")
		two = two && i == len(low)-1
		if !two {
			first, last = label, label
		}
		var ok, also bool
		low[i], ok = octet(first)
		high[i], also = octet(last)
		if !ok || !also || low[i] > high[i] {
			return ReverseZone{}, fmt.Errorf("%s: %s is not an octet of an address from 0 to 255; the addresses 0 to 127 of a /24 would be 0-127.10.10.10.%s (RFC 2317)",
				shown(name), shown(label), reverse4)
		}
		if two {
			z.Free = 1
		}
	}
	z.Covers = Range{netip.AddrFrom4(low), netip.AddrFrom4(high)}
	return z, nil
}

// octet reads a decimal number of an address. Its one form is without zeros before it: only that is a name.
func octet(text string) (byte, bool) {
	n, err := strconv.ParseUint(text, 10, 8)
	return byte(n), err == nil && strconv.FormatUint(n, 10) == text
}

func reverseZone6(name string, labels []string) (ReverseZone, error) {
	const digits = 32
	var low, high [16]byte
	if len(labels) > digits {
		return ReverseZone{}, fmt.Errorf("%s has %d labels before %s; an IPv6 address has %d, one for each of its digits", shown(name), len(labels), reverse6, digits)
	}
	for i := range digits {
		first, last := uint64(0), uint64(15)
		if i < len(labels) {
			label := labels[len(labels)-1-i]
			n, err := strconv.ParseUint(label, 16, 4)
			if err != nil || len(label) != 1 {
				return ReverseZone{}, fmt.Errorf("%s: %s is not one digit of an IPv6 address, 0 to f", shown(name), shown(label))
			}
			first, last = n, n
		}
		shift := 4 * (1 - i%2)
		low[i/2] |= byte(first << shift)
		high[i/2] |= byte(last << shift)
	}
	covers := Range{netip.AddrFrom16(low), netip.AddrFrom16(high)}
	return ReverseZone{Name: name, Covers: covers, Free: digits - len(labels)}, nil
}

// NameOf is the name of an address that the zone covers.
func (z ReverseZone) NameOf(a netip.Addr) string {
	var b strings.Builder
	bytes := a.AsSlice()
	for i := range z.Free {
		if a.Is4() {
			fmt.Fprintf(&b, "%d.", bytes[len(bytes)-1-i])
		} else {
			fmt.Fprintf(&b, "%x.", bytes[len(bytes)-1-i/2]>>(4*(i%2))&15)
		}
	}
	return b.String() + z.Name
}

// ReverseNameOf is the name of an address that resolvers ask for.
func ReverseNameOf(a netip.Addr) string {
	if a.Is4() {
		return ReverseZone{Name: reverse4, Free: 4}.NameOf(a)
	}
	return ReverseZone{Name: reverse6, Free: 32}.NameOf(a)
}

// Classless reports whether the zone is part of a /24 with one label for several last octets (RFC 2317).
func (z ReverseZone) Classless() bool {
	first, _, _ := strings.Cut(z.Name, ".")
	return strings.Contains(first, "-")
}

func checkReverseZone(text string) error {
	if text == "" {
		return errors.New("is empty; write a zone such as 10.10.10." + reverse4)
	}
	_, err := ParseReverseZone(text)
	return err
}

// reverseZones checks the zones of addresses that a subnet answers for.
func (v *validator) reverseZones(s subnetAt) {
	cidr := s.subnet.CIDR.Masked()
	network := Range{cidr.Addr(), lastAddress(cidr)}
	for i, text := range s.subnet.ReverseZones {
		at := s.field("sc-reverse-zones").item(i)
		zone, err := ParseReverseZone(text)
		switch {
		case err != nil: // reported as a bad value
		case zone.Covers.Low.Is4() != cidr.Addr().Is4():
			v.fault(at, "%s has names of %s addresses, but the subnet is %s (%s)", shown(text), family(zone.Covers.Low), family(cidr.Addr()), cidr)
		case !zone.Covers.Overlaps(network):
			v.fault(at, "%s has names of %s, none of which is in the subnet %s", shown(text), zone.Covers, cidr)
		default:
			v.reverseService(s, at)
		}
	}
}

// reverseService warns of a zone that nobody answers for, as is done for that of a pool.
func (v *validator) reverseService(s subnetAt, at place) {
	id, _ := v.c.ReverseService(s.id)
	switch service, ok := v.c.Subnet(id); {
	case !ok:
	case len(service.ServiceAddrs) == 0:
		v.warn(at, "nobody answers for it: %s has no sc-service-addrs", id)
	case service.ServiceName == "":
		v.warn(at, "cannot be delegated: %s has no sc-service-name", id)
	}
}

// ReverseService is the id of the subnet whose service addresses answer for a subnet's reverse zones: itself, or where it has none, the
// sc-subnet of its first pool that has one.
func (c *Config) ReverseService(id SubnetID) (SubnetID, bool) {
	s, ok := c.Subnet(id)
	if !ok || len(s.ServiceAddrs) > 0 {
		return id, ok
	}
	for i := range s.Pools {
		if s.Pools[i].ServiceSubnet != "" {
			return c.ServiceSubnet(PoolID{id.Groupnet, id.Subnet, s.Pools[i].Name})
		}
	}
	return id, true
}

// Reverse is a reverse zone with what its addresses are called.
type Reverse struct {
	ReverseZone
	Groupnet string
	Service  SubnetID // whose service addresses answer for it
	Names    []ReverseName
}

// ReverseName is the name of some addresses.
type ReverseName struct {
	Range
	Name string
}

// Reverses lists the reverse zones of all subnets, in their order. The addresses of a pool have the name of its zone and service
// addresses the service name, in whichever subnet they are; those that have no such name have none.
func (c *Config) Reverses() []Reverse {
	var out []Reverse
	var names []ReverseName
	add := func(ranges []Range, name string) {
		for _, r := range ranges {
			if name != "" {
				names = append(names, ReverseName{r, name})
			}
		}
	}
	for _, id := range c.Subnets() {
		s, _ := c.Subnet(id)
		add(s.ServiceAddrs, s.ServiceName)
		for i := range s.Pools {
			add(s.Pools[i].Ranges, s.Pools[i].Zone)
		}
		service, _ := c.ReverseService(id)
		for _, text := range s.ReverseZones {
			if zone, err := ParseReverseZone(text); err == nil {
				out = append(out, Reverse{ReverseZone: zone, Groupnet: id.Groupnet, Service: service})
			}
		}
	}
	for i := range out {
		for _, n := range names {
			if n.Overlaps(out[i].Covers) {
				out[i].Names = append(out[i].Names, n)
			}
		}
	}
	return out
}
