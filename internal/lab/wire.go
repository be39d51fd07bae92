package lab

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// wireQueue bounds the frames that one direction of a link holds back. A frame that finds it full is dropped and
// counted as overflow.
const wireQueue = 8192

// WireCount counts what one direction of a link did to frames since it came up.
type WireCount struct {
	Frames     uint64 `json:"frames"` // that came in
	Lost       uint64 `json:"lost"`
	Duplicated uint64 `json:"duplicated"`
	Reordered  uint64 `json:"reordered"`
	Overflow   uint64 `json:"overflow"` // dropped because too many were held back
	Failed     uint64 `json:"failed"`   // that the kernel did not take, for example because the port was down
}

// wire is a link with faults: it carries frames between the member's veth and the switch's veth in user space.
type wire struct {
	out, in *carrier // member to switch, switch to member
	stop    context.CancelFunc
	done    sync.WaitGroup
	sockets []*os.File
}

// startWire joins two links of this network namespace. Both must exist and do no offloading.
func startWire(member, far string, link Link) (*wire, error) {
	near, err := packetSocket(member)
	if err != nil {
		return nil, err
	}
	distant, err := packetSocket(far)
	if err != nil {
		near.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &wire{
		out:  newCarrier(near, distant, newDirection(link.Out, link.Seed, 1)),
		in:   newCarrier(distant, near, newDirection(link.In, link.Seed, 2)),
		stop: cancel, sockets: []*os.File{near, distant},
	}
	for _, c := range []*carrier{w.out, w.in} {
		w.done.Go(func() { c.read() })
		w.done.Go(func() { c.write(ctx) })
	}
	return w, nil
}

// close stops the wire; frames that it holds are lost.
func (w *wire) close() {
	w.stop()
	for _, socket := range w.sockets {
		socket.Close()
	}
	w.done.Wait()
}

// packetSocket opens a raw socket that sees what the link receives, and not what is sent through it.
func packetSocket(name string) (*os.File, error) {
	const protocolAll = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network byte order
	iface, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("link with faults: %w", err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("link with faults needs raw sockets: %w", err)
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<20),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocolAll & 0xffff, Ifindex: iface.Index}),
	)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("link with faults: %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// carrier is one direction of a wire: read decides about frames and queues them, write sends them when due.
type carrier struct {
	from, to *os.File
	wake     chan struct{} // a frame that leaves before all others was queued

	mu      sync.Mutex
	choices *direction
	queue   frameQueue
	counted uint64 // frames queued ever; keeps the order of frames that leave at the same time
	count   WireCount
}

func newCarrier(from, to *os.File, choices *direction) *carrier {
	return &carrier{from: from, to: to, choices: choices, wake: make(chan struct{}, 1)}
}

func (c *carrier) counts() WireCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

func (c *carrier) read() {
	buffer := make([]byte, 1<<16)
	for {
		n, err := c.from.Read(buffer)
		if errors.Is(err, unix.ENETDOWN) {
			continue // said once when the link goes down; the socket lives on
		}
		if err != nil {
			return
		}
		c.take(append([]byte(nil), buffer[:n]...), time.Now())
	}
}

// take decides about one frame and queues what is left of it.
func (c *carrier) take(frame []byte, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fate := c.choices.next(now)
	c.count.Frames++
	switch {
	case len(fate.leaves) == 0:
		c.count.Lost++
	case len(fate.leaves) > 1:
		c.count.Duplicated++
	}
	if fate.reordered {
		c.count.Reordered++
	}
	for _, leave := range fate.leaves {
		if len(c.queue) >= wireQueue {
			c.count.Overflow++
			continue
		}
		c.counted++
		heap.Push(&c.queue, queuedFrame{leave: leave, number: c.counted, frame: frame})
		if c.queue[0].number == c.counted {
			select {
			case c.wake <- struct{}{}:
			default:
			}
		}
	}
}

// due takes the next frame off the queue if it may leave, or says when it may.
func (c *carrier) due(now time.Time) (frame []byte, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return nil, time.Hour
	}
	if wait := c.queue[0].leave.Sub(now); wait > 0 {
		return nil, wait
	}
	return heap.Pop(&c.queue).(queuedFrame).frame, 0
}

func (c *carrier) write(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		frame, wait := c.due(time.Now())
		if frame != nil {
			if _, err := c.to.Write(frame); err != nil {
				c.mu.Lock()
				c.count.Failed++
				c.mu.Unlock()
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-timer.C:
		}
	}
}

type queuedFrame struct {
	leave  time.Time
	number uint64
	frame  []byte
}

// frameQueue is a heap of frames, the next to leave first.
type frameQueue []queuedFrame

func (q frameQueue) Len() int { return len(q) }
func (q frameQueue) Less(i, j int) bool {
	if !q[i].leave.Equal(q[j].leave) {
		return q[i].leave.Before(q[j].leave)
	}
	return q[i].number < q[j].number
}
func (q frameQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *frameQueue) Push(x any)   { *q = append(*q, x.(queuedFrame)) }
func (q *frameQueue) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = queuedFrame{}
	*q = old[:len(old)-1]
	return last
}

// noOffload makes a link hand over whole frames with complete checksums, one for each packet on the wire, so that
// frames can pass through user space and be counted.
func noOffload(name string) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	// linux/ethtool.h: set segmentation offload, generic segmentation, transmit checksums.
	for _, command := range []uint32{unix.ETHTOOL_STSO, unix.ETHTOOL_SGSO, unix.ETHTOOL_STXCSUM} {
		value := struct{ command, data uint32 }{command, 0}
		request := struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}{data: unsafe.Pointer(&value)}
		copy(request.name[:unix.IFNAMSIZ-1], name)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
		if errno != 0 {
			return fmt.Errorf("turning offloads of %s off: %w", name, errno)
		}
	}
	return nil
}
