package load

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/placement"
)

const (
	// MaxNodes bounds the nodes on a Board, twice the largest cluster. Samples of further ones are refused and counted.
	MaxNodes = 512

	// staleIntervals is how many sample intervals a sample counts (docs/dns.md, "How a node is picked").
	staleIntervals = 3

	// reorderWindow is how much older than the one before a sample may be and be taken for one that was overtaken on its
	// way. One that is older still comes from a clock that was set back, and counts.
	reorderWindow = 2 * time.Second
)

// Board keeps the last sample of each node. Make one with NewBoard. It is safe for concurrent use.
type Board struct {
	samples *prometheus.CounterVec

	mu    sync.RWMutex
	nodes map[int]*nodeLoad
}

// nodeLoad is what one node last said. Nobody changes it: the next sample makes another one.
type nodeLoad struct {
	sample   Sample
	received time.Time
	count    uint64
}

// Received is what became of a sample that was put on the Board.
type Received string

// The ends of a sample.
const (
	Fresh   Received = "fresh"   // it is the node's load from now on
	Late    Received = "late"    // a newer one was there already, or it came twice; ignored
	Refused Received = "refused" // it or the Board is too large, or it belongs to no node; ignored
)

// NewBoard returns an empty Board. A nil registerer leaves its metrics unregistered. It panics if they are registered
// already.
func NewBoard(registerer prometheus.Registerer) *Board {
	b := &Board{nodes: map[int]*nodeLoad{}, samples: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_load_samples_total", Help: "Load samples received, by what became of them.",
	}, []string{"result"})}
	if registerer != nil {
		registerer.MustRegister(b.samples)
	}
	return b
}

// Put takes in a sample that arrived at the given time, by this node's clock. The Board keeps its maps: the caller must
// not change them any more.
func (b *Board) Put(sample Sample, receivedAt time.Time) Received {
	result := b.put(sample, receivedAt)
	b.samples.WithLabelValues(string(result)).Inc()
	return result
}

func (b *Board) put(sample Sample, receivedAt time.Time) Received {
	if sample.LNN < 1 || len(sample.Interfaces) > MaxInterfaces || len(sample.Connections) > MaxAddresses {
		return Refused
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	count := uint64(1)
	if node, present := b.nodes[sample.LNN]; present {
		if behind := node.sample.Taken.Sub(sample.Taken); behind >= 0 && behind <= reorderWindow {
			return Late
		}
		count = node.count + 1
	} else if len(b.nodes) >= MaxNodes {
		return Refused
	}
	b.nodes[sample.LNN] = &nodeLoad{sample: sample, received: receivedAt, count: count}
	return Fresh
}

// Forget removes a node that has left the cluster.
func (b *Board) Forget(lnn int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.nodes, lnn)
}

// Sampled counts the fresh samples of a node. It rises with each, so a caller can tell that a new one has come.
func (b *Board) Sampled(lnn int) uint64 {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if node, present := b.nodes[lnn]; present {
		return node.count
	}
	return 0
}

// Of is the load of one member interface: the connections to the given addresses, the throughput of the interface and
// the node's processor. It is not Known while the node has sent nothing, has not yet rated its load, or has no such
// interface. It is Stale when its sample is more than three intervals old at now; its numbers then are the last ones.
func (b *Board) Of(lnn int, iface string, addresses []netip.Addr, now time.Time, interval time.Duration) placement.Load {
	b.mu.RLock()
	node := b.nodes[lnn]
	b.mu.RUnlock()
	load := node.of(iface, now, interval)
	if load.Known {
		for _, address := range addresses {
			load.Connections += node.sample.Connections[address]
		}
	}
	return load
}

// of is the load of one interface without its connections.
func (n *nodeLoad) of(iface string, now time.Time, interval time.Duration) placement.Load {
	if n == nil {
		return placement.Load{}
	}
	load := placement.Load{Age: max(0, now.Sub(n.received)), Stale: n.stale(now, interval)}
	throughput, measured := n.sample.Interfaces[iface].share()
	if !n.sample.Rated || !measured {
		return load
	}
	load.Known, load.CPU, load.Throughput = true, clamp(n.sample.CPU), throughput
	return load
}

func (n *nodeLoad) stale(now time.Time, interval time.Duration) bool {
	return max(0, now.Sub(n.received)) > staleIntervals*interval
}

// Reading is what a Board has at one moment: for who asks for the loads of many members at once. Nobody changes it.
type Reading struct {
	nodes    map[int]*nodeLoad
	now      time.Time
	interval time.Duration
}

// Read returns what the Board has.
func (b *Board) Read(now time.Time, interval time.Duration) Reading {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return Reading{maps.Clone(b.nodes), now, interval}
}

// Of is the load of one member interface, without any connections.
func (r Reading) Of(lnn int, iface string) placement.Load {
	return r.nodes[lnn].of(iface, r.now, r.interval)
}

// Connections is how many connections a node has to an address.
func (r Reading) Connections(lnn int, address netip.Addr) int {
	if node := r.nodes[lnn]; node != nil {
		return node.sample.Connections[address]
	}
	return 0
}

// Sampled counts the fresh samples of a node, as Board.Sampled does.
func (r Reading) Sampled(lnn int) uint64 {
	if node := r.nodes[lnn]; node != nil {
		return node.count
	}
	return 0
}

// Changed says of which nodes something other than the age has changed since an earlier reading: a sample has come, the last one has become
// stale, or the node was forgotten.
func (r Reading) Changed(since Reading) map[int]bool {
	changed := map[int]bool{}
	for lnn, node := range r.nodes {
		if was := since.nodes[lnn]; was != node || node.stale(r.now, r.interval) != was.stale(since.now, since.interval) {
			changed[lnn] = true
		}
	}
	for lnn := range since.nodes {
		if r.nodes[lnn] == nil {
			changed[lnn] = true
		}
	}
	return changed
}

// clamp brings a share that another node sent into 0 to 1; what is no number counts as fully busy.
func clamp(share float64) float64 {
	if share >= 0 && share <= 1 {
		return share
	}
	if share < 0 {
		return 0
	}
	return 1
}
