package dns

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/bubble"
)

func newTestStreams(t *testing.T, limits TCPLimits) *streams {
	t.Helper()
	a := newTestAnswerer(t, testView(), AnswererOptions{})
	m := newMetrics(nil, a)
	return newStreams(limits, m, func(dst []byte, req Request) ([]byte, Outcome) {
		req.Now = testNow
		return a.Answer(dst, req)
	})
}

// connect gives a client's end of a connection that is served, and a channel that is closed when serving ends.
func connect(s *streams) (net.Conn, <-chan struct{}) {
	client, server := net.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer server.Close()
		s.serve(server, testClient, testService)
	}()
	return client, ended
}

// framed puts the length before a message.
func framed(message []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)
}

// write gives a client that sends some octets, as far as they are taken.
func write(data []byte) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = c.Write(data)
	}
}

// readFramed reads one message.
func readFramed(t *testing.T, c io.Reader) dnsmessage.Message {
	t.Helper()
	var length [2]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		t.Fatalf("reading a length: %v", err)
	}
	wire := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(c, wire); err != nil {
		t.Fatalf("reading a message: %v", err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(wire); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestPipelining: queries sent ahead are answered in their order on one connection (RFC 7766 section 6.2.1.1).
func TestPipelining(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newTestStreams(t, TCPLimits{})
		c, ended := connect(s)
		const count = 20
		var ahead []byte
		for i := range count {
			message := asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA}.pack(t)
			binary.BigEndian.PutUint16(message, uint16(i))
			ahead = append(ahead, framed(message)...)
		}
		go write(ahead)(c)
		for i := range count {
			if m := readFramed(t, c); m.ID != uint16(i) || len(m.Answers) != 1 || nodeOf(addressesOf(m)[0]) != i%4+1 {
				t.Fatalf("response %d is %+v", i, m)
			}
		}
		c.Close()
		<-ended
	})
}

// TestStreamEnds: what ends a connection, and after how long.
func TestStreamEnds(t *testing.T) {
	query := framed(asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA}.pack(t))
	trickle := func(c net.Conn) {
		for i := range query {
			if _, err := c.Write(query[i : i+1]); err != nil {
				return
			}
			time.Sleep(500 * time.Millisecond)
		}
	}
	for _, c := range []struct {
		why    string
		client func(net.Conn)
		after  time.Duration
		taken  int // other connections that are open
	}{
		{"nothing is sent", func(net.Conn) {}, 10 * time.Second, 0},
		{"nothing is sent while connections are short", func(net.Conn) {}, time.Second, 600},
		{"half a length", write(query[:1]), 2 * time.Second, 0},
		{"half a query", write(query[:20]), 2 * time.Second, 0},
		{"a query octet by octet does not earn more time", trickle, 2 * time.Second, 0},
		{"a length of 65,535", write([]byte{0xff, 0xff}), 0, 0},
		{"a length of 0", write([]byte{0, 0}), 0, 0},
		{"a response", write(framed([]byte("\x12\x34\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00"))), 0, 0},
		{"the response is not taken", write(query), 2 * time.Second, 0},
		{"the client goes", func(c net.Conn) { c.Close() }, 0, 0},
		{"a query, and then nothing", func(c net.Conn) { write(query)(c); readFramed(t, c) }, 10 * time.Second, 0},
	} {
		t.Run(c.why, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := newTestStreams(t, TCPLimits{})
				s.open = c.taken
				began := time.Now()
				conn, ended := connect(s)
				var client sync.WaitGroup
				client.Go(func() { c.client(conn) })
				<-ended
				if got := time.Since(began); got != c.after {
					t.Errorf("ends after %v, want %v", got, c.after)
				}
				conn.Close()
				client.Wait()
			})
		})
	}
}

// TestStreamLimits: beyond the limits connections are refused, by name, and one that leaves makes room.
func TestStreamLimits(t *testing.T) {
	s := newTestStreams(t, TCPLimits{Connections: 3, PerClient: 2, Settled: time.Hour})
	other := netip.MustParseAddr("192.0.2.99")
	var conns []net.Conn
	for i, c := range []struct {
		client netip.Addr
		admit  bool
	}{{testClient, true}, {testClient, true}, {testClient, false}, {other, true}, {other, false}} {
		conn, _ := net.Pipe()
		conns = append(conns, conn)
		if got := s.admit(conn, c.client); got != c.admit {
			t.Errorf("connection %d: admitted %v", i, got)
		}
	}
	s.leave(conns[0], testClient)
	if !s.admit(conns[4], other) || s.open != 3 || len(s.clients) != 2 {
		t.Errorf("after one left: %d open, clients %v", s.open, s.clients)
	}
	for _, i := range []int{3, 4} {
		s.leave(conns[i], other)
	}
	s.leave(conns[1], testClient)
	if s.open != 0 || len(s.clients) != 0 || s.waiting.order.Len() != 0 || len(s.waiting.places) != 0 {
		t.Errorf("all left, and there are %d, %v", s.open, s.clients)
	}
}

// TestSilentStreamsMakeRoom: where all places are taken, the connection that has been silent for longest gives its place to a new one;
// one that was just answered, or has just come, keeps it; and what has made room is counted once.
func TestSilentStreamsMakeRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newTestStreams(t, TCPLimits{Connections: 3, Settled: time.Second})
		crowd := netip.MustParseAddr("192.0.2.99")
		var conns [5]net.Conn
		for i := range conns {
			conns[i], _ = net.Pipe()
		}
		closed := func(i int) bool { return conns[i].SetDeadline(time.Time{}) != nil }
		for i := range 3 {
			if !s.admit(conns[i], crowd) {
				t.Fatalf("connection %d is refused", i)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if s.admit(conns[3], testClient) || closed(0) {
			t.Fatal("one that has just come has to make room")
		}
		time.Sleep(time.Second)
		s.answered(conns[0])
		if !s.admit(conns[3], testClient) || closed(0) || !closed(1) || closed(2) {
			t.Fatalf("not the one that has been silent for longest makes room: closed %v %v %v", closed(0), closed(1), closed(2))
		}
		s.leave(conns[1], crowd) // as whoever served it does when it finds it closed
		if s.open != 3 || s.clients[crowd] != 2 || s.clients[testClient] != 1 {
			t.Errorf("%d open, clients %v", s.open, s.clients)
		}
		if !s.admit(conns[4], testClient) || !closed(2) || s.admit(conns[1], crowd) {
			t.Error("room is made once, and then for one who was answered lately")
		}
	})
}

// TestStreamsOfOneNetwork: an IPv6 host has all addresses of a /64, and no more connections for it; the next /64 is another's.
func TestStreamsOfOneNetwork(t *testing.T) {
	s := newTestStreams(t, TCPLimits{PerClient: 2})
	var conns []net.Conn
	for i, c := range []struct {
		client string
		admit  bool
	}{{"2001:db8::1", true}, {"2001:db8::ffff:0:0:1", true}, {"2001:db8::2", false}, {"2001:db8:0:1::1", true}, {"192.0.2.1", true}, {"192.0.2.2", true}} {
		conn, _ := net.Pipe()
		conns = append(conns, conn)
		if got := s.admit(conn, netip.MustParseAddr(c.client)); got != c.admit {
			t.Errorf("connection %d: admitted %v", i, got)
		}
	}
	s.leave(conns[1], netip.MustParseAddr("2001:db8::ffff:0:0:1"))
	if !s.admit(conns[2], netip.MustParseAddr("2001:db8::2")) {
		t.Error("after one has left, the next is refused")
	}
}
