package guard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// Agent and guard talk over a Unix socket of the kind SOCK_SEQPACKET, which keeps messages apart. A message is one byte for its kind
// and what belongs to it; numbers are in network byte order.

// version is of this protocol. Both sides name theirs first; another one is refused.
const version = 2

// kind is the first byte of a message.
type kind byte

const (
	kindHello    kind = 1 // agent: version, one byte
	kindMoving   kind = 2 // agent: one byte, 1 for the first part plus 2 for the last, and addresses of 16 bytes; IPv4 ones are mapped
	kindDeadline kind = 3 // agent: nanoseconds of CLOCK_BOOTTIME, 8 bytes
	kindGoodbye  kind = 4 // agent: nothing
	kindWelcome  kind = 5 // guard: version, one byte, and what it cannot do, as text; empty: nothing
	kindSeen     kind = 6 // guard: the deadline that it took in, 8 bytes
	kindSilenced kind = 7 // guard: why and how long it took, as text
	kindRefused  kind = 8 // guard: why, as text; it closes the connection

	kindSuccessor kind = 9  // agent: the number of the process that may connect besides it, 4 bytes; 0: none may any more
	kindTake      kind = 10 // successor: nothing; it is the agent from now on, and the guard closes the connection to the one before
)

// Bounds of what is taken in.
const (
	maxMessage  = 16 << 10
	maxMoving   = 1 << 16                // addresses in all
	partMoving  = (maxMessage - 16) / 16 // addresses in one message
	maxText     = 1 << 10
	lengthMoved = 16
)

// message is one message of either side.
type message struct {
	kind     kind
	version  byte
	first    bool
	last     bool
	moving   []netip.Addr
	deadline int64
	pid      int32
	text     string
}

// bytes is the message as it is sent.
func (m message) bytes() []byte {
	b := []byte{byte(m.kind)}
	switch m.kind {
	case kindHello:
		b = append(b, m.version)
	case kindMoving:
		flags := byte(0)
		if m.first {
			flags |= 1
		}
		if m.last {
			flags |= 2
		}
		b = append(b, flags)
		for _, a := range m.moving {
			wide := a.As16()
			b = append(b, wide[:]...)
		}
	case kindDeadline, kindSeen:
		b = binary.BigEndian.AppendUint64(b, uint64(m.deadline))
	case kindSuccessor:
		b = binary.BigEndian.AppendUint32(b, uint32(m.pid))
	case kindWelcome:
		b = append(append(b, m.version), m.text[:min(len(m.text), maxText)]...)
	case kindSilenced, kindRefused:
		b = append(b, m.text[:min(len(m.text), maxText)]...)
	}
	return b
}

var errGarbage = errors.New("it makes no sense")

// parse reads a message.
func parse(b []byte) (message, error) {
	if len(b) == 0 {
		return message{}, fmt.Errorf("a message is empty: %w", errGarbage)
	}
	m, rest := message{kind: kind(b[0])}, b[1:]
	short := func(want bool) (message, error) {
		if !want {
			return message{}, fmt.Errorf("a message of kind %d has %d bytes: %w", m.kind, len(b), errGarbage)
		}
		return m, nil
	}
	switch m.kind {
	case kindHello:
		if len(rest) > 0 {
			m.version = rest[0]
		}
		return short(len(rest) == 1)
	case kindMoving:
		if len(rest) == 0 || rest[0] > 3 || (len(rest)-1)%lengthMoved != 0 || (len(rest)-1)/lengthMoved > partMoving {
			return short(false)
		}
		m.first, m.last = rest[0]&1 != 0, rest[0]&2 != 0
		for rest = rest[1:]; len(rest) > 0; rest = rest[lengthMoved:] {
			m.moving = append(m.moving, netip.AddrFrom16([16]byte(rest)).Unmap())
		}
		return m, nil
	case kindDeadline, kindSeen:
		if len(rest) == 8 {
			m.deadline = int64(binary.BigEndian.Uint64(rest))
		}
		return short(len(rest) == 8 && m.deadline >= 0)
	case kindSuccessor:
		if len(rest) == 4 {
			m.pid = int32(binary.BigEndian.Uint32(rest))
		}
		return short(len(rest) == 4 && m.pid >= 0)
	case kindGoodbye, kindTake:
		return short(len(rest) == 0)
	case kindWelcome:
		if len(rest) > 0 {
			m.version, m.text = rest[0], string(rest[1:])
		}
		return short(len(rest) > 0 && len(rest) <= maxText+1)
	case kindSilenced, kindRefused:
		m.text = string(rest)
		return short(len(rest) <= maxText)
	}
	return message{}, fmt.Errorf("a message is of the unknown kind %d: %w", m.kind, errGarbage)
}

// movingMessages puts addresses into messages.
func movingMessages(addresses []netip.Addr) []message {
	list := []message{{kind: kindMoving, first: true}}
	for len(addresses) > 0 {
		n := min(len(addresses), partMoving)
		list[len(list)-1].moving = addresses[:n]
		if addresses = addresses[n:]; len(addresses) > 0 {
			list = append(list, message{kind: kindMoving})
		}
	}
	list[len(list)-1].last = true
	return list
}
