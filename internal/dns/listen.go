package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// retryPause is how long a loop waits after an error of its socket that is not its closing, such as too many open
// files, so that a lasting one does not keep a processor busy.
const retryPause = 10 * time.Millisecond

// maxQuery bounds a query. The longest with a sense has some hundred octets; a UDP datagram beyond is cut and so
// malformed, a TCP message beyond ends its connection.
const maxQuery = 4096

// receiveBuffer holds the queries of a burst, some thousands, until they are answered.
const receiveBuffer = 1 << 20

// listener is the pair of sockets of one service address.
type listener struct {
	address netip.Addr
	udp     *net.UDPConn
	tcp     *net.TCPListener
	closing chan struct{}
	still   still

	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil once closed
}

// listen opens both sockets of an address and starts their loops.
func (s *Server) listen(ctx context.Context, at netip.AddrPort) (*listener, error) {
	if l := s.inherited(at.Addr()); l != nil {
		return l, nil
	}
	family := "6"
	if at.Addr().Is4() {
		family = "4"
	}
	config := net.ListenConfig{Control: prepareSocket}
	packets, err := config.ListenPacket(ctx, "udp"+family, at.String())
	if err != nil {
		return nil, fmt.Errorf("opening UDP %v for DNS: %w%s", at, err, listenAdvice(err))
	}
	tcp, err := config.Listen(ctx, "tcp"+family, at.String())
	if err != nil {
		packets.Close()
		return nil, fmt.Errorf("opening TCP %v for DNS: %w%s", at, err, listenAdvice(err))
	}
	udp := packets.(*net.UDPConn)
	if err := udp.SetReadBuffer(receiveBuffer); err != nil { // more than the system allows is no error
		s.log.Warn("the receive buffer for DNS stays as it is", "address", at, "error", err)
	}
	return s.serve(at.Addr(), udp, tcp.(*net.TCPListener)), nil
}

// serve starts the loops of both sockets of an address.
func (s *Server) serve(address netip.Addr, udp *net.UDPConn, tcp *net.TCPListener) *listener {
	l := &listener{address: address, udp: udp, tcp: tcp, closing: make(chan struct{}), conns: map[net.Conn]struct{}{}, still: newStill()}
	s.running.Go(func() { s.serveUDP(l) })
	s.running.Go(func() { s.serveTCP(l) })
	return l
}

// listenAdvice says what to do about an error of opening a port.
func listenAdvice(err error) string {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return " (another program has the port; bind it to other addresses)"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return " (grant the capability CAP_NET_BIND_SERVICE)"
	}
	return ""
}

// prepareSocket lets a socket bind an address that the node does not hold yet, and keeps UDP responses from being
// fragmented on the word of an ICMP message that anyone may forge.
func prepareSocket(network, _ string, raw syscall.RawConn) error {
	var fault error
	err := raw.Control(func(fd uintptr) {
		socket := int(fd)
		six := network[len(network)-1] == '6'
		if six {
			fault = unix.SetsockoptInt(socket, unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1)
		} else {
			fault = unix.SetsockoptInt(socket, unix.IPPROTO_IP, unix.IP_FREEBIND, 1)
		}
		if fault != nil || network[:3] != "udp" {
			return
		}
		if six {
			fault = unix.SetsockoptInt(socket, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_OMIT)
		} else {
			fault = unix.SetsockoptInt(socket, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_OMIT)
		}
	})
	return errors.Join(err, fault)
}

// close ends the sockets, their loops and the connections.
func (l *listener) close() {
	close(l.closing)
	l.udp.Close()
	l.tcp.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.Close()
	}
	l.conns = nil
}

// add takes a connection into the listener's care; false: the listener is closed.
func (l *listener) add(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

func (l *listener) remove(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// pause waits for retryPause; false: the listener is closing.
func (l *listener) pause() bool {
	select {
	case <-time.After(retryPause):
		return true
	case <-l.closing:
		return false
	}
}

// serveUDP answers datagrams one after the other until the socket closes. The socket is bound to the service address,
// so that responses leave from it.
func (s *Server) serveUDP(l *listener) {
	in := make([]byte, maxQuery)
	out := make([]byte, 0, ourUDPLimit)
	for {
		n, from, err := l.udp.ReadFromUDPAddrPort(in)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				l.stand()
				continue
			}
			s.metrics.unreadable.Inc()
			if !l.pause() {
				return
			}
			continue
		}
		response, outcome := s.answer(out, Request{Message: in[:n], Client: from.Addr(), Service: l.address})
		if outcome.Dropped != DropNone || from.Port() == 0 {
			continue
		}
		if _, err := l.udp.WriteToUDPAddrPort(response, from); err != nil {
			s.metrics.unsent.Inc()
		}
	}
}

// serveTCP accepts connections until the socket closes.
func (s *Server) serveTCP(l *listener) {
	for {
		c, err := l.tcp.Accept()
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				l.stand()
				continue
			}
			if errors.Is(err, net.ErrClosed) || !l.pause() {
				return
			}
			continue
		}
		client := remoteAddress(c)
		if !s.streams.admit(client) {
			c.Close()
			continue
		}
		if !l.add(c) {
			s.streams.leave(client)
			c.Close()
			return
		}
		s.running.Go(func() {
			defer s.streams.leave(client)
			defer l.remove(c)
			defer c.Close()
			s.streams.serve(c, client, l.address)
		})
	}
}

func remoteAddress(c net.Conn) netip.Addr {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
