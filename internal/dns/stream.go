package dns

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// TCPLimits bound connections (RFC 7766 section 6, RFC 9210 section 4).
type TCPLimits struct {
	Connections int           // open at once; default 1,024
	PerClient   int           // open at once from one address; default 64
	Idle        time.Duration // without a query; default 10 s, and a tenth of it while more than half of the connections are taken
	Total       time.Duration // of a connection, whatever it asks; default 2 min, and a tenth of it while more than half are taken
	Message     time.Duration // from a query's first octet to its last, and for the client to take a response; default 2 s
	Settled     time.Duration // since it began, or since its last response, until a connection may have to make room; default 100 ms
}

func (l TCPLimits) withDefaults() TCPLimits {
	if l.Connections <= 0 {
		l.Connections = 1024
	}
	if l.PerClient <= 0 {
		l.PerClient = 64
	}
	if l.Idle <= 0 {
		l.Idle = 10 * time.Second
	}
	if l.Total <= 0 {
		l.Total = 2 * time.Minute
	}
	if l.Message <= 0 {
		l.Message = 2 * time.Second
	}
	if l.Settled <= 0 {
		l.Settled = 100 * time.Millisecond
	}
	return l
}

// streamLimit names the bound at which a connection was refused.
type streamLimit string

const (
	limitAll    streamLimit = "connections"
	limitClient streamLimit = "per_client"
)

// streamEnd says why a connection ended.
type streamEnd string

const (
	endedByClient   streamEnd = "closed"      // by the client, with its listener, or to make room
	endedIdle       streamEnd = "idle"        // no query for a while
	endedTotal      streamEnd = "total"       // it was open for as long as one may be
	endedHalfSent   streamEnd = "half_sent"   // a query began and did not end
	endedTooLong    streamEnd = "too_long"    // a query of more than 4,096 octets
	endedNotAQuery  streamEnd = "not_a_query" // something that gets no response
	endedSlowReader streamEnd = "slow_reader" // the client does not take its responses
)

// streams serves TCP connections and keeps their number within the limits.
type streams struct {
	limits  TCPLimits
	metrics *metrics
	answer  func(dst []byte, req Request) ([]byte, Outcome)

	mu      sync.Mutex
	open    int
	clients map[netip.Addr]int // connections by host
	waiting waiting
}

func newStreams(l TCPLimits, m *metrics, answer func([]byte, Request) ([]byte, Outcome)) *streams {
	return &streams{limits: l.withDefaults(), metrics: m, answer: answer, clients: map[netip.Addr]int{}, waiting: newWaiting()}
}

// admit takes one more connection of a client into the count, unless a limit forbids it. leave takes it out again. Where all places are
// taken, the connection that has been silent for longest makes room, so that who holds connections and does not ask keeps nobody out
// who does (RFC 7766 section 6.2.3 leaves to the server how long it waits).
func (s *streams) admit(c net.Conn, client netip.Addr) bool {
	client = host(client)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients[client] >= s.limits.PerClient {
		s.metrics.refused[limitClient].Inc()
		return false
	}
	now := time.Now()
	if s.open >= s.limits.Connections {
		silent, of, found := s.waiting.longest(now.Add(-s.limits.Settled))
		if !found {
			s.metrics.refused[limitAll].Inc()
			return false
		}
		s.remove(silent, of)
		silent.Close()
		s.metrics.madeRoom.Inc()
	}
	s.open++
	s.clients[client]++
	s.waiting.join(c, client, now)
	s.metrics.streams.Set(float64(s.open))
	return true
}

// host is whom the connections of an address count for: over IPv6 everybody has a whole /64 of addresses (RFC 7934 section 1).
func host(client netip.Addr) netip.Addr {
	if client.Is4() {
		return client
	}
	sixteen := client.As16()
	clear(sixteen[8:])
	return netip.AddrFrom16(sixteen)
}

// remove takes a connection out of the count, once.
func (s *streams) remove(c net.Conn, client netip.Addr) {
	if !s.waiting.leave(c) {
		return // it made room before
	}
	s.open--
	if s.clients[client]--; s.clients[client] <= 0 {
		delete(s.clients, client)
	}
}

// answered notes that a connection has taken a response.
func (s *streams) answered(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting.answered(c, time.Now())
}

func (s *streams) leave(c net.Conn, client netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(c, host(client))
	s.metrics.streams.Set(float64(s.open))
}

// idle is how long a connection that began some time ago may wait for its next query, and whether it ends then whatever it
// asked before: less when connections run short.
func (s *streams) idle(age time.Duration) (wait time.Duration, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait, total := s.limits.Idle, s.limits.Total
	if s.open > s.limits.Connections/2 {
		wait, total = wait/10, total/10
	}
	if left := max(total-age, 0); left < wait {
		return left, true
	}
	return wait, false
}

// serve answers the queries of one connection in their order, however many the client sends ahead (RFC 7766 section
// 6.2.1.1), until the client closes it or a limit ends it.
func (s *streams) serve(c net.Conn, client, service netip.Addr) {
	in := bufio.NewReaderSize(c, maxQuery)
	query := make([]byte, 0, minUDPAnswer)
	out := make([]byte, 2, 2+minUDPAnswer)
	began := time.Now()
	for {
		var end streamEnd
		if query, end = s.receive(c, in, query, began); end != "" {
			s.metrics.ended[end].Inc()
			return
		}
		idle, _ := s.idle(time.Since(began))
		response, outcome := s.answer(out[:2], Request{Message: query, TCP: true, Idle: idle, Client: client, Service: service})
		if outcome.Dropped != DropNone {
			s.metrics.ended[endedNotAQuery].Inc()
			return
		}
		out = response
		binary.BigEndian.PutUint16(out, uint16(len(out)-2))
		if err := s.send(c, out); err != nil {
			s.metrics.ended[endOf(err, endedSlowReader)].Inc()
			return
		}
	}
}

// send writes length and message at once, so that they leave in one segment (RFC 7766 section 8).
func (s *streams) send(c net.Conn, framed []byte) error {
	if err := c.SetWriteDeadline(time.Now().Add(s.limits.Message)); err != nil {
		return err
	}
	_, err := c.Write(framed)
	if err == nil {
		s.answered(c)
	}
	return err
}

// receive reads one query. Waiting for its first octet is idleness; once it has come, the rest must follow soon, however
// it trickles in. A client that never stops asking is not idle, but has to make room after the longest time of a connection.
func (s *streams) receive(c net.Conn, in *bufio.Reader, into []byte, began time.Time) ([]byte, streamEnd) {
	wait, last := s.idle(time.Since(began))
	late := endedIdle
	if last {
		late = endedTotal
	}
	if wait == 0 {
		return into, late
	}
	if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return into, endedByClient
	}
	if _, err := in.Peek(1); err != nil {
		return into, endOf(err, late)
	}
	if err := c.SetReadDeadline(time.Now().Add(s.limits.Message)); err != nil {
		return into, endedByClient
	}
	var length [2]byte
	if _, err := io.ReadFull(in, length[:]); err != nil {
		return into, endOf(err, endedHalfSent)
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if n > maxQuery {
		return into, endedTooLong
	}
	if cap(into) < n {
		into = make([]byte, n)
	}
	into = into[:n]
	if _, err := io.ReadFull(in, into); err != nil {
		return into, endOf(err, endedHalfSent)
	}
	return into, ""
}

// endOf tells a deadline, which means what the caller says, from all other ends.
func endOf(err error, late streamEnd) streamEnd {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return late
	}
	return endedByClient
}
