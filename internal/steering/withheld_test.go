package steering

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

// sc-auto-unsuspend-delay withholds a node that was away while another one can be given, and not when that would take the name away.
func TestAReturnedNodeIsWithheldWhileOthersCanBeGiven(t *testing.T) {
	m := newModel(t, 3, 3, ", sc-auto-unsuspend-delay: 60")
	m.settle()
	given := func(after time.Duration) (lnns string) {
		for lnn := 1; lnn <= 3; lnn++ {
			if why := NotGiven(m.world(1), poolID, cluster.Member{LNN: lnn, Interface: "eth0"}, 1, m.now.Add(after)); why == "" {
				lnns += " " + m.nodes[lnn].Name
			} else if !strings.Contains(why, "sc-auto-unsuspend-delay") && !strings.Contains(why, "suspended") {
				t.Errorf("node %d: %s", lnn, why)
			}
		}
		return lnns
	}
	m.nodes[2].Outage = time.Second
	for _, c := range []struct {
		what   string
		change func()
		after  time.Duration
		want   string
	}{
		{"one was away", func() {}, 0, " node1 node3"},
		{"and its time is over", func() {}, time.Minute, " node1 node2 node3"},
		{"all were away, as after a restart of the whole cluster", func() { m.nodes[1].Outage, m.nodes[3].Outage = time.Hour, time.Second }, 0, " node1 node2 node3"},
		{"and the only one that was not is suspended", func() {
			m.nodes[1].Outage = 0
			pool, _, _, _ := m.config.Pool(poolID)
			pool.SuspendedNodes = []int{1}
		}, 0, " node2 node3"},
	} {
		c.change()
		if got := given(c.after); got != c.want {
			t.Errorf("%s: given are%s, want%s", c.what, got, c.want)
		}
	}
}
