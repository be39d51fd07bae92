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

	datagrams "github.com/holdfast/holdfast/internal/linux/udp"
)

// retryPause is how long a loop waits after an error of its socket that is not its closing, such as too many open
// files, so that a lasting one does not keep a processor busy.
const retryPause = 10 * time.Millisecond

// maxQuery bounds a query. The longest with a sense has some hundred octets; a UDP datagram beyond is cut and so
// malformed, a TCP message beyond ends its connection.
const maxQuery = 4096

// receiveBuffer holds the queries of a burst, some thousands, until they are answered. Each socket has one.
const receiveBuffer = 1 << 20

// listener is the sockets of one service address: some of UDP, each with a desk that serves it, and one of TCP.
type listener struct {
	address netip.Addr
	desks   []*desk
	tcp     *net.TCPListener
	closing chan struct{}
	serving sync.WaitGroup // the desks
	still   *still

	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil once closed
}

// listen opens the sockets of an address and starts their loops. TCP comes first: it finds out whether another program has the port, before
// UDP shares it with one.
func (s *Server) listen(ctx context.Context, at netip.AddrPort) (*listener, error) {
	if l := s.inherited(at); l != nil {
		return l, nil
	}
	family := "6"
	if at.Addr().Is4() {
		family = "4"
	}
	config := net.ListenConfig{Control: prepareSocket}
	tcp, err := config.Listen(ctx, "tcp"+family, at.String())
	if err != nil {
		return nil, fmt.Errorf("opening TCP %v for DNS: %w%s", at, err, listenAdvice(err))
	}
	sockets, err := s.openMore(at, s.sockets)
	var desks []*desk
	if err == nil {
		desks, err = s.newDesks(at.Addr(), sockets)
	} else {
		closeSockets(sockets)
	}
	if err != nil {
		tcp.Close()
		return nil, fmt.Errorf("opening UDP %v for DNS: %w%s", at, err, listenAdvice(err))
	}
	return s.serve(at.Addr(), desks, tcp.(*net.TCPListener)), nil
}

// openMore opens UDP sockets of an address. With an error it returns those that it opened until then.
func (s *Server) openMore(at netip.AddrPort, count int) (sockets []*datagrams.Socket, err error) {
	for range count {
		socket, err := datagrams.ListenService(at, receiveBuffer)
		if err != nil {
			return sockets, err
		}
		sockets = append(sockets, socket)
	}
	return sockets, nil
}

func closeSockets(sockets []*datagrams.Socket) {
	for _, socket := range sockets {
		_ = socket.Close()
	}
}

// newDesks makes a desk for each of the sockets, which it takes over. With an error there is none.
func (s *Server) newDesks(service netip.Addr, sockets []*datagrams.Socket) (desks []*desk, err error) {
	for _, socket := range sockets {
		if err != nil {
			err = errors.Join(err, socket.Close())
			continue
		}
		var d *desk
		if d, err = newDesk(s, service, socket); err == nil {
			desks = append(desks, d)
		}
	}
	if err != nil {
		for _, d := range desks {
			err = errors.Join(err, d.close())
		}
		return nil, err
	}
	return desks, nil
}

// serve starts the loops of the sockets of an address.
func (s *Server) serve(address netip.Addr, desks []*desk, tcp *net.TCPListener) *listener {
	l := &listener{address: address, desks: desks, tcp: tcp, closing: make(chan struct{}), conns: map[net.Conn]struct{}{}, still: newStill(len(desks) + 1)}
	for _, d := range desks {
		l.serving.Add(1)
		s.running.Go(func() {
			defer l.serving.Done()
			d.serve(l)
		})
	}
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

// prepareSocket lets a socket bind an address that the node does not hold yet.
func prepareSocket(network, _ string, raw syscall.RawConn) error {
	var fault error
	err := raw.Control(func(fd uintptr) {
		if network[len(network)-1] == '6' {
			fault = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1)
		} else {
			fault = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_FREEBIND, 1)
		}
	})
	return errors.Join(err, fault)
}

// close ends the sockets, their loops and the connections. After it, no desk of the address answers, so that another one may be opened at
// once: a query would otherwise still be led to a socket that nobody reads.
func (l *listener) close() {
	close(l.closing)
	for _, d := range l.desks {
		_ = d.socket.Interrupt() // it closes the socket itself
	}
	l.tcp.Close()
	l.serving.Wait()
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

// closed reports whether the listener is closing.
func (l *listener) closed() bool {
	select {
	case <-l.closing:
		return true
	default:
		return false
	}
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
		if !s.streams.admit(c, client) {
			c.Close()
			continue
		}
		if !l.add(c) {
			s.streams.leave(c, client)
			c.Close()
			return
		}
		s.running.Go(func() {
			defer s.streams.leave(c, client)
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
