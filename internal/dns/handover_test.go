package dns

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
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

// TestHandedOverToAnotherNumber: a server that opens more sockets of its own, or fewer, answers what waits in each of those that it was
// given, and what comes after; one that could share its port with nobody is served alone.
func TestHandedOverToAnotherNumber(t *testing.T) {
	for _, c := range []struct{ before, after, want int }{{1, 3, 3}, {4, 2, 4}, {3, 3, 3}} {
		t.Run(fmt.Sprint(c.before, " to ", c.after), func(t *testing.T) {
			first := startServer(t, Options{Sockets: c.before}, "127.0.0.11")
			sockets, err := first.Suspend()
			if err != nil {
				t.Fatal(err)
			}
			var waiting []net.Conn
			for range 40 { // enough that some wait in each of four sockets, for which the kernel chooses by the port
				waiting = append(waiting, dial(t, first, "udp", "127.0.0.11"))
				send(t, waiting[len(waiting)-1], asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA}.pack(t))
			}
			second := NewServer(Options{Port: first.port, Sockets: c.after})
			t.Cleanup(second.Close)
			second.SetView(testView())
			second.Inherit(sockets)
			if err := second.Serve(t.Context(), parseAddresses("127.0.0.11")); err != nil {
				t.Fatal(err)
			}
			if got := len(second.listeners[parseAddresses("127.0.0.11")[0]].desks); got != c.want {
				t.Errorf("%d sockets become %d, want %d", c.before, got, c.want)
			}
			for _, connection := range waiting {
				readDatagram(t, connection)
			}
			first.Close()
			for range 40 {
				askServer(t, second, "127.0.0.11")
			}
		})
	}
}

// TestHandedOverFromOneAlone: a socket that does not share its port, as earlier versions opened it, is served alone.
func TestHandedOverFromOneAlone(t *testing.T) {
	port := freePort(t)
	var config net.ListenConfig
	packets, err := config.ListenPacket(t.Context(), "udp4", netip.AddrPortFrom(parseAddresses("127.0.0.11")[0], port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	streams, err := config.Listen(t.Context(), "tcp4", packets.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer streams.Close()
	udpFile, err := packets.(*net.UDPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer udpFile.Close()
	tcpFile, err := streams.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer tcpFile.Close()
	socket := Socket{Address: parseAddresses("127.0.0.11")[0]}
	for file, into := range map[*os.File]*int{udpFile: new(int), tcpFile: &socket.TCP} {
		if *into, err = unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
		if file == udpFile {
			socket.UDP = []int{*into}
		}
	}
	s := NewServer(Options{Port: port, Sockets: 2})
	t.Cleanup(s.Close)
	s.SetView(testView())
	s.Inherit([]Socket{socket})
	if err := s.Serve(t.Context(), parseAddresses("127.0.0.11")); err != nil {
		t.Fatal(err)
	}
	if got := len(s.listeners[socket.Address].desks); got != 1 {
		t.Errorf("%d sockets, want the one", got)
	}
	askServer(t, s, "127.0.0.11")
}
