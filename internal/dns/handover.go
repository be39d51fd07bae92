package dns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Socket is the pair of sockets of one service address, as descriptors that may be handed to another process.
type Socket struct {
	Address  netip.Addr
	UDP, TCP int
}

// Close closes both.
func (s Socket) Close() error { return errors.Join(unix.Close(s.UDP), unix.Close(s.TCP)) }

// still lets the two loops of a listener stand still. It belongs to Server.mu, but for the channels.
type still struct {
	reached chan struct{} // a loop has come to stand
	goOn    chan struct{} // and is to go on
}

func newStill() still { return still{reached: make(chan struct{}, 2), goOn: make(chan struct{}, 2)} }

// stand waits until the loop is to go on, or the listener closes.
func (l *listener) stand() {
	select {
	case l.still.reached <- struct{}{}:
	case <-l.closing:
		return
	}
	select {
	case <-l.still.goOn:
	case <-l.closing:
	}
}

// Suspend stops the reading of queries, and returns the sockets for another process, which owns these descriptors. What has been read is
// answered before it returns; what comes stays in the sockets. Connections that are open are served on. Either Resume or Close follows.
func (s *Server) Suspend() ([]Socket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	past := time.Unix(1, 0)
	for _, l := range s.listeners {
		if err := errors.Join(l.udp.SetReadDeadline(past), l.tcp.SetDeadline(past)); err != nil {
			return nil, fmt.Errorf("suspending DNS on %v: %w", l.address, err)
		}
	}
	var sockets []Socket
	for address, l := range s.listeners {
		<-l.still.reached
		<-l.still.reached
		packets, err := duplicate(l.udp)
		if err != nil {
			return sockets, err
		}
		streams, err := duplicate(l.tcp)
		if err != nil {
			return sockets, errors.Join(err, unix.Close(packets))
		}
		sockets = append(sockets, Socket{Address: address, UDP: packets, TCP: streams})
	}
	return sockets, nil
}

// Resume goes on with what Suspend stopped.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners {
		_ = l.udp.SetReadDeadline(time.Time{})
		_ = l.tcp.SetDeadline(time.Time{})
		l.still.goOn <- struct{}{}
		l.still.goOn <- struct{}{}
	}
}

// duplicate returns another descriptor of a socket.
func duplicate(socket syscall.Conn) (int, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	var fault error
	err = raw.Control(func(from uintptr) { fd, fault = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(err, fault)
}

// Inherit takes over sockets of a process before this one, which has stopped reading from them; the server owns the descriptors. Each is
// used when Serve is told its address.
func (s *Server) Inherit(sockets []Socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disinherit()
	s.heritage = map[netip.Addr]Socket{}
	for _, socket := range sockets {
		s.heritage[socket.Address] = socket
	}
}

// disinherit closes what nobody used. s.mu is held.
func (s *Server) disinherit() {
	for _, socket := range s.heritage {
		_ = socket.Close()
	}
	s.heritage = nil
}

// inherited serves the sockets of an address that were taken over; nil if there are none. s.mu is held.
func (s *Server) inherited(address netip.Addr) *listener {
	socket, known := s.heritage[address]
	if !known {
		return nil
	}
	delete(s.heritage, address)
	udp, tcp := os.NewFile(uintptr(socket.UDP), "udp"), os.NewFile(uintptr(socket.TCP), "tcp")
	defer udp.Close()
	defer tcp.Close()
	packets, err := net.FilePacketConn(udp)
	if err != nil {
		s.log.Warn("an inherited socket for DNS cannot be used; another is opened", "address", address, "error", err)
		return nil
	}
	streams, err := net.FileListener(tcp)
	if err != nil {
		s.log.Warn("an inherited socket for DNS cannot be used; another is opened", "address", address, "error", err)
		packets.Close()
		return nil
	}
	return s.serve(address, packets.(*net.UDPConn), streams.(*net.TCPListener))
}
