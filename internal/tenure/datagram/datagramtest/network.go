// Package datagramtest carries messages between the nodes of a test in virtual time, in place of sockets and threads, and has the
// contract that the real Link and this one both keep.
//
// It works inside the bubbles of testing/synctest: there are channels and timers, and Serve runs in the goroutine that calls it. What it
// does to messages follows from the seed and from what each node sends, not from the order in which goroutines happen to run.
// A Network is safe for concurrent use; a Port is as a datagram.Link is.
//
// It seals nothing and knows no hellos: no message is lost because a node has started. Otherwise it refuses what the real one refuses:
// messages that cannot be encoded, senders that are no peers, what an earlier life of a node sent once a later one has been heard, and
// what was sent to an earlier life.
package datagramtest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/tenure"
)

// maxWaiting is how many messages a node can have on the way to it; further ones are lost, as in a full buffer.
const maxWaiting = 4096

// Packet is a message on its way.
type Packet struct {
	From, To, Network int
	Message           tenure.Message
	Random            *rand.Rand // of this direction between the two nodes on this network, from the seed
}

// Network is what lies between the nodes. Without anything else said, every message arrives at once.
type Network struct {
	mutex sync.Mutex
	seed  uint64
	ports map[int]*Port
	lives uint64
	cut   map[[2]int]bool
	ways  map[way]*traffic
	delay func(Packet) time.Duration
	drop  func(Packet) bool
}

// way is one direction between two nodes on one network.
type way struct{ from, to, network int }

// traffic is what goes that way.
type traffic struct {
	random *rand.Rand
	sent   uint64
}

// flight is a message that is on its way to a node or waits there.
type flight struct {
	way
	due    time.Time
	number uint64 // on its way
	life   uint64 // of its sender
	m      tenure.Message
}

// NewNetwork returns a network. The seed makes the numbers that Packet.Random gives.
func NewNetwork(seed uint64) *Network {
	return &Network{seed: seed, ports: map[int]*Port{}, cut: map[[2]int]bool{}, ways: map[way]*traffic{}}
}

// Join returns a node's end, with the node's clock, which may run apart from those of others. A node that has closed its end may join
// again, which is a restart. It panics if the node is there.
func (n *Network) Join(self int, now func() time.Time) *Port {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.ports[self] != nil {
		panic(fmt.Sprintf("datagramtest: node %d has joined already", self))
	}
	n.lives++
	p := &Port{net: n, self: self, now: now, life: n.lives, heard: map[int]uint64{}, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	n.ports[self] = p
	return p
}

// Cut loses what one node sends to another from now on, on every network, in this direction only. What is under way arrives.
func (n *Network) Cut(from, to int) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.cut[[2]int{from, to}] = true
}

// Heal undoes Cut.
func (n *Network) Heal(from, to int) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	delete(n.cut, [2]int{from, to})
}

// Delay has each message take as long as a function says; nil is at once. Messages that take different times overtake each other. The
// function must not call the network.
func (n *Network) Delay(of func(Packet) time.Duration) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.delay = of
}

// Drop loses those messages of which a function says so; nil loses none. The function must not call the network.
func (n *Network) Drop(which func(Packet) bool) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.drop = which
}

// send puts a message on its way.
func (n *Network) send(life uint64, w way, m tenure.Message) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	t := n.ways[w]
	if t == nil {
		random := rand.New(rand.NewPCG(n.seed, uint64(w.from)<<32|uint64(w.to)<<8|uint64(w.network))) //nolint:gosec // G404: it is to come out the same each time
		t = &traffic{random: random}
		n.ways[w] = t
	}
	t.sent++
	packet := Packet{From: w.from, To: w.to, Network: w.network, Message: m, Random: t.random}
	if n.cut[[2]int{w.from, w.to}] || n.drop != nil && n.drop(packet) {
		return
	}
	due := time.Now()
	if n.delay != nil {
		due = due.Add(max(0, n.delay(packet)))
	}
	port := n.ports[w.to]
	if port == nil || len(port.coming) >= maxWaiting {
		return
	}
	f := flight{way: w, due: due, number: t.sent, life: life, m: m}
	at, _ := slices.BinarySearchFunc(port.coming, f, flight.compare)
	port.coming = slices.Insert(port.coming, at, f)
	port.Poke()
}

// compare orders by time, and what is due at the same time by where it comes from.
func (f flight) compare(other flight) int {
	return cmp.Or(f.due.Compare(other.due), cmp.Compare(f.from, other.from), cmp.Compare(f.network, other.network), cmp.Compare(f.number, other.number))
}

// arrive takes out what has arrived at a port, up to a number.
func (n *Network) arrive(p *Port, most int) []flight {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	count := 0
	for present := time.Now(); count < min(most, len(p.coming)) && !p.coming[count].due.After(present); count++ {
	}
	arrived := slices.Clone(p.coming[:count])
	p.coming = slices.Delete(p.coming, 0, count)
	return arrived
}

// next is when the next message arrives at a port.
func (n *Network) next(p *Port) (time.Time, bool) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if len(p.coming) == 0 {
		return time.Time{}, false
	}
	return p.coming[0].due, true
}

func (n *Network) leave(p *Port) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.ports[p.self] == p {
		delete(n.ports, p.self)
	}
}

// Address is an address for SetPeers that says that a node is on a network; which one does not matter here.
func Address(lnn, network int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(network), byte(lnn >> 8), byte(lnn)}), 1)
}
