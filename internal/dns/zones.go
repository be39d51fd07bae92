package dns

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
)

// Timers of the SOA record. Nothing transfers these zones, so that secondaries never use them; the values are those
// that checkers of delegations expect (RFC 1912 section 2.2).
const (
	soaRefresh = 3600
	soaRetry   = 600
	soaExpire  = 1209600
)

// zones is a view, prepared so that a query costs a few map lookups. It is immutable but for the turns of its pools.
type zones struct {
	ready bool
	nameTable
	index    nameIndex                 // of names, for whole ones
	apexes   []string                  // names of the zones, for people
	searches map[netip.Addr][]searched // by service address: the search domains that count there, in their order
}

// nameTable holds the names that exist.
type nameTable struct {
	names    map[string]*entry // by lower-case wire name
	maxParts int               // labels of the longest name in names
}

// entry is a name that exists: the top of a zone, a host, or only the way to one (an empty non-terminal).
type entry struct {
	zone     *zone  // whose SOA covers the name
	apex     bool   // the name is the top of zone
	above    *zone  // for an apex: our zone around it, whose business DS is (RFC 4035 section 3.1.4.1)
	wildcard *entry // answers for names below that do not exist; nil: NXDOMAIN
	v4, v6   *pool
	fixed4   []netip.Addr // addresses that no policy picks: those of service names
	fixed6   []netip.Addr
	ptr      wireName // of a name of an address: the name that the address has

	ready preparedAnswers

	groupnets []string // which have the name: the search domains of these lead to it
}

// exists reports whether the name has any record, as opposed to being an empty non-terminal.
func (e *entry) exists() bool {
	return e.apex || e.v4 != nil || e.v6 != nil || len(e.fixed4)+len(e.fixed6)+len(e.ptr) > 0
}

// zone is what all names of a zone share.
type zone struct {
	name        wireName
	soa         []byte // record data
	serverTTL   uint32
	negativeTTL uint32   // of the SOA in a negative answer (RFC 2308 section 3)
	server      wireName // target of NS; empty: the zone has no NS
	glue4       []netip.Addr
	glue6       []netip.Addr
	reverse     *reverseNames // of a zone of names of addresses: those that stand in no table

	nodata, missing *prepared // that a type or a name does not exist; without missing that is found out each time
}

// pool is a Pool prepared for picking.
type pool struct {
	Pool
	ttl     uint32
	choices []placement.Choice
	usable  int      // eligible choices
	options []option // addresses of all nodes
	starts  []int    // where those of each node begin among them
	state   *poolState
}

// builder prepares a view. Faults are names that cannot be used; validation of the configuration refuses all of them
// beforehand, so that one here is a fault of the program and is only reported.
type builder struct {
	view     *View
	out      *zones
	services map[string]*mergedService // by lower-case name
	stateOf  func(*Pool) *poolState
	faults   []error
}

// prepare turns a view into the table that queries use. stateOf gives the rotation state of a pool.
func prepare(v *View, stateOf func(*Pool) *poolState) (*zones, []error) {
	b := &builder{view: v, out: &zones{ready: v.Ready, nameTable: newNameTable()}, stateOf: stateOf}
	b.mergeServices()
	for i := range v.Zones {
		b.addZone(&v.Zones[i])
	}
	b.addReverse()
	b.addServiceNames()
	b.addNonTerminals()
	b.addPrepared()
	b.addSearches()
	return b.out, b.faults
}

func (b *builder) fault(format string, args ...any) {
	b.faults = append(b.faults, fmt.Errorf(format, args...))
}

// mergedService is the services of one name as one.
type mergedService struct {
	Service
	groupnets []string
}

func (b *builder) mergeServices() {
	b.services = map[string]*mergedService{}
	for _, s := range b.view.Services {
		if s.Name == "" {
			continue
		}
		name := strings.ToLower(strings.TrimSuffix(s.Name, "."))
		merged := b.services[name]
		if merged == nil {
			merged = &mergedService{Service: Service{Name: name}}
			b.services[name] = merged
		}
		merged.Addresses = append(merged.Addresses, s.Addresses...)
		merged.All = append(merged.All, s.All...)
		merged.groupnets = append(merged.groupnets, s.Subnet.Groupnet)
	}
	for _, s := range b.services {
		s.Addresses = sortedAddresses(s.Addresses)
		s.All = sortedAddresses(s.All)
	}
}

func sortedAddresses(in []netip.Addr) []netip.Addr {
	out := slices.Clone(in)
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// addZone enters a zone under its name and its aliases, which share the pools and so the rotation.
func (b *builder) addZone(z *Zone) {
	var v4, v6 *pool
	for i := range z.Pools {
		p := &z.Pools[i]
		switch {
		case p.IPv6 && v6 == nil:
			v6 = b.preparePool(p)
		case !p.IPv6 && v4 == nil:
			v4 = b.preparePool(p)
		default:
			b.fault("zone %q: pool %v is left out, because an earlier pool of the same family has the name", z.Name, p.ID)
		}
	}
	for _, name := range append([]string{z.Name}, z.Aliases...) {
		wire, err := encodeName(name)
		if err != nil {
			b.fault("zone %q is left out: %w", z.Name, err)
			continue
		}
		e := b.out.names[string(wire)]
		if e == nil {
			e = &entry{zone: b.newZone(wire, z.Service), apex: true}
			b.out.enter(wire, e)
			b.out.apexes = append(b.out.apexes, wire.String())
		}
		for i := range z.Pools {
			e.belongTo(z.Pools[i].ID.Groupnet)
		}
		b.addPools(e, v4, v6, z.Wildcard)
	}
}

// addPools gives a zone its pools. A name may come from two zones of the view, as long as one brings its IPv4 and the
// other its IPv6 pool, as an alias of the one pool may be the zone of the other.
func (b *builder) addPools(e *entry, v4, v6 *pool, wildcard bool) {
	for _, family := range []struct {
		have **pool
		add  *pool
	}{{&e.v4, v4}, {&e.v6, v6}} {
		switch {
		case *family.have == nil:
			*family.have = family.add
		case family.add != nil && family.add != *family.have:
			b.fault("zone %v: pool %v is left out, because pool %v of the same family has the name", e.zone.name, family.add.ID, (*family.have).ID)
		}
	}
	if wildcard && e.wildcard == nil {
		e.wildcard = &entry{zone: e.zone}
	}
	if e.wildcard != nil {
		e.wildcard.v4, e.wildcard.v6 = e.v4, e.v6
	}
}

func newNameTable() nameTable { return nameTable{names: map[string]*entry{}} }

func (t *nameTable) enter(name wireName, e *entry) {
	t.names[string(name)] = e
	parts := 0
	for n := name; len(n) > 1; n = n.parent() {
		parts++
	}
	t.maxParts = max(t.maxParts, parts)
}

func (e *entry) belongsTo(groupnet string) bool { return slices.Contains(e.groupnets, groupnet) }

func (e *entry) belongTo(groupnets ...string) {
	for _, g := range groupnets {
		if !slices.Contains(e.groupnets, g) {
			e.groupnets = append(e.groupnets, g)
		}
	}
}

// newZone prepares the records at the top of a zone. A zone without a service name has itself as primary, and no NS.
func (b *builder) newZone(name wireName, serviceName string) *zone {
	z := &zone{name: name, serverTTL: ttlSeconds(b.view.ServerTTL)}
	minimum := ttlSeconds(b.view.NegativeTTL)
	z.negativeTTL = min(minimum, z.serverTTL)
	primary := name
	if serviceName != "" {
		if wire, err := encodeName(serviceName); err != nil {
			b.fault("service name of zone %v: %w", name, err)
		} else {
			z.server, primary = wire, wire
		}
		if s := b.services[strings.ToLower(strings.TrimSuffix(serviceName, "."))]; s != nil {
			z.glue4, z.glue6 = byFamily(s.Addresses)
		}
	}
	z.soa = packSOA(name, primary, b.view.Serial, minimum)
	return z
}

// packSOA returns the data of a SOA record. The mailbox is hostmaster at the zone (RFC 2142 section 7), or at its
// parent where that would be too long.
func packSOA(zone, primary wireName, serial, minimum uint32) []byte {
	const mailbox = "hostmaster"
	owner := zone
	for len(owner)+1+len(mailbox) > maxWireName {
		owner = owner.parent()
	}
	name := func(n wireName) dnsmessage.Name {
		return dnsmessage.MustNewName(strings.TrimSuffix(n.String(), ".") + ".")
	}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{})
	record := dnsmessage.SOAResource{
		NS: name(primary), MBox: name(append(append(wireName{byte(len(mailbox))}, mailbox...), owner...)),
		Serial: serial, Refresh: soaRefresh, Retry: soaRetry, Expire: soaExpire, MinTTL: minimum,
	}
	err := b.StartAnswers()
	if err == nil {
		err = b.SOAResource(dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("."), Class: dnsmessage.ClassINET}, record)
	}
	message, finishErr := b.Finish()
	if err != nil || finishErr != nil {
		panic(fmt.Sprintf("dns: packing the SOA of %v: %v, %v", zone, err, finishErr)) // all names were checked
	}
	return message[headerSize+1+10:] // after the header, the root as owner, and type, class, TTL and length
}

// ttlSeconds is d in whole seconds, within what a TTL may be (RFC 2181 section 8).
func ttlSeconds(d time.Duration) uint32 {
	return uint32(min(max(int64(d/time.Second), 0), math.MaxInt32))
}

func byFamily(addresses []netip.Addr) (v4, v6 []netip.Addr) {
	for _, a := range addresses {
		if a.Is4() {
			v4 = append(v4, a)
		} else {
			v6 = append(v6, a)
		}
	}
	return v4, v6
}

func (b *builder) preparePool(p *Pool) *pool {
	out := &pool{Pool: *p, ttl: ttlSeconds(p.TTL), state: b.stateOf(p)}
	out.MaxAnswers = min(max(p.MaxAnswers, 1), maxPicked)
	if out.Policy == "" {
		out.Policy = cluster.RoundRobin
	}
	out.choices = make([]placement.Choice, len(p.Nodes))
	for i, n := range p.Nodes {
		c := placement.Choice{LNN: n.LNN, Name: n.Name, Weight: n.Weight, Eligible: n.Eligible, Why: n.Why, Load: n.Load}
		if c.Eligible && len(n.Addresses) == 0 {
			c.Eligible, c.Why = false, "holds no address of the pool"
		}
		if c.Eligible {
			out.usable++
		}
		out.choices[i] = c
	}
	out.options, out.starts = optionsOf(p.Nodes)
	return out
}

// addServiceNames enters each service name and its separate names. Inside one of our zones they are hosts of it;
// outside, each is a little zone of its own, so that what is asked about it has a SOA to go with it.
func (b *builder) addServiceNames() {
	for _, name := range slices.Sorted(maps.Keys(b.services)) {
		s := b.services[name]
		b.addHost(name, s, s.Addresses)
		for i, a := range s.All {
			b.addHost(SeparateName(name, i), s, []netip.Addr{a})
		}
	}
}

// SeparateName is the name of a service's i-th address, counted from 0 in the order of all its addresses, for sites
// whose DNS wants one name for each: "ns1-" and so on before the service name.
func SeparateName(service string, i int) string { return fmt.Sprintf("ns%d-%s", i+1, service) }

func (b *builder) addHost(name string, service *mergedService, addresses []netip.Addr) {
	wire, err := encodeName(name)
	if err != nil {
		b.fault("service name %q is left out: %w", name, err)
		return
	}
	if b.out.names[string(wire)] != nil {
		if name == service.Name {
			b.fault("service name %q is also a zone; its addresses are not answered", name)
		}
		return
	}
	e := &entry{groupnets: slices.Clone(service.groupnets)}
	e.fixed4, e.fixed6 = byFamily(addresses)
	if around := b.zoneAround(wire); around != nil {
		e.zone = around
	} else {
		e.zone, e.apex = b.newZone(wire, service.Name), true
	}
	b.out.enter(wire, e)
}

// zoneAround is the nearest zone of the view above name; nil when there is none.
func (b *builder) zoneAround(name wireName) *zone {
	for n := name.parent(); len(n) > 1; n = n.parent() {
		if e := b.out.names[string(n)]; e != nil && e.apex {
			return e.zone
		}
	}
	return nil
}

// addNonTerminals enters the names between each name and the zone around it: they exist, because something below them
// does (RFC 8020).
func (b *builder) addNonTerminals() {
	existing := make([]wireName, 0, len(b.out.names))
	for name := range b.out.names {
		existing = append(existing, wireName(name))
	}
	for _, name := range existing {
		around := b.zoneAround(name)
		if around == nil {
			continue
		}
		e := b.out.names[string(name)]
		if e.apex {
			e.above = around
		}
		for n := name.parent(); len(n) > len(around.name); n = n.parent() {
			between := b.out.names[string(n)]
			if between == nil {
				between = &entry{zone: around}
				b.out.enter(n, between)
			}
			between.belongTo(e.groupnets...)
		}
	}
}

// find looks a name up: the entry itself, or the wildcard that stands for it. missing says that the name does not
// exist, and e is then the closest name above it that does (RFC 4592 section 3.3.1). Both are zero outside every zone.
func (t *nameTable) find(q *query) (e *entry, missing bool) {
	return t.walk(q.name(), q.labels[:q.parts], 0)
}

// walk looks up what begins at each label of a name in lower case, from one label on; see find.
func (t *nameTable) walk(name []byte, labels []uint8, first int) (e *entry, missing bool) {
	for i := max(len(labels)-t.maxParts, first); i < len(labels); i++ {
		e := t.names[string(name[labels[i]:])]
		switch {
		case e == nil:
			continue
		case i == 0:
			return e, false
		case e.wildcard != nil:
			return e.wildcard, false
		}
		return e, true
	}
	return nil, false
}
