package agent

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// etcd-io/etcd issue 15247 (also 12528): a leader of the store that was held up, by its disk or because its process stood still, ends
// leases that were renewed with its successor meanwhile. Their holders live and hold by right: nothing moves, nobody lapses, and no
// address is on two nodes.
func TestReportEtcd15247LeasesThatEndBeforeTheirTimeMoveNothing(t *testing.T) {
	for _, kind := range []string{"all at once", "one after the other", "again and again"} {
		t.Run(kind, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *testCluster) {
				before := map[int]string{}
				for lnn := range c.nodes {
					before[lnn] = fmt.Sprint(c.onKernel(lnn), c.nodes[lnn].agent.tenancy.Incarnation())
				}
				rounds, pause := 1, time.Duration(0)
				switch kind {
				case "one after the other":
					pause = 300 * time.Millisecond
				case "again and again":
					rounds = 5
				}
				for range rounds {
					for _, lease := range c.store.Leases() {
						c.store.ExpireLease(lease)
						c.pass(pause)
					}
					c.pass(200 * time.Millisecond)
				}
				for range 100 {
					c.pass(50 * time.Millisecond)
					for lnn := range c.nodes {
						if now := fmt.Sprint(c.onKernel(lnn), c.nodes[lnn].agent.tenancy.Incarnation()); now != before[lnn] {
							t.Fatalf("node %d had %s and has %s", lnn, before[lnn], now)
						}
					}
				}
				c.eventually("everybody has a lease again", func() bool { return len(c.store.Leases()) == 4 && c.everybodyServes() })
			})
		})
	}
}

// TestRandomEarlyEnds plays random histories in which nodes die and the store stalls and ends leases before their time. The network
// between the nodes is whole: a node that is cut off at that very moment is what the heartbeats are for.
func TestRandomEarlyEnds(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *testCluster) { playEarlyEnds(t, c, rand.New(rand.NewPCG(seed, 3))) })
		})
	}
}

func playEarlyEnds(t *testing.T, c *testCluster, random *rand.Rand) {
	var history []string
	defer func() {
		if t.Failed() {
			t.Logf("history: %s", strings.Join(history, "; "))
		}
	}()
	dead := map[int]bool{}
	for range 20 {
		lnn, on := 1+random.IntN(4), random.IntN(2) == 0
		what := ""
		switch random.IntN(6) {
		case 0:
			if !dead[lnn] && len(dead) == 0 {
				c.kill(lnn)
				dead[lnn], what = true, fmt.Sprintf("node %d dies", lnn)
			}
		case 1:
			if dead[lnn] {
				c.start(lnn)
				delete(dead, lnn)
				what = fmt.Sprintf("node %d starts", lnn)
			}
		case 2:
			c.store.LoseQuorum(on)
			what = fmt.Sprintf("the store has no quorum: %v", on)
		case 3:
			c.nodes[lnn].store.Cut(on)
			what = fmt.Sprintf("node %d is cut off from the store: %v", lnn, on)
		default:
			for _, lease := range c.store.Leases() {
				if on || random.IntN(2) == 0 {
					c.store.ExpireLease(lease)
				}
			}
			what = "leases end"
		}
		history = append(history, fmt.Sprintf("%s: %s", time.Now().Format("05.000"), what))
		c.pass(time.Duration(random.IntN(1500)) * time.Millisecond)
	}
	c.healAll(dead)
	c.eventually("everything is held and even again", func() bool { return c.spreadIs(3, 3, 3, 3) && c.everybodyServes() })
}
