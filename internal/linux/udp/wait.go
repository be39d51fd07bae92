package udp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Waiter waits for whichever comes first: a datagram at one of its sockets, a moment, or another goroutine.
type Waiter struct {
	poll, timer int
	at          int64 // when the timer fires, if it is set
	set         bool
	events      [16]unix.EpollEvent
	woken       atomic.Bool

	mutex sync.Mutex // around the event, which other goroutines write to, and its end
	event int
	one   [8]byte // the number that is written to it
}

// NewWaiter returns one for some sockets, which must stay open until it is closed.
func NewWaiter(sockets ...*Socket) (*Waiter, error) {
	w := &Waiter{poll: -1, timer: -1, event: -1}
	binary.NativeEndian.PutUint64(w.one[:], 1)
	if err := w.open(sockets); err != nil {
		return nil, errors.Join(fmt.Errorf("preparing to wait for datagrams: %w", err), w.Close())
	}
	return w, nil
}

// open makes the timer and the event edge-triggered, so that neither has to be read after it has fired.
func (w *Waiter) open(sockets []*Socket) (err error) {
	if w.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	if w.timer, err = unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return err
	}
	if w.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return err
	}
	add := func(fd int, events uint32) error {
		return unix.EpollCtl(w.poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
	}
	err = errors.Join(add(w.timer, unix.EPOLLIN|unix.EPOLLET), add(w.event, unix.EPOLLIN|unix.EPOLLET))
	for _, s := range sockets {
		err = errors.Join(err, add(s.fd, unix.EPOLLIN))
	}
	return err
}

// WakeAt says when Wait returns at the latest: the nanoseconds that CLOCK_BOOTTIME shows then. What is past is at once, 0 is never.
func (w *Waiter) WakeAt(nanoseconds int64) error {
	if w.set && nanoseconds == w.at {
		return nil
	}
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(max(0, nanoseconds))}
	if nanoseconds < 0 {
		at.Value.Nsec = 1 // the beginning of time, for 0 would switch it off
	}
	if err := unix.TimerfdSettime(w.timer, unix.TFD_TIMER_ABSTIME, &at, nil); err != nil {
		return fmt.Errorf("setting the timer: %w", err)
	}
	w.at, w.set = nanoseconds, true
	return nil
}

// Wake has Wait return soon, the one that is under way or the next. Several calls before it returns count as one. After Close it
// does nothing.
func (w *Waiter) Wake() {
	if w.woken.Swap(true) {
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.event >= 0 {
		_, _ = unix.Write(w.event, w.one[:]) // it adds up and is never read; the kernel's count has 64 bits
	}
}

// Wait waits. It may return without a reason; the caller looks at everything.
func (w *Waiter) Wait() error {
	n, err := unix.EpollWait(w.poll, w.events[:], -1)
	for i := range max(0, n) {
		if int(w.events[i].Fd) == w.timer {
			w.set = false // it would not fire again for the same moment
		}
	}
	w.woken.Store(false)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("waiting for datagrams: %w", err)
	}
	return nil
}

// Close ends it. Nobody may be waiting.
func (w *Waiter) Close() error {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	var err error
	for _, fd := range []*int{&w.poll, &w.timer, &w.event} {
		if *fd >= 0 {
			err = errors.Join(err, unix.Close(*fd))
			*fd = -1
		}
	}
	return err
}
