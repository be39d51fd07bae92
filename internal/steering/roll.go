package steering

import (
	"maps"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

// roll is the nodes of a world and whether they are configured, sorted by number: a decision on thousands of addresses asks for a few
// nodes for each, and finds them here without copying them out of a map each time.
//
// A world that has one is a copy that belongs to one caller, and in which neither the nodes nor the configuration change.
type roll struct {
	numbers []int
	nodes   []listed
	hosts   map[cluster.SubnetID]map[int][]cluster.Member // see serviceInterfaces; of those subnets that were asked for
}

type listed struct {
	Node
	known      bool // it is one of the world's nodes
	configured bool
	away       bool   // it is known since when it is away
	unfit      string // see unfitNode
}

// unlisted stands for a node of which nothing is known. It is only read.
var unlisted = listed{unfit: unfitNode(&Node{}, false, false)}

// ForReading is a copy of the world, of which much can be asked quickly; the same one if it is such a copy already. It is for one caller
// at a time, who changes neither its nodes nor its configuration.
func (w *World) ForReading() *World {
	if w.roll != nil {
		return w
	}
	reading := *w
	reading.roll = newRoll(w)
	return &reading
}

// ForReadingAfter is ForReading for who had such a copy of another world before, which it needs no more: where both say the same of the same
// nodes, what was asked about them is known already, and SameNodes tells so. Before may be nil.
func (w *World) ForReadingAfter(before *World) *World {
	reading := w.ForReading()
	if before != nil && before.roll != nil && before.Config == w.Config && reading.roll.equal(before.roll) {
		if reading == w {
			again := *w
			reading = &again
		}
		reading.roll = before.roll
	}
	return reading
}

// SameNodes reports whether two copies for reading are known to say the same of the same nodes, under the same configuration. When a node
// was found over is not looked at.
func (w *World) SameNodes(other *World) bool {
	return other != nil && w.roll != nil && w.roll == other.roll && w.Config == other.Config
}

// SameRecords reports whether the records of two worlds, those of service addresses too, are the same: those of pools the very same ones.
func (w *World) SameRecords(other *World) bool {
	if other == nil || len(w.Pools) != len(other.Pools) || !maps.Equal(w.Services, other.Services) {
		return false
	}
	for id, record := range w.Pools {
		if was, has := other.Pools[id]; !has || !record.Is(was) {
			return false
		}
	}
	return true
}

func newRoll(w *World) *roll {
	r := &roll{numbers: make([]int, 0, len(w.Nodes)+len(w.Config.Nodes))}
	for lnn := range w.Nodes {
		r.numbers = append(r.numbers, lnn)
	}
	for i := range w.Config.Nodes {
		r.numbers = append(r.numbers, w.Config.Nodes[i].LNN)
	}
	slices.Sort(r.numbers)
	r.numbers = slices.Compact(r.numbers)
	r.nodes = make([]listed, len(r.numbers))
	for i, lnn := range r.numbers {
		r.nodes[i].Node, r.nodes[i].known = w.Nodes[lnn]
		r.nodes[i].away = !r.nodes[i].AbsentSince.IsZero()
		r.nodes[i].AbsentSince = time.Time{} // nothing here is decided by it, and of a node that this agent never saw it wavers
	}
	for i := range w.Config.Nodes {
		r.of(w.Config.Nodes[i].LNN).configured = true
	}
	for i := range r.nodes {
		at := &r.nodes[i]
		at.unfit = unfitNode(&at.Node, at.known, at.configured)
	}
	return r
}

// of finds a node. Most clusters number their nodes from one on, without a gap.
func (r *roll) of(lnn int) *listed {
	if at := lnn - 1; at >= 0 && at < len(r.numbers) && r.numbers[at] == lnn {
		return &r.nodes[at]
	}
	if at, found := slices.BinarySearch(r.numbers, lnn); found {
		return &r.nodes[at]
	}
	return &unlisted
}

// turn is which of the present nodes one is, in the order in which they propose: by number, from one on; -1 if it is none of them.
func (r *roll) turn(lnn int) int {
	turn := 0
	for i := range r.nodes {
		if !r.nodes[i].Present {
			continue
		}
		turn++
		if r.numbers[i] == lnn {
			return turn
		}
	}
	return -1
}

// node is what is known of a node, to be read only.
func (w *World) node(lnn int) *Node {
	if w.roll != nil {
		return &w.roll.of(lnn).Node
	}
	node := w.Nodes[lnn]
	return &node
}

// listed is a node with what is known of it besides, to be read only.
func (w *World) listed(lnn int) *listed {
	if w.roll != nil {
		return w.roll.of(lnn)
	}
	at := &listed{known: w.known(lnn), configured: w.configured(lnn)}
	at.Node = w.Nodes[lnn]
	at.unfit = unfitNode(&at.Node, at.known, at.configured)
	return at
}

// known reports whether a node is one of the world's.
func (w *World) known(lnn int) bool {
	if w.roll != nil {
		return w.roll.of(lnn).known
	}
	_, known := w.Nodes[lnn]
	return known
}

func (w *World) configured(lnn int) bool {
	if w.roll != nil {
		return w.roll.of(lnn).configured
	}
	for i := range w.Config.Nodes {
		if w.Config.Nodes[i].LNN == lnn {
			return true
		}
	}
	return false
}
