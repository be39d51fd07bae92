package udp

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// ListenService opens a socket for a service at an address that this host may not have yet (IP_FREEBIND), in the calling thread's network
// namespace. Several may be opened for one address; the kernel spreads what comes among them, and all that one client port sends
// comes to the same one, as long as their number stays (SO_REUSEPORT). Path MTU messages, which anyone may forge, do not have what is sent
// fragmented. bufferBytes is how much the kernel keeps for a thread that is late; without CAP_NET_ADMIN it is cut down to net.core.rmem_max.
func ListenService(local netip.AddrPort, bufferBytes int) (*Socket, error) {
	return open(local, func(s *Socket, family int, name Destination) error {
		if err := s.prepareService(family, bufferBytes); err != nil {
			return err
		}
		if err := unix.Bind(s.fd, name.sockaddr()); err != nil {
			return err
		}
		return s.readLocal()
	})
}

func (s *Socket) prepareService(family, bufferBytes int) error {
	type option struct{ level, name, value int }
	options := []option{
		{unix.SOL_SOCKET, unix.SO_REUSEPORT, 1},
		{unix.IPPROTO_IP, unix.IP_FREEBIND, 1},
		{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_OMIT},
	}
	if family == unix.AF_INET6 {
		options = []option{
			{unix.SOL_SOCKET, unix.SO_REUSEPORT, 1},
			{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1},
			{unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1},
			{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_OMIT},
		}
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(s.fd, o.level, o.name, o.value); err != nil {
			return fmt.Errorf("setting option %d of level %d: %w", o.name, o.level, err)
		}
	}
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bufferBytes) != nil {
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, bufferBytes) // more than the system allows is cut down
	}
	return nil
}
