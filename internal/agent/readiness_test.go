package agent

import (
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/steering"
)

// unspoken has two nodes hear each other's heartbeats and not each other's words.
func (c *testCluster) unspoken(a, b int, on bool) {
	c.net.Lock()
	defer c.net.Unlock()
	c.cut[[2]int{a, b}], c.cut[[2]int{b, a}] = on, on
}

// Addresses that are asked away from a node stay there while the nodes that they go to have not said that they could take them; and go all
// the same once that has lasted for long.
func TestAPlannedMoveWaitsForItsTarget(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		for _, other := range []int{2, 3, 4} {
			c.unspoken(1, other, true)
		}
		var err error
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			_, err = c.ask(2).DrainNode(t.Context(), &holdfastv1.DrainNodeRequest{Node: "node1"})
		}()
		c.eventually("the records ask for it", func() bool { return c.movesFrom(1) == 3 })
		c.pass(steering.ReadyLimit / 2)
		if c.pool(1) != 3 {
			t.Errorf("node1 has let go: it has %d addresses", c.pool(1))
		}
		c.unspoken(1, 2, false)
		c.eventually("what goes to the node that could say it is there", func() bool { return c.pool(1) == 2 && c.pool(2) == 4 })
		c.pass(steering.ReadyLimit / 4)
		if c.pool(1) != 2 {
			t.Errorf("node1 has let go of more: it has %d addresses", c.pool(1))
		}
		c.eventually("the rest goes without a word", func() bool { return c.spreadIs(0, 4, 4, 4) })
		c.eventually("the drain is done", func() bool {
			select {
			case <-drained:
				return true
			default:
				return false
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// movesFrom is how many pool addresses a node is asked to let go of, by what it has read of the records.
func (c *testCluster) movesFrom(lnn int) (n int) {
	for _, record := range c.nodes[lnn].agent.view.Load().world.Pools {
		for _, st := range record {
			if st.Owner.LNN == lnn && !st.To.IsZero() {
				n++
			}
		}
	}
	return n
}

// A node that has everything to say says it at once: a planned move is not slower than a few messages.
func TestAPlannedMoveIsQuick(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		go func() { _, _ = c.ask(2).DrainNode(t.Context(), &holdfastv1.DrainNodeRequest{Node: "node1"}) }()
		c.eventually("the records ask for it", func() bool { return c.movesFrom(1) > 0 || c.pool(1) < 3 })
		c.pass(100 * time.Millisecond)
		if !c.spreadIs(0, 4, 4, 4) {
			t.Errorf("after 100 ms: %s", c.story())
		}
	})
}
