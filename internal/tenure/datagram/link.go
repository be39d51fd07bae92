package datagram

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/linux/boottime"
	"github.com/holdfast/holdfast/internal/linux/udp"
	"github.com/holdfast/holdfast/internal/tenure"
)

const (
	// MaxNetworks is how many networks there can be between two nodes.
	MaxNetworks = 8
	// EveryNetwork is what Queue takes in place of a network's number.
	EveryNetwork = -1

	maxDrain     = 4096 // datagrams taken before a turn
	maxQueued    = 8192 // datagrams sent for a turn
	receiveBatch = 64   // datagrams for one system call
	sendBatch    = 256  // datagrams for one system call; a turn that has more makes several
)

// Handler is what decides, called by Serve on its one thread.
type Handler interface {
	// Received is called for every authentic message, those of one network in the order in which they arrived. The message is valid
	// during the call. from is the node number of its sender, and network the number of the network by which it came. arrived is when
	// the kernel took it in or, if that is not known for sure, when it was read; it is never too early, and never after the present.
	Received(m *tenure.Message, from, network int, arrived time.Time)
	// Turn is called when there is something new, at the time that the last one returned, and after Poke. Every message that arrived
	// before now has been given to Received, and none that arrived after it; only if more than 4096 datagrams wait, which is
	// counted, some are left for after this turn. It returns when it wants to be called next at the latest, the zero time for never.
	Turn(now time.Time) (wake time.Time)
}

// Options say what a Link is to be.
type Options struct {
	Self       int              // this node's number (LNN), 1 to MaxLNN
	Key        [32]byte         // derived from the cluster's secret for this purpose only
	Local      []netip.AddrPort // this node's address on each network, by the network's number; zero where it has none. At least one
	Logger     *slog.Logger     // default: nothing is logged
	Registerer prometheus.Registerer
	Now        func() time.Time // the clock of leases; default: boottime.Now
	Random     io.Reader        // for sessions and passes; default: crypto/rand.Reader
	Realtime   bool             // whether to ask for real-time scheduling
	Adopted    []int            // descriptors of sockets that another process has opened for the same addresses; the Link owns them
}

// Link is one node's end of what the nodes say to each other.
type Link struct {
	self    int
	log     *slog.Logger
	metrics *metrics
	now     func() time.Time
	wall    func() time.Time
	boot    func(time.Time) int64 // what CLOCK_BOOTTIME shows at a time of now
	random  io.Reader
	ask     bool // for real-time scheduling

	// What the goroutine in Serve owns.
	key      cipher.AEAD
	session  token
	networks [MaxNetworks]*network
	receiver *udp.Receiver
	waiter   *udp.Waiter
	arrivals arrivals
	latest   time.Time // the last look at the clock
	peers    map[int]*peer
	departed map[int]uint64 // the numbers that were used towards nodes that are no longer peers: no number is used twice
	applied  *directory
	queued   int // since the last flush
	hellos   allowance
	mistakes allowance // of logging what could not be encoded
	content  [MessageSize]byte
	incoming tenure.Message
	header   header

	pauses   chan func(Memory) (goOn bool)
	wanted   atomic.Pointer[directory]
	realtime atomic.Bool

	mutex   sync.Mutex
	serving chan struct{} // closed when Serve returns; nil if it does not run
	closed  bool
}

// network is this node's socket on one network.
type network struct {
	socket *udp.Socket
	sender *udp.Sender
	empty  time.Time // the socket was empty at some moment after this
	lost   uint32    // datagrams that the kernel said it dropped
}

// Open binds the sockets. It listens to nobody until there are peers, and receives nothing before Serve.
func Open(o Options) (*Link, error) {
	if o.Self < 1 || o.Self > MaxLNN {
		return nil, fmt.Errorf("opening the link for heartbeats: the node number %d is not from 1 to %d", o.Self, MaxLNN)
	}
	if len(o.Local) > MaxNetworks {
		return nil, fmt.Errorf("opening the link for heartbeats: it has %d networks, at most %d are possible", len(o.Local), MaxNetworks)
	}
	key, err := newKey(o.Key)
	if err != nil {
		return nil, err
	}
	l := &Link{
		self: o.Self, log: o.Logger, metrics: newMetrics(o.Registerer), now: o.Now, wall: time.Now, random: o.Random, ask: o.Realtime,
		key: key, receiver: udp.NewReceiver(receiveBatch, maxDatagram), peers: map[int]*peer{}, departed: map[int]uint64{},
		pauses: make(chan func(Memory) bool, 1),
	}
	l.boot = func(t time.Time) int64 { return boottime.Nanoseconds(boottime.Now().Add(t.Sub(l.now()))) }
	if o.Now == nil {
		l.now, l.boot = boottime.Now, boottime.Nanoseconds
	}
	if o.Logger == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if o.Random == nil {
		l.random = rand.Reader
	}
	if l.session, err = l.draw(); err != nil {
		return nil, fmt.Errorf("opening the link for heartbeats: %w", err)
	}
	if err := l.bind(o.Local, o.Adopted); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the link for heartbeats: %w", err), l.Close())
	}
	return l, nil
}

// bind opens a socket for each address. A socket is empty before it is there.
func (l *Link) bind(local []netip.AddrPort, adopted []int) error {
	opened := l.look()
	had, err := adopt(adopted)
	if err != nil {
		return err
	}
	defer func() {
		for _, socket := range had { // of an address that this node does not have any more
			_ = socket.Close()
		}
	}()
	var sockets []*udp.Socket
	for i, address := range local {
		if address == (netip.AddrPort{}) {
			continue
		}
		socket := had[address]
		if delete(had, address); socket == nil {
			if socket, err = udp.Listen(address); err != nil {
				return fmt.Errorf("on network %d: %w", i, err)
			}
		}
		l.networks[i] = &network{socket: socket, sender: udp.NewSender(sendBatch, messageDatagram), empty: opened}
		sockets = append(sockets, socket)
		if !socket.Timestamps() {
			l.log.Warn("this kernel does not say when datagrams arrive (Linux 5.1 does): a node that is late to read them counts its leases shorter", "network", i)
		}
	}
	if len(sockets) == 0 {
		return errors.New("there is no address to listen at: give this node one on at least one network")
	}
	l.waiter, err = udp.NewWaiter(sockets...)
	return err
}

// draw returns random bytes for a session or a pass.
func (l *Link) draw() (token, error) {
	var t token
	if _, err := io.ReadFull(l.random, t[:]); err != nil {
		return token{}, fmt.Errorf("drawing random bytes: %w", err)
	}
	return t, nil
}

// look reads the clocks.
func (l *Link) look() time.Time {
	wall := l.wall()
	l.latest = l.now()
	l.arrivals.look(wall, l.latest)
	return l.latest
}

// Local is the address of each network's socket, with its port; zero where this node has none.
func (l *Link) Local() []netip.AddrPort {
	local := make([]netip.AddrPort, MaxNetworks)
	for i, n := range l.networks {
		if n != nil {
			local[i] = n.socket.Local()
		}
	}
	return local
}

// Realtime reports whether the thread is scheduled in real time: false before Serve, where it was not asked for, and where it is
// not permitted.
func (l *Link) Realtime() bool { return l.realtime.Load() }

// Poke has Turn called soon. Several calls before it count as one; without Serve, the last one is kept.
func (l *Link) Poke() { l.waiter.Wake() }

// Close ends Serve, waits for it, and closes the sockets. It must not be called by the Handler. A second call does nothing.
func (l *Link) Close() error {
	l.mutex.Lock()
	serving, closed := l.serving, l.closed
	l.closed = true
	l.mutex.Unlock()
	if closed {
		return nil
	}
	if serving != nil {
		l.waiter.Wake()
		<-serving
	}
	var err error
	if l.waiter != nil {
		err = l.waiter.Close()
	}
	for _, n := range l.networks {
		if n != nil {
			err = errors.Join(err, n.socket.Close())
		}
	}
	return err
}

// begin lets one Serve in.
func (l *Link) begin(ctx context.Context) (end func(), err error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.closed {
		return nil, errors.New("serving heartbeats: the link has been closed")
	}
	if l.serving != nil {
		return nil, errors.New("serving heartbeats: this link is being served already")
	}
	done := make(chan struct{})
	l.serving = done
	stop := context.AfterFunc(ctx, l.waiter.Wake)
	return func() {
		stop()
		l.mutex.Lock()
		defer l.mutex.Unlock()
		l.serving = nil
		close(done)
	}, nil
}

// over reports whether Close has been called.
func (l *Link) over() bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.closed
}
