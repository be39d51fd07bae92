package dns

import (
	"net/netip"
)

// searched is one search domain as it counts at a service address: a table of what exists below the domain, by the name
// without it.
type searched struct {
	domain wireName
	nameTable
	single *entry // answers for names of one label that are not in the table: the wildcard around the domain, if any
}

// search looks up a name that is in no zone once more, completed by the search domains of the service address that was
// asked. The first domain under which the name exists decides. A name that exists under none is outside every zone,
// even if a completed one would be a missing name of a zone: that name was not asked for, and so is not denied.
//
// No name on the wire is marked as relative. A name of one label is taken for one; a longer name only if its last
// labels are those of something below the domain. So a wildcard around the domain does not answer for every name in
// the world.
func (z *zones) search(q *query, service netip.Addr) *entry {
	domains := z.searches[service]
	for i := range domains {
		d := &domains[i]
		if q.parts == 0 || q.nameLen+len(d.domain)-1 > maxWireName {
			continue
		}
		e, missing := d.find(q)
		if e == nil && q.parts == 1 {
			e = d.single
		}
		if e != nil && !missing && e != elsewhere {
			q.domain = d.domain
			return e
		}
	}
	return nil
}

// zoneAt is where the name of a zone begins in the name that was asked. A zone that reaches into the search domain is
// not named there: the last label stands for it, so that nothing above what was asked is spoken about.
func (q *query) zoneAt(z *zone) int {
	if len(q.domain) == 0 {
		return q.nameLen - len(z.name)
	}
	return min(q.nameLen+len(q.domain)-1-len(z.name), int(q.labels[q.parts-1]))
}

// addSearches prepares the search lists for the service addresses of their groupnets.
func (b *builder) addSearches() {
	b.out.searches = map[netip.Addr][]searched{}
	for _, s := range b.view.Searches {
		var domains []searched
		for _, text := range s.Domains {
			domain, err := encodeName(text)
			if err != nil {
				b.fault("search domain %q of groupnet %s is left out: %w", text, s.Groupnet, err)
				continue
			}
			domains = append(domains, b.below(domain, s.Groupnet))
		}
		for i := range b.view.Services {
			if service := &b.view.Services[i]; service.Subnet.Groupnet == s.Groupnet {
				for _, address := range service.All {
					b.out.searches[address] = domains
				}
			}
		}
	}
}

// elsewhere stands for a name of another groupnet, which keeps those below it from a wildcard further up.
var elsewhere = &entry{}

// below gathers the names that lie below a domain, of which a groupnet is given its own.
func (b *builder) below(domain wireName, groupnet string) searched {
	d := searched{domain: domain, nameTable: newNameTable()}
	for name, e := range b.out.names {
		if relative, ok := wireName(name).without(domain); ok {
			if !e.belongsTo(groupnet) {
				e = elsewhere
			}
			d.enter(relative, e)
		}
	}
	for n := domain; len(n) > 1; n = n.parent() {
		if e := b.out.names[string(n)]; e != nil {
			if e.belongsTo(groupnet) {
				d.single = e.wildcard
			}
			break
		}
	}
	return d
}
