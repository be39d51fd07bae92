package agent

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
)

func TestMetricsSayWhoHoldsAndWhatIsWrong(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.kill(4)
		c.eventually("taken over", func() bool { return c.spreadIs(4, 4, 4, 0) })
		c.eventually("everything in effect", func() bool { v := c.nodes[1].agent.view.Load(); return v.applied.generation == v.generation })
		want := `
# HELP holdfast_agent_nodes Nodes by their state as this node sees it.
# TYPE holdfast_agent_nodes gauge
holdfast_agent_nodes{state="down"} 1
holdfast_agent_nodes{state="draining"} 0
holdfast_agent_nodes{state="unfit"} 0
holdfast_agent_nodes{state="unknown"} 0
holdfast_agent_nodes{state="up"} 3
# HELP holdfast_agent_pool_addresses Addresses of a pool by the state of their record.
# TYPE holdfast_agent_pool_addresses gauge
holdfast_agent_pool_addresses{pool="groupnet0.subnet0.pool0",state="held"} 12
holdfast_agent_pool_addresses{pool="groupnet0.subnet0.pool0",state="moving"} 0
holdfast_agent_pool_addresses{pool="groupnet0.subnet0.pool0",state="orphaned"} 0
holdfast_agent_pool_addresses{pool="groupnet0.subnet0.pool0",state="unowned"} 0
# HELP holdfast_agent_problems Problems that are present, by code and severity.
# TYPE holdfast_agent_problems gauge
holdfast_agent_problems{code="node.down",severity="error"} 1
`
		text := exposition(t, c.nodes[1].agent.registry)
		for _, line := range strings.Split(strings.TrimSpace(want), "\n") {
			if !strings.Contains(text, line+"\n") {
				t.Errorf("not said: %s", line)
			}
		}
		problems, err := promlint.New(strings.NewReader(text)).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	})
}

// exposition is what a scrape reads.
func exposition(t *testing.T, gatherer prometheus.Gatherer) string {
	t.Helper()
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&b, family); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}
