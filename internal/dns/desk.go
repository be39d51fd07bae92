package dns

import (
	"errors"
	"net/netip"
	"runtime"
	"time"

	datagrams "github.com/holdfast/holdfast/internal/linux/udp"
)

// Sockets of a service address, and what one desk takes at once.
const (
	maxSockets = 16
	batchSize  = 32
)

// desk answers what comes to one of the UDP sockets of a service address, many queries at a time, on a thread of its own. While queries
// come without a pause it never waits and calls the kernel twice for each batch; without any it sleeps in the kernel.
type desk struct {
	server   *Server
	service  netip.Addr
	socket   *datagrams.Socket
	waiter   *datagrams.Waiter
	exchange *datagrams.Exchange
	scratch  []byte
	batch    *batch
	counts   counts
	tally    *tally
}

func newDesk(s *Server, service netip.Addr, socket *datagrams.Socket) (*desk, error) {
	waiter, err := datagrams.NewWaiter(socket)
	if err != nil {
		return nil, err
	}
	return &desk{
		server: s, service: service, socket: socket, waiter: waiter,
		exchange: datagrams.NewExchange(batchSize, maxQuery), scratch: make([]byte, 0, ourUDPLimit),
		batch: newBatch(s.answerer, service), tally: s.metrics.open(),
	}, nil
}

// close gives back what the desk has. Nobody serves at it.
func (d *desk) close() error { return errors.Join(d.waiter.Close(), d.socket.Close()) }

// serve answers until the listener closes. The socket is bound to the service address, so that responses leave from it.
func (d *desk) serve(l *listener) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer d.close()
	defer d.server.metrics.close(d.tally)
	for {
		if l.halted.Load() && !l.goOn() {
			return
		}
		n, err := d.exchange.Receive(d.socket)
		if err != nil {
			d.counts[countUnreadable]++
			d.tally.take(&d.counts)
			if !l.pause() {
				return
			}
			continue
		}
		if n > 0 {
			d.answer(n)
		}
		if !d.exchange.Full() { // then none waited a moment ago
			if err := d.waiter.Wait(); err != nil && !l.pause() {
				return
			}
		}
	}
}

// answer answers the queries that were just received.
func (d *desk) answer(n int) {
	now := d.server.now()
	readable := d.read(n, now)
	for i := 0; i < n; {
		i = d.respond(i, n, readable, now)
	}
	d.batch.end()
	lost, _ := d.exchange.Send(d.socket)
	d.counts[countUnsent] += uint64(lost)
	d.tally.take(&d.counts)
}

// read has the batch read the queries. Where that panics, each has to be answered by itself.
func (d *desk) read(n int, now time.Time) (readable bool) {
	defer func() {
		if fault := recover(); fault != nil {
			d.server.panicked(fault, nil, netip.Addr{})
		}
	}()
	d.batch.begin(now)
	for i := range n {
		d.batch.read(d.exchange.Datagram(i), d.exchange.From(i))
	}
	d.batch.decide()
	return true
}

// respond responds to the queries from one on. It returns behind the last, or behind one that panicked, which gets no response.
func (d *desk) respond(from, n int, readable bool, now time.Time) (next int) {
	next = from
	defer func() {
		if fault := recover(); fault != nil {
			d.counts.add(false, Outcome{Dropped: dropPanic})
			d.server.panicked(fault, d.exchange.Datagram(next), d.exchange.From(next))
			next++
		}
	}()
	for ; next < n; next++ {
		in := d.exchange.Datagram(next)
		length, outcome, done := 0, Outcome{}, false
		if readable {
			length, outcome, done = d.batch.respond(next, in)
		}
		if !done {
			var response []byte
			req := Request{Message: in, Client: d.exchange.From(next), Service: d.service, Now: now}
			response, outcome = d.server.answerOne(d.scratch[:0], req, d.batch.allowance(next, readable))
			length = copy(in[:cap(in)], response)
		}
		d.counts.add(false, outcome)
		if length > 0 {
			d.exchange.Answer(next, length)
		}
	}
	return next
}
