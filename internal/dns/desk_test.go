package dns

import (
	"net"
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	datagrams "github.com/holdfast/holdfast/internal/linux/udp"
)

// sit makes a desk without a loop, at which a test serves itself, of a server that counts in reg, and a client.
func sit(t *testing.T) (reg *prometheus.Registry, d *desk, client net.Conn) {
	t.Helper()
	reg = prometheus.NewRegistry()
	s := NewServer(Options{Registerer: reg})
	t.Cleanup(s.Close)
	s.SetView(testView())
	socket, err := datagrams.ListenService(netip.MustParseAddrPort("127.0.0.1:0"), 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	local := socket.Local()
	if d, err = newDesk(s, local.Addr(), socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.close() })
	var dialer net.Dialer
	if client, err = dialer.DialContext(t.Context(), "udp", local.String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return reg, d, client
}

// serveOnce answers queries as one batch.
func serveOnce(t *testing.T, d *desk, client net.Conn, queries ...asked) {
	t.Helper()
	for _, q := range queries {
		send(t, client, q.pack(t))
	}
	n, err := d.socket.Receive()
	if n != len(queries) || err != nil {
		t.Fatalf("received %d of %d, %v", n, len(queries), err)
	}
	d.answer(n)
}

// TestUnsentIsCounted: responses that the kernel does not take are counted, at once, for no query may come after them.
func TestUnsentIsCounted(t *testing.T) {
	reg, d, client := sit(t)
	same, err := d.socket.Share()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(same)
	_ = unix.Shutdown(same, unix.SHUT_WR) // it says that the socket has no peer, and closes this direction
	query := asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA}
	serveOnce(t, d, client, query, query)
	if got := unlabelled(t, reg, "holdfast_dns_send_errors_total"); got != 2 {
		t.Errorf("%v responses could not be sent, want 2", got)
	}
}

// TestPanicCostsOneOfABatch: a fault in answering one query is counted and logged with it, and the others of its batch are answered. One in
// reading them has each answered by itself.
func TestPanicCostsOneOfABatch(t *testing.T) {
	reg, d, client := sit(t)
	good, bad := asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA}, asked{name: "plain.example.org.", qtype: dnsmessage.TypeA}
	d.server.answerer.zones.Load().names["\x05plain\x07example\x03org\x00"].v4.options = nil
	serveOnce(t, d, client, good, bad, bad, good, bad)
	for range 2 {
		readDatagram(t, client)
	}
	d.batch.jobs = nil // which reading cannot do without
	serveOnce(t, d, client, good, bad, good)
	for range 2 {
		readDatagram(t, client)
	}
	if got := counterValue(t, reg, "holdfast_dns_dropped_total", "panic"); got != 4 {
		t.Errorf("%v panics counted, want 4", got)
	}
	if got := counterValue(t, reg, "holdfast_dns_responses_total", "noerror"); got != 4 {
		t.Errorf("%v responses counted, want 4", got)
	}
	if got := counterValue(t, reg, "holdfast_dns_queries_total", "udp"); got != 8 {
		t.Errorf("%v queries counted, want 8", got)
	}
}
