package datagram

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/internal/tenure"
)

const (
	// MessageSize is the length of an encoded message, whatever it says.
	MessageSize = 46
	// MaxSpan is the longest span and the longest interval that a message can name.
	MaxSpan = 60 * time.Second
	// MaxLNN is the highest number that a node can have here.
	MaxLNN = 1<<16 - 1

	messageVersion = 1
	flagLapsed     = 1
)

// Encode writes a message:
//
//	 0  version: 1
//	 1  kind
//	 2  flags: 1 lapsed; the others are zero
//	 3  reason of a denial
//	 4  subject (16 bits)
//	 6  span, in microseconds (32 bits)
//	10  interval, in microseconds (32 bits)
//	14  incarnation, number, life, version of the set of observers (64 bits each)
//
// What it accepts, Decode gives back as it was; it refuses what Decode would refuse, and times that are not whole microseconds.
func Encode(b *[MessageSize]byte, m *tenure.Message) error {
	if err := check(m); err != nil {
		return fmt.Errorf("encoding a message: %w", err)
	}
	if m.Span%time.Microsecond != 0 || m.Interval%time.Microsecond != 0 {
		return fmt.Errorf("encoding a message: the span %s or the interval %s is not in whole microseconds", m.Span, m.Interval)
	}
	b[0], b[1], b[2], b[3] = messageVersion, byte(m.Kind), 0, byte(m.Reason)
	if m.Lapsed {
		b[2] = flagLapsed
	}
	binary.BigEndian.PutUint16(b[4:], uint16(m.Subject))
	binary.BigEndian.PutUint32(b[6:], uint32(m.Span/time.Microsecond))
	binary.BigEndian.PutUint32(b[10:], uint32(m.Interval/time.Microsecond))
	binary.BigEndian.PutUint64(b[14:], uint64(m.Incarnation))
	binary.BigEndian.PutUint64(b[22:], m.Number)
	binary.BigEndian.PutUint64(b[30:], m.Life)
	binary.BigEndian.PutUint64(b[38:], m.Version)
	return nil
}

// Decode reads what Encode wrote. It refuses other versions, unknown kinds, flags and reasons, and numbers out of bounds; m is then
// not to be used.
func Decode(m *tenure.Message, b *[MessageSize]byte) error {
	if b[0] != messageVersion {
		return fmt.Errorf("decoding a message: it has version %d, and %d is known here", b[0], messageVersion)
	}
	if b[2]&^flagLapsed != 0 {
		return fmt.Errorf("decoding a message: the flags %#x are not known", b[2])
	}
	*m = tenure.Message{
		Kind: tenure.Kind(b[1]), Lapsed: b[2]&flagLapsed != 0, Reason: tenure.Denied(b[3]),
		Subject:     int(binary.BigEndian.Uint16(b[4:])),
		Span:        time.Duration(binary.BigEndian.Uint32(b[6:])) * time.Microsecond,
		Interval:    time.Duration(binary.BigEndian.Uint32(b[10:])) * time.Microsecond,
		Incarnation: tenure.Incarnation(binary.BigEndian.Uint64(b[14:])),
		Number:      binary.BigEndian.Uint64(b[22:]),
		Life:        binary.BigEndian.Uint64(b[30:]),
		Version:     binary.BigEndian.Uint64(b[38:]),
	}
	if err := check(m); err != nil {
		return fmt.Errorf("decoding a message: %w", err)
	}
	return nil
}

func check(m *tenure.Message) error {
	switch {
	case !m.Kind.Valid():
		return fmt.Errorf("there is no kind %d", m.Kind)
	case !m.Reason.Valid():
		return fmt.Errorf("there is no reason %d", m.Reason)
	case m.Subject < 1 || m.Subject > MaxLNN:
		return fmt.Errorf("the node number %d is not from 1 to %d", m.Subject, MaxLNN)
	case m.Span < 0 || m.Span > MaxSpan:
		return fmt.Errorf("the span %s is not from 0 to %s", m.Span, MaxSpan)
	case m.Interval < 0 || m.Interval > MaxSpan:
		return fmt.Errorf("the interval %s is not from 0 to %s", m.Interval, MaxSpan)
	}
	return nil
}
