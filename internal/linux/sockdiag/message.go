package sockdiag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Sizes and numbers of linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h.
const (
	sizeHeader  = unix.SizeofNlMsghdr // struct nlmsghdr
	sizeRequest = 56                  // struct inet_diag_req_v2
	sizeMessage = 72                  // struct inet_diag_msg, before its attributes

	sockDiagByFamily = 20 // SOCK_DIAG_BY_FAMILY

	tcpEstablished = 1 // TCP_ESTABLISHED in include/net/tcp_states.h
)

// errMalformed is wrapped by errors about bytes that no kernel sends.
var errMalformed = errors.New("malformed sock_diag message")

// requestStates encodes a dump of the TCP sockets of a family in some states (a bit for each): nlmsghdr and inet_diag_req_v2, with
// an empty socket identity, which matches every socket, and no extensions.
func requestStates(family uint8, states uint32) []byte {
	b := make([]byte, sizeHeader+sizeRequest)
	binary.NativeEndian.PutUint32(b[0:], uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], sockDiagByFamily)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	binary.NativeEndian.PutUint32(b[8:], 1) // sequence number; the socket carries one request at a time
	body := b[sizeHeader:]
	body[0], body[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(body[4:], states)
	return b
}

// parse reads the netlink messages of one datagram and reports whether the dump is done.
func parse(datagram []byte, visit func(found)) (done bool, err error) {
	for len(datagram) > 0 {
		if len(datagram) < sizeHeader {
			return false, fmt.Errorf("%w: %d bytes left for a header", errMalformed, len(datagram))
		}
		length := int(binary.NativeEndian.Uint32(datagram))
		if length < sizeHeader || length > len(datagram) {
			return false, fmt.Errorf("%w: length %d of %d bytes", errMalformed, length, len(datagram))
		}
		body := datagram[sizeHeader:length]
		switch kind := binary.NativeEndian.Uint16(datagram[4:]); kind {
		case unix.NLMSG_DONE:
			return true, status(body)
		case unix.NLMSG_ERROR:
			if err := status(body); err != nil {
				return false, err
			}
		case sockDiagByFamily:
			socket, understood, err := parseSocket(body)
			if err != nil {
				return false, err
			}
			if understood {
				visit(socket)
			}
		}
		datagram = datagram[min(aligned(length), len(datagram)):]
	}
	return false, nil
}

func aligned(length int) int { return (length + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }

// status reads the error number at the front of NLMSG_DONE and NLMSG_ERROR.
func status(body []byte) error {
	if len(body) < 4 {
		return nil
	}
	if code := int32(binary.NativeEndian.Uint32(body)); code < 0 {
		return fmt.Errorf("sock_diag refused: %w", unix.Errno(-code))
	}
	return nil
}

// parseSocket reads struct inet_diag_msg: family, state, timer, retransmits, then the identity: source and destination port in
// network order, 16 bytes for each address, the interface and the cookie. A message of another family is skipped.
func parseSocket(body []byte) (f found, understood bool, err error) {
	if len(body) < sizeMessage {
		return f, false, fmt.Errorf("%w: a socket in %d bytes, less than %d", errMalformed, len(body), sizeMessage)
	}
	f.family, f.state, f.identity = body[0], body[1], [identity]byte(body[4:])
	var local, remote netip.Addr
	switch f.family {
	case unix.AF_INET:
		local, remote = netip.AddrFrom4([4]byte(body[8:])), netip.AddrFrom4([4]byte(body[24:]))
	case unix.AF_INET6:
		local, remote = netip.AddrFrom16([16]byte(body[8:])).Unmap(), netip.AddrFrom16([16]byte(body[24:])).Unmap()
	default:
		return f, false, nil
	}
	f.Local = netip.AddrPortFrom(local, binary.BigEndian.Uint16(body[4:]))
	f.Remote = netip.AddrPortFrom(remote, binary.BigEndian.Uint16(body[6:]))
	return f, true, nil
}

// established passes the established connections on.
func established(visit func(Connection)) func(found) {
	return func(f found) {
		if f.state == tcpEstablished {
			visit(f.Connection)
		}
	}
}
