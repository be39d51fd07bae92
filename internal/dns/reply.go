package dns

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"
)

// Flags of the header (RFC 1035 section 4.1.1, RFC 4035 section 3.2).
const (
	flagResponse      = 1 << 15
	flagAuthoritative = 1 << 10
	flagTruncated     = 1 << 9
	flagRecursion     = 1 << 8
	flagNoCheck       = 1 << 4
)

// section counts records in the header.
type section int

const (
	sectionAnswer section = iota
	sectionAuthority
	sectionAdditional
)

// reply is a response being written. Records are appended in the order of the sections.
type reply struct {
	buf       []byte // the whole message; it begins at start
	start     int
	limit     int // bytes that header, question and records may take; the OPT record has its room beside it
	questions uint16
	counts    [3]uint16
	flags     uint16
	rcode     dnsmessage.RCode
	options   optionsOut
}

// optionsOut is what the OPT record of a response carries.
type optionsOut struct {
	opt          bool
	do           bool
	cookie       bool
	client       [clientCookieSize]byte
	serverCookie [serverCookieSize]byte
	subnet       []byte // client-subnet data to echo; nil: none
	scope        uint8
	keepalive    bool
	idle         uint16 // how long the connection may be idle, in 100 ms
}

// size is how many bytes the OPT record takes.
func (o *optionsOut) size() int {
	if !o.opt {
		return 0
	}
	n := optSize
	if o.cookie {
		n += cookiesSize
	}
	if o.subnet != nil {
		n += 4 + len(o.subnet)
	}
	if o.keepalive {
		n += 4 + 2
	}
	return n
}

// begin starts the response to q with room for what options will need.
func (r *reply) begin(dst []byte, q *query, limit int) {
	r.start = len(dst)
	r.limit = limit - r.options.size()
	r.flags = flagResponse | uint16(q.opcode&0xf)<<11
	if q.recursion {
		r.flags |= flagRecursion
	}
	if q.noCheck {
		r.flags |= flagNoCheck
	}
	r.buf = binary.BigEndian.AppendUint16(dst, q.id)
	r.buf = append(r.buf, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	if len(q.question) > 0 {
		r.buf = append(r.buf, q.question...)
		r.questions = 1
	}
}

// owner is the name of a record, as a compression pointer to where the name already stands in the message (RFC 1035
// section 4.1.4), so that it has the letter case of the question.
type owner uint16

// inQuestion is the owner whose name begins at an offset of the question's name.
func inQuestion(offset int) owner { return owner(headerSize + offset) }

// record appends a record and reports whether it fitted; one that did not leaves no trace.
func (r *reply) record(s section, o owner, t dnsmessage.Type, ttl uint32, data []byte) bool {
	if len(r.buf)-r.start+12+len(data) > r.limit {
		return false
	}
	r.buf = binary.BigEndian.AppendUint16(r.buf, 0xC000|uint16(o))
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(t))
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(dnsmessage.ClassINET))
	r.buf = binary.BigEndian.AppendUint32(r.buf, ttl)
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(len(data)))
	r.buf = append(r.buf, data...)
	r.counts[s]++
	return true
}

// address appends an A or AAAA record, after the family of a.
func (r *reply) address(s section, o owner, ttl uint32, a netip.Addr) bool {
	if a.Is4() {
		four := a.As4()
		return r.record(s, o, dnsmessage.TypeA, ttl, four[:])
	}
	sixteen := a.As16()
	return r.record(s, o, dnsmessage.TypeAAAA, ttl, sixteen[:])
}

// addresses appends all of a set as answers; one that does not fit makes the response empty and truncated, so that the
// client asks again over TCP (RFC 2181 section 9).
func (r *reply) addresses(o owner, ttl uint32, set []netip.Addr) {
	for _, a := range set {
		if !r.address(sectionAnswer, o, ttl, a) {
			r.truncate()
			return
		}
	}
}

// truncate drops every record and says so.
func (r *reply) truncate() {
	r.cut()
	r.flags |= flagTruncated
}

// cut drops every record.
func (r *reply) cut() {
	r.buf = r.buf[:r.start+headerSize+r.questionSize()]
	r.counts = [3]uint16{}
}

func (r *reply) questionSize() int {
	if r.questions == 0 {
		return 0
	}
	m := r.buf[r.start+headerSize:]
	n := 0
	for m[n] != 0 {
		n += 1 + int(m[n])
	}
	return n + 5
}

// end writes the OPT record and the header, and returns dst with the response appended.
func (r *reply) end() []byte {
	if r.options.opt {
		r.appendOPT()
	}
	head := r.buf[r.start:]
	binary.BigEndian.PutUint16(head[2:], r.flags|uint16(r.rcode&0xf))
	binary.BigEndian.PutUint16(head[4:], r.questions)
	for i, n := range r.counts {
		binary.BigEndian.PutUint16(head[6+2*i:], n)
	}
	return r.buf
}

// appendOPT writes the OPT record (RFC 6891 section 6.1.2): root owner, our UDP size as class, and in the TTL the upper
// bits of the response code, version 0 and the DO bit as it came (RFC 3225 section 3).
func (r *reply) appendOPT() {
	o := &r.options
	ttl := uint32(r.rcode>>4) << 24
	if o.do {
		ttl |= 0x8000
	}
	r.buf = append(r.buf, 0)
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(dnsmessage.TypeOPT))
	r.buf = binary.BigEndian.AppendUint16(r.buf, ourUDPLimit)
	r.buf = binary.BigEndian.AppendUint32(r.buf, ttl)
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(o.size()-optSize))
	if o.cookie {
		r.buf = binary.BigEndian.AppendUint16(r.buf, optionCookie)
		r.buf = binary.BigEndian.AppendUint16(r.buf, clientCookieSize+serverCookieSize)
		r.buf = append(r.buf, o.client[:]...)
		r.buf = append(r.buf, o.serverCookie[:]...)
	}
	if o.subnet != nil {
		r.buf = binary.BigEndian.AppendUint16(r.buf, optionClientSubnet)
		r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(len(o.subnet)))
		at := len(r.buf)
		r.buf = append(r.buf, o.subnet...)
		r.buf[at+3] = o.scope
	}
	if o.keepalive {
		r.buf = binary.BigEndian.AppendUint16(r.buf, optionKeepalive)
		r.buf = binary.BigEndian.AppendUint16(r.buf, 2)
		r.buf = binary.BigEndian.AppendUint16(r.buf, o.idle)
	}
	r.counts[sectionAdditional]++
}
