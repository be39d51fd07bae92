package verdict

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/cluster"
)

// metrics are the Runner's numbers.
type metrics struct {
	results     *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	transitions *prometheus.CounterVec
	refused     prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer, r *Runner) *metrics {
	m := &metrics{
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_verdict_results_total", Help: "Results of health checks, by kind of check and result.",
		}, []string{"kind", "result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_verdict_duration_seconds", Help: "How long health checks took, by kind of check.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 7),
		}, []string{"kind"}),
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_verdict_transitions_total", Help: "Changes of verdicts, by the state entered.",
		}, []string{"to"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_verdict_refused_total", Help: "Health checks that were configured and could not be run.",
		}),
	}
	if registerer != nil {
		registerer.MustRegister(m.results, m.duration, m.transitions, m.refused, targets{r})
	}
	return m
}

func (m *metrics) count(kind cluster.CheckKind, result EventKind, took time.Duration) {
	m.results.WithLabelValues(string(kind), result.String()).Inc()
	m.duration.WithLabelValues(string(kind)).Observe(took.Seconds())
}

// targets counts targets by state when it is asked.
type targets struct{ runner *Runner }

var targetsDesc = prometheus.NewDesc("holdfast_verdict_targets", "Targets of health checks, by verdict.", []string{"state"}, nil)

// Describe implements prometheus.Collector.
func (t targets) Describe(descs chan<- *prometheus.Desc) { descs <- targetsDesc }

// Collect implements prometheus.Collector.
func (t targets) Collect(metrics chan<- prometheus.Metric) {
	counts := map[State]int{Unknown: 0, Up: 0, Down: 0}
	for _, v := range t.runner.Status() {
		counts[v.State]++
	}
	for state, count := range counts {
		metrics <- prometheus.MustNewConstMetric(targetsDesc, prometheus.GaugeValue, float64(count), state.String())
	}
}
