package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// trafficClass is CS6 of RFC 4594 section 3.1, network control: what says who is alive goes before what can wait.
	trafficClass = 0xc0
	// receiveBytes is how much the kernel keeps for a thread that is late: some thousand small datagrams. Without CAP_NET_ADMIN
	// it is cut down to net.core.rmem_max.
	receiveBytes = 4 << 20
)

// Socket is one UDP socket that is bound to an address.
type Socket struct {
	fd         int
	local      netip.AddrPort
	timestamps bool
}

// Listen opens a socket of the calling thread's network namespace and binds it to an address of this host; port 0 takes a free one.
// The kernel marks each datagram with its time of arrival if it can (since Linux 5.1).
func Listen(local netip.AddrPort) (*Socket, error) {
	return open(local, (*Socket).prepare)
}

// open opens a socket of the family of an address, and has it prepared for that and bound to it.
func open(local netip.AddrPort, prepare func(s *Socket, family int, name Destination) error) (*Socket, error) {
	name, err := To(local)
	if err != nil {
		return nil, fmt.Errorf("opening a UDP socket: %w", err)
	}
	family := unix.AF_INET
	if local.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return nil, fmt.Errorf("opening a UDP socket for %s: %w", local, err)
	}
	s := &Socket{fd: fd}
	if err := prepare(s, family, name); err != nil {
		return nil, errors.Join(fmt.Errorf("opening a UDP socket for %s: %w", local, err), s.Close())
	}
	return s, nil
}

func (s *Socket) prepare(family int, name Destination) error {
	var err error
	if family == unix.AF_INET6 {
		err = errors.Join(unix.SetsockoptInt(s.fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1), unix.SetsockoptInt(s.fd, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, trafficClass))
	} else {
		err = unix.SetsockoptInt(s.fd, unix.IPPROTO_IP, unix.IP_TOS, trafficClass)
	}
	if err != nil {
		return fmt.Errorf("setting its traffic class: %w", err)
	}
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBytes) != nil {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBytes); err != nil {
			return fmt.Errorf("sizing its buffer: %w", err)
		}
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1); err != nil {
		return fmt.Errorf("asking for the count of lost datagrams: %w", err)
	}
	s.timestamps = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS_NEW, 1) == nil
	if err := unix.Bind(s.fd, name.sockaddr()); err != nil {
		if errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("%w: this host does not have the address", err)
		}
		return err
	}
	return s.readLocal()
}

// Adopt makes a Socket of the descriptor of one that another process has made with Listen, and owns it from then on, also when it
// fails. What waits in the socket is received by whoever asks first: the other process must have stopped.
func Adopt(fd int) (*Socket, error) {
	s := &Socket{fd: fd}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err == nil && kind != unix.SOCK_DGRAM {
		err = errors.New("it is not a socket for datagrams")
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err == nil {
		err = s.readLocal()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("adopting a UDP socket: %w", err), s.Close())
	}
	stamps, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS_NEW)
	s.timestamps = err == nil && stamps != 0
	return s, nil
}

// Share returns another descriptor of the same socket, to be handed to another process.
func (s *Socket) Share() (int, error) { return unix.FcntlInt(uintptr(s.fd), unix.F_DUPFD_CLOEXEC, 0) }

// readLocal asks the kernel what the socket is bound to.
func (s *Socket) readLocal() error {
	bound, err := unix.Getsockname(s.fd)
	if err != nil {
		return fmt.Errorf("asking for its port: %w", err)
	}
	switch bound := bound.(type) {
	case *unix.SockaddrInet4:
		s.local = netip.AddrPortFrom(netip.AddrFrom4(bound.Addr), uint16(bound.Port))
	case *unix.SockaddrInet6:
		s.local = netip.AddrPortFrom(netip.AddrFrom16(bound.Addr), uint16(bound.Port))
	}
	return nil
}

// Local is the address and port that the socket is bound to, without a zone.
func (s *Socket) Local() netip.AddrPort { return s.local }

// Timestamps reports whether the kernel marks datagrams with the time of their arrival.
func (s *Socket) Timestamps() bool { return s.timestamps }

// Close closes the socket; what waits in it is lost.
func (s *Socket) Close() error { return unix.Close(s.fd) }

// Destination is an address as the kernel reads it. The zero Destination is nowhere.
type Destination struct {
	address netip.AddrPort
	zone    uint32
}

// To makes a destination of an address, with its port. The zone of an address that needs one is a name or a number of an interface.
func To(a netip.AddrPort) (Destination, error) {
	if !a.IsValid() || a.Addr().Is4In6() {
		return Destination{}, fmt.Errorf("%s is not an IPv4 or IPv6 address with a port", a)
	}
	d := Destination{address: a}
	if zone := a.Addr().Zone(); zone != "" {
		number, err := strconv.ParseUint(zone, 10, 32)
		if err != nil {
			device, err := net.InterfaceByName(zone)
			if err != nil {
				return Destination{}, fmt.Errorf("finding the interface of %s: %w", a, err)
			}
			number = uint64(device.Index)
		}
		d.zone = uint32(number)
	}
	return d, nil
}

// IsValid reports whether it is somewhere.
func (d Destination) IsValid() bool { return d.address.IsValid() }

func (d Destination) sockaddr() unix.Sockaddr {
	if d.address.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(d.address.Port()), Addr: d.address.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(d.address.Port()), Addr: d.address.Addr().As16(), ZoneId: d.zone}
}
