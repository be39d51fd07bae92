package api

import (
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Share returns another descriptor of the socket that the server listens on, to be handed to another process. Callers that wait in it
// are answered by whichever process accepts them.
func (s *Server) Share() (int, error) {
	socket, ok := s.socket().(syscall.Conn)
	if !ok {
		return -1, fmt.Errorf("sharing the socket of %s: it is not one of the kernel's", s.listener.Addr())
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	var fault error
	if err := raw.Control(func(from uintptr) { fd, fault = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return -1, err
	}
	return fd, fault
}

// Bequeath leaves the name of the socket in place when the server stops: another process listens there.
func (s *Server) Bequeath() {
	if socket, ok := s.socket().(*net.UnixListener); ok {
		socket.SetUnlinkOnClose(false)
	}
}

func (s *Server) socket() net.Listener {
	if bounded, ok := s.listener.(*boundedListener); ok {
		return bounded.Listener
	}
	return s.listener
}
