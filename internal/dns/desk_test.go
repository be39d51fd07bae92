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

// TestUnsentIsCounted: responses that the kernel does not take are counted, at once, for no query may come after them.
func TestUnsentIsCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := NewServer(Options{Registerer: reg})
	t.Cleanup(s.Close)
	s.SetView(testView())
	socket, err := datagrams.ListenService(netip.MustParseAddrPort("127.0.0.1:0"), 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	local := socket.Local()
	d, err := newDesk(s, local.Addr(), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.close() })
	var dialer net.Dialer
	client, err := dialer.DialContext(t.Context(), "udp", local.String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	send(t, client, asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA}.pack(t))
	n, err := d.socket.Receive()
	if n != 1 || err != nil {
		t.Fatalf("received %d, %v", n, err)
	}
	same, err := d.socket.Share()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(same)
	_ = unix.Shutdown(same, unix.SHUT_WR) // it says that the socket has no peer, and closes this direction
	d.answer(n)
	if got := scraped(t, reg, "holdfast_dns_send_errors_total"); got != 1 {
		t.Errorf("%v responses could not be sent, want 1", got)
	}
}

// scraped is a counter without labels.
func scraped(t *testing.T, reg *prometheus.Registry, name string) float64 {
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
