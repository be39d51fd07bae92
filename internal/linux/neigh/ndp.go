package neigh

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

const (
	ipv6Size     = 40
	icmpv6       = 58  // next header
	hopLimit     = 255 // RFC 4861: proves that the packet was not forwarded
	solicitation = 135
	advertising  = 136
	messageSize  = 24 // both messages without options

	flagSolicited = 1 << 30
	flagOverride  = 1 << 29

	optionTargetMAC = 2 // target link-layer address
)

var (
	allNodes    = netip.MustParseAddr("ff02::1")
	allNodesMAC = mac{0x33, 0x33, 0, 0, 0, 1}
)

// advertisement is a neighbour advertisement (RFC 4861 section 4.4).
type advertisement struct {
	target   netip.Addr
	flags    uint32 // flagSolicited, flagOverride
	mac      mac    // of the option
	hasMAC   bool
	source   netip.Addr
	receiver netip.Addr
}

// append writes the IPv6 packet.
func (a advertisement) append(b []byte) []byte {
	message := []byte{advertising, 0, 0, 0}
	message = binary.BigEndian.AppendUint32(message, a.flags)
	message = append(message, a.target.AsSlice()...)
	if a.hasMAC {
		message = append(message, optionTargetMAC, 1)
		message = append(message, a.mac[:]...)
	}
	return appendICMPv6(b, a.source, a.receiver, message)
}

// appendICMPv6 writes an IPv6 packet around message, whose checksum it fills in.
func appendICMPv6(b []byte, source, receiver netip.Addr, message []byte) []byte {
	binary.BigEndian.PutUint16(message[2:], 0)
	binary.BigEndian.PutUint16(message[2:], checksum(source, receiver, message))
	b = append(b, 0x60, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(message)))
	b = append(b, icmpv6, hopLimit)
	b = append(b, source.AsSlice()...)
	b = append(b, receiver.AsSlice()...)
	return append(b, message...)
}

// checksum is that of ICMPv6 (RFC 4443 section 2.3, RFC 8200 section 8.1). Over a message that bears its right checksum
// it is 0.
func checksum(source, receiver netip.Addr, message []byte) uint16 {
	sum := uint32(len(message)) + icmpv6
	add := func(b []byte) {
		for len(b) > 1 {
			sum += uint32(binary.BigEndian.Uint16(b))
			b = b[2:]
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
	}
	add(source.AsSlice())
	add(receiver.AsSlice())
	add(message)
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// parseAdvertisement reads an IPv6 packet and checks all that RFC 4861 section 7.1.2 asks of an advertisement.
func parseAdvertisement(b []byte) (advertisement, error) {
	if len(b) < ipv6Size+messageSize {
		return advertisement{}, fmt.Errorf("IPv6 packet of %d bytes is too short for a neighbour advertisement", len(b))
	}
	length := int(binary.BigEndian.Uint16(b[4:]))
	switch {
	case b[0]>>4 != 6 || b[6] != icmpv6 || b[ipv6Size] != advertising:
		return advertisement{}, errors.New("not a neighbour advertisement")
	case b[7] != hopLimit:
		return advertisement{}, fmt.Errorf("neighbour advertisement with hop limit %d was forwarded", b[7])
	case length < messageSize || length > len(b)-ipv6Size:
		return advertisement{}, fmt.Errorf("neighbour advertisement says that it has %d bytes, and is cut", length)
	}
	a := advertisement{source: netip.AddrFrom16([16]byte(b[8:24])), receiver: netip.AddrFrom16([16]byte(b[24:40]))}
	message := b[ipv6Size : ipv6Size+length]
	if checksum(a.source, a.receiver, message) != 0 {
		return advertisement{}, errors.New("neighbour advertisement with a wrong checksum")
	}
	a.flags = binary.BigEndian.Uint32(message[4:])
	a.target = netip.AddrFrom16([16]byte(message[8:24]))
	switch {
	case message[1] != 0:
		return advertisement{}, fmt.Errorf("neighbour advertisement with code %d", message[1])
	case a.target.IsMulticast() || a.target.Is4In6():
		return advertisement{}, fmt.Errorf("neighbour advertisement of %v", a.target)
	case a.receiver.IsMulticast() && a.flags&flagSolicited != 0:
		return advertisement{}, errors.New("solicited neighbour advertisement to a group")
	}
	return a, a.parseOptions(message[messageSize:])
}

func (a *advertisement) parseOptions(b []byte) error {
	for len(b) > 0 {
		if len(b) < 2 || b[1] == 0 || int(b[1])*8 > len(b) {
			return errors.New("neighbour advertisement with a broken option")
		}
		length := int(b[1]) * 8
		if b[0] == optionTargetMAC && length == 8 && !a.hasMAC {
			a.mac, a.hasMAC = mac(b[2:8]), true
		}
		b = b[length:]
	}
	return nil
}

// naAnnouncement is the frame that tells all nodes on the link that address is at own: an unsolicited advertisement
// with the override flag (RFC 4861 section 7.2.6).
func naAnnouncement(address netip.Addr, own mac) []byte {
	a := advertisement{target: address, flags: flagOverride, mac: own, hasMAC: true, source: address, receiver: allNodes}
	return a.append(appendEthernet(nil, allNodesMAC, own, typeIPv6))
}

// nsProbe asks who has address without claiming it, as duplicate address detection does (RFC 4862 section 5.4.2).
func nsProbe(address netip.Addr, own mac) []byte {
	target := address.As16()
	group := [16]byte{0: 0xff, 1: 0x02, 11: 1, 12: 0xff, 13: target[13], 14: target[14], 15: target[15]}
	groupMAC := mac{0x33, 0x33, 0xff, target[13], target[14], target[15]}
	message := append([]byte{solicitation, 0, 0, 0, 0, 0, 0, 0}, target[:]...)
	return appendICMPv6(appendEthernet(nil, groupMAC, own, typeIPv6),
		netip.IPv6Unspecified(), netip.AddrFrom16(group), message)
}

// naClaim reads a whole frame; without the option the claimant is who sent the frame.
func naClaim(frame []byte) (netip.Addr, mac, bool) {
	if len(frame) < ethernetSize {
		return netip.Addr{}, mac{}, false
	}
	a, err := parseAdvertisement(frame[ethernetSize:])
	if err != nil {
		return netip.Addr{}, mac{}, false
	}
	if !a.hasMAC {
		return a.target, mac(frame[6:12]), true
	}
	return a.target, a.mac, true
}
