package dns

import (
	"encoding/binary"

	"golang.org/x/net/dns/dnsmessage"
)

// brief is a query of the usual form as far as a prepared response depends on it: one question of class IN, no other record but an OPT
// record of version 0 without options, or with a cookie and nothing else.
type brief struct {
	end      int    // of the question
	hash     uint64 // of the name
	lowered  [loweredSize]byte
	labels   [maxNameParts + 1]uint8 // where each label of the name begins
	parts    int
	qtype    dnsmessage.Type
	opt, do  bool
	limit    int // of the response
	cookie   bool
	proposed cookieOption
}

// name is the name asked for in lower case.
func (b *brief) name() []byte { return b.lowered[:b.end-headerSize-4] }

// read reads a query; false: it is not of the usual form, whatever it is.
func (b *brief) read(m []byte) bool {
	// Not a response, operation 0; one question, no answer, no authority, at most one additional record.
	if len(m) < headerSize+5 || m[2]&0xf8 != 0 || binary.BigEndian.Uint64(m[4:])&^1 != 1<<48 {
		return false
	}
	off := headerSize
	b.parts = 0
	for m[off] != 0 {
		if m[off] > maxLabel || b.parts == maxNameParts {
			return false
		}
		b.labels[b.parts] = uint8(off - headerSize)
		b.parts++
		off += 1 + int(m[off])
		if off >= len(m) || off-headerSize >= maxWireName {
			return false
		}
	}
	off++
	if len(m) < off+4 || binary.BigEndian.Uint16(m[off+2:]) != uint16(dnsmessage.ClassINET) {
		return false
	}
	b.qtype = dnsmessage.Type(binary.BigEndian.Uint16(m[off:]))
	b.end = off + 4
	b.hash = lowerName(&b.lowered, m[headerSize:off])
	return b.readOPT(m[b.end:], m[11] == 1)
}

// readOPT reads what stands behind the question.
func (b *brief) readOPT(m []byte, present bool) bool {
	b.opt, b.do, b.cookie, b.limit = present, false, false, minUDPAnswer
	if !present {
		return len(m) == 0
	}
	if len(m) < optSize || m[0] != 0 || binary.BigEndian.Uint16(m[1:]) != uint16(dnsmessage.TypeOPT) || m[6] != 0 ||
		len(m) != optSize+int(binary.BigEndian.Uint16(m[9:])) {
		return false
	}
	b.limit = min(max(int(binary.BigEndian.Uint16(m[3:])), minUDPAnswer), ourUDPLimit)
	b.do = m[7]&0x80 != 0
	options := m[optSize:]
	if len(options) == 0 {
		return true
	}
	if len(options) < 4 || binary.BigEndian.Uint16(options) != optionCookie || len(options) != 4+int(binary.BigEndian.Uint16(options[2:])) {
		return false
	}
	b.cookie = true
	return len(options) >= 4+clientCookieSize && b.proposed.read(options[4:])
}

// find looks the name up, as nameTable.find does.
func (b *brief) find(z *zones) (e *entry, missing bool) {
	name := b.name()
	if e := z.index.find(b.hash, name); e != nil {
		return e, false
	}
	return z.walk(name, b.labels[:b.parts], 1)
}
