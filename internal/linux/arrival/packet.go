package arrival

import (
	"encoding/binary"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Sizes and numbers of RFC 791, RFC 8200, RFC 9293, RFC 4443 and RFC 4861.
const (
	ipv4Size       = 20
	ipv6Size       = 40
	tcpSize        = 20
	protocolTCP    = 6
	protocolICMPv6 = 58
	routerSolicit  = 133
	redirect       = 137
	flagFIN        = 1
	flagSYN        = 2
)

// captureSize is how much of a packet is read: the longest IPv4 header and what is looked at of the next.
const captureSize = 128

// Counts reports whether an IP packet, whole or cut to captureSize, is one that a client sent of its own accord, and its ends. These do
// not count:
//   - neighbour discovery (ARP is not IP at all),
//   - what comes from the address itself, or from no host,
//   - a TCP segment that neither opens nor closes a connection and carries nothing: so look a client's answers to tickles, and such
//     an answer cannot be told from an acknowledgement of its own accord. A reset is among them.
func Counts(packet []byte) (from, to netip.Addr, ok bool) {
	var protocol byte
	var rest []byte // behind the IP header
	var length int  // of the rest, on the wire
	switch {
	case len(packet) >= ipv4Size && packet[0]>>4 == 4:
		header := int(packet[0]&0xf) * 4
		if header < ipv4Size || len(packet) < header {
			return from, to, false
		}
		from, to = netip.AddrFrom4([4]byte(packet[12:16])), netip.AddrFrom4([4]byte(packet[16:20]))
		length = int(binary.BigEndian.Uint16(packet[2:])) - header
		protocol, rest = packet[9], packet[header:]
		if binary.BigEndian.Uint16(packet[6:])&0x1fff != 0 {
			protocol = 0 // a later fragment: it has no header of a transport, and is of something that carries data
		}
	case len(packet) >= ipv6Size && packet[0]>>4 == 6:
		from, to = netip.AddrFrom16([16]byte(packet[8:24])), netip.AddrFrom16([16]byte(packet[24:40]))
		length = int(binary.BigEndian.Uint16(packet[4:]))
		protocol, rest = packet[6], packet[ipv6Size:]
	default:
		return from, to, false
	}
	if from == to || from.IsUnspecified() || from.IsMulticast() {
		return from, to, false
	}
	switch protocol {
	case protocolTCP:
		return from, to, speaks(rest, length)
	case protocolICMPv6:
		return from, to, len(rest) > 0 && (rest[0] < routerSolicit || rest[0] > redirect)
	}
	return from, to, true
}

// speaks reports whether a TCP segment of a length opens or closes a connection, or carries something.
func speaks(segment []byte, length int) bool {
	if len(segment) < tcpSize {
		return false
	}
	header := int(segment[12]>>4) * 4
	return segment[13]&(flagSYN|flagFIN) != 0 || length > header
}

// filter passes packets to the addresses. For IPv6 it compares the last quarter of an address first, in which those of one cluster differ.
func (f family) filter(wanted []netip.Addr) []bpf.RawInstruction {
	var program []bpf.Instruction
	for _, a := range wanted {
		if f == four {
			b := a.As4()
			program = append(program,
				bpf.LoadAbsolute{Off: 16, Size: 4},
				bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(b[:]), SkipTrue: 1},
				bpf.RetConstant{Val: captureSize})
			continue
		}
		b := a.As16()
		for _, at := range []uint32{12, 8, 4, 0} {
			program = append(program,
				bpf.LoadAbsolute{Off: 24 + at, Size: 4},
				bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(b[at:]), SkipTrue: uint8(at/4*2 + 1)})
		}
		program = append(program, bpf.RetConstant{Val: captureSize})
	}
	program = append(program, bpf.RetConstant{Val: 0})
	raw, err := bpf.Assemble(program)
	if err != nil {
		panic("arrival: assembling a filter: " + err.Error()) // of instructions that are all above
	}
	return raw
}

// narrow has a socket receive only what passes a filter, in place of the one before.
func narrow(fd int, program []bpf.RawInstruction) error {
	filter := make([]unix.SockFilter, len(program))
	for i, in := range program {
		filter[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
}

// timespec reads the time of a control message.
func timespec(data []byte) (time.Time, bool) {
	if len(data) < int(unsafe.Sizeof(unix.Timespec{})) {
		return time.Time{}, false
	}
	ts := *(*unix.Timespec)(unsafe.Pointer(&data[0]))
	return time.Unix(ts.Unix()), true
}
