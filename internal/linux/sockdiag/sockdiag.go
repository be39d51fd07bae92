// Package sockdiag asks the kernel for its TCP sockets by NETLINK_SOCK_DIAG (linux/sock_diag.h, linux/inet_diag.h; see
// sock_diag(7)).
//
// It guarantees that one dump holds one socket and one buffer of fixed size, however many sockets there are, and ends
// within Timeout. Every call opens a netlink socket of its own in the network namespace of the calling thread, so calls
// are safe for concurrent use. No privilege is needed to list.
//
// The kernel walks its table while connections come and go: one that opens or closes during a dump may be missed, and
// none is reported twice. It does not list UDP and knows nothing about whose addresses they are. Listeners, half-open and
// closing connections are not reported; Destroy ends all but listeners, and needs CAP_NET_ADMIN.
package sockdiag

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Timeout bounds one read of a dump. The kernel answers at once; only a broken one does not.
const Timeout = 2 * time.Second

// bufferSize holds several datagrams of a dump. The kernel fills at most 32 KiB at a time (netlink_dump in
// net/netlink/af_netlink.c).
const bufferSize = 64 << 10

// Connection is one established TCP connection of this host. An IPv4 connection on an IPv6 socket (a v4-mapped
// address) has IPv4 addresses here.
type Connection struct{ Local, Remote netip.AddrPort }

// ErrUnsupported is wrapped by errors that say that the kernel has no TCP socket diagnostics.
var ErrUnsupported = errors.New("the kernel has no TCP socket diagnostics; load the modules tcp_diag and inet_diag")

// Each calls visit for every established TCP connection of the calling thread's network namespace, IPv4 first. On an
// error some may have been visited already.
func Each(visit func(Connection)) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		if err := dump(requestStates(family, 1<<tcpEstablished), established(visit)); err != nil {
			return fmt.Errorf("listing TCP connections: %w", err)
		}
	}
	return nil
}

// EachServed calls visit for every TCP connection of the calling thread's network namespace whose far end may be waiting for
// something: the established ones, and those of which the far end has closed its own half (CLOSE_WAIT here). IPv4 comes first.
func EachServed(visit func(Connection)) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		if err := dump(requestStates(family, 1<<tcpEstablished|1<<tcpCloseWait), func(f found) { visit(f.Connection) }); err != nil {
			return fmt.Errorf("listing TCP connections: %w", err)
		}
	}
	return nil
}

// Established counts the established connections by local address and port. Only the given ports count; without any,
// all do, and then the map has an entry for every outgoing connection too.
func Established(ports ...uint16) (map[netip.AddrPort]int, error) {
	var wanted [1 << 16 / 64]uint64
	for _, port := range ports {
		wanted[port/64] |= 1 << (port % 64)
	}
	counts := map[netip.AddrPort]int{}
	err := Each(func(c Connection) {
		port := c.Local.Port()
		if len(ports) == 0 || wanted[port/64]&(1<<(port%64)) != 0 {
			counts[c.Local]++
		}
	})
	if err != nil {
		return nil, err
	}
	return counts, nil
}

// open opens a socket whose reads are bounded.
func open() (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		if errors.Is(err, unix.EPROTONOSUPPORT) {
			return -1, ErrUnsupported
		}
		return -1, fmt.Errorf("opening a sock_diag socket: %w", err)
	}
	limit := unix.NsecToTimeval(Timeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("bounding the wait for sock_diag: %w", err)
	}
	return fd, nil
}

// dump lists what a request asks for.
func dump(request []byte, visit func(found)) error {
	fd, err := open()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("asking sock_diag: %w", err)
	}
	return receive(func(buffer []byte) (int, error) {
		n, from, err := unix.Recvfrom(fd, buffer, unix.MSG_TRUNC)
		if sender, netlink := from.(*unix.SockaddrNetlink); err == nil && (!netlink || sender.Pid != 0) {
			return 0, nil // not from the kernel
		}
		return n, err
	}, visit)
}

// receive reads datagrams until the dump is done.
func receive(read func([]byte) (int, error), visit func(found)) error {
	buffer := make([]byte, bufferSize)
	for {
		n, err := read(buffer)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return fmt.Errorf("no answer from sock_diag within %s: %w", Timeout, os.ErrDeadlineExceeded)
		case err != nil:
			return fmt.Errorf("reading from sock_diag: %w", err)
		case n > len(buffer):
			return fmt.Errorf("a sock_diag answer of %d bytes is longer than %d", n, len(buffer))
		}
		done, err := parse(buffer[:n], visit)
		if errors.Is(err, unix.ENOENT) {
			return ErrUnsupported
		}
		if done || err != nil {
			return err
		}
	}
}
