package agent

import (
	"net/netip"
	"testing"
	"time"
)

// Nobody waits for the store when a node dies: the successors on record take, pool and service addresses alike, answer on what they have
// taken, and name each other. When the store is back, the record follows, and nothing moves again.
func TestFailoverWithoutTheStore(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.pass(time.Second) // every address has its successor on record
		c.store.LoseQuorum(true)
		c.pass(200 * time.Millisecond)
		before := c.snapshot()
		c.kill(2)
		died := time.Now()
		c.eventually("4, 4, 4 on the survivors", func() bool { return c.spreadIs(4, 0, 4, 4) })
		if gap := time.Since(died); gap > spanOf(c)+20*time.Millisecond {
			t.Errorf("in virtual time it took %s; the span is %s", gap, spanOf(c))
		}
		c.pass(20 * time.Millisecond)
		taken := c.snapshot()
		if len(taken) != len(before) {
			t.Errorf("%d addresses are held, there were %d\n%s", len(taken), len(before), c.story())
		}
		for _, lnn := range []int{1, 3, 4} {
			view := c.nodes[lnn].names.seen.Load()
			own := map[netip.Addr]bool{}
			for _, addr := range *c.nodes[lnn].names.asked.Load() {
				own[addr] = true
			}
			for addr, holder := range taken {
				if addr.As4()[3] < 100 && own[addr] != (holder == lnn) {
					t.Errorf("node %d answers on %s: %t; it is on node %d", lnn, addr, own[addr], holder)
				}
			}
			named := 0
			for _, node := range view.Zones[0].Pools[0].Nodes {
				if node.Eligible {
					named += len(node.Addresses)
				}
			}
			if named != 12 {
				t.Errorf("node %d would name %d of 12 addresses", lnn, named)
			}
		}
		c.store.LoseQuorum(false)
		c.pass(3 * time.Second)
		for addr, lnn := range c.snapshot() {
			if taken[addr] != lnn {
				t.Errorf("with the store back, %s went from node %d to node %d", addr, taken[addr], lnn)
			}
		}
	})
}
