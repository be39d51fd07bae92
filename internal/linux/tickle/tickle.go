// Package tickle wakes the far ends of TCP connections whose near end is gone, by raw packets.
//
// A tickle is a bare acknowledgement with the numbers 0, sent as if it came from the near end. The far end's own TCP answers it with
// its real numbers (RFC 9293 section 3.10.7.4); this host's kernel knows no such connection and resets it, with numbers that the far
// end must accept. Nothing of the connection but its two ends has to be known.
//
// It guarantees that a packet leaves only from an address that this host has at that moment: the kernel looks for a route from that
// address and refuses where it is not there. A Sender is safe for concurrent use; it keeps nothing open between calls, and its sockets
// receive nothing.
//
// It does not know which connections there are, and does not pace, repeat or decide.
package tickle

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Connection is the two ends of a TCP connection.
type Connection struct{ Local, Remote netip.AddrPort }

// ErrNotHere is wrapped by errors that say that nothing leaves this host from the local address. IPv4's routing says the same where
// the host lacks the address and where it has no route (ip_route_output_key_hash_rcu in net/ipv4/route.c).
var ErrNotHere = errors.New("this host does not have the address, or no route from it")

// Sender sends tickles in one network namespace. The zero Sender is for a process that lives in one.
type Sender struct {
	// In calls a function on a thread of the network namespace to work in.
	In func(func() error) error
}

// Send sends one tickle for each connection and returns what went wrong for each, nil where nothing did. One that fails does not
// keep back the others. Errors wrap ErrUnfit, ErrNotHere, or what the kernel said, such as EAGAIN where a queue is full. It needs
// CAP_NET_RAW.
func (s *Sender) Send(connections []Connection) []error {
	errs := make([]error, len(connections))
	sockets := [2]int{-1, -1}
	defer func() {
		for _, fd := range sockets {
			if fd >= 0 {
				_ = unix.Close(fd)
			}
		}
	}()
	for i, c := range connections {
		if errs[i] = check(c); errs[i] != nil {
			continue
		}
		fd, family := &sockets[0], unix.AF_INET
		if c.Local.Addr().Is6() {
			fd, family = &sockets[1], unix.AF_INET6
		}
		if *fd < 0 {
			if *fd, errs[i] = s.open(family); errs[i] != nil {
				continue
			}
		}
		errs[i] = send(*fd, c)
	}
	return errs
}

// open opens a raw socket that receives nothing: a raw socket of a protocol gets a copy of everything that comes in for it, unless
// a filter (socket(7), SO_ATTACH_FILTER) keeps it away.
func (s *Sender) open(family int) (fd int, err error) {
	in := s.In
	if in == nil {
		in = func(f func() error) error { return f() }
	}
	fd = -1
	err = in(func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
		return err
	})
	switch {
	case errors.Is(err, unix.EPERM):
		return -1, fmt.Errorf("opening a raw TCP socket: %w: this needs CAP_NET_RAW", err)
	case err != nil:
		return -1, fmt.Errorf("opening a raw TCP socket: %w", err)
	}
	nothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing}); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("closing a raw TCP socket to what comes in: %w", err)
	}
	return fd, nil
}

// send sends one. The source is named beside the segment (IP_PKTINFO, RFC 3542 section 6.2), so that the kernel takes the route of
// the address's own subnet, and none if the address is not here.
func send(fd int, c Connection) error {
	var info []byte
	var to unix.Sockaddr
	if c.Local.Addr().Is4() {
		info = unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: c.Local.Addr().As4()})
		to = &unix.SockaddrInet4{Addr: c.Remote.Addr().As4()}
	} else {
		info = unix.PktInfo6(&unix.Inet6Pktinfo{Addr: c.Local.Addr().As16()})
		to = &unix.SockaddrInet6{Addr: c.Remote.Addr().As16()}
	}
	packet := segment(c)
	switch err := unix.Sendmsg(fd, packet[:], info, to, unix.MSG_DONTWAIT); {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.ENETUNREACH):
		return fmt.Errorf("%v to %v: %w", c.Local, c.Remote, ErrNotHere)
	case err != nil:
		return fmt.Errorf("sending from %v to %v: %w", c.Local, c.Remote, err)
	}
	return nil
}
