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
	// yieldAfter is how many batches a desk answers, in about half a millisecond, before it lets others have its turn: a processor under a
	// flood must not keep the heartbeats waiting until the runtime takes the turn away, which is after ten.
	yieldAfter = 8
)

// desk answers what comes to one of the UDP sockets of a service address, many queries at a time. While queries come without a pause it
// never waits and calls the kernel twice for each batch; without any it uses no processor.
type desk struct {
	server   *Server
	service  netip.Addr
	socket   *datagrams.Patient
	exchange *datagrams.Exchange
	scratch  []byte
	batch    *batch
	counts   counts
	tally    *tally
}

// newDesk takes the socket over, also when it fails.
func newDesk(s *Server, service netip.Addr, socket *datagrams.Socket) (*desk, error) {
	exchange := datagrams.NewExchange(batchSize, maxQuery)
	patient, err := datagrams.NewPatient(socket, exchange)
	if err != nil {
		return nil, err
	}
	return &desk{
		server: s, service: service, socket: patient, exchange: exchange, scratch: make([]byte, 0, ourUDPLimit),
		batch: newBatch(s.answerer, service), tally: s.metrics.open(patient.Overflowed),
	}, nil
}

// close gives back what the desk has. Nobody serves at it.
func (d *desk) close() error {
	d.server.metrics.close(d.tally)
	return d.socket.Close()
}

// serve answers until the listener closes. The socket is bound to the service address, so that responses leave from it.
func (d *desk) serve(l *listener) {
	defer d.close()
	for batches := 1; ; batches++ {
		if batches%yieldAfter == 0 {
			runtime.Gosched()
		}
		n, err := d.socket.Receive()
		switch {
		case err == nil:
			d.answer(n)
		case errors.Is(err, datagrams.ErrInterrupted):
			l.stand()
			if l.closed() {
				return
			}
		default:
			d.counts[countUnreadable]++
			d.tally.take(&d.counts)
			if !l.pause() {
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
	d.tally.take(&d.counts) // so that whoever has its response finds it counted
	if lost, _ := d.exchange.Send(d.socket.Socket); lost > 0 {
		d.tally.counts[countUnsent].Add(uint64(lost)) // at once: no query may come after these
	}
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
