package dns

import (
	"encoding/binary"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// batch answers queries that came together to one service address, in three steps: read each, decide about all, respond to each. What
// cannot be answered from what is prepared is left to Answerer.Answer, which is the rule: both give the same response, octet for octet.
//
// Together they ask once for each client prefix whether it is within its limit, and once for each pool for the next picks. So however many
// processors answer, nothing that they share is written for each query.
type batch struct {
	answerer *Answerer
	service  netip.Addr

	zones     *zones
	completes bool // search domains count at the service address
	now       time.Time
	due       uint64 // now, as the rate limit counts
	brief     brief

	jobs   []job
	groups []group
	draws  []draw
	shared bool              // something was given that other holders have to hear of
	known  [groupSlots]uint8 // by the low bits of a prefix's key: its group, counted from 1
}

// groupSlots is how many prefixes are told apart for sure; others may have two groups.
const groupSlots = 64

// job is one query of a batch.
type job struct {
	ready     *prepared // nil: left to Answer
	end       int       // of the question
	allowance allowance
	group     int // of its prefix; -1: not limited
	draw      int // of its pool
	opt, do   bool
	cookie    bool
	cookies   [clientCookieSize + serverCookieSize]byte // as they stand in the response
}

// group is the queries of one client prefix.
type group struct {
	key     uint64
	count   int
	granted int
	slip    bool // whether the next one over the limit slips
}

// draw is the picks for the queries of one pool.
type draw struct {
	pool   *pool
	turn   *turn
	wanted int
	picks  []uint32
}

func newBatch(a *Answerer, service netip.Addr) *batch {
	return &batch{answerer: a, service: service, jobs: make([]job, 0, batchSize), groups: make([]group, 0, batchSize), draws: make([]draw, 0, batchSize)}
}

// begin forgets the last batch.
func (b *batch) begin(now time.Time) {
	b.zones, b.now, b.shared = b.answerer.zones.Load(), now, false
	b.completes = len(b.zones.searches[b.service]) > 0
	b.jobs, b.groups, b.draws = b.jobs[:0], b.groups[:0], b.draws[:0]
	clear(b.known[:])
	if b.answerer.limiter != nil {
		b.due = b.answerer.limiter.due(now)
	}
}

// read takes in the next query. Up to the capacity of message is room for a response.
func (b *batch) read(message []byte, client netip.Addr) {
	b.jobs = b.jobs[:len(b.jobs)+1]
	j := &b.jobs[len(b.jobs)-1]
	j.ready = nil
	q := &b.brief
	if !b.zones.ready || !q.read(message) {
		return
	}
	ready := b.find(q)
	if ready == nil {
		return
	}
	client = client.Unmap()
	size := q.end + len(ready.records)
	if q.opt {
		size += optSize
	}
	if q.cookie {
		size += cookiesSize
	}
	if size > q.limit || size > cap(message) {
		return
	}
	j.ready, j.end, j.opt, j.do, j.cookie = ready, q.end, q.opt, q.do, q.cookie
	j.group, j.allowance = -1, allowed
	if !b.bake(j, client) && b.answerer.limiter != nil {
		j.group = b.join(b.answerer.limiter.key(client))
	}
}

// find is what is prepared for a query, if anything is.
func (b *batch) find(q *brief) *prepared {
	e, missing := q.find(b.zones)
	switch {
	case e == nil && (b.completes || transferOrMeta(q.qtype) != dnsmessage.RCodeSuccess):
		return nil
	case e == nil:
		return preparedRefusal
	case missing && transferOrMeta(q.qtype) == dnsmessage.RCodeSuccess:
		return e.zone.missing
	}
	return e.ready.forType(q.qtype)
}

// bake makes the cookies of the response, and reports whether those of the query prove the client's address.
func (b *batch) bake(j *job, client netip.Addr) (proven bool) {
	if !j.cookie {
		return false
	}
	var out optionsOut
	proven = b.answerer.bake(&out, &b.brief.proposed, client, b.now)
	copy(j.cookies[:], out.client[:])
	copy(j.cookies[clientCookieSize:], out.serverCookie[:])
	return proven
}

// join counts a query of a prefix and returns its group.
func (b *batch) join(key uint64) int {
	known := &b.known[key%groupSlots]
	if i := int(*known) - 1; i >= 0 && b.groups[i].key == key {
		b.groups[i].count++
		return i
	}
	b.groups = append(b.groups, group{key: key, count: 1})
	*known = uint8(len(b.groups))
	return len(b.groups) - 1
}

// decide finds out which queries are within the limits, and how many picks of each pool they need.
func (b *batch) decide() {
	for i := range b.groups {
		g := &b.groups[i]
		g.granted, g.slip = b.answerer.limiter.takeMany(g.key, g.count, b.due)
	}
	for i := range b.jobs {
		j := &b.jobs[i]
		if j.ready == nil {
			continue
		}
		if j.group >= 0 {
			j.allowance = b.groups[j.group].next()
		}
		if p := j.ready.pool; p != nil && j.allowance == allowed {
			j.draw = b.want(p)
		}
	}
}

// next is what the limit says about the next query of the group.
func (g *group) next() allowance {
	if g.granted > 0 {
		g.granted--
		return allowed
	}
	slip := g.slip
	g.slip = !slip
	if slip {
		return slipped
	}
	return refused
}

// want counts a pick of a pool and returns its draw.
func (b *batch) want(p *pool) int {
	for i := range b.draws {
		if b.draws[i].pool == p {
			b.draws[i].wanted++
			return i
		}
	}
	b.draws = append(b.draws, draw{pool: p, turn: p.state.of(p.Rotation, b.service), wanted: 1})
	return len(b.draws) - 1
}

// next is the next pick of the draw.
func (d *draw) next() *option {
	if len(d.picks) == 0 {
		d.picks = d.turn.reserve(d.pool, d.wanted)
	}
	pick := d.picks[0]
	d.picks = d.picks[1:]
	d.wanted--
	return &d.pool.options[pick]
}

// respond turns the memory of the i-th query into its response. done says whether it did; if not, Answer has to, with the allowance that
// was found out, if any. Without a length there is no response.
func (b *batch) respond(i int, message []byte) (length int, outcome Outcome, done bool) {
	j := &b.jobs[i]
	ready := j.ready
	switch {
	case ready == nil || j.allowance == slipped:
		return 0, Outcome{}, false
	case j.allowance == refused:
		return 0, Outcome{Dropped: DropRateLimited}, true
	}
	m := message[:cap(message)]
	m[2] = flagResponse>>8 | m[2]&(flagRecursion>>8)
	if ready != preparedRefusal {
		m[2] |= flagAuthoritative >> 8
	}
	m[3] = m[3]&flagNoCheck | byte(ready.rcode)
	at := j.end + copy(m[j.end:], ready.records)
	if ready.zone != nil {
		owner := inQuestion(j.end - headerSize - 4 - len(ready.zone.name))
		binary.BigEndian.PutUint16(m[j.end:], 0xC000|uint16(owner))
	}
	if p := ready.pool; p != nil {
		copy(m[at-ready.octets:at], b.draws[j.draw].next().wire[:ready.octets])
		b.shared = b.shared || p.shares()
	}
	counts := ready.counts
	if j.opt {
		counts++
		at = j.appendOPT(m, at)
	}
	binary.BigEndian.PutUint64(m[4:], counts)
	return at, Outcome{RCode: ready.rcode}, true
}

// allowance is what the rate limit said about the i-th query, if it was asked.
func (b *batch) allowance(i int, readable bool) allowance {
	if !readable || b.jobs[i].ready == nil {
		return undecided
	}
	return b.jobs[i].allowance
}

// appendOPT writes the OPT record at an offset and returns its end; see reply.appendOPT.
func (j *job) appendOPT(m []byte, at int) int {
	const bare = 41<<40 | ourUDPLimit<<24 // root, type and class; TTL and length follow
	opt := m[at : at+optSize]
	binary.BigEndian.PutUint64(opt, bare)
	opt[7], opt[8], opt[9], opt[10] = 0, 0, 0, 0
	if j.do {
		opt[7] = 0x80
	}
	at += optSize
	if !j.cookie {
		return at
	}
	opt[10] = cookiesSize
	binary.BigEndian.PutUint32(m[at:], optionCookie<<16|clientCookieSize+serverCookieSize)
	return at + 4 + copy(m[at+4:], j.cookies[:])
}

// end tells, after the last response, that there is something to share.
func (b *batch) end() {
	if b.shared && b.answerer.given != nil {
		b.answerer.given()
	}
}
