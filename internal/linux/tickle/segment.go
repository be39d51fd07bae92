package tickle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// Sizes and numbers of RFC 9293 section 3.1.
const (
	protocol    = 6 // TCP
	segmentSize = 20
	flagACK     = 0x10
	window      = 1024
)

// ErrUnfit is wrapped by errors that say that two ends make no connection that a packet could be sent for.
var ErrUnfit = errors.New("not two ends of a connection between hosts")

// Fit reports whether a tickle can be sent for a connection.
func Fit(c Connection) bool { return check(c) == nil }

// check refuses what is no connection of two hosts. Link-local ends are refused as well: without the interface they say nothing.
func check(c Connection) error {
	for _, end := range []netip.AddrPort{c.Local, c.Remote} {
		a := end.Addr()
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.Is4In6() || a.IsLinkLocalUnicast() || a.Zone() != "" || end.Port() == 0 {
			return fmt.Errorf("%v to %v: %w", c.Local, c.Remote, ErrUnfit)
		}
	}
	if c.Local.Addr().Is4() != c.Remote.Addr().Is4() || c.Local.Addr() == c.Remote.Addr() {
		return fmt.Errorf("%v to %v: %w", c.Local, c.Remote, ErrUnfit)
	}
	return nil
}

// segment is what the local end says to the remote one: an acknowledgement with the numbers 0, which lies outside of nearly every
// window, so that RFC 9293 section 3.10.7.4 has the receiver answer with its own numbers. The kernel puts the IP header before it.
func segment(c Connection) [segmentSize]byte {
	var b [segmentSize]byte
	binary.BigEndian.PutUint16(b[0:], c.Local.Port())
	binary.BigEndian.PutUint16(b[2:], c.Remote.Port())
	b[12] = segmentSize / 4 << 4
	b[13] = flagACK
	binary.BigEndian.PutUint16(b[14:], window)
	binary.BigEndian.PutUint16(b[16:], checksum(c.Local.Addr(), c.Remote.Addr(), b[:]))
	return b
}

// checksum is that of RFC 9293 section 3.1, over the pseudo header there or in RFC 8200 section 8.1, which add up to
// the same. Over a segment that bears its right checksum it is 0.
func checksum(source, destination netip.Addr, segment []byte) uint16 {
	s := uint32(protocol) + uint32(len(segment))
	s = sum(sum(sum(s, source.AsSlice()), destination.AsSlice()), segment)
	return ^fold(s)
}

func sum(s uint32, b []byte) uint32 {
	for ; len(b) > 1; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return s
}

func fold(s uint32) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}
