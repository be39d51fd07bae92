package dns

import (
	"math"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/cluster"
)

// Outcome says what became of a query, for counters.
type Outcome struct {
	Dropped   Drop // not empty: there is no response
	RCode     dnsmessage.RCode
	Truncated bool
	Slipped   bool // over the rate limit, and answered only to lead the client to TCP or its cookie
}

// Drop says why a query got no response.
type Drop string

// Reasons for silence.
const (
	DropNone        Drop = ""
	DropNotAQuery   Drop = "not_a_query"  // too short for a header, or a response
	DropRateLimited Drop = "rate_limited" // over the limit of its prefix
)

// Answer appends the response to a query to dst. It appends nothing when the outcome says that the query is dropped.
func (a *Answerer) Answer(dst []byte, req Request) ([]byte, Outcome) {
	return a.answer(dst, req, undecided)
}

// answer is Answer, where the rate limit may have decided already.
func (a *Answerer) answer(dst []byte, req Request, allowance allowance) ([]byte, Outcome) {
	if !understandable(req.Message) {
		return dst, Outcome{Dropped: DropNotAQuery}
	}
	req.Client = req.Client.Unmap()
	var q query
	err := q.read(req.Message)
	var r reply
	proven := a.prepareOptions(&r.options, &q, &req)
	if allowance == undecided && a.limiter != nil && !req.TCP && !proven {
		if allowance = a.limiter.take(req.Client, req.Now); allowance == refused {
			return dst, Outcome{Dropped: DropRateLimited}
		}
	}
	r.begin(dst, &q, q.sizeLimit(req.TCP))
	switch {
	case allowance == slipped:
		slip(&r)
	case err != nil:
		r.rcode = dnsmessage.RCodeFormatError
	case q.opcode != 0:
		r.rcode = dnsmessage.RCodeNotImplemented // NOTIFY and UPDATE too (RFC 2136 section 3.1)
	case q.edns.present && q.edns.version != 0:
		r.rcode = rcodeBadVersion
	case len(q.question) == 0:
		// Only the cookie was asked for (RFC 7873 section 5.4); it is in the options.
	default:
		a.resolve(&r, &q, &req)
	}
	return r.end(), Outcome{RCode: r.rcode, Truncated: r.flags&flagTruncated != 0, Slipped: allowance == slipped}
}

// slip makes the response one that costs a victim no more than the forged query cost the attacker: a client that has
// a client cookie learns its server cookie (RFC 7873 section 5.2.3), any other is sent to TCP.
func slip(r *reply) {
	if r.options.cookie {
		r.rcode = rcodeBadCookie
		return
	}
	r.flags |= flagTruncated
}

// prepareOptions decides what the OPT record of the response carries, and reports whether a valid server cookie proves
// the client's address.
func (a *Answerer) prepareOptions(o *optionsOut, q *query, req *Request) (proven bool) {
	e := &q.edns
	o.opt, o.do = e.present, e.do
	if e.keepalive && req.TCP {
		o.keepalive, o.idle = true, uint16(min(req.Idle/(100*time.Millisecond), math.MaxUint16)) // over UDP it is ignored (RFC 7828 section 3.2.1)
	}
	if e.subnet.present {
		o.subnet = e.subnet.raw // with scope 0, until an answer depends on it
	}
	if !e.cookie.present {
		return false
	}
	return a.bake(o, &e.cookie, req.Client, req.Now)
}

// bake decides which cookies the response carries, and reports whether those of the query prove the client's address.
func (a *Answerer) bake(o *optionsOut, c *cookieOption, client netip.Addr, now time.Time) (proven bool) {
	o.cookie, o.client = true, c.client
	proven, young := a.cookies.check(c, client, now)
	if young {
		copy(o.serverCookie[:], c.server[:])
	} else {
		o.serverCookie = a.cookies.make(c.client, client, now)
	}
	return proven
}

// resolve answers a well-formed question.
func (a *Answerer) resolve(r *reply, q *query, req *Request) {
	z := a.zones.Load()
	if q.class != dnsmessage.ClassINET {
		r.rcode = dnsmessage.RCodeRefused
		return
	}
	if !z.ready {
		r.rcode = dnsmessage.RCodeServerFailure
		return
	}
	if rcode := transferOrMeta(q.qtype); rcode != dnsmessage.RCodeSuccess {
		r.rcode = rcode
		return
	}
	e, missing := z.find(q)
	if e == nil {
		e = z.search(q, req.Service)
	}
	e, missing = e.orReverse(q, missing)
	if e == nil {
		r.rcode = dnsmessage.RCodeRefused
		return
	}
	r.flags |= flagAuthoritative
	if missing {
		r.rcode = dnsmessage.RCodeNameError
		r.negative(q, e.zone)
		return
	}
	a.answerFrom(r, q, req, e)
}

// transferOrMeta is the response code for types that are no record types (RFC 6895 section 3.1): zone transfers are
// not given, OPT and TSIG are no questions, the rest is not implemented. ANY is answered as a question.
func transferOrMeta(t dnsmessage.Type) dnsmessage.RCode {
	switch t {
	case dnsmessage.TypeAXFR, typeIXFR:
		return dnsmessage.RCodeRefused
	case dnsmessage.TypeOPT, typeTSIG:
		return dnsmessage.RCodeFormatError
	case typeTKEY, typeMAILA, typeMAILB:
		return dnsmessage.RCodeNotImplemented
	}
	return dnsmessage.RCodeSuccess
}

// hinfoMinimal is the data of the HINFO record that stands for ANY (RFC 8482 section 4.2): "RFC8482" and an empty text.
var hinfoMinimal = []byte("\x07RFC8482\x00")

// answerFrom answers from a name that exists.
func (a *Answerer) answerFrom(r *reply, q *query, req *Request, e *entry) {
	z := e.zone
	switch {
	case q.qtype == dnsmessage.TypeA && e.v4 != nil:
		a.answerPool(r, q, req, e, e.v4)
	case q.qtype == dnsmessage.TypeAAAA && e.v6 != nil:
		a.answerPool(r, q, req, e, e.v6)
	case q.qtype == dnsmessage.TypeA && len(e.fixed4) > 0:
		r.addresses(inQuestion(0), z.serverTTL, e.fixed4)
	case q.qtype == dnsmessage.TypeAAAA && len(e.fixed6) > 0:
		r.addresses(inQuestion(0), z.serverTTL, e.fixed6)
	case q.qtype == dnsmessage.TypePTR && len(e.ptr) > 0:
		if !r.record(sectionAnswer, inQuestion(0), dnsmessage.TypePTR, z.serverTTL, e.ptr) {
			r.truncate()
		}
	case q.qtype == dnsmessage.TypeNS && e.apex && len(z.server) > 0:
		r.nameServer(z)
	case q.qtype == dnsmessage.TypeSOA && e.apex:
		if !r.record(sectionAnswer, inQuestion(0), dnsmessage.TypeSOA, z.serverTTL, z.soa) {
			r.truncate()
		}
	case q.qtype == dnsmessage.TypeALL && e.exists():
		if !r.record(sectionAnswer, inQuestion(0), dnsmessage.TypeHINFO, z.serverTTL, hinfoMinimal) {
			r.truncate()
		}
	case q.qtype == typeDS && e.above != nil:
		r.negative(q, e.above)
	default:
		r.negative(q, z)
	}
}

// negative says NODATA or, with that response code, NXDOMAIN: the zone's SOA in the authority section, with the TTL
// for which the absence may be kept (RFC 2308 sections 2 and 3).
func (r *reply) negative(q *query, z *zone) {
	o := inQuestion(q.zoneAt(z))
	if !r.record(sectionAuthority, o, dnsmessage.TypeSOA, z.negativeTTL, z.soa) {
		r.truncate()
	}
}

// nameServer answers NS: the service name alone, and its addresses as far as they fit (RFC 1034 section 4.2.1).
func (r *reply) nameServer(z *zone) {
	if !r.record(sectionAnswer, inQuestion(0), dnsmessage.TypeNS, z.serverTTL, z.server) {
		r.truncate()
		return
	}
	target := owner(len(r.buf) - r.start - len(z.server))
	for _, set := range [][]netip.Addr{z.glue4, z.glue6} {
		for _, address := range set {
			if !r.address(sectionAdditional, target, z.serverTTL, address) {
				return // additional records are a courtesy; their lack is no truncation (RFC 2181 section 9)
			}
		}
	}
}

// answerPool answers with the addresses that the pool's policy gives out.
func (a *Answerer) answerPool(r *reply, q *query, req *Request, e *entry, p *pool) {
	client := clientPrefix(q, req)
	if p.Affinity == cluster.AffinityPrefix && r.options.subnet != nil {
		r.options.scope = uint8(subnetScope(&q.edns.subnet))
	}
	var room [maxPicked]netip.Addr
	picked, share := p.pick(room[:0], req.Service, client)
	if share && a.given != nil {
		a.given()
	}
	if len(picked) == 0 {
		a.answerNone(r, q, e, p)
		return
	}
	r.addresses(inQuestion(0), p.ttl, picked)
}

// answerNone answers for a pool that has no eligible node.
func (a *Answerer) answerNone(r *reply, q *query, e *entry, p *pool) {
	switch p.OnNone {
	case cluster.OnNoneNoData:
		r.negative(q, e.zone)
		return
	case cluster.OnNoneAll:
		if all := p.everyAddress(); len(all) > 0 {
			r.addresses(inQuestion(0), p.ttl, all)
			return
		}
	}
	r.rcode = dnsmessage.RCodeServerFailure
	r.flags &^= flagAuthoritative
}

// everyAddress is what on-none all gives: the addresses of all nodes, fit or not.
func (p *pool) everyAddress() []netip.Addr {
	var all []netip.Addr
	for i := range p.Nodes {
		all = append(all, p.Nodes[i].Addresses...)
	}
	return all
}

// clientPrefix is whom the answer is for: what the client-subnet option says, else who asked (RFC 7871 section 7.2.1).
func clientPrefix(q *query, req *Request) netip.Prefix {
	if s := &q.edns.subnet; s.present && s.prefix.IsValid() && s.prefix.Bits() > 0 {
		return netip.PrefixFrom(s.prefix.Addr(), min(s.prefix.Bits(), affinityBits(s.prefix.Addr()))).Masked()
	}
	if !req.Client.IsValid() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(req.Client, affinityBits(req.Client)).Masked()
}

// subnetScope is how many bits of the option the answer depends on.
func subnetScope(s *subnetOption) int {
	if !s.prefix.IsValid() {
		return 0
	}
	return min(s.prefix.Bits(), affinityBits(s.prefix.Addr()))
}
