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

	datagrams "github.com/holdfast/holdfast/internal/linux/udp"
)

// Socket is the sockets of one service address, as descriptors that may be handed to another process.
type Socket struct {
	Address netip.Addr
	TCP     int
	UDP     []int // at least one; the kernel spreads queries over them
}

// Close closes all of them.
func (s Socket) Close() error {
	fault := unix.Close(s.TCP)
	for _, fd := range s.UDP {
		fault = errors.Join(fault, unix.Close(fd))
	}
	return fault
}

// still lets the loops of a listener stand still. It belongs to Server.mu, but for the channels.
type still struct {
	loops   int
	reached chan struct{} // a loop has come to stand
	goOn    chan struct{} // and is to go on
}

func newStill(loops int) *still {
	return &still{loops: loops, reached: make(chan struct{}, loops), goOn: make(chan struct{}, loops)}
}

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
		err := l.tcp.SetDeadline(past)
		for _, d := range l.desks {
			err = errors.Join(err, d.socket.Interrupt())
		}
		if err != nil {
			return nil, fmt.Errorf("suspending DNS on %v: %w", l.address, err)
		}
	}
	var sockets []Socket
	for _, l := range s.listeners {
		for range l.still.loops {
			<-l.still.reached
		}
	}
	for address, l := range s.listeners {
		socket, err := l.duplicate(address)
		if err != nil {
			return sockets, fmt.Errorf("handing over DNS on %v: %w", address, err)
		}
		sockets = append(sockets, socket)
	}
	return sockets, nil
}

// duplicate returns further descriptors of the sockets.
func (l *listener) duplicate(address netip.Addr) (Socket, error) {
	tcp, err := duplicate(l.tcp)
	if err != nil {
		return Socket{}, err
	}
	socket := Socket{Address: address, TCP: tcp}
	for _, d := range l.desks {
		fd, err := d.socket.Share()
		if err != nil {
			return Socket{}, errors.Join(err, socket.Close())
		}
		socket.UDP = append(socket.UDP, fd)
	}
	return socket, nil
}

// Resume goes on with what Suspend stopped.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners {
		_ = l.tcp.SetDeadline(time.Time{})
		for _, d := range l.desks {
			_ = d.socket.Continue()
		}
		for range l.still.loops {
			l.still.goOn <- struct{}{}
		}
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

// inherited serves the sockets of an address that were taken over; nil if there are none. All are served, also more than this server would
// open, for queries may wait in each. Where there are fewer, more are opened beside them; if that cannot be, those serve alone. s.mu is held.
func (s *Server) inherited(at netip.AddrPort) *listener {
	address := at.Addr()
	socket, known := s.heritage[address]
	if !known {
		return nil
	}
	delete(s.heritage, address)
	desks, tcp, err := s.adopt(at, socket)
	if err != nil {
		s.log.Warn("an inherited socket for DNS cannot be used; another is opened", "address", address, "error", err)
		return nil
	}
	return s.serve(address, desks, tcp)
}

// adopt makes desks and a listener of the descriptors, which it owns from then on, also when it fails.
func (s *Server) adopt(at netip.AddrPort, socket Socket) (desks []*desk, tcp *net.TCPListener, err error) {
	file := os.NewFile(uintptr(socket.TCP), "tcp")
	defer file.Close()
	streams, err := net.FileListener(file)
	var sockets []*datagrams.Socket
	for _, fd := range socket.UDP {
		adopted, fault := datagrams.Adopt(fd)
		if fault != nil {
			err = errors.Join(err, fault)
			continue
		}
		sockets = append(sockets, adopted)
	}
	if err == nil && len(sockets) < s.sockets {
		more, fault := s.openMore(at, s.sockets-len(sockets))
		if fault != nil {
			s.log.Info("the inherited sockets for DNS serve alone", "address", at.Addr(), "sockets", len(sockets), "error", fault)
		}
		sockets = append(sockets, more...)
	}
	if err == nil {
		desks, err = s.newDesks(at.Addr(), sockets)
	} else {
		closeSockets(sockets)
	}
	if err != nil {
		if streams != nil {
			err = errors.Join(err, streams.Close())
		}
		return nil, nil, err
	}
	return desks, streams.(*net.TCPListener), nil
}
