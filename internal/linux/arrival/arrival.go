// Package arrival notes when the first packet of a client comes in for an address, and from whom: an ear for some seconds, not a tap.
//
// It guarantees that it hears only packets that come in from the link for the addresses it was asked about, that it looks at nothing
// behind the transport header, and that an address is no longer looked for once it has been heard: the kernel's filter is narrowed
// then, and the sockets are closed when none is left. What does not count as a client's is in Counts. A Listener is safe for
// concurrent use; each call has sockets of its own, and none are open between calls.
//
// It does not know who is a client: another node that uses an address is one, too.
package arrival

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// MaxAddresses is how many addresses one call looks for; those beyond it are left out. Each costs every packet that comes in on the
// interface some comparisons for as long as it is looked for.
const MaxAddresses = 64

// First is the first packet for an address.
type First struct {
	Address netip.Addr
	From    netip.Addr
	At      time.Time // by the kernel, of the wall clock
}

// Listener listens in one network namespace. The zero Listener is for a process that lives in one.
type Listener struct {
	// In calls a function on a thread of the network namespace to work in.
	In func(func() error) error
}

// FirstPackets calls heard once for each of the addresses, when the first packet of a client to it comes in on the interface, until
// all were heard or ctx ends; then it returns nil. It needs CAP_NET_RAW. heard must not block for long.
func (l *Listener) FirstPackets(ctx context.Context, iface string, addresses []netip.Addr, heard func(First)) error {
	addresses = addresses[:min(len(addresses), MaxAddresses)]
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 2)
	running := 0
	for _, family := range []family{four, six} {
		wanted := slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return a.Is4() != (family == four) })
		if len(wanted) == 0 {
			continue
		}
		running++
		go func() { ended <- l.listen(ctx, family, iface, wanted, heard) }()
	}
	var first error
	for range running {
		if err := <-ended; err != nil && first == nil {
			first = fmt.Errorf("listening for first packets on %s: %w", iface, err)
			stop()
		}
	}
	return first
}

// family is IPv4 or IPv6, by the number of its protocol on Ethernet (and in packet sockets of every other kind of device).
type family uint16

const (
	four family = unix.ETH_P_IP
	six  family = unix.ETH_P_IPV6
)

// listen hears the packets of one family.
func (l *Listener) listen(ctx context.Context, f family, iface string, wanted []netip.Addr, heard func(First)) error {
	in := l.In
	if in == nil {
		in = func(f func() error) error { return f() }
	}
	var socket *os.File
	err := in(func() (err error) {
		socket, err = f.open(iface, wanted)
		return err
	})
	if err != nil {
		return err
	}
	defer socket.Close()
	calledOff := context.AfterFunc(ctx, func() { _ = socket.SetReadDeadline(time.Unix(1, 0)) })
	defer calledOff()
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	packet, control := make([]byte, captureSize), make([]byte, 64)
	for len(wanted) > 0 {
		first, ok, err := f.next(raw, packet, control)
		switch {
		case ctx.Err() != nil:
			return nil // it was called off
		case errors.Is(err, unix.ENETDOWN):
			continue // the socket goes on when the interface is up again; what it waits for is not there meanwhile
		case err != nil:
			return fmt.Errorf("reading a packet: %w", err)
		}
		i := slices.Index(wanted, first.Address)
		if !ok || i < 0 {
			continue // no client's, or it came before the filter was narrowed
		}
		heard(first)
		if wanted = slices.Delete(wanted, i, i+1); len(wanted) > 0 {
			narrowed := raw.Control(func(fd uintptr) { err = narrow(int(fd), f.filter(wanted)) })
			if err = errors.Join(narrowed, err); err != nil {
				return fmt.Errorf("narrowing a packet socket's filter: %w", err)
			}
		}
	}
	return nil
}

// open opens a socket that gets nothing before its filter is in place: one of protocol 0 hears nothing. One that is bound to a
// protocol never sees what this host sends.
func (f family) open(iface string, wanted []netip.Addr) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.EPERM):
		return nil, fmt.Errorf("opening a packet socket: %w: this needs CAP_NET_RAW", err)
	case err != nil:
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	socket := os.NewFile(uintptr(fd), "first packets")
	device, err := indexOf(fd, iface)
	if err == nil {
		err = narrow(fd, f.filter(wanted))
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian(uint16(f)), Ifindex: device})
	}
	if err != nil {
		_ = socket.Close()
		return nil, fmt.Errorf("preparing a packet socket: %w", err)
	}
	return socket, nil
}

// indexOf asks for one interface alone, and not under the lock that addresses are being put on under (dev_ifsioc_locked in
// net/core/dev_ioctl.c).
func indexOf(fd int, iface string) (int, error) {
	request, err := unix.NewIfreq(iface)
	if err != nil {
		return 0, fmt.Errorf("finding interface %q: %w", iface, err)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request); err != nil {
		return 0, fmt.Errorf("finding interface %q: %w", iface, err)
	}
	return int(request.Uint32()), nil
}

func bigEndian(n uint16) uint16 { return n<<8 | n>>8 }

// next waits for a packet that passes the filter. ok is false for one that is no client's.
func (f family) next(raw syscall.RawConn, packet, control []byte) (first First, ok bool, err error) {
	var n, controlled int
	var from unix.Sockaddr
	waited := raw.Read(func(fd uintptr) bool {
		n, controlled, _, from, err = unix.Recvmsg(int(fd), packet, control, unix.MSG_DONTWAIT)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	if waited != nil {
		return first, false, waited
	}
	if err != nil {
		return first, false, err
	}
	link, known := from.(*unix.SockaddrLinklayer)
	if !known || link.Pkttype != unix.PACKET_HOST { // another host's, seen because the interface is promiscuous, or a broadcast
		return first, false, nil
	}
	first.From, first.Address, ok = Counts(packet[:n])
	first.At = stamp(control[:controlled])
	return first, ok, nil
}

// stamp is the time at which the kernel got a packet.
func stamp(control []byte) time.Time {
	messages, _ := unix.ParseSocketControlMessage(control)
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS {
			if at, ok := timespec(m.Data); ok {
				return at
			}
		}
	}
	return time.Now()
}
