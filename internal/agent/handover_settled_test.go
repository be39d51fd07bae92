package agent

import (
	"strings"
	"testing"
	"time"
)

// Whether the right may change hands. The span is 150 ms.
func TestWhenARightMayChangeHands(t *testing.T) {
	const ms = time.Millisecond
	now := time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		what       string
		took, left time.Duration // ago, and from now on; 0: never, and without end
		want       string
	}{
		{"started, renewed", 0, 140 * ms, ""},
		{"started, no renewal for long", 0, 74 * ms, "its right to hold is not being renewed: 74ms of a span of 150ms are left"},
		{"a right without end", 0, 0, ""},
		{"took over long ago", time.Hour, 75 * ms, ""},
		{"took over just now", 126 * ms, 140 * ms, "it has only been here for 126ms, and waits for 300ms (two spans) before another may follow"},
		{"took over just now, a right without end", 299 * ms, 0, "it has only been here for 299ms"},
		{"took over two spans ago", 300 * ms, 140 * ms, ""},
	} {
		var took, until time.Time
		if c.took > 0 {
			took = now.Add(-c.took)
		}
		if c.left > 0 {
			until = now.Add(c.left)
		}
		if got := unsettled(now, took, until, 150*ms); got != c.want && (c.want == "" || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// In a cluster that works, a second handover waits until two spans after the first and no longer; without acknowledgements there is none.
func TestASecondHandoverWaits(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		tenancy := c.nodes[1].agent.tenancy
		if began := time.Now(); tenancy.settle(t.Context(), standLimit) != nil || time.Since(began) > spanOf(c)/2 {
			t.Errorf("the first one waited for %v", time.Since(began))
		}
		took := tenancy.now()
		tenancy.mu.Lock()
		tenancy.took = took
		tenancy.mu.Unlock()
		if err := tenancy.settle(t.Context(), standLimit); err != nil || time.Since(took) < 2*spanOf(c) || time.Since(took) > 3*spanOf(c) {
			t.Errorf("the second one came after %v: %v", time.Since(took), err)
		}
		for _, other := range []int{2, 3, 4} {
			c.sever(1, other, true)
		}
		c.pass(spanOf(c) / 3 * 2)
		if err := tenancy.settle(t.Context(), standLimit); err == nil {
			t.Error("a right that nobody renews changes hands")
		}
	})
}
