package dns

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/cluster"
)

// prepared is a response without what differs from one query to the next: the id and the bits that are copied, the question, the OPT
// record, the address that a policy picks, and how far into the question the zone's name begins. It is immutable.
type prepared struct {
	rcode   dnsmessage.RCode
	counts  uint64 // of questions and records, as they stand in the header
	records []byte
	zone    *zone // not nil: this zone's name, at the end of the question's, owns the first record
	pool    *pool // not nil: the last octets of records are an address that the policy picks
	octets  int   // of the address
}

// preparedRefusal answers for a name outside every zone: the question alone, without authority.
var preparedRefusal = &prepared{rcode: dnsmessage.RCodeRefused, counts: 1 << 48}

// preparedAnswers are the responses to questions for a name that exists. Where there is none, the answer is written anew each time.
type preparedAnswers struct {
	a, aaaa, ns, soa *prepared
	other            *prepared // of types that the name does not have
}

// forType is the response to a question for a type, if it is prepared.
func (p *preparedAnswers) forType(t dnsmessage.Type) *prepared {
	switch t {
	case dnsmessage.TypeA:
		return p.a
	case dnsmessage.TypeAAAA:
		return p.aaaa
	case dnsmessage.TypeNS:
		return p.ns
	case dnsmessage.TypeSOA:
		return p.soa
	case dnsmessage.TypeALL, dnsmessage.TypePTR, typeDS:
		return nil
	}
	if transferOrMeta(t) != dnsmessage.RCodeSuccess {
		return nil
	}
	return p.other
}

// addPrepared prepares the answers of all names. They are made by the code that answers a single query, from a question for the name.
func (b *builder) addPrepared() {
	pools := map[*pool]*prepared{}
	zones := map[*zone]bool{}
	for text, e := range b.out.names {
		if !zones[e.zone] {
			zones[e.zone] = true
			e.zone.nodata = prepareNegative(e.zone, dnsmessage.RCodeSuccess)
			if e.zone.reverse == nil {
				e.zone.missing = prepareNegative(e.zone, dnsmessage.RCodeNameError)
			}
		}
		e.prepare(wireName(text), pools)
		if e.wildcard != nil {
			e.wildcard.prepare(nil, pools)
		}
	}
	b.out.index = newNameIndex(b.out.names)
}

// prepare prepares the answers of one name; pools has those that are prepared already. A wildcard has none but those of pools.
func (e *entry) prepare(name wireName, pools map[*pool]*prepared) {
	address := func(p *pool, fixed []netip.Addr, t dnsmessage.Type) *prepared {
		if p == nil {
			if len(fixed) == 0 {
				return e.zone.nodata
			}
			return e.prepareFixed(name, t)
		}
		ready, known := pools[p]
		if !known {
			ready = p.prepare()
			pools[p] = ready
		}
		return ready
	}
	e.ready = preparedAnswers{
		a: address(e.v4, e.fixed4, dnsmessage.TypeA), aaaa: address(e.v6, e.fixed6, dnsmessage.TypeAAAA),
		ns: e.zone.nodata, soa: e.zone.nodata, other: e.zone.nodata,
	}
	if e.apex {
		e.ready.soa = e.prepareFixed(name, dnsmessage.TypeSOA)
		if len(e.zone.server) > 0 {
			e.ready.ns = e.prepareFixed(name, dnsmessage.TypeNS)
		}
	}
}

// prepareFixed prepares an answer that is always the same. Those that carry names point to places behind the question, which are the same
// for every query, as only the whole name has them.
func (e *entry) prepareFixed(name wireName, t dnsmessage.Type) *prepared {
	return prepareReply(name, func(r *reply, q *query) {
		q.qtype = t
		(&Answerer{}).answerFrom(r, q, &Request{}, e)
	})
}

// prepareNegative prepares the absence of a type or a name.
func prepareNegative(z *zone, rcode dnsmessage.RCode) *prepared {
	ready := prepareReply(z.name, func(r *reply, q *query) {
		r.rcode = rcode
		r.negative(q, z)
	})
	if ready != nil {
		ready.zone = z
	}
	return ready
}

// prepare prepares an answer of one address that the policy picks; nil where an answer has several, depends on the client, or has none.
func (p *pool) prepare() *prepared {
	if p.usable == 0 || p.MaxAnswers != 1 || p.Affinity == cluster.AffinityPrefix {
		return nil
	}
	any := p.options[0].address
	for i := range p.options {
		if p.options[i].address.BitLen() != any.BitLen() {
			return nil // no configuration has a pool of both families
		}
	}
	ready := prepareReply(wireName{0}, func(r *reply, _ *query) { r.addresses(inQuestion(0), p.ttl, []netip.Addr{any}) })
	if ready != nil {
		ready.pool, ready.octets = p, any.BitLen()/8
	}
	return ready
}

// prepareReply keeps what write writes in response to a question for name.
func prepareReply(name wireName, write func(*reply, *query)) *prepared {
	var q query
	q.load(name)
	q.question = append(append([]byte(nil), name...), 0, 0, 0, byte(dnsmessage.ClassINET))
	var r reply
	r.begin(nil, &q, ourUDPLimit)
	write(&r, &q)
	if r.flags&flagTruncated != 0 {
		return nil
	}
	wire := r.end()
	return &prepared{rcode: r.rcode, counts: binary.BigEndian.Uint64(wire[4:]), records: wire[headerSize+len(q.question):]}
}
