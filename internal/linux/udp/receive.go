package udp

import (
	"encoding/binary"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// message is struct mmsghdr of recvmmsg(2): a message, and how long it became.
type message struct {
	header unix.Msghdr
	length uint32
}

// controlBytes has room for what comes beside a datagram: the time of arrival (struct __kernel_timespec) and the count of lost
// datagrams (u32), each behind a header.
const controlBytes = 64

// Receiver takes datagrams from sockets, many at once.
type Receiver struct {
	messages []message
	vectors  []unix.Iovec
	data     []byte
	control  []byte
	size     int
	received int
}

// NewReceiver returns one that takes up to count datagrams at once, 1024 at most, each of up to size bytes.
func NewReceiver(count, size int) *Receiver {
	r := &Receiver{
		messages: make([]message, count), vectors: make([]unix.Iovec, count),
		data: make([]byte, count*size), control: make([]byte, count*controlBytes), size: size,
	}
	for i := range r.messages {
		r.vectors[i].Base = &r.data[i*size]
		r.vectors[i].SetLen(size)
		h := &r.messages[i].header
		h.Iov = &r.vectors[i]
		h.SetIovlen(1)
		h.Control = &r.control[i*controlBytes]
	}
	return r
}

// Receive takes the datagrams that wait, up to the receiver's count. None, without an error, means that none waits. After
// less than the count, none waited at some moment since the call began. An error is that of an earlier datagram which could not be
// delivered (ICMP); it is over once it has been told.
func (r *Receiver) Receive(s *Socket) (int, error) {
	for i := range r.messages {
		r.messages[i].header.SetControllen(controlBytes)
	}
	r.received = 0
	n, errno := uintptr(0), unix.EINTR
	for errno == unix.EINTR {
		n, _, errno = unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&r.messages[0])), uintptr(len(r.messages)), unix.MSG_DONTWAIT, 0, 0)
	}
	runtime.KeepAlive(r)
	switch errno {
	case 0:
		r.received = int(n)
		return int(n), nil
	case unix.EAGAIN:
		return 0, nil
	}
	return 0, errno
}

// Datagram is one of those that the last Receive took, valid until the next; nil for one that was longer than there is room.
func (r *Receiver) Datagram(i int) []byte {
	m := &r.messages[:r.received][i]
	if m.header.Flags&unix.MSG_TRUNC != 0 {
		return nil
	}
	return r.data[i*r.size:][:m.length:m.length]
}

// Beside is what the kernel says about a datagram: when it arrived, by CLOCK_REALTIME, and how many this socket has lost because
// its buffer was full, counted round a 32-bit number since it was opened. The zero time means that the kernel does not say.
func (r *Receiver) Beside(i int) (arrived time.Time, lost uint32) {
	h := &r.messages[:r.received][i].header
	return parseControl(r.control[i*controlBytes:][:min(int(h.Controllen), controlBytes)])
}

// parseControl walks through control messages (cmsg(3)): a length that counts the header, a level, a type, and the data; the next
// one begins at a multiple of the word size.
func parseControl(b []byte) (arrived time.Time, lost uint32) {
	const word = int(unsafe.Sizeof(uintptr(0)))
	for len(b) >= unix.SizeofCmsghdr {
		length := int(binary.NativeEndian.Uint32(b)) // the low half of the length, on machines of either order, where words have 64 bits
		if word == 8 {
			length = int(binary.NativeEndian.Uint64(b))
		}
		if length < unix.SizeofCmsghdr || length > len(b) {
			return arrived, lost
		}
		level, kind, data := binary.NativeEndian.Uint32(b[word:]), binary.NativeEndian.Uint32(b[word+4:]), b[unix.SizeofCmsghdr:length]
		switch {
		case level != unix.SOL_SOCKET:
		case kind == unix.SO_TIMESTAMPNS_NEW && len(data) >= 16:
			arrived = time.Unix(int64(binary.NativeEndian.Uint64(data)), int64(binary.NativeEndian.Uint64(data[8:])))
		case kind == unix.SO_RXQ_OVFL && len(data) >= 4:
			lost = binary.NativeEndian.Uint32(data)
		}
		b = b[min(len(b), (length+word-1)&^(word-1)):]
	}
	return arrived, lost
}
