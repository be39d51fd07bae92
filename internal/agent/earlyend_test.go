package agent

import (
	"fmt"
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
