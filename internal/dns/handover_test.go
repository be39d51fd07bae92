package dns

import (
	"net"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// TestHandedOver: queries that come while one server has stopped and the next has not begun are answered by the next, over UDP and TCP, and
// a connection that is open is served on by the first.
func TestHandedOver(t *testing.T) {
	first := startServer(t, Options{}, "127.0.0.11")
	query := asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA}.pack(t)
	open := dial(t, first, "tcp", "127.0.0.11")
	send(t, open, framed(query))
	readFramed(t, open)
	sockets, err := first.Suspend()
	if err != nil {
		t.Fatal(err)
	}
	send(t, open, framed(query))
	readFramed(t, open)
	udp, tcp := dial(t, first, "udp", "127.0.0.11"), dial(t, first, "tcp", "127.0.0.11")
	send(t, udp, query)
	send(t, tcp, framed(query))

	second := NewServer(Options{Port: first.port})
	t.Cleanup(second.Close)
	second.SetView(testView())
	second.Inherit(sockets)
	if err := second.Serve(t.Context(), parseAddresses("127.0.0.11")); err != nil {
		t.Fatal(err)
	}
	readDatagram(t, udp)
	readFramed(t, tcp)
	first.Close()
	if m := askServer(t, second, "127.0.0.11"); len(m.Answers) != 1 {
		t.Errorf("it answers %+v", m)
	}
}

// TestSuspendedAndResumed: a server whose successor failed answers what came meanwhile.
func TestSuspendedAndResumed(t *testing.T) {
	s := startServer(t, Options{}, "127.0.0.11")
	for range 2 {
		sockets, err := s.Suspend()
		if err != nil {
			t.Fatal(err)
		}
		c := dial(t, s, "udp", "127.0.0.11")
		send(t, c, asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA}.pack(t))
		for _, socket := range sockets {
			if err := socket.Close(); err != nil {
				t.Error(err)
			}
		}
		s.Resume()
		readDatagram(t, c)
	}
}

func readDatagram(t *testing.T, c net.Conn) {
	t.Helper()
	wire := make([]byte, 2000)
	n, err := c.Read(wire)
	if err != nil {
		t.Fatalf("no response: %v", err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(wire[:n]); err != nil {
		t.Fatal(err)
	}
}
