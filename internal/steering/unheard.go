package steering

import "github.com/holdfast/holdfast/internal/tenure"

// AddOwners takes in those owners on record whose node has no report, or one of an earlier life, and what is known of whose incarnations
// are over. Over is the latest incarnation of a node that is. It belongs to the making of a world; later a world is not changed.
func (w *World) AddOwners(over func(lnn int) tenure.Incarnation) {
	for lnn, incarnation := range w.latestOwners() {
		node := w.Nodes[lnn]
		if node.Present || lnn == w.Self || incarnation <= over(lnn) {
			continue
		}
		if incarnation > node.Incarnation {
			node.LNN, node.Incarnation = lnn, incarnation
			w.Nodes[lnn] = node
		}
	}
	for lnn, node := range w.Nodes {
		if gone := over(lnn); !node.Present && gone > 0 {
			node.Over = gone
			node.Incarnation = max(node.Incarnation, gone)
			w.Nodes[lnn] = node
		}
	}
}

// Unheard reports whether a configured node that hosts something is neither ready nor known to be over: a cluster that starts waits for it a
// while.
func (w *World) Unheard() bool {
	for _, node := range w.Config.Nodes {
		if n := w.Nodes[node.LNN]; !node.Witness && !n.Ready && n.Over == 0 {
			return true
		}
	}
	return false
}
