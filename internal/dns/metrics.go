package dns

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/dns/dnsmessage"
)

// dropPanic is the reason for silence when answering panicked.
const dropPanic Drop = "panic"

// metrics counts what the server does. Counters are looked up once, not for each query.
type metrics struct {
	queries    [2]prometheus.Counter // UDP, TCP
	responses  [24]prometheus.Counter
	dropped    map[Drop]prometheus.Counter
	truncated  prometheus.Counter
	slipped    prometheus.Counter
	unreadable prometheus.Counter
	unsent     prometheus.Counter
	listeners  prometheus.Gauge
	streams    prometheus.Gauge
	refused    map[streamLimit]prometheus.Counter
	ended      map[streamEnd]prometheus.Counter
	panics     atomic.Uint64
}

// rcodeNames are the label values of response codes (IANA DNS parameters, in lower case).
var rcodeNames = map[dnsmessage.RCode]string{
	dnsmessage.RCodeSuccess: "noerror", dnsmessage.RCodeFormatError: "formerr", dnsmessage.RCodeServerFailure: "servfail",
	dnsmessage.RCodeNameError: "nxdomain", dnsmessage.RCodeNotImplemented: "notimp", dnsmessage.RCodeRefused: "refused",
	rcodeBadVersion: "badvers", rcodeBadCookie: "badcookie",
}

func newMetrics(reg prometheus.Registerer, a *Answerer) *metrics {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	vector := func(name, help, label string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "holdfast_dns_" + name, Help: help}, []string{label})
		reg.MustRegister(v)
		return v
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_dns_" + name, Help: help})
		reg.MustRegister(c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "holdfast_dns_" + name, Help: help})
		reg.MustRegister(g)
		return g
	}
	m := &metrics{
		truncated:  counter("truncated_total", "Responses over UDP that were marked truncated."),
		slipped:    counter("slipped_total", "Responses over the rate limit that only led to TCP or a cookie."),
		unreadable: counter("receive_errors_total", "Errors of receiving over UDP."),
		unsent:     counter("send_errors_total", "Responses over UDP that could not be sent."),
		listeners:  gauge("service_addresses_served", "Service addresses on which this node listens."),
		streams:    gauge("tcp_connections", "Open TCP connections."),
		dropped:    map[Drop]prometheus.Counter{}, refused: map[streamLimit]prometheus.Counter{}, ended: map[streamEnd]prometheus.Counter{},
	}
	queries := vector("queries_total", "Queries received, by transport.", "transport")
	m.queries = [2]prometheus.Counter{queries.WithLabelValues("udp"), queries.WithLabelValues("tcp")}
	responses := vector("responses_total", "Responses, by response code.", "rcode")
	for code, name := range rcodeNames {
		m.responses[code] = responses.WithLabelValues(name)
	}
	dropped := vector("dropped_total", "Queries that got no response, by reason.", "reason")
	for _, why := range []Drop{DropNotAQuery, DropRateLimited, dropPanic} {
		m.dropped[why] = dropped.WithLabelValues(string(why))
	}
	refused := vector("tcp_refused_total", "TCP connections closed at once, by the limit that was reached.", "limit")
	for _, limit := range []streamLimit{limitAll, limitClient} {
		m.refused[limit] = refused.WithLabelValues(string(limit))
	}
	ended := vector("tcp_ended_total", "TCP connections that ended, by reason.", "reason")
	for _, why := range []streamEnd{endedByClient, endedIdle, endedHalfSent, endedTooLong, endedNotAQuery, endedSlowReader} {
		m.ended[why] = ended.WithLabelValues(string(why))
	}
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "holdfast_dns_rate_table_evictions_total",
		Help: "Client prefixes forgotten by the rate limit because its table was full."}, func() float64 {
		if a.limiter == nil {
			return 0
		}
		return float64(a.limiter.evicted())
	}))
	return m
}

// count counts one query and what became of it.
func (m *metrics) count(tcp bool, o Outcome) {
	if tcp {
		m.queries[1].Inc()
	} else {
		m.queries[0].Inc()
	}
	if o.Dropped != DropNone {
		m.dropped[o.Dropped].Inc()
		return
	}
	m.responses[o.RCode].Inc()
	if o.Slipped {
		m.slipped.Inc()
	}
	if o.Truncated {
		m.truncated.Inc()
	}
}
