package address

import "github.com/prometheus/client_golang/prometheus"

// metrics are what this package counts.
type metrics struct {
	held, failed                                         prometheus.Gauge
	taken, released, renewals, announcements, claims     prometheus.Counter
	addFailures, removeFailures, renewFailures, silences prometheus.Counter
	announceFailures, answers, unlawful                  prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_address_" + name, Help: help})
		if registerer != nil {
			registerer.MustRegister(c)
		}
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "holdfast_address_" + name, Help: help})
		if registerer != nil {
			registerer.MustRegister(g)
		}
		return g
	}
	return &metrics{
		held:             gauge("held_addresses", "Addresses that are on the interfaces of this node now."),
		failed:           gauge("failed_addresses", "Addresses that this node should hold and does not, or the other way round."),
		taken:            counter("taken_total", "Addresses added to an interface."),
		released:         counter("released_total", "Addresses removed from an interface."),
		renewals:         counter("renewals_total", "Lifetimes of addresses renewed."),
		announcements:    counter("announcements_total", "Addresses announced; each announcement is one or two frames."),
		claims:           counter("foreign_claims_total", "Claims of other hosts to addresses that this node holds."),
		answers:          counter("claim_answers_total", "Announcements made because of foreign claims."),
		addFailures:      counter("add_failures_total", "Addresses that the kernel refused."),
		removeFailures:   counter("remove_failures_total", "Addresses that could not be removed."),
		renewFailures:    counter("renew_failures_total", "Lifetimes that could not be renewed."),
		announceFailures: counter("announce_failures_total", "Batches of announcements that could not be sent in full."),
		silences:         counter("silences_total", "Times that all moving addresses were dropped at once."),
		unlawful:         counter("withheld_total", "Batches of additions, renewals or announcements withheld for want of the right to hold."),
	}
}
