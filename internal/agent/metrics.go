package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// collector reads the metrics of the agent off the view when they are asked for; what counts events is counted where they happen.
type collector struct{ *Agent }

var (
	describeHeld     = prometheus.NewDesc("holdfast_agent_held_addresses", "Addresses of the cluster that are on this node's interfaces.", nil, nil)
	describeFailed   = prometheus.NewDesc("holdfast_agent_failed_addresses", "Addresses that this node owns and could not put on an interface.", nil, nil)
	describeMayHold  = prometheus.NewDesc("holdfast_agent_may_hold", "1 while this node may hold moving addresses.", nil, nil)
	describeLeft     = prometheus.NewDesc("holdfast_agent_tenure_left_seconds", "How long the right to hold lasts unless it is renewed.", nil, nil)
	describeSilence  = prometheus.NewDesc("holdfast_agent_store_silence_seconds", "How long ago the store last answered this node.", nil, nil)
	describeNodes    = prometheus.NewDesc("holdfast_agent_nodes", "Nodes by their state as this node sees it.", []string{"state"}, nil)
	describeOwned    = prometheus.NewDesc("holdfast_agent_pool_addresses", "Addresses of a pool by the state of their record.", []string{"pool", "state"}, nil)
	describeServices = prometheus.NewDesc("holdfast_agent_service_addresses", "Service addresses of a subnet that have a holder.", []string{"subnet"}, nil)
	describeProblems = prometheus.NewDesc("holdfast_agent_problems", "Problems that are present, by code and severity.", []string{"code", "severity"}, nil)
	describeDropped  = prometheus.NewDesc("holdfast_agent_problems_dropped_total", "How often a problem was not kept because there were too many already.", nil, nil)
	describeRevision = prometheus.NewDesc("holdfast_agent_config_revision", "Revision of the configuration in effect here.", nil, nil)
	describeHooks    = prometheus.NewDesc("holdfast_agent_hooks_waiting", "Addresses whose hooks wait until those of others have ended: so many are run for at once.", nil, nil)
	describeInfo     = prometheus.NewDesc("holdfast_agent_build_info", "Always 1; the version is in the label.", []string{"version"}, nil)
)

// Describe sends the descriptions of the metrics.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{describeHeld, describeFailed, describeMayHold, describeLeft, describeSilence, describeNodes, describeOwned,
		describeServices, describeProblems, describeDropped, describeRevision, describeHooks, describeInfo} {
		out <- d
	}
}

// Collect sends what the loop saw last.
func (c collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(describeInfo, 1, c.options.Version)
	type kind struct {
		code     string
		severity problem.Severity
	}
	problems := map[kind]int{}
	for _, p := range c.board.List() {
		problems[kind{p.Kind.Code, p.Kind.Severity}]++
	}
	for k, n := range problems {
		gauge(describeProblems, float64(n), k.code, string(k.severity))
	}
	out <- prometheus.MustNewConstMetric(describeDropped, prometheus.CounterValue, float64(c.board.Dropped()))
	v := c.view.Load()
	if v == nil {
		return
	}
	standing := c.tenancy.Standing()
	mayHold := 0.0
	if standing.MayHold {
		mayHold = 1
		if !standing.Until.IsZero() {
			gauge(describeLeft, standing.Until.Sub(c.now()).Seconds())
		}
	}
	gauge(describeMayHold, mayHold)
	gauge(describeHooks, float64(c.hooks.gates.waiting.Load()))
	gauge(describeHeld, float64(len(v.applied.held)))
	gauge(describeFailed, float64(len(v.applied.failed)))
	gauge(describeSilence, c.tenancy.StoreSilentFor().Seconds())
	gauge(describeRevision, float64(v.configRevision))
	collectWorld(v.world, gauge)
}

// collectWorld counts nodes, pool addresses and service addresses.
func collectWorld(w *steering.World, gauge func(*prometheus.Desc, float64, ...string)) {
	nodes := map[string]int{"up": 0, "unfit": 0, "draining": 0, "down": 0, "unknown": 0}
	for _, node := range w.Nodes {
		state, _ := nodeState(w, node)
		nodes[state]++
	}
	for state, n := range nodes {
		gauge(describeNodes, float64(n), state)
	}
	for _, id := range w.Config.Pools() {
		states := map[string]int{"held": 0, "moving": 0, "orphaned": 0, "unowned": 0}
		for _, addr := range w.Config.Addresses(id) {
			states[recordState(w, w.Pools[id][addr])]++
		}
		for state, n := range states {
			gauge(describeOwned, float64(n), id.String(), state)
		}
	}
	for _, subnet := range w.Config.Subnets() {
		gauge(describeServices, float64(len(w.ServiceHolders(subnet))), subnet.String())
	}
}

// recordState is the one word for a statement: whose owner is not there, it is orphaned.
func recordState(w *steering.World, st tenure.Statement) string {
	if !st.Owner.IsZero() && (w.Over(st.Owner) || w.Silent(st.Owner)) {
		return "orphaned"
	}
	return string(st.State())
}
