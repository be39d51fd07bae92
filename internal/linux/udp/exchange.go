package udp

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Segments (udp(7), UDP_SEGMENT): how many datagrams of one size the kernel takes as one for one destination, and how long they may
// be together.
const (
	maxSegments    = 64
	maxSegmentSize = 1200 // larger ones may not fit a link; the kernel refuses segments that it would have to fragment
	segmentsBytes  = 60000
	segmentControl = unix.SizeofCmsghdr + 8 // a number of 16 bits, and what fills it up to a word
)

// sendPause is how long Send waits for room in the kernel's buffer.
const sendPause = 10 // ms

// Exchange takes datagrams from a socket, many at once, and sends answers to where they came from. An answer is written into the
// memory in which its datagram came, so that what both have in common stays where it is.
type Exchange struct {
	messages []message // as received
	vectors  []unix.Iovec
	names    [][unix.SizeofSockaddrInet6]byte
	data     []byte
	size     int
	stride   int
	received int

	out        []message // to be sent: one for each destination in a row
	parts      []unix.Iovec
	controls   [][segmentControl]byte
	messagesTo int // how many of out are used
	answers    int // how many of parts are used
	last       int // which datagram the last answer is to
	segmented  bool
}

// NewExchange returns one that takes up to count datagrams at once, 1024 at most, each of up to size bytes; no answer is longer.
func NewExchange(count, size int) *Exchange {
	// Neighbours that lie a power of two apart would share their places in the processor's caches.
	stride := (size+63)&^63 + 64
	if stride/64%2 == 0 {
		stride += 64
	}
	x := &Exchange{
		messages: make([]message, count), vectors: make([]unix.Iovec, count), names: make([][unix.SizeofSockaddrInet6]byte, count),
		data: make([]byte, count*stride), size: size, stride: stride,
		out: make([]message, count), parts: make([]unix.Iovec, count), controls: make([][segmentControl]byte, count), segmented: true,
	}
	for i := range x.messages {
		x.vectors[i].Base = &x.data[i*stride]
		x.vectors[i].SetLen(size)
		h := &x.messages[i].header
		h.Name = &x.names[i][0]
		h.Namelen = unix.SizeofSockaddrInet6
		h.Iov = &x.vectors[i]
		h.SetIovlen(1)
		c := &x.controls[i]
		binary.NativeEndian.PutUint32(c[unix.SizeofCmsghdr-8:], unix.IPPROTO_UDP)
		binary.NativeEndian.PutUint32(c[unix.SizeofCmsghdr-4:], unix.UDP_SEGMENT)
		(*unix.Cmsghdr)(unsafe.Pointer(c)).SetLen(unix.SizeofCmsghdr + 2)
	}
	return x
}

// Receive takes the datagrams that wait, up to the exchange's count, and forgets the earlier ones. None, without an error, means that none
// waits; less than the count, that none waited at some moment since the call began.
func (x *Exchange) Receive(s *Socket) (int, error) {
	for i := range x.messages[:x.received] {
		x.messages[i].header.Namelen = unix.SizeofSockaddrInet6
	}
	x.received, x.answers, x.messagesTo, x.last = 0, 0, 0, -1
	n, errno := uintptr(0), unix.EINTR
	for errno == unix.EINTR {
		n, _, errno = unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&x.messages[0])), uintptr(len(x.messages)), unix.MSG_DONTWAIT, 0, 0)
	}
	runtime.KeepAlive(x)
	switch errno {
	case 0:
		x.received = int(n)
		return int(n), nil
	case unix.EAGAIN:
		return 0, nil
	}
	return 0, errno
}

// Full reports whether the last Receive took as many as it can at once, so that more may wait.
func (x *Exchange) Full() bool { return x.received == len(x.messages) }

// Datagram is one of those that the last Receive took. One that was longer than there is room is cut. Its memory goes on, up to the size of
// the exchange, for an answer.
func (x *Exchange) Datagram(i int) []byte {
	start := i * x.stride
	return x.data[start : start+int(x.messages[:x.received][i].length) : start+x.size]
}

// From is the address that a datagram came from. Link-local ones are without a zone.
func (x *Exchange) From(i int) netip.Addr {
	name := &x.names[:x.received][i]
	if binary.NativeEndian.Uint16(name[:]) == unix.AF_INET {
		return netip.AddrFrom4([4]byte(name[4:8]))
	}
	return netip.AddrFrom16([16]byte(name[8:24]))
}

// Answer has Send send the first bytes of a datagram's memory back to where it came from. It is to be called at most once for each
// datagram, in their order.
func (x *Exchange) Answer(i, length int) {
	part := &x.parts[x.answers]
	part.Base = x.vectors[i].Base
	part.SetLen(length)
	x.answers++
	if x.joins(i, length) {
		m := &x.out[x.messagesTo-1]
		m.header.SetIovlen(int(m.header.Iovlen) + 1)
		m.length += uint32(length)
		x.last = i
		return
	}
	m := &x.out[x.messagesTo]
	x.messagesTo++
	m.header = unix.Msghdr{Name: x.messages[i].header.Name, Namelen: x.messages[i].header.Namelen, Iov: part}
	m.header.SetIovlen(1)
	m.length = uint32(length)
	x.last = i
}

// joins reports whether an answer can go as one more segment of the last one: it has the same destination and is no longer than all before
// it, of which only the last may be shorter than the first. One without a byte would be no segment.
func (x *Exchange) joins(i, length int) bool {
	if !x.segmented || x.messagesTo == 0 || length == 0 || length > maxSegmentSize {
		return false
	}
	m := &x.out[x.messagesTo-1]
	first := int(m.header.Iov.Len)
	return length <= first && int(m.length)%first == 0 && m.header.Iovlen < maxSegments && int(m.length)+length <= segmentsBytes &&
		x.names[i] == x.names[x.last]
}

// Send sends the answers. It returns how many the kernel did not take, and why not one of them. When the kernel's buffer stays full for
// some time, the rest is lost.
func (x *Exchange) Send(s *Socket) (lost int, err error) {
	for k := range x.out[:x.messagesTo] {
		if h := &x.out[k].header; h.Iovlen > 1 {
			binary.NativeEndian.PutUint16(x.controls[k][unix.SizeofCmsghdr:], uint16(h.Iov.Len))
			h.Control = &x.controls[k][0]
			h.SetControllen(segmentControl)
		}
	}
	for from, waited := 0, false; from < x.messagesTo; {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&x.out[from])), uintptr(x.messagesTo-from), unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == 0:
			from += int(n)
		case errno == unix.EINTR:
		case errno == unix.EAGAIN && !waited:
			waited = true
			s.awaitRoom()
		case errno == unix.EAGAIN || errno == unix.EBADF:
			for _, m := range x.out[from:x.messagesTo] {
				lost += int(m.header.Iovlen)
			}
			from, err = x.messagesTo, errno
		default: // it is about the first of them (sendmmsg(2))
			missing, fault := x.sendApart(s, &x.out[from].header, errno)
			lost += missing
			if fault != nil {
				err = fault
			}
			from++
		}
	}
	runtime.KeepAlive(x)
	return lost, err
}

// sendApart sends the segments of a message that was refused each by itself. A device that cannot take segments is not asked again.
func (x *Exchange) sendApart(s *Socket, h *unix.Msghdr, why unix.Errno) (lost int, err error) {
	if h.Iovlen <= 1 {
		return 1, why
	}
	if why == unix.EIO || why == unix.EINVAL || why == unix.EOPNOTSUPP {
		x.segmented = false
	}
	single := unix.Msghdr{Name: h.Name, Namelen: h.Namelen}
	single.SetIovlen(1)
	for _, part := range unsafe.Slice(h.Iov, h.Iovlen) {
		single.Iov = &part
		if _, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&single)), unix.MSG_DONTWAIT); errno != 0 {
			lost, err = lost+1, errno
		}
	}
	return lost, err
}

// awaitRoom waits until the kernel takes something to send again, for some milliseconds at the most.
func (s *Socket) awaitRoom() {
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}, sendPause)
}
