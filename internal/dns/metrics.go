package dns

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/dns/dnsmessage"
)

// dropPanic is the reason for silence when answering panicked.
const dropPanic Drop = "panic"

// What is counted for each query and its response, by its place in a tally. Response codes follow.
const (
	countUDP = iota
	countTCP
	countNotAQuery
	countRateLimited
	countPanic
	countTruncated
	countSlipped
	countUnreadable
	countUnsent
	countOverflowed
	countResponses
)

// counts are numbers of one goroutine.
type counts [countResponses + 24]uint64

// add counts one query and what became of it.
func (c *counts) add(tcp bool, o Outcome) {
	if tcp {
		c[countTCP]++
	} else {
		c[countUDP]++
	}
	switch o.Dropped {
	case DropNone:
	case DropNotAQuery:
		c[countNotAQuery]++
		return
	case DropRateLimited:
		c[countRateLimited]++
		return
	default:
		c[countPanic]++
		return
	}
	c[countResponses+int(o.RCode)]++
	if o.Slipped {
		c[countSlipped]++
	}
	if o.Truncated {
		c[countTruncated]++
	}
}

// tally is what one desk has counted, or all that is no desk. Whoever scrapes adds all of them up.
type tally struct {
	_      [cacheLine]byte
	counts [len(counts{})]atomic.Uint64
	_      [cacheLine]byte

	overflowed func() (uint32, error) // what the kernel has counted at the desk's socket; it begins anew beyond 32 bits
	seen       uint32                 // of that; it belongs to metrics.mu
}

// look counts what the kernel has dropped since the last look. metrics.mu is held.
func (t *tally) look() {
	if now, err := t.overflowed(); err == nil {
		t.counts[countOverflowed].Add(uint64(now - t.seen))
		t.seen = now
	}
}

// take adds what was counted and sets it back.
func (t *tally) take(c *counts) {
	for i, n := range c {
		if n != 0 {
			t.counts[i].Add(n)
			c[i] = 0
		}
	}
}

// metrics counts what the server does. Counters are looked up once, not for each query.
type metrics struct {
	common    tally // of everything but the desks that are open, whose own tallies are these
	mu        sync.Mutex
	desks     map[*tally]bool
	listeners prometheus.Gauge
	streams   prometheus.Gauge
	refused   map[streamLimit]prometheus.Counter
	madeRoom  prometheus.Counter
	ended     map[streamEnd]prometheus.Counter
	panics    atomic.Uint64
}

// open gives a new desk its tally. Of what the kernel has dropped at its socket until now, another process has been told.
func (m *metrics) open(overflowed func() (uint32, error)) *tally {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &tally{overflowed: overflowed}
	t.seen, _ = overflowed()
	m.desks[t] = true
	return t
}

// close keeps what a desk has counted that is about to close its socket.
func (m *metrics) close(t *tally) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t.look()
	delete(m.desks, t)
	for i := range t.counts {
		m.common.counts[i].Add(t.counts[i].Load())
	}
}

func (m *metrics) sum(i int) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	sum := m.common.counts[i].Load()
	for t := range m.desks {
		if i == countOverflowed {
			t.look()
		}
		sum += t.counts[i].Load()
	}
	return float64(sum)
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
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "holdfast_dns_" + name, Help: help})
		reg.MustRegister(g)
		return g
	}
	m := &metrics{
		desks:     map[*tally]bool{},
		listeners: gauge("service_addresses_served", "Service addresses on which this node listens."),
		streams:   gauge("tcp_connections", "Open TCP connections."),
		refused:   map[streamLimit]prometheus.Counter{}, ended: map[streamEnd]prometheus.Counter{},
	}
	counter := func(name, help string, i int, labels prometheus.Labels) {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "holdfast_dns_" + name, Help: help, ConstLabels: labels},
			func() float64 { return m.sum(i) }))
	}
	counter("truncated_total", "Responses over UDP that were marked truncated.", countTruncated, nil)
	counter("slipped_total", "Responses over the rate limit that only led to TCP or a cookie.", countSlipped, nil)
	counter("receive_errors_total", "Errors of receiving over UDP.", countUnreadable, nil)
	counter("send_errors_total", "Responses over UDP that could not be sent.", countUnsent, nil)
	counter("overflowed_total", "Datagrams over UDP that the kernel dropped because the buffer of a service address was full.", countOverflowed, nil)
	counter("queries_total", "Queries received, by transport.", countUDP, prometheus.Labels{"transport": "udp"})
	counter("queries_total", "Queries received, by transport.", countTCP, prometheus.Labels{"transport": "tcp"})
	for code, name := range rcodeNames {
		counter("responses_total", "Responses, by response code.", countResponses+int(code), prometheus.Labels{"rcode": name})
	}
	for i, why := range map[int]Drop{countNotAQuery: DropNotAQuery, countRateLimited: DropRateLimited, countPanic: dropPanic} {
		counter("dropped_total", "Queries that got no response, by reason.", i, prometheus.Labels{"reason": string(why)})
	}
	refused := vector("tcp_refused_total", "TCP connections closed at once, by the limit that was reached.", "limit")
	for _, limit := range []streamLimit{limitAll, limitClient} {
		m.refused[limit] = refused.WithLabelValues(string(limit))
	}
	m.madeRoom = prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_dns_tcp_made_room_total",
		Help: "TCP connections closed for a new one, because all places were taken and they had been silent for longest."})
	reg.MustRegister(m.madeRoom)
	ended := vector("tcp_ended_total", "TCP connections that ended, by reason.", "reason")
	for _, why := range []streamEnd{endedByClient, endedIdle, endedHalfSent, endedTooLong, endedNotAQuery, endedSlowReader, endedTotal} {
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
	var c counts
	c.add(tcp, o)
	m.common.take(&c)
}
