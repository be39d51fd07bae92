package neigh

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// mac is an Ethernet address.
type mac [6]byte

var broadcast = mac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// The Ethernet types that this package speaks.
const (
	typeARP  = 0x0806
	typeIPv6 = 0x86dd
)

const ethernetSize = 14

func appendEthernet(b []byte, to, from mac, kind uint16) []byte {
	b = append(b, to[:]...)
	b = append(b, from[:]...)
	return binary.BigEndian.AppendUint16(b, kind)
}

// Operations of ARP (RFC 826).
const (
	arpRequest = 1
	arpReply   = 2
)

const arpSize = 28

// arpPacket is an ARP packet for IPv4 over Ethernet (RFC 826).
type arpPacket struct {
	operation     uint16
	senderMAC     mac
	senderAddress netip.Addr
	targetMAC     mac
	targetAddress netip.Addr
}

func (p arpPacket) append(b []byte) []byte {
	b = append(b, 0, 1, 0x08, 0x00, 6, 4) // Ethernet, IPv4, and the lengths of their addresses
	b = binary.BigEndian.AppendUint16(b, p.operation)
	b = append(b, p.senderMAC[:]...)
	b = append(b, p.senderAddress.AsSlice()...)
	b = append(b, p.targetMAC[:]...)
	return append(b, p.targetAddress.AsSlice()...)
}

// parseARP reads what follows the Ethernet header. Bytes after the packet are padding.
func parseARP(b []byte) (arpPacket, error) {
	if len(b) < arpSize {
		return arpPacket{}, fmt.Errorf("ARP packet of %d bytes, want at least %d", len(b), arpSize)
	}
	if [6]byte(b) != [6]byte{0, 1, 0x08, 0x00, 6, 4} {
		return arpPacket{}, fmt.Errorf("ARP packet that is not for IPv4 over Ethernet: %x", b[:6])
	}
	return arpPacket{
		operation:     binary.BigEndian.Uint16(b[6:]),
		senderMAC:     mac(b[8:14]),
		senderAddress: netip.AddrFrom4([4]byte(b[14:18])),
		targetMAC:     mac(b[18:24]),
		targetAddress: netip.AddrFrom4([4]byte(b[24:28])),
	}, nil
}

// arpAnnouncements are the two broadcast frames that tell everyone on the link that address is at own. Devices differ
// in which they honour, so both are sent (public report 3): the request form, which RFC 5227 names the announcement,
// and the reply form.
func arpAnnouncements(address netip.Addr, own mac) [][]byte {
	request := arpPacket{arpRequest, own, address, mac{}, address}
	reply := arpPacket{arpReply, own, address, own, address}
	return [][]byte{
		request.append(appendEthernet(nil, broadcast, own, typeARP)),
		reply.append(appendEthernet(nil, broadcast, own, typeARP)),
	}
}

// arpProbe asks who has address without claiming it (RFC 5227 section 2.1.1).
func arpProbe(address netip.Addr, own mac) []byte { return arpProbeTo(broadcast, address, own) }

// arpProbeTo asks one MAC alone, which is the only one that is troubled.
func arpProbeTo(to mac, address netip.Addr, own mac) []byte {
	probe := arpPacket{arpRequest, own, netip.IPv4Unspecified(), mac{}, address}
	return probe.append(appendEthernet(nil, to, own, typeARP))
}

// arpClaim reads a whole frame; it is a claim to the sender's address unless that is unspecified, as in a probe
// (RFC 5227 section 2.4).
func arpClaim(frame []byte) (netip.Addr, mac, bool) {
	if len(frame) < ethernetSize {
		return netip.Addr{}, mac{}, false
	}
	p, err := parseARP(frame[ethernetSize:])
	if err != nil || p.senderAddress.IsUnspecified() || p.operation != arpRequest && p.operation != arpReply {
		return netip.Addr{}, mac{}, false
	}
	return p.senderAddress, p.senderMAC, true
}
