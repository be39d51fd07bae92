package dns

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
)

// Explain returns what the next question for a name and type would be answered, among which nodes and why, without
// changing what comes next. Chosen is what the answer carries: an address and its node, the service addresses, or the word for an
// answer without any, such as NXDOMAIN. For a pool whose service addresses rotate independently it explains the lowest one that has
// answered here. A name that is in no zone is explained as the lowest service address completes it with a search domain, if any does. An
// error says that the name would be refused.
func (a *Answerer) Explain(name string, qtype dnsmessage.Type, now time.Time) (d placement.Decision, err error) {
	z := a.zones.Load()
	subject := strings.TrimSuffix(name, ".") + " " + strings.TrimPrefix(qtype.String(), "Type")
	if !z.ready {
		return placement.Decision{Subject: subject, At: now, Chosen: "SERVFAIL",
			Reason: "SERVFAIL: this node has not yet had its first full view of configuration and load"}, nil
	}
	wire, err := encodeName(name)
	if err != nil {
		return placement.Decision{}, fmt.Errorf("explaining an answer: %w", err)
	}
	var q query
	q.load(wire)
	e, missing := z.find(&q)
	completed := ""
	if e == nil {
		e, completed = z.explainSearch(&q)
	}
	e, missing = e.orReverse(&q, missing)
	d = placement.Decision{Subject: subject, At: now}
	defer func() { d.Reason = completed + d.Reason }()
	switch {
	case e == nil:
		return placement.Decision{}, fmt.Errorf("explaining an answer: %s is in no zone answered here (there are: %s); it would be REFUSED",
			name, strings.Join(z.apexes, ", "))
	case missing:
		d.Chosen = "NXDOMAIN"
		d.Reason = fmt.Sprintf("NXDOMAIN: the name does not exist in zone %v, which has no wildcard there", e.zone.name)
	case qtype == dnsmessage.TypeA && e.v4 != nil:
		e.v4.explain(&d, now)
	case qtype == dnsmessage.TypeAAAA && e.v6 != nil:
		e.v6.explain(&d, now)
	default:
		d.Chosen, d.Reason = e.explain(qtype)
	}
	return d, nil
}

// explainSearch completes a name that is in no zone, as the lowest service address does that can, and says so.
func (z *zones) explainSearch(q *query) (e *entry, how string) {
	for _, service := range slices.SortedFunc(maps.Keys(z.searches), netip.Addr.Compare) {
		if e := z.search(q, service); e != nil {
			name := q.name()
			whole := slices.Concat(name[:len(name)-1], q.domain)
			return e, fmt.Sprintf("in no zone; asked at %v it is completed to %v (dns-search) and answered as that: ", service, whole)
		}
	}
	return nil, ""
}

// load makes q ask for a name.
func (q *query) load(name wireName) {
	q.parts = 0
	off := 0
	for name[off] != 0 {
		q.labels[q.parts] = uint8(off)
		q.parts++
		off += 1 + int(name[off])
	}
	q.labels[q.parts] = uint8(off)
	q.nameLen = copy(q.lowered[:], name)
}

// explain says what a name without a pool for the type answers.
func (e *entry) explain(qtype dnsmessage.Type) (chosen, reason string) {
	fixed := e.fixed4
	if qtype == dnsmessage.TypeAAAA {
		fixed = e.fixed6
	}
	switch {
	case len(e.ptr) > 0 && qtype == dnsmessage.TypePTR:
		return e.ptr.String(), fmt.Sprintf("PTR %v, the name of the pool or the service that has the address", e.ptr)
	case (qtype == dnsmessage.TypeA || qtype == dnsmessage.TypeAAAA) && len(fixed) > 0:
		return joinAddresses(fixed), fmt.Sprintf("the service addresses %s", joinAddresses(fixed))
	case qtype == dnsmessage.TypeNS && e.apex && len(e.zone.server) > 0:
		return fmt.Sprint(e.zone.server), fmt.Sprintf("the service name %v", e.zone.server)
	case qtype == dnsmessage.TypeSOA && e.apex:
		return "SOA", "the zone's SOA"
	case qtype == dnsmessage.TypeALL && e.exists():
		return "HINFO", "a minimal HINFO (RFC 8482)"
	}
	if rcode := transferOrMeta(qtype); rcode != dnsmessage.RCodeSuccess {
		word := strings.ToUpper(rcodeNames[rcode])
		return word, word + ": the type is not answered"
	}
	return "NODATA", "NODATA: the name exists and has no record of the type"
}

func joinAddresses(list []netip.Addr) string {
	var b strings.Builder
	for i, a := range list {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(a.String())
	}
	return b.String()
}

// explain fills d with the pool's next pick. Chosen is the address and its node.
func (p *pool) explain(d *placement.Decision, now time.Time) {
	subject := d.Subject
	if p.usable == 0 {
		*d = p.explainNone(now)
		d.Subject = subject
		return
	}
	if p.Affinity == cluster.AffinityPrefix {
		for _, c := range p.choices {
			if c.Eligible {
				d.Among = append(d.Among, placement.Considered{Name: c.Name, Weight: c.Weight, Note: "for its share of the client prefixes, by weight"})
			} else {
				d.LeftOut = append(d.LeftOut, placement.Excluded{Name: c.Name, Reason: c.Why})
			}
		}
		d.Chosen = "one of these by the client's prefix"
		d.Reason = "client affinity is on: each client prefix (/24 of IPv4, /56 of IPv6) keeps one of these nodes, by its hash" + p.moreAnswers()
		return
	}
	t := p.explainedTurn()
	t.lock()
	defer t.mu.Unlock()
	*d = t.rotation.Explain(p.Policy, p.choices, now)
	d.Subject = subject
	defer func() { d.Reason += p.moreAnswers() }()
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if n.Name == d.Chosen && p.choices[i].Eligible {
			address := n.Addresses[t.next[n.LNN]%uint32(len(n.Addresses))]
			d.Chosen = fmt.Sprintf("%v (%s)", address, n.Name)
			if len(n.Addresses) > 1 {
				d.Reason += fmt.Sprintf("; of its %d addresses %v is next", len(n.Addresses), address)
			}
			break
		}
	}
}

// moreAnswers says that an answer carries more than the address that is explained; empty if it does not.
func (p *pool) moreAnswers() string {
	if p.MaxAnswers <= 1 {
		return ""
	}
	return fmt.Sprintf("; an answer carries up to %d addresses (max-answers): this one first, then one of each next node, then more of the same nodes", p.MaxAnswers)
}

// explainedTurn is the turn that an explanation is about.
func (p *pool) explainedTurn() *turn {
	s := p.state
	if p.Rotation != cluster.RotationIndependent {
		return &s.shared
	}
	turns := s.turns()
	var lowest netip.Addr
	for service := range turns {
		if !lowest.IsValid() || service.Less(lowest) {
			lowest = service
		}
	}
	if t := turns[lowest]; t != nil {
		return t
	}
	return &turn{}
}

// explainNone says what a pool without an eligible node answers.
func (p *pool) explainNone(now time.Time) placement.Decision {
	d := placement.Decision{At: now}
	for _, c := range p.choices {
		d.LeftOut = append(d.LeftOut, placement.Excluded{Name: c.Name, Reason: c.Why})
	}
	what := "SERVFAIL"
	d.Chosen = what
	switch all := p.everyAddress(); p.OnNone {
	case cluster.OnNoneAll:
		d.Chosen = fmt.Sprintf("all %d addresses that are held", len(all))
		what = "all addresses of the pool"
		if len(all) == 0 {
			d.Chosen, what = "SERVFAIL", "SERVFAIL, as nobody holds an address"
		}
	case cluster.OnNoneNoData:
		what = "NODATA"
		d.Chosen = what
	}
	setting := p.OnNone
	if setting == "" {
		setting = cluster.OnNoneServFail
	}
	d.Reason = fmt.Sprintf("no node of pool %v may be given; on-none is %s: %s", p.ID, setting, what)
	return d
}
