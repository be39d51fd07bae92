package cluster

import (
	"fmt"
	"testing"
)

// hasAll waits until the kernel of a node has all addresses of the pool of two nodes, and their service addresses.
func (l *lab) hasAll(t *testing.T, node string) {
	t.Helper()
	eventually(t, node+" has everything", func() error {
		held, err := l.kernel(node)
		if err == nil && len(held) != 6+3 {
			err = fmt.Errorf("it has %v", held)
		}
		return err
	})
}

// TestTwoNodesWithoutAWitness: two nodes ask the lab's router, which is their gateway. The one that hosts the store dies, and the other has
// everything; then it is cut off from all, and lets go before the other takes.
func TestTwoNodesWithoutAWitness(t *testing.T) {
	l := startLab(t, 2, cast{nodes: 2, clients: 1, routers: 1, resolver: "none", gateway: "10.10.0.1", cluster: "no-witness: true\n"}.file())
	w := l.watch(t)
	l.spread(t, l.nodes, 3, 3)
	w.leave(t, "node1")
	l.do(t, "kill", "node1")
	l.hasAll(t, "node2")
	l.do(t, "start", "node1")
	w.join(t, "node1")
	l.spread(t, l.nodes, 3, 3)
	l.do(t, "cut", "node1")
	l.hasAll(t, "node2")
	l.holdsNothing(t, "node1")
	w.check(t)
	l.do(t, "heal", "node1")
	l.spread(t, l.nodes, 3, 3)
	w.check(t)
}
