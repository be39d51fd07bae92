package datagramtest

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/tenure"
	"github.com/holdfast/holdfast/internal/tenure/datagram"
)

// What the real Link allows.
const (
	maxDrain     = 4096
	maxQueued    = 8192
	shortestWait = 100 * time.Microsecond
)

// Port is one node's end, in place of a datagram.Link.
type Port struct {
	net    *Network
	self   int
	now    func() time.Time
	life   uint64
	coming []flight // in the order of flight.compare; the network's mutex is around it
	wake   chan struct{}
	ended  chan struct{}

	// What the goroutine in Serve owns.
	heard map[int]uint64 // the last life of each node that a message was taken from
	queue []queued

	mutex   sync.Mutex
	peers   map[int][]netip.AddrPort
	serving chan struct{} // closed when Serve returns; nil if it does not run
	closed  bool
}

type queued struct {
	to, network int
	m           tenure.Message
}

// SetPeers is that of datagram.Link. Of an address, only whether it is one counts.
func (p *Port) SetPeers(peers map[int][]netip.AddrPort) {
	own := map[int][]netip.AddrPort{}
	for lnn, addresses := range peers {
		if lnn != p.self {
			own[lnn] = append([]netip.AddrPort(nil), addresses[:min(len(addresses), datagram.MaxNetworks)]...)
		}
	}
	p.mutex.Lock()
	p.peers = own
	p.mutex.Unlock()
	p.Poke()
}

func (p *Port) peer(lnn int) ([]netip.AddrPort, bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	addresses, there := p.peers[lnn]
	return addresses, there
}

// Queue is that of datagram.Link.
func (p *Port) Queue(to, network int, m *tenure.Message) {
	addresses, _ := p.peer(to)
	carried, err := throughTheCodec(m)
	if err != nil {
		return
	}
	for i, a := range addresses {
		if a != (netip.AddrPort{}) && (network == i || network == datagram.EveryNetwork) && len(p.queue) < maxQueued {
			p.queue = append(p.queue, queued{to, i, carried})
		}
	}
}

func throughTheCodec(m *tenure.Message) (carried tenure.Message, err error) {
	var b [datagram.MessageSize]byte
	if err := datagram.Encode(&b, m); err != nil {
		return carried, err
	}
	return carried, datagram.Decode(&carried, &b)
}

// Poke is that of datagram.Link.
func (p *Port) Poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Realtime reports false: there is no thread.
func (p *Port) Realtime() bool { return false }

// Serve is that of datagram.Link, in the goroutine that calls it.
func (p *Port) Serve(ctx context.Context, h datagram.Handler) error {
	end, err := p.begin()
	if err != nil {
		return err
	}
	defer end()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil && !p.over() {
		now := p.drain(h)
		wake := h.Turn(now)
		for _, q := range p.queue {
			p.net.send(p.life, way{p.self, q.to, q.network}, q.m)
		}
		p.queue = p.queue[:0]
		if timer.Stop(); p.alarm(timer, now, wake) {
			continue
		}
		select {
		case <-timer.C:
		case <-p.wake:
		case <-ctx.Done():
		case <-p.ended:
		}
	}
	return nil
}

// alarm sets the timer to the wake time or the next arrival, and reports whether a message is there already.
func (p *Port) alarm(timer *time.Timer, now, wake time.Time) (there bool) {
	var waits []time.Duration
	if !wake.IsZero() {
		waits = append(waits, max(shortestWait, wake.Sub(now)))
	}
	if due, coming := p.net.next(p); coming {
		waits = append(waits, time.Until(due))
	}
	for i, wait := range waits {
		if wait <= 0 {
			return true
		}
		if i == 0 || wait < waits[0] {
			timer.Reset(wait)
		}
	}
	return false
}

// drain hands over what has arrived.
func (p *Port) drain(h datagram.Handler) time.Time {
	for got := 0; got < maxDrain; {
		now := p.now()
		arrived := p.net.arrive(p, maxDrain-got)
		if len(arrived) == 0 {
			return now
		}
		got += len(arrived)
		for _, f := range arrived {
			if _, known := p.peer(f.from); !known || f.life < p.heard[f.from] {
				continue
			}
			p.heard[f.from] = f.life
			h.Received(&f.m, f.from, f.network, now.Add(-time.Since(f.due)))
		}
	}
	return p.now()
}

func (p *Port) begin() (end func(), err error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.closed {
		return nil, errors.New("serving heartbeats: the port has been closed")
	}
	if p.serving != nil {
		return nil, errors.New("serving heartbeats: this port is being served already")
	}
	done := make(chan struct{})
	p.serving = done
	return func() {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		p.serving = nil
		close(done)
	}, nil
}

func (p *Port) over() bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.closed
}

// Close is that of datagram.Link. What is on its way to the node is lost, and the node may join again.
func (p *Port) Close() error {
	p.mutex.Lock()
	serving, closed := p.serving, p.closed
	p.closed = true
	p.mutex.Unlock()
	if closed {
		return nil
	}
	close(p.ended)
	if serving != nil {
		<-serving
	}
	p.net.leave(p)
	return nil
}
