package udp

import (
	"encoding/binary"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sender collects datagrams for one socket and sends them together.
type Sender struct {
	messages []message
	vectors  []unix.Iovec
	names    [][unix.SizeofSockaddrInet6]byte
	data     []byte
	size     int
	waiting  int
}

// NewSender returns one that collects up to count datagrams, 1024 at most, each of up to size bytes.
func NewSender(count, size int) *Sender {
	s := &Sender{
		messages: make([]message, count), vectors: make([]unix.Iovec, count), names: make([][unix.SizeofSockaddrInet6]byte, count),
		data: make([]byte, count*size), size: size,
	}
	for i := range s.messages {
		s.vectors[i].Base = &s.data[i*size]
		h := &s.messages[i].header
		h.Name = &s.names[i][0]
		h.Iov = &s.vectors[i]
		h.SetIovlen(1)
	}
	return s
}

// Waiting is how many have been collected since the last Send.
func (s *Sender) Waiting() int { return s.waiting }

// Full reports whether Send has to come before the next Add.
func (s *Sender) Full() bool { return s.waiting == len(s.messages) }

// Add collects a datagram and returns its memory, whose content is to be written before Send. The sender must not be full; length
// is its size at most.
func (s *Sender) Add(to Destination, length int) []byte {
	i := s.waiting
	s.waiting++
	s.messages[i].header.Namelen = to.write(&s.names[i])
	s.vectors[i].SetLen(length)
	return s.data[i*s.size:][:length:s.size]
}

// write makes struct sockaddr_in or sockaddr_in6 of it and returns the length.
func (d Destination) write(b *[unix.SizeofSockaddrInet6]byte) uint32 {
	binary.BigEndian.PutUint16(b[2:], d.address.Port())
	if a := d.address.Addr(); a.Is4() {
		binary.NativeEndian.PutUint16(b[:], unix.AF_INET)
		four := a.As4()
		copy(b[4:], four[:])
		clear(b[8:unix.SizeofSockaddrInet4])
		return unix.SizeofSockaddrInet4
	}
	binary.NativeEndian.PutUint16(b[:], unix.AF_INET6)
	clear(b[4:8])
	sixteen := d.address.Addr().As16()
	copy(b[8:], sixteen[:])
	binary.NativeEndian.PutUint32(b[24:], d.zone)
	return unix.SizeofSockaddrInet6
}

// Send sends what has been collected and forgets it. It returns how many the kernel took, and for the others why it did not take
// one of them. One that cannot be sent does not keep back those behind it; when the kernel's buffer is full, the rest is lost, for
// it must not wait.
func (s *Sender) Send(socket *Socket) (sent int, err error) {
	from, waiting := 0, s.waiting
	s.waiting = 0
	for from < waiting {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(socket.fd), uintptr(unsafe.Pointer(&s.messages[from])), uintptr(waiting-from), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			from, sent = from+int(n), sent+int(n)
		case unix.EINTR:
		case unix.EAGAIN, unix.EBADF:
			return sent, errno
		default: // it is about the first of them (sendmmsg(2))
			err = errno
			from++
		}
	}
	runtime.KeepAlive(s)
	return sent, err
}
