package datagram

import "github.com/prometheus/client_golang/prometheus"

// refusal is why a datagram was not handed over.
type refusal int

const (
	delivered refusal = iota
	malformed
	unknownSender
	misdirected
	badSeal
	wrongSession
	replay
	refusals // the bound
)

// loss is why a message was not sent.
type loss int

const (
	unknownPeer loss = iota
	noAddress
	queueFull
	unencodable
	exhausted
	refusedByKernel
	losses // the bound
)

// greeting is what became of a hello.
type greeting int

const (
	helloSaid greeting = iota
	helloLimited
	helloBelieved
	helloStale
	greetings // the bound
)

// The values of labels.
var (
	refusalNames = [refusals]string{malformed: "malformed", unknownSender: "unknown_sender", misdirected: "for_another_node", badSeal: "bad_seal",
		wrongSession: "wrong_session", replay: "replay"}
	lossNames = [losses]string{unknownPeer: "unknown_node", noAddress: "no_address", queueFull: "too_many", unencodable: "unencodable",
		exhausted: "no_number_left", refusedByKernel: "kernel"}
	greetingNames = [greetings]string{helloSaid: "said", helloLimited: "held_back", helloBelieved: "believed", helloStale: "stale"}
	timingNames   = [timings]string{timeless: "no_time", clockSet: "clock_set", beforeEmpty: "too_early", afterNow: "too_late"}
)

// metrics counts what a Link does. Counters are looked up once, not for each datagram.
type metrics struct {
	delivered, sent, resent, errors, overflowed, cut, turns prometheus.Counter
	peers, realtime                                         prometheus.Gauge

	refused [refusals]prometheus.Counter
	unsent  [losses]prometheus.Counter
	hellos  [greetings]prometheus.Counter
	untimed [timings]prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	if registerer == nil {
		registerer = prometheus.NewRegistry()
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_datagram_" + name, Help: help})
		registerer.MustRegister(c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "holdfast_datagram_" + name, Help: help})
		registerer.MustRegister(g)
		return g
	}
	vector := func(name, help, label string, values []string, counters []prometheus.Counter) {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "holdfast_datagram_" + name, Help: help}, []string{label})
		registerer.MustRegister(v)
		for i, value := range values {
			if value != "" {
				counters[i] = v.WithLabelValues(value)
			}
		}
	}
	m := &metrics{
		delivered:  counter("received_total", "Messages between nodes about who is alive that arrived and were genuine."),
		sent:       counter("sent_total", "Datagrams about who is alive that were sent, hellos among them."),
		resent:     counter("resent_total", "Messages about who is alive that were sent again, because the other side had started anew."),
		errors:     counter("receive_errors_total", "Errors of receiving datagrams about who is alive."),
		overflowed: counter("overflowed_total", "Datagrams about who is alive that were lost because this node was too late to read them."),
		cut:        counter("overlong_turns_total", "Times that more datagrams waited than are taken before a turn."),
		turns:      counter("turns_total", "Times that this node looked at who is alive."),
		peers:      gauge("peers", "Other nodes with which this node exchanges messages about who is alive."),
		realtime:   gauge("realtime", "Whether the thread that says and hears who is alive runs at real-time priority."),
	}
	vector("refused_total", "Datagrams that were not taken, by reason.", "reason", refusalNames[:], m.refused[:])
	vector("unsent_total", "Messages about who is alive that could not be sent, by reason.", "reason", lossNames[:], m.unsent[:])
	vector("hellos_total", "Hellos, by which nodes take up the exchange after a start, by what became of them.", "result", greetingNames[:], m.hellos[:])
	vector("untimed_total", "Messages whose time of arrival was taken to be the time of reading, by reason.", "reason", timingNames[:], m.untimed[:])
	return m
}
