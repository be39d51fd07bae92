package address

import "github.com/prometheus/client_golang/prometheus"

// tickleMetrics are what the Tickler counts.
type tickleMetrics struct {
	kept                       prometheus.Gauge
	tickles, failures, resyncs prometheus.Counter
}

func newTickleMetrics(registerer prometheus.Registerer) *tickleMetrics {
	m := &tickleMetrics{
		kept:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "holdfast_address_successor_connections", Help: "Connections of clients of other nodes that this node would wake if it took their addresses."}),
		tickles:  prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_address_tickles_total", Help: "Packets sent to wake clients of addresses that came here."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_address_tickle_failures_total", Help: "Packets to wake clients that could not be sent."}),
		resyncs:  prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_address_table_resyncs_total", Help: "Times that an owner had to send its connections anew because a message was missing."}),
	}
	if registerer != nil {
		registerer.MustRegister(m.kept, m.tickles, m.failures, m.resyncs)
	}
	return m
}
