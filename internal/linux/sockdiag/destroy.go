package sockdiag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Numbers of linux/sock_diag.h and include/net/tcp_states.h.
const (
	sockDestroy = 21 // SOCK_DESTROY
	identity    = 48 // struct inet_diag_sockid: both ends, the interface and the kernel's cookie for the socket

	tcpTimeWait  = 6
	tcpCloseWait = 8
	tcpListen    = 10
	tcpStates    = 1<<13 - 1 // every state up to TCP_NEW_SYN_RECV
)

// ErrCannotDestroy is wrapped by errors that say that the kernel cannot destroy sockets for anybody.
var ErrCannotDestroy = errors.New("the kernel cannot destroy sockets: it was built without CONFIG_INET_DIAG_DESTROY")

// found is one socket of a dump, as the kernel names it.
type found struct {
	Connection
	family, state uint8
	identity      [identity]byte
}

// Destroy ends every TCP connection of the calling thread's network namespace whose local address is one of those that on picks, in
// whatever state but listening, and returns those that it ended and whose far end may be waiting, as EachServed has them. The kernel sends the far ends a reset, as
// long as the local address is still on an interface; the programs here get ECONNABORTED. It needs CAP_NET_ADMIN. One that ends by
// itself meanwhile is nobody's error; after any other error the remaining ones have been tried too.
func Destroy(on func(netip.Addr) bool) ([]Connection, error) {
	var targets []found
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		err := dump(requestStates(family, tcpStates&^(1<<tcpListen)&^(1<<tcpTimeWait)), func(f found) {
			if on(f.Local.Addr()) {
				targets = append(targets, f)
			}
		})
		if err != nil {
			return nil, fmt.Errorf("listing TCP connections to destroy: %w", err)
		}
	}
	if len(targets) == 0 {
		return nil, nil
	}
	fd, err := open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	var ended []Connection
	var failed error
	for _, target := range targets {
		switch err := destroy(fd, target); {
		case err == nil && (target.state == tcpEstablished || target.state == tcpCloseWait):
			ended = append(ended, target.Connection)
		case err == nil, errors.Is(err, unix.ENOENT):
		case errors.Is(err, unix.EOPNOTSUPP):
			return ended, ErrCannotDestroy
		case errors.Is(err, unix.EPERM):
			return ended, fmt.Errorf("destroying the connection from %v to %v: %w: this needs CAP_NET_ADMIN", target.Local, target.Remote, err)
		case failed == nil:
			failed = fmt.Errorf("destroying the connection from %v to %v: %w", target.Local, target.Remote, err)
		}
	}
	return ended, failed
}

// destroyRequest encodes the request for one socket. The identity goes back as it came, with the cookie: a new connection between
// the same ends is another socket.
func destroyRequest(f found) []byte {
	b := requestStates(f.family, 1<<f.state)
	binary.NativeEndian.PutUint16(b[4:], sockDestroy)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	copy(b[sizeHeader+sizeRequest-identity:], f.identity[:])
	return b
}

// destroy asks for one and reads the kernel's word on it.
func destroy(fd int, f found) error {
	if err := unix.Sendto(fd, destroyRequest(f), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buffer := make([]byte, 512)
	for {
		n, from, err := unix.Recvfrom(fd, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		} else if errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("no answer from sock_diag within %s: %w", Timeout, os.ErrDeadlineExceeded)
		} else if err != nil {
			return err
		}
		if sender, netlink := from.(*unix.SockaddrNetlink); netlink && sender.Pid == 0 {
			return parseAcknowledgement(buffer[:n])
		}
	}
}

// parseAcknowledgement reads NLMSG_ERROR, whose number 0 means that it was done.
func parseAcknowledgement(b []byte) error {
	if len(b) < sizeHeader+4 || binary.NativeEndian.Uint16(b[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("%w: %d bytes in answer to a request to destroy", errMalformed, len(b))
	}
	if code := int32(binary.NativeEndian.Uint32(b[sizeHeader:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
