package agent

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast/holdfast/internal/linux/link/linktest"
)

// randomSeeds is how many histories the test plays; each is some tens of seconds of virtual time.
const randomSeeds = 40

// TestRandomFaults plays random histories of faults over whole agents: at no moment is an address on two nodes, and when the
// faults are over every address is held and the spread is even again.
func TestRandomFaults(t *testing.T) {
	for seed := range uint64(randomSeeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { playRandom(t, seed) })
	}
}

func playRandom(t *testing.T, seed uint64) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		random := rand.New(rand.NewPCG(seed, 1))
		var history []string
		defer func() {
			if t.Failed() {
				t.Logf("history: %s", strings.Join(history, "; "))
			}
		}()
		dead := map[int]bool{}
		for range 12 {
			lnn := 1 + random.IntN(4)
			what := c.fault(random, lnn, dead)
			history = append(history, fmt.Sprintf("%s: %s", time.Now().Format("05.000"), what))
			c.pass(time.Duration(random.IntN(2500)) * time.Millisecond)
		}
		c.healAll(dead)
		c.eventually("everything is held and even again", func() bool { return c.spreadIs(3, 3, 3, 3) && c.everybodyServes() })
	})
}

// fault does one thing to the cluster and says what.
func (c *testCluster) fault(random *rand.Rand, lnn int, dead map[int]bool) string {
	n := c.nodes[lnn]
	switch random.IntN(9) {
	case 0:
		if !dead[lnn] && len(dead) == 0 {
			c.kill(lnn)
			dead[lnn] = true
			return fmt.Sprintf("node %d dies", lnn)
		}
	case 1:
		if dead[lnn] {
			c.start(lnn)
			delete(dead, lnn)
			return fmt.Sprintf("node %d starts", lnn)
		}
	case 2:
		c.isolate(lnn, true)
		return fmt.Sprintf("node %d is isolated", lnn)
	case 3:
		c.isolate(lnn, false)
		return fmt.Sprintf("node %d is reachable", lnn)
	case 4:
		c.store.LoseQuorum(true)
		return "the store loses its quorum"
	case 5:
		c.store.LoseQuorum(false)
		c.store.Stall(false)
		return "the store is back"
	case 6:
		n.store.Cut(random.IntN(2) == 0)
		return fmt.Sprintf("node %d cannot, or can, reach the store", lnn)
	case 7:
		other := 1 + random.IntN(4)
		c.sever(lnn, other, random.IntN(2) == 0)
		return fmt.Sprintf("the way from node %d to node %d is cut, or whole", lnn, other)
	case 8:
		i := linktest.Ethernet(2, "eth0")
		i.Carrier = random.IntN(2) == 0
		n.kernel.SetInterface(i)
		return fmt.Sprintf("node %d has carrier: %v", lnn, i.Carrier)
	}
	return "nothing"
}

func (c *testCluster) healAll(dead map[int]bool) {
	c.store.LoseQuorum(false)
	c.store.Stall(false)
	for lnn := range c.nodes {
		c.isolate(lnn, false)
	}
	for lnn, n := range c.nodes {
		if dead[lnn] {
			c.start(lnn)
		}
		n.store.Cut(false)
		n.kernel.SetInterface(linktest.Ethernet(2, "eth0"))
	}
	synctest.Wait()
}
