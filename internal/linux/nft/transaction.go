package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// message is one change within a transaction.
type message struct {
	kind, flags uint16
	family      uint8
	attributes  []byte
}

// socket is the netlink socket that owns the tables.
type socket struct {
	fd     int
	number uint32 // of the last message
	answer []byte
}

func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("opening a netfilter socket: %w: %w", err, ErrUnsupported)
	}
	// Answers without a copy of what was asked; refused by kernels that are older than the floor.
	err = errors.Join(unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}), unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1))
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("preparing a netfilter socket: %w", err)
	}
	return &socket{fd: fd, answer: make([]byte, os.Getpagesize())}, nil
}

func (s *socket) close() { _ = unix.Close(s.fd) }

// The sizes of the headers (linux/netlink.h, linux/netfilter/nfnetlink.h).
const (
	headerSize  = 16
	nfgenSize   = 4
	nftSubsys   = unix.NFNL_SUBSYS_NFTABLES
	batchBegin  = unix.NFNL_MSG_BATCH_BEGIN
	batchEnd    = unix.NFNL_MSG_BATCH_END
	answerTries = 1000
)

// commit sends messages as one transaction: all take effect at one moment, or none. The kernel works on it within the call, so that
// its answers are there when the call returns, and nothing is waited for.
func (s *socket) commit(messages []message) error {
	if len(messages) == 0 {
		return nil
	}
	s.number++
	request := header(nil, batchBegin, unix.NLM_F_REQUEST, 0, nftSubsys, s.number, nil)
	for i, m := range messages {
		s.number++
		flags := m.flags | unix.NLM_F_REQUEST
		if i == len(messages)-1 {
			flags |= unix.NLM_F_ACK // errors are told without
		}
		request = header(request, nftSubsys<<8|m.kind, flags, m.family, 0, s.number, m.attributes)
	}
	last := s.number
	s.number++
	request = header(request, batchEnd, unix.NLM_F_REQUEST, 0, nftSubsys, s.number, nil)
	if err := unix.Sendto(s.fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("sending to the kernel: %w", err)
	}
	return s.result(last)
}

// result reads the kernel's answers up to that to the last message.
func (s *socket) result(last uint32) error {
	var failed error
	answered := false
	for range answerTries {
		n, _, err := unix.Recvfrom(s.fd, s.answer, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN) && (answered || failed != nil):
			return failed
		case errors.Is(err, unix.EAGAIN):
			return errors.New("the kernel gave no answer")
		case err != nil:
			return fmt.Errorf("reading the kernel's answer: %w", err)
		}
		for number, err := range answers(s.answer[:n]) {
			answered = answered || number == last
			if err != nil && failed == nil {
				failed = err
			}
		}
	}
	return errors.Join(failed, errors.New("the kernel's answers do not end"))
}

// answers reads the acknowledgements in one datagram: message number to result.
func answers(b []byte) map[uint32]error {
	results := map[uint32]error{}
	for len(b) >= headerSize {
		length := int(binary.NativeEndian.Uint32(b))
		if length < headerSize || length > len(b) {
			return results
		}
		if kind := binary.NativeEndian.Uint16(b[4:]); kind == unix.NLMSG_ERROR && length >= headerSize+4 {
			number := binary.NativeEndian.Uint32(b[8:])
			results[number] = nil
			if code := int32(binary.NativeEndian.Uint32(b[headerSize:])); code != 0 {
				results[number] = unix.Errno(-code)
			}
		}
		b = b[min(len(b), (length+3)&^3):]
	}
	return results
}

// header appends a message with its netlink and its netfilter header.
func header(b []byte, kind, flags uint16, family uint8, resource uint16, number uint32, attributes []byte) []byte {
	native := binary.NativeEndian
	b = native.AppendUint32(b, uint32(headerSize+nfgenSize+len(attributes)))
	b = native.AppendUint16(b, kind)
	b = native.AppendUint16(b, flags)
	b = native.AppendUint32(b, number)
	b = native.AppendUint32(b, 0)
	b = append(b, family, unix.NFNETLINK_V0)
	b = binary.BigEndian.AppendUint16(b, resource)
	return append(b, attributes...)
}
