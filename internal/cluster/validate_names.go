package cluster

import (
	"slices"
)

// poolService checks that somebody answers for the pool's zone.
func (v *validator) poolService(p poolAt) {
	name := p.pool.ServiceSubnet
	service := v.serviceSubnet(p)
	if service == nil {
		var names []string
		for _, s := range p.groupnet.Subnets {
			names = append(names, s.Name)
		}
		v.fault(p.field("sc-subnet"), "there is no subnet %s in %s; it has %s%s", shown(name), p.groupnet.Name, listed(names, "and"), didYouMean(name, names))
		return
	}
	zone := p.field("sc-dns-zone")
	if p.pool.Zone == "" {
		if len(p.pool.ZoneAliases) > 0 {
			v.fault(p.field("sc-dns-zone-aliases"), "are aliases of no zone; write sc-dns-zone as well")
		}
		return
	}
	switch {
	case len(service.subnet.ServiceAddrs) == 0:
		v.warn(zone, "nobody answers for it: %s has no sc-service-addrs", service.name)
	case service.subnet.ServiceName == "":
		v.warn(zone, "cannot be delegated: %s has no sc-service-name", service.name)
	}
}

// serviceSubnet is the subnet whose service addresses answer for a pool, nil when it does not exist.
func (v *validator) serviceSubnet(p poolAt) *subnetAt {
	for i := range v.subnets {
		s := &v.subnets[i]
		if p.pool.ServiceSubnet == "" && s.subnet == p.subnet ||
			p.pool.ServiceSubnet != "" && s.groupnet == p.groupnet && s.id.Subnet == p.pool.ServiceSubnet {
			return s
		}
	}
	return nil
}

// nameClaim is a DNS name that something answers to.
type nameClaim struct {
	name    string
	family  string
	service bool // a service name, otherwise a zone or an alias
	reverse bool // a zone of names of addresses
	at      place
	what    string // "the zone of groupnet0.subnet0.pool0"
}

// conflicts reports whether two claims to one name cannot both stand: in one family, or where one of them is a service
// name, whose records would stand at the zone's own name. A reverse zone has its name alone.
func (n nameClaim) conflicts(o nameClaim) bool {
	return n.family == o.family || n.service != o.service || n.reverse || o.reverse
}

// names refuses DNS names that are claimed twice in one family.
func (v *validator) names() {
	claims := map[string][]nameClaim{}
	for _, s := range v.subnets {
		v.claim(claims, nameClaim{family: familyOf(s.subnet, s.index), name: s.subnet.ServiceName, service: true, at: s.field("sc-service-name"), what: "the service name of " + s.name})
	}
	for _, s := range v.subnets {
		for i, zone := range s.subnet.ReverseZones {
			if !slices.Contains(s.subnet.ReverseZones[:i], zone) { // reported as listed twice
				v.claim(claims, nameClaim{family: familyOf(s.subnet, s.index), name: zone, reverse: true, at: s.field("sc-reverse-zones").item(i), what: "a reverse zone of " + s.name})
			}
		}
	}
	for _, p := range v.pools {
		v.claim(claims, nameClaim{family: familyOf(p.subnet, subnetIndex(p)), name: p.pool.Zone, at: p.field("sc-dns-zone"), what: "the zone of " + p.name})
		for i, alias := range p.pool.ZoneAliases {
			if slices.Contains(p.pool.ZoneAliases[:i], alias) {
				continue // reported as listed twice
			}
			v.claim(claims, nameClaim{family: familyOf(p.subnet, subnetIndex(p)), name: alias, at: p.field("sc-dns-zone-aliases").item(i), what: "an alias of " + p.name})
		}
	}
	v.sharedZones()
}

// familyOf is IPv4 or IPv6. A subnet whose cidr cannot be read is taken for a family of its own, so that what collides
// inside it is still found.
func familyOf(s *Subnet, index string) string {
	if s.CIDR.IsValid() {
		return family(s.CIDR.Addr())
	}
	return "the family of " + index
}

func (v *validator) claim(claims map[string][]nameClaim, n nameClaim) {
	n.name = lowerASCII(n.name)
	if n.name == "" || v.broken(n.at) {
		return
	}
	i := slices.IndexFunc(claims[n.name], n.conflicts)
	if i < 0 {
		claims[n.name] = append(claims[n.name], n)
		return
	}
	first := claims[n.name][i]
	if n.reverse || first.reverse {
		v.collision(n.at, first.at, "%s is claimed twice: it is %s already", shown(n.name), first.what)
		return
	}
	if n.service != first.service {
		v.collision(n.at, first.at, "%s is %s as well; a service name and a zone must differ", shown(n.name), first.what)
		return
	}
	v.collision(n.at, first.at, "%s is claimed twice in one family: it is %s already", shown(n.name), first.what)
}

// sharedZones warns of a zone whose two families are answered under different service names: its NS record has room for
// the names of one.
func (v *validator) sharedZones() {
	first := map[string]*subnetAt{}
	for _, p := range v.pools {
		service := v.serviceSubnet(p)
		if p.pool.Zone == "" || service == nil {
			continue
		}
		zone := lowerASCII(p.pool.Zone)
		other := first[zone]
		if other == nil {
			first[zone] = service
		} else if lowerASCII(other.subnet.ServiceName) != lowerASCII(service.subnet.ServiceName) {
			v.warn(p.field("sc-dns-zone"), "is answered under two service names, %s and %s; give both pools the same sc-subnet, or both subnets the same sc-service-name",
				shown(other.subnet.ServiceName), shown(service.subnet.ServiceName))
		}
	}
}
