package store

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts what the store costs. Without a registerer it counts for nobody.
type metrics struct {
	registerer prometheus.Registerer
	duration   *prometheus.HistogramVec
	retries    *prometheus.CounterVec
	failures   *prometheus.CounterVec
	resumes    prometheus.Counter
	resyncs    prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		registerer: registerer,
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "holdfast_store_call_duration_seconds",
			Help:    "Time from a call to the store's answer, over all tries.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}, []string{"call"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "holdfast_store_retries_total",
			Help: "Tries beyond the first, by call."}, []string{"call"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "holdfast_store_unanswered_calls_total",
			Help: "Calls that no member answered in time, by call."}, []string{"call"}),
		resumes: prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_store_watch_resumes_total",
			Help: "Times that a watch went on at another member or again at the same."}),
		resyncs: prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_store_watch_resyncs_total",
			Help: "Times that a watch delivered the whole state."}),
	}
	if registerer == nil {
		return m, nil
	}
	for _, collector := range m.all() {
		if err := registerer.Register(collector); err != nil {
			return nil, fmt.Errorf("registering the store's metrics (one open store for each registerer): %w", err)
		}
	}
	return m, nil
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.duration, m.retries, m.failures, m.resumes, m.resyncs}
}

func (m *metrics) unregister() {
	if m.registerer != nil {
		for _, collector := range m.all() {
			m.registerer.Unregister(collector)
		}
	}
}

func (m *metrics) answered(call string, took time.Duration, tries int) {
	m.duration.WithLabelValues(call).Observe(took.Seconds())
	if tries > 1 {
		m.retries.WithLabelValues(call).Add(float64(tries - 1))
	}
}

func (m *metrics) unanswered(call string) { m.failures.WithLabelValues(call).Inc() }
func (m *metrics) resumed()               { m.resumes.Inc() }
func (m *metrics) resynced()              { m.resyncs.Inc() }
