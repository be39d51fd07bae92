package load

import (
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

// nodeLoad is what one node last said.
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
	node, present := b.nodes[sample.LNN]
	if !present {
		if len(b.nodes) >= MaxNodes {
			return Refused
		}
		node = &nodeLoad{}
		b.nodes[sample.LNN] = node
	}
	if behind := node.sample.Taken.Sub(sample.Taken); present && behind >= 0 && behind <= reorderWindow {
		return Late
	}
	node.sample, node.received = sample, receivedAt
	node.count++
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
	defer b.mu.RUnlock()
	node, present := b.nodes[lnn]
	if !present {
		return placement.Load{}
	}
	age := max(0, now.Sub(node.received))
	load := placement.Load{Age: age, Stale: age > staleIntervals*interval}
	throughput, measured := node.sample.Interfaces[iface].share()
	if !node.sample.Rated || !measured {
		return load
	}
	load.Known, load.CPU, load.Throughput = true, clamp(node.sample.CPU), throughput
	for _, address := range addresses {
		load.Connections += node.sample.Connections[address]
	}
	return load
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
