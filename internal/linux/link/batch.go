package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// addressSocket is a route netlink socket of its own for address changes. Many requests go out in one datagram, and
// their answers are read back by number: the library waits for each answer before it sends the next request, which
// takes ten times as long where a node has to let go of a thousand addresses.
type addressSocket struct {
	mu      sync.Mutex
	fd      int
	number  uint32 // of the last request
	answer  []byte // receive buffer
	request []byte // send buffer
}

// batchMax is how many requests go into one datagram. Their answers wait in the receive buffer, where each takes
// about a kilobyte of the default 212 kB.
const batchMax = 100

func openAddressSocket() (*addressSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a route netlink socket: %w", err)
	}
	timeout := unix.NsecToTimeval(int64(answerTimeout))
	err = errors.Join(
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1), // answers without a copy of the request
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1), // and with the reason in words
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
	)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("preparing a route netlink socket: %w", err)
	}
	return &addressSocket{fd: fd, answer: make([]byte, os.Getpagesize())}, nil
}

func (s *addressSocket) close() { _ = unix.Close(s.fd) }

// applyAddresses carries out operations that are all on addresses.
func (k *Kernel) applyAddresses(operations []Operation, failures []error) {
	indexes := map[string]int{}
	var send, origin []int // interface index and place in operations of what can be sent
	for i, o := range operations {
		name := o.Object.(Address).Interface
		index, known := indexes[name]
		if !known {
			var err error
			if index, err = k.index(name); err != nil {
				failures[i] = err
				continue
			}
			indexes[name] = index
		}
		send, origin = append(send, index), append(origin, i)
	}
	k.addresses.mu.Lock()
	defer k.addresses.mu.Unlock()
	for len(send) > 0 {
		n := min(batchMax, len(send))
		k.addresses.exchange(operations, send[:n], origin[:n], failures)
		send, origin = send[n:], origin[n:]
	}
	k.awaitAnswering(operations, failures)
}

// exchange sends one datagram of requests and collects their answers.
func (s *addressSocket) exchange(operations []Operation, indexes, origin []int, failures []error) {
	first := s.number + 1
	s.request = s.request[:0]
	for i, index := range indexes {
		s.number++
		o := operations[origin[i]]
		s.request = appendAddressRequest(s.request, o.Verb, o.Object.(Address), index, s.number)
	}
	pending := make(map[uint32]int, len(indexes))
	for i := range indexes {
		pending[first+uint32(i)] = origin[i]
	}
	if err := unix.Sendto(s.fd, s.request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		failAll(pending, failures, fmt.Errorf("sending to the kernel: %w", err))
		return
	}
	deadline := time.Now().Add(answerTimeout)
	for len(pending) > 0 {
		n, _, err := unix.Recvfrom(s.fd, s.answer, 0)
		if errors.Is(err, unix.EINTR) && time.Now().Before(deadline) {
			continue
		}
		if err != nil {
			failAll(pending, failures, fmt.Errorf("waiting for the kernel's answer: %w", err))
			return
		}
		for number, result := range answers(s.answer[:n]) {
			if at, waiting := pending[number]; waiting {
				failures[at] = result
				delete(pending, number)
			}
		}
	}
}

func failAll(pending map[uint32]int, failures []error, err error) {
	for _, at := range pending {
		failures[at] = err
	}
}

// The parts of a netlink message (linux/netlink.h).
const (
	headerSize     = 16
	flagCapped     = 0x100 // NLM_F_CAPPED
	flagReasons    = 0x200 // NLM_F_ACK_TLVS
	reasonMessage  = 1     // NLMSGERR_ATTR_MSG
	errnoAndHeader = 4 + headerSize
)

// answers reads the acknowledgements in one datagram: request number to result.
func answers(b []byte) map[uint32]error {
	results := map[uint32]error{}
	for len(b) >= headerSize {
		length := int(binary.NativeEndian.Uint32(b))
		if length < headerSize || length > len(b) {
			return results
		}
		kind, flags := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:])
		if body := b[headerSize:length]; kind == unix.NLMSG_ERROR && len(body) >= errnoAndHeader {
			results[binary.NativeEndian.Uint32(b[8:])] = answerError(body, flags)
		}
		b = b[min(len(b), align(length)):]
	}
	return results
}

// answerError is what the kernel said about one request; nil is consent.
func answerError(body []byte, flags uint16) error {
	number := int32(binary.NativeEndian.Uint32(body))
	if number == 0 {
		return nil
	}
	err := explain(unix.Errno(-number))
	if flags&flagReasons == 0 || flags&flagCapped == 0 {
		return err
	}
	if reason := attribute(body[errnoAndHeader:], reasonMessage); len(reason) > 1 {
		return fmt.Errorf("%w (%s)", err, reason[:len(reason)-1])
	}
	return err
}

// attribute finds the first attribute of a kind; nil if there is none.
func attribute(b []byte, kind uint16) []byte {
	for len(b) >= 4 {
		length := int(binary.NativeEndian.Uint16(b))
		if length < 4 || length > len(b) {
			return nil
		}
		if binary.NativeEndian.Uint16(b[2:]) == kind {
			return b[4:length]
		}
		b = b[min(len(b), align(length)):]
	}
	return nil
}

func align(n int) int { return (n + 3) &^ 3 }

// appendAddressRequest writes RTM_NEWADDR or RTM_DELADDR (rtnetlink(7)).
func appendAddressRequest(b []byte, verb Verb, a Address, index int, number uint32) []byte {
	start := len(b)
	kind, flags := uint16(unix.RTM_NEWADDR), uint16(unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	switch verb {
	case Add:
		flags |= unix.NLM_F_CREATE | unix.NLM_F_EXCL
	case Renew:
		flags |= unix.NLM_F_CREATE | unix.NLM_F_REPLACE
	default:
		kind = unix.RTM_DELADDR
	}
	native := binary.NativeEndian
	b = native.AppendUint32(b, 0) // length, filled in below
	b = native.AppendUint16(b, kind)
	b = native.AppendUint16(b, flags)
	b = native.AppendUint32(b, number)
	b = native.AppendUint32(b, 0)
	family := uint8(unix.AF_INET6)
	if a.Prefix.Addr().Is4() {
		family = unix.AF_INET
	}
	b = append(b, family, uint8(a.Prefix.Bits()), 0, unix.RT_SCOPE_UNIVERSE)
	b = native.AppendUint32(b, uint32(index))
	ip := a.Prefix.Addr().AsSlice()
	b = appendAttribute(b, unix.IFA_LOCAL, ip)
	b = appendAttribute(b, unix.IFA_ADDRESS, ip)
	if verb != Remove {
		if family == unix.AF_INET6 {
			// No duplicate address detection: the right to the address is settled before it is added. No route for
			// the prefix: that of a host prefix would only repeat the local route.
			flags := uint32(unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE)
			b = appendAttribute(b, unix.IFA_FLAGS, native.AppendUint32(nil, flags))
		}
		life := native.AppendUint32(nil, toSeconds(a.Preferred))
		life = native.AppendUint32(life, toSeconds(a.Valid))
		b = appendAttribute(b, unix.IFA_CACHEINFO, append(life, 0, 0, 0, 0, 0, 0, 0, 0))
	}
	native.PutUint32(b[start:], uint32(len(b)-start))
	return b
}

func appendAttribute(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}
