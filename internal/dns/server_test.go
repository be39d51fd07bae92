package dns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/problem"
)

// freePort is a port that is free on all loopback addresses, for UDP and TCP, at this moment.
func freePort(t *testing.T) uint16 {
	t.Helper()
	var config net.ListenConfig
	for range 20 {
		c, err := config.ListenPacket(t.Context(), "udp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := c.LocalAddr().(*net.UDPAddr).AddrPort().Port()
		c.Close()
		if l, err := config.Listen(t.Context(), "tcp4", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// startServer serves the test view on some loopback addresses.
func startServer(t *testing.T, o Options, addresses ...string) *Server {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) }) // runs last
	if o.Port == 0 {
		o.Port = freePort(t)
	}
	s := NewServer(o)
	t.Cleanup(s.Close)
	s.SetView(testView())
	if err := s.Serve(t.Context(), parseAddresses(addresses...)); err != nil {
		t.Fatal(err)
	}
	return s
}

func parseAddresses(texts ...string) (out []netip.Addr) {
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

// dial opens a connection to a service address of s with a deadline that only a fault reaches.
func dial(t *testing.T, s *Server, network, address string) net.Conn {
	t.Helper()
	var dialer net.Dialer
	c, err := dialer.DialContext(t.Context(), network, netip.AddrPortFrom(netip.MustParseAddr(address), s.port).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// send writes to a connection.
func send(t *testing.T, c net.Conn, data []byte) {
	t.Helper()
	if _, err := c.Write(data); err != nil {
		t.Fatal(err)
	}
}

// askServer asks over UDP from a connected socket, which takes a response from the asked address only.
func askServer(t *testing.T, s *Server, address string) dnsmessage.Message {
	t.Helper()
	c := dial(t, s, "udp", address)
	send(t, c, asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA}.pack(t))
	wire := make([]byte, 2000)
	n, err := c.Read(wire)
	if err != nil {
		t.Fatalf("no response from %s: %v", address, err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(wire[:n]); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestServeReconciles: addresses are opened and closed as asked, others stay as they are; a connection to an address
// that is released ends; both protocols answer on each.
func TestServeReconciles(t *testing.T) {
	s := startServer(t, Options{}, "127.0.0.11", "127.0.0.12")
	first := dial(t, s, "tcp", "127.0.0.11")
	second := dial(t, s, "tcp", "127.0.0.12")
	for _, c := range []net.Conn{first, second} {
		send(t, c, framed(asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA}.pack(t)))
		readFramed(t, c)
	}
	if err := s.Serve(t.Context(), parseAddresses("127.0.0.12", "127.0.0.13")); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection to a released address is still there: %v", err)
	}
	send(t, second, framed(asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA}.pack(t)))
	readFramed(t, second)
	for _, address := range []string{"127.0.0.12", "127.0.0.13"} {
		if m := askServer(t, s, address); len(m.Answers) != 1 {
			t.Errorf("%s answers %+v", address, m)
		}
	}
	var dialer net.Dialer
	if c, err := dialer.DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.11:%d", s.port)); err == nil {
		c.Close()
		t.Error("the released address still takes connections")
	}
}

// TestReleasedAddressStartsAgain: with independent rotation, an address that was released and comes back begins at the
// first option.
func TestReleasedAddressStartsAgain(t *testing.T) {
	s := startServer(t, Options{}, "127.0.0.1")
	v := testView()
	v.Zones[0].Pools[0].Rotation = cluster.RotationIndependent
	s.SetView(v)
	for _, want := range []int{1, 2} {
		if got := nodeOf(addressesOf(askServer(t, s, "127.0.0.1"))[0]); got != want {
			t.Errorf("node %d, want %d", got, want)
		}
	}
	if err := errors.Join(s.Serve(t.Context(), nil), s.Serve(t.Context(), parseAddresses("127.0.0.1"))); err != nil {
		t.Fatal(err)
	}
	if got := nodeOf(addressesOf(askServer(t, s, "127.0.0.1"))[0]); got != 1 {
		t.Errorf("after the release node %d, want 1", got)
	}
}

// TestServeBeforeTheAddressIsHeld: the sockets of an address open before the node has it (IP_FREEBIND), in both families.
func TestServeBeforeTheAddressIsHeld(t *testing.T) {
	s := startServer(t, Options{}, "192.0.2.4", "127.0.0.1")
	if err := s.Serve(t.Context(), parseAddresses("127.0.0.1", "192.0.2.4", "2001:db8::4")); err != nil {
		t.Skipf("IPv6 is missing here: %v", err)
	}
	if len(s.listeners) != 3 {
		t.Errorf("%d listeners", len(s.listeners))
	}
}

// TestPortTaken: the error names the address and what to do; the problem is on the board until it is over; the other
// addresses are served.
func TestPortTaken(t *testing.T) {
	board := &problem.Board{}
	port := freePort(t)
	var config net.ListenConfig
	stranger, err := config.ListenPacket(t.Context(), "udp4", fmt.Sprintf("127.0.0.21:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	s := startServer(t, Options{Board: board, Port: port}, "127.0.0.22")
	both := parseAddresses("127.0.0.21", "127.0.0.22")
	err = s.Serve(t.Context(), both)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.21") || !strings.Contains(err.Error(), "another program has the port") {
		t.Errorf("error %v", err)
	}
	listed := func() (subjects []string) {
		for _, p := range board.List() {
			if p.Kind == problemListen {
				subjects = append(subjects, p.Subject)
			}
		}
		return subjects
	}
	if got := listed(); len(got) != 1 || got[0] != "127.0.0.21" {
		t.Errorf("problems of %v", got)
	}
	askServer(t, s, "127.0.0.22")
	stranger.Close()
	if err := s.Serve(t.Context(), both); err != nil {
		t.Errorf("after the port is free: %v", err)
	}
	if got := listed(); len(got) != 0 {
		t.Errorf("problems of %v remain", got)
	}
	askServer(t, s, "127.0.0.21")
}

// TestNoNodeProblem: a zone without a node is on the board while that lasts.
func TestNoNodeProblem(t *testing.T) {
	board := &problem.Board{}
	s := startServer(t, Options{Board: board}, "127.0.0.1")
	if got := board.List(); len(got) != 1 || got[0].Kind != problemNoNode || !strings.Contains(got[0].Subject, "nobody.example.net") {
		t.Errorf("board %+v", got)
	}
	v := testView()
	v.Zones[3].Pools[0].Nodes[0].Eligible = true
	s.SetView(v)
	if got := board.List(); len(got) != 0 {
		t.Errorf("board %+v", got)
	}
}

// TestAnswersAreShared: what was given is told, added up, and never lost; what is heard counts.
func TestAnswersAreShared(t *testing.T) {
	heard := make(chan Told, 100)
	s := startServer(t, Options{OnAnswered: func(told Told) { heard <- told }}, "127.0.0.1")
	s.Merge(Told{Answers: []Answered{{Pool: cluster.PoolID{Groupnet: "groupnet0", Subnet: "subnet0", Pool: "v4"}, LNN: 1, Count: 1},
		{Pool: cluster.PoolID{Pool: "unknown"}, LNN: 1, Count: 1}}})
	if got := nodeOf(addressesOf(askServer(t, s, "127.0.0.1"))[0]); got != 2 {
		t.Errorf("after another holder gave node 1 this one gives node %d", got)
	}
	for range 7 {
		askServer(t, s, "127.0.0.1")
	}
	total := map[int]uint32{}
	for sum := uint32(0); sum < 8; {
		for _, a := range (<-heard).Answers {
			if a.Pool.Pool != "v4" || a.Count == 0 {
				t.Errorf("told %+v", a)
			}
			total[a.LNN] += a.Count
			sum += a.Count
		}
	}
	for lnn := 1; lnn <= 4; lnn++ {
		if total[lnn] != 2 {
			t.Errorf("told %v, want 2 of each node", total)
		}
	}
}

// TestPanicCostsOneQuery: a fault in answering is counted, logged with the query, and the next query is answered.
func TestPanicCostsOneQuery(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := startServer(t, Options{Registerer: reg}, "127.0.0.1")
	whole := s.answerer.zones.Load()
	s.answerer.zones.Store(nil)
	c := dial(t, s, "tcp", "127.0.0.1")
	send(t, c, framed(asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA}.pack(t)))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the query that panics: %v", err)
	}
	s.answerer.zones.Store(whole)
	if m := askServer(t, s, "127.0.0.1"); len(m.Answers) != 1 {
		t.Errorf("the next query: %+v", m)
	}
	if got := counterValue(t, reg, "holdfast_dns_dropped_total", "panic"); got != 1 {
		t.Errorf("%v panics counted", got)
	}
	if got := counterValue(t, reg, "holdfast_dns_responses_total", "noerror"); got != 1 {
		t.Errorf("%v responses counted", got)
	}
}

// TestPanicsFillNoLog: of faults in answering the first are written down and all are counted.
func TestPanicsFillNoLog(t *testing.T) {
	var log strings.Builder
	reg := prometheus.NewRegistry()
	s := startServer(t, Options{Registerer: reg, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	s.answerer.zones.Store(nil)
	query := asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA}.pack(t)
	for range maxPanicLogs + 5 {
		if out, outcome := s.answer(nil, Request{Message: query, TCP: true}); len(out) != 0 || outcome.Dropped != dropPanic {
			t.Fatalf("a query that panics: %x, %+v", out, outcome)
		}
	}
	if n := strings.Count(log.String(), "this is a fault of the program"); n != maxPanicLogs {
		t.Errorf("%d are in the log, want %d", n, maxPanicLogs)
	}
	if got := counterValue(t, reg, "holdfast_dns_dropped_total", "panic"); got != maxPanicLogs+5 {
		t.Errorf("%v are counted", got)
	}
}

func counterValue(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s of %s", name, label)
	return 0
}

// unlabelled is the value of a counter without labels.
func unlabelled(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// TestCloseEndsEverything: Close may come twice, and a closed server serves no more; nothing runs on (goleak).
func TestCloseEndsEverything(t *testing.T) {
	s := startServer(t, Options{OnAnswered: func(Told) {}}, "127.0.0.1")
	dial(t, s, "tcp", "127.0.0.1")
	s.Close()
	s.Close()
	if err := s.Serve(context.Background(), parseAddresses("127.0.0.1")); err == nil {
		t.Error("a closed server serves")
	}
}

// TestConcurrentUse lets everything that may happen at once happen at once, for the race detector.
func TestConcurrentUse(t *testing.T) {
	s := startServer(t, Options{OnAnswered: func(Told) {}, RateLimit: RateLimit{PerSecond: 1, Burst: 50}}, "127.0.0.1")
	var running sync.WaitGroup
	message := asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA, edns: true}.pack(t)
	for _, act := range []func(int){
		func(int) { s.answer(nil, Request{Message: message, Client: testClient, Service: testService}) },
		func(int) {
			s.answer(nil, Request{Message: message, Client: testClient, Service: testService, TCP: true})
		},
		func(i int) {
			v := testView()
			pool := &v.Zones[0].Pools[0]
			pool.Nodes = pool.Nodes[:1+i%4]
			pool.Nodes[0].Sampled = uint64(i)
			if i%3 == 0 {
				pool.Rotation = cluster.RotationIndependent
			}
			s.SetView(v)
		},
		func(i int) {
			s.Merge(Told{Answers: []Answered{{Pool: testPool("v4", false, 1).ID, LNN: 1 + i%5, Count: 3}}})
		},
		func(int) {
			if _, err := s.Explain("cluster.example.com", dnsmessage.TypeA); err != nil {
				t.Error(err)
			}
		},
		func(int) { s.answerer.Release(testService) },
		func(i int) {
			if err := s.Serve(t.Context(), parseAddresses("127.0.0.1", "127.0.0.2")[:1+i%2]); err != nil {
				t.Error(err)
			}
		},
	} {
		running.Go(func() {
			for i := range 200 {
				act(i)
			}
		})
	}
	running.Wait()
	if m := askServer(t, s, "127.0.0.1"); m.RCode != dnsmessage.RCodeSuccess && !m.Truncated {
		t.Errorf("after all that: %+v", m)
	}
}

// TestDesksKeepAnswering: while views change, other addresses come and go, the server stands still and goes on, and other holders tell of
// their answers, every query to an address that stays is answered, by whichever of its sockets it comes to.
func TestDesksKeepAnswering(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := startServer(t, Options{OnAnswered: func(Told) {}, Registerer: reg, Sockets: 3}, "127.0.0.1")
	const clients, queries = 4, 100
	var asking, changing sync.WaitGroup
	over := make(chan struct{})
	for _, act := range []func(int){
		func(i int) {
			v := testView()
			v.Zones[0].Pools[0].Nodes = v.Zones[0].Pools[0].Nodes[:1+i%4]
			s.SetView(v)
		},
		func(i int) {
			if err := s.Serve(t.Context(), parseAddresses("127.0.0.1", "127.0.0.2")[:1+i%2]); err != nil {
				t.Error(err)
			}
			sockets, err := s.Suspend()
			if err != nil {
				t.Error(err)
			}
			for _, socket := range sockets {
				if err := socket.Close(); err != nil {
					t.Error(err)
				}
			}
			s.Resume()
		},
		func(i int) {
			s.Merge(Told{Answers: []Answered{{Pool: testPool("v4", false, 1).ID, LNN: 1 + i%4, Count: 1}}})
		},
	} {
		changing.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				default:
					act(i)
				}
			}
		})
	}
	for range clients {
		asking.Go(func() {
			for range queries {
				if m := askServer(t, s, "127.0.0.1"); len(m.Answers) != 1 {
					t.Errorf("answer %+v", m)
				}
			}
		})
	}
	asking.Wait()
	close(over)
	changing.Wait()
	for name, label := range map[string]string{"holdfast_dns_queries_total": "udp", "holdfast_dns_responses_total": "noerror"} {
		if got := counterValue(t, reg, name, label); got != clients*queries {
			t.Errorf("%s is %v, of %d", name, got, clients*queries)
		}
	}
}
