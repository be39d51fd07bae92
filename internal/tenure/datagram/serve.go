package datagram

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/holdfast/holdfast/internal/linux/udp"
)

const (
	// roundRobin is the real-time priority: before everything that is not real-time, and behind the guard, which has to act when this
	// thread does not.
	roundRobin = 5
	// shortestWait is what a wake time that is not after the present is taken for, so that a Handler that always returns one
	// does not keep the processor from the others.
	shortestWait = 100 * time.Microsecond
)

// Serve calls the Handler until the context is done or the link is closed, and then returns nil; what was queued in the last turn has
// been sent. It keeps the goroutine on a thread of its own, in real time if that was asked for and is permitted; where it is not, that
// is logged, and it goes on without. It returns an error if the kernel lets it wait no more, if it runs already, or if the link
// has been closed.
func (l *Link) Serve(ctx context.Context, h Handler) error {
	end, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	runtime.LockOSThread()
	defer l.runInRealTime()()
	for ctx.Err() == nil && !l.over() {
		now := l.drain(h)
		wake := h.Turn(now)
		l.flush()
		l.metrics.turns.Inc()
		if !l.pause() {
			return nil
		}
		if err := l.wait(now, wake); err != nil {
			return err
		}
	}
	return nil
}

func (l *Link) wait(now, wake time.Time) error {
	at := int64(0)
	if !wake.IsZero() {
		if !wake.After(now) {
			wake = now.Add(shortestWait)
		}
		at = max(1, l.boot(wake))
	}
	if err := l.waiter.WakeAt(at); err != nil {
		return err
	}
	return l.waiter.Wait()
}

// runInRealTime returns what ends it. A thread that cannot go back is left to end with its goroutine.
func (l *Link) runInRealTime() (end func()) {
	if !l.ask {
		return runtime.UnlockOSThread
	}
	back, err := udp.RunInRealTime(roundRobin)
	if err != nil {
		if !errors.Is(err, udp.ErrNotPermitted) {
			l.log.Error("heartbeats run without real-time priority, and may be late when this node is busy", "error", err)
		} else {
			l.log.Warn("heartbeats run without real-time priority, and may be late when this node is busy", "reason", err)
		}
		return runtime.UnlockOSThread
	}
	l.realtime.Store(true)
	l.metrics.realtime.Set(1)
	return func() {
		l.realtime.Store(false)
		l.metrics.realtime.Set(0)
		if err := back(); err != nil {
			l.log.Error("the thread of heartbeats keeps its priority until it ends", "error", err)
			return
		}
		runtime.UnlockOSThread()
	}
}

// drain takes what has arrived, until every socket has been found empty after one moment, which it returns. So all that arrived before
// that moment has been handed over, however long this thread was held up meanwhile.
func (l *Link) drain(h Handler) time.Time {
	l.apply()
	for got := 0; got < maxDrain; {
		began := l.look()
		before := got
		for i, n := range l.networks {
			if n != nil {
				got += l.receive(h, i, n)
			}
		}
		if got == before {
			return began
		}
	}
	l.metrics.cut.Inc()
	return l.look()
}

// receive takes one batch of a network and returns how many datagrams that were.
func (l *Link) receive(h Handler, number int, n *network) int {
	before := l.latest
	count, err := l.receiver.Receive(n.socket)
	if err != nil {
		l.metrics.errors.Inc()
		return 1 // it is over, and there may be datagrams behind it
	}
	if count > 0 {
		now := l.look()
		for i := range count {
			l.take(h, number, n, i, now)
		}
	}
	if count < receiveBatch {
		n.empty = before
	}
	return count
}

// take judges one datagram of the batch.
func (l *Link) take(h Handler, number int, n *network, i int, now time.Time) {
	kernel, lost := l.receiver.Beside(i)
	if lost != n.lost {
		l.metrics.overflowed.Add(float64(lost - n.lost))
		n.lost = lost
	}
	if why := l.judge(l.receiver.Datagram(i), number); why != delivered {
		l.metrics.refused[why].Inc()
		return
	}
	if l.header.what == aHello {
		return
	}
	arrived, how := l.arrivals.of(kernel, n.empty, now)
	if how != timed {
		l.metrics.untimed[how].Inc()
	}
	l.metrics.delivered.Inc()
	h.Received(&l.incoming, l.header.sender, number, arrived)
}

// judge reads a datagram into l.header and, if it is a message that is to be delivered, l.incoming; and does what a hello says.
func (l *Link) judge(b []byte, number int) refusal {
	head := &l.header
	if !head.read(b) {
		return malformed
	}
	p := l.peers[head.sender]
	switch {
	case p == nil:
		return unknownSender
	case head.receiver != l.self:
		return misdirected
	}
	content, ok := open(l.key, b)
	if !ok {
		return badSeal
	}
	if head.what == aHello {
		var said hello
		if !said.read(content) {
			return malformed
		}
		l.heardHello(p, head, said)
		return delivered
	}
	switch p.exchange.admit(head) {
	case stranger:
		l.sayHello(p, number, head)
		return wrongSession
	case replayed:
		return replay
	}
	if Decode(&l.incoming, (*[MessageSize]byte)(content)) != nil {
		return malformed
	}
	return delivered
}
