package broker

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/broker/fleet"
)

// measures count what a broker does, and read the rest off it when it is asked for.
type measures struct {
	broker    *Broker
	chosen    *prometheus.CounterVec
	refusals  *prometheus.CounterVec
	outcomes  *prometheus.CounterVec
	dryRuns   prometheus.Counter
	tokens    prometheus.Counter
	denied    prometheus.Counter
	polls     *prometheus.CounterVec
	probes    *prometheus.CounterVec
	exchanges *prometheus.CounterVec
	auditLost prometheus.Counter
}

var (
	describeAge      = prometheus.NewDesc("holdfast_broker_view_age_seconds", "How old what is known of a fleet is; absent while nothing is.", []string{"fleet", "source"}, nil)
	describeGateways = prometheus.NewDesc("holdfast_broker_gateways", "Gateways of a fleet by whether they take sessions, as far as this broker knows.", []string{"fleet", "state"}, nil)
	describeLive     = prometheus.NewDesc("holdfast_broker_central_manager_live", "1 while a fleet's central manager answers.", []string{"fleet"}, nil)
	describeRules    = prometheus.NewDesc("holdfast_broker_rules", "Rules that this broker has.", nil, nil)
)

func newMeasures(b *Broker) *measures {
	m := &measures{
		broker:   b,
		chosen:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "holdfast_broker_launches_total", Help: "Sessions that were given a gateway, by its fleet and what the choice rested on."}, []string{"fleet", "source"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "holdfast_broker_refusals_total", Help: "Sessions for which there was no gateway, by the code of the refusal."}, []string{"code"}),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "holdfast_broker_outcomes_total", Help: "What was told of launches: reached or missed."}, []string{"outcome"}),
		dryRuns:  prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_broker_dry_runs_total", Help: "Choices that were only asked about."}),
		tokens:   prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_broker_tokens_total", Help: "Session tokens that were made."}),
		denied:   prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_broker_denied_total", Help: "Sessions that no grant allows."}),
		polls:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "holdfast_broker_polls_total", Help: "Polls of central managers, by what came of them."}, []string{"result"}),
		probes:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "holdfast_broker_probes_total", Help: "Probes of gateways, by what came of them."}, []string{"result"}),
		exchanges: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "holdfast_broker_rule_exchanges_total", Help: "How often another broker was asked for its rules, by what came of it."},
			[]string{"result"}),
		auditLost: prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_broker_audit_lost_total", Help: "Launches and outcomes that are not in the audit."}),
	}
	if b.options.Registerer != nil {
		for _, c := range m.collectors() {
			b.options.Registerer.MustRegister(c)
		}
	}
	return m
}

func (m *measures) collectors() []prometheus.Collector {
	return []prometheus.Collector{m, m.chosen, m.refusals, m.outcomes, m.dryRuns, m.tokens, m.denied, m.polls, m.probes, m.exchanges, m.auditLost}
}

// forget takes the metrics back, so that another broker of the process can have them.
func (m *measures) forget(registerer prometheus.Registerer) {
	if registerer == nil {
		return
	}
	for _, c := range m.collectors() {
		registerer.Unregister(c)
	}
}

func (m *measures) polled(result string) { m.polls.WithLabelValues(result).Inc() }

func (m *measures) probed(reached bool) {
	result := "missed"
	if reached {
		result = "reached"
	}
	m.probes.WithLabelValues(result).Inc()
}

func (m *measures) exchanged(err error) {
	result := "done"
	if err != nil {
		result = "failed"
	}
	m.exchanges.WithLabelValues(result).Inc()
}

// Describe sends the descriptions of what is read off the broker.
func (m *measures) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{describeAge, describeGateways, describeLive, describeRules} {
		out <- d
	}
}

// Collect sends how it stands with each fleet.
func (m *measures) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(describeRules, float64(len(m.broker.rules.Load().book.Entries())))
	for _, f := range m.broker.Fleets() {
		live := 0.0
		if f.Source == fleet.Live {
			live = 1
		}
		gauge(describeLive, live, f.Link.Fleet)
		if f.Source != fleet.None {
			gauge(describeAge, f.Age.Seconds(), f.Link.Fleet, f.Source.String())
		}
		gauge(describeGateways, float64(f.Up), f.Link.Fleet, "up")
		gauge(describeGateways, float64(f.Gateways-f.Up), f.Link.Fleet, "out")
	}
}
