package udp

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Patient is a socket whose reader waits where the runtime of Go waits for the network: it costs nothing while nothing comes, and waking it
// takes no thread of its own. It is for one reader; Overflowed, Interrupt, Continue and Close may be called by anybody.
type Patient struct {
	*Socket
	file     *os.File
	raw      syscall.RawConn
	exchange *Exchange
	try      func(uintptr) bool // Receive, made once
	received int
	fault    error
}

// ErrInterrupted says that Receive was interrupted.
var ErrInterrupted = errors.New("receiving was interrupted")

// NewPatient takes a socket over, also when it fails. What it receives is in the exchange.
func NewPatient(s *Socket, x *Exchange) (*Patient, error) {
	p := &Patient{Socket: s, exchange: x, file: os.NewFile(uintptr(s.fd), "udp")}
	p.try = func(uintptr) bool {
		p.received, p.fault = x.Receive(s)
		return p.received > 0 || p.fault != nil
	}
	raw, err := p.file.SyscallConn()
	if err == nil {
		err = p.file.SetReadDeadline(time.Time{}) // an error if the runtime cannot wait for it
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("preparing to wait for datagrams: %w", err), p.Close())
	}
	p.raw = raw
	return p, nil
}

// Receive takes what waits, and waits for something if nothing does.
func (p *Patient) Receive() (int, error) {
	switch err := p.raw.Read(p.try); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, ErrInterrupted
	case err != nil:
		return 0, err
	}
	return p.received, p.fault
}

// Overflowed is how many datagrams the kernel has dropped, since it made the socket, because the buffer was full; beyond 32 bits it begins anew. It may
// be called by anybody, and reads nothing of what waits.
func (p *Patient) Overflowed() (uint32, error) {
	const drops = 8 // of the numbers of SO_MEMINFO (linux/sock_diag.h, SK_MEMINFO_DROPS)
	var numbers [drops + 1]uint32
	size := uint32(unsafe.Sizeof(numbers))
	fault := unix.Errno(0)
	err := p.raw.Control(func(fd uintptr) {
		_, _, fault = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&numbers)), uintptr(unsafe.Pointer(&size)), 0)
	})
	if err == nil && fault != 0 {
		err = fault
	}
	if err != nil {
		return 0, fmt.Errorf("asking for the count of lost datagrams: %w", err)
	}
	return numbers[drops], nil
}

// Interrupt has Receive return ErrInterrupted, now and until Continue.
func (p *Patient) Interrupt() error { return p.file.SetReadDeadline(time.Unix(1, 0)) }

// Continue ends what Interrupt began.
func (p *Patient) Continue() error { return p.file.SetReadDeadline(time.Time{}) }

// Close closes the socket; what waits in it is lost.
func (p *Patient) Close() error { return p.file.Close() }
