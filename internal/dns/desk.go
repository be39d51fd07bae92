package dns

import (
	"errors"
	"net/netip"
	"runtime"

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
}

func newDesk(s *Server, service netip.Addr, socket *datagrams.Socket) (*desk, error) {
	waiter, err := datagrams.NewWaiter(socket)
	if err != nil {
		return nil, err
	}
	return &desk{
		server: s, service: service, socket: socket, waiter: waiter,
		exchange: datagrams.NewExchange(batchSize, maxQuery), scratch: make([]byte, 0, ourUDPLimit),
	}, nil
}

// close gives back what the desk has. Nobody serves at it.
func (d *desk) close() error { return errors.Join(d.waiter.Close(), d.socket.Close()) }

// serve answers until the listener closes. The socket is bound to the service address, so that responses leave from it.
func (d *desk) serve(l *listener) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer d.close()
	for {
		if l.halted.Load() && !l.goOn() {
			return
		}
		n, err := d.exchange.Receive(d.socket)
		if err != nil {
			d.server.metrics.unreadable.Inc()
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
	for i := range n {
		in := d.exchange.Datagram(i)
		response, outcome := d.server.answer(d.scratch[:0], Request{Message: in, Client: d.exchange.From(i), Service: d.service})
		if outcome.Dropped != DropNone {
			continue
		}
		d.exchange.Answer(i, copy(in[:cap(in)], response))
	}
	if lost, _ := d.exchange.Send(d.socket); lost > 0 {
		d.server.metrics.unsent.Add(float64(lost))
	}
}
