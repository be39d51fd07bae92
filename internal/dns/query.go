package dns

import (
	"encoding/binary"
	"errors"

	"golang.org/x/net/dns/dnsmessage"
)

// Sizes of the wire format.
const (
	headerSize   = 12
	minUDPAnswer = 512  // RFC 1035 section 4.2.1
	ourUDPLimit  = 1232 // what we offer and never exceed: fits the smallest IPv6 path without fragments
)

// Types that the standard gives a meaning as questions only, and types of today that dnsmessage does not name.
const (
	typeDS    dnsmessage.Type = 43
	typeTKEY  dnsmessage.Type = 249
	typeTSIG  dnsmessage.Type = 250
	typeIXFR  dnsmessage.Type = 251
	typeMAILB dnsmessage.Type = 253
	typeMAILA dnsmessage.Type = 254
)

// Extended response codes (RFC 6891 section 9, RFC 7873 section 8).
const (
	rcodeBadVersion dnsmessage.RCode = 16
	rcodeBadCookie  dnsmessage.RCode = 23
)

// query is one request as far as it could be read.
type query struct {
	id        uint16
	opcode    dnsmessage.OpCode
	recursion bool // RD: copied into the response
	noCheck   bool // CD: copied into the response (RFC 4035 section 3.2.2)

	question []byte // name, type and class as they came; empty when there is none to echo
	nameLen  int    // length of the name at the start of question
	lowered  [maxWireName]byte
	labels   [maxNameParts + 1]uint8 // where each label of the name begins, the root included
	parts    int                     // labels, without the root
	domain   wireName                // the search domain that completes the name; empty: none does
	qtype    dnsmessage.Type
	class    dnsmessage.Class

	edns edns
}

// name is the name asked for in lower case.
func (q *query) name() wireName { return q.lowered[:q.nameLen] }

// errMalformed marks a query that deserves FORMERR; the text is for whoever debugs.
var errMalformed = errors.New("malformed query")

// understandable reports whether m is a query that may be answered at all: it has a header, and it is not itself a
// response, which could start a war between two servers.
func understandable(m []byte) bool {
	return len(m) >= headerSize && m[2]&0x80 == 0
}

// read fills q from m, for which understandable holds. On an error q holds what could be read, which is enough to
// say FORMERR.
func (q *query) read(m []byte) error {
	var p dnsmessage.Parser
	h, err := p.Start(m)
	if err != nil {
		return errMalformed
	}
	q.id, q.opcode, q.recursion, q.noCheck = h.ID, h.OpCode, h.RecursionDesired, h.CheckingDisabled
	if q.opcode != 0 {
		return nil // the rest of the message has the form of an operation that is not implemented here
	}
	questions := binary.BigEndian.Uint16(m[4:])
	if questions > 1 {
		return errMalformed // RFC 9619
	}
	if questions == 1 {
		if err := q.readQuestion(m); err != nil {
			return err
		}
	}
	if err := skipToAdditional(&p); err != nil {
		return errMalformed
	}
	if err := q.edns.read(&p); err != nil {
		return err
	}
	if questions == 0 && !q.edns.cookie.present {
		return errMalformed // without a question only a cookie may be asked for (RFC 7873 section 5.4)
	}
	return nil
}

func skipToAdditional(p *dnsmessage.Parser) error {
	if err := p.SkipAllQuestions(); err != nil {
		return err
	}
	if err := p.SkipAllAnswers(); err != nil {
		return err
	}
	return p.SkipAllAuthorities()
}

// readQuestion reads the only question, which begins right after the header, so that a pointer in its name could
// only point into the header: it is refused.
func (q *query) readQuestion(m []byte) error {
	rest := m[headerSize:]
	off := 0
	for {
		if off >= len(rest) || off >= maxWireName {
			return errMalformed
		}
		size := int(rest[off])
		q.labels[q.parts] = uint8(off)
		if size == 0 {
			break
		}
		if size > maxLabel || off+1+size >= maxWireName || off+1+size >= len(rest) {
			return errMalformed
		}
		q.lowered[off] = rest[off]
		for i := off + 1; i <= off+size; i++ {
			q.lowered[i] = lower(rest[i])
		}
		off += 1 + size
		q.parts++
	}
	q.lowered[off] = 0
	q.nameLen = off + 1
	if len(rest) < q.nameLen+4 {
		return errMalformed
	}
	q.question = rest[:q.nameLen+4]
	q.qtype = dnsmessage.Type(binary.BigEndian.Uint16(rest[q.nameLen:]))
	q.class = dnsmessage.Class(binary.BigEndian.Uint16(rest[q.nameLen+2:]))
	return nil
}

// sizeLimit is how large the response may be.
func (q *query) sizeLimit(tcp bool) int {
	switch {
	case tcp:
		return 65535
	case !q.edns.present:
		return minUDPAnswer
	}
	return min(max(int(q.edns.udpSize), minUDPAnswer), ourUDPLimit)
}
