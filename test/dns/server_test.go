package dns

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	peer "github.com/miekg/dns"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/dns"
)

// serviceAddresses are those of the subnet of the tests.
var serviceAddresses = addresses("10.10.0.4", "10.10.0.5", "10.10.0.6")

func addresses(texts ...string) (out []netip.Addr) {
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

// siteView has one zone of four nodes with three addresses each, an alias, and a large zone whose answers do not fit
// into 512 octets.
func siteView(services []netip.Addr) *dns.View {
	pool := func(name string, nodes int) dns.Pool {
		p := dns.Pool{ID: cluster.PoolID{Groupnet: "groupnet0", Subnet: "subnet0", Pool: name}, Policy: cluster.RoundRobin}
		for lnn := 1; lnn <= nodes; lnn++ {
			n := dns.Node{LNN: lnn, Name: "node" + strconv.Itoa(lnn), Weight: 1, Eligible: true}
			for i := range 3 {
				n.Addresses = append(n.Addresses, netip.AddrFrom4([4]byte{10, 10, byte(lnn), byte(1 + i)}))
			}
			p.Nodes = append(p.Nodes, n)
		}
		return p
	}
	large := pool("large", 60)
	large.MaxAnswers = 60
	return &dns.View{
		Ready: true, ServerTTL: 900 * time.Second, NegativeTTL: 5 * time.Second, Serial: 7,
		Services: []dns.Service{{Name: "cluster-ns1.company.com", Addresses: services, All: services}},
		Zones: []dns.Zone{
			{Name: "cluster.company.com", Aliases: []string{"files.company.com"}, Wildcard: true, Service: "cluster-ns1.company.com",
				Pools: []dns.Pool{pool("pool0", 4)}},
			{Name: "large.company.com", Service: "cluster-ns1.company.com", Pools: []dns.Pool{large}},
		},
	}
}

// startServer answers the view of the site on some addresses.
func startServer(t *testing.T, port uint16, on []netip.Addr) *dns.Server {
	t.Helper()
	s := dns.NewServer(dns.Options{Port: port})
	t.Cleanup(s.Close)
	s.SetView(siteView(on))
	if err := s.Serve(t.Context(), on); err != nil {
		t.Fatal(err)
	}
	return s
}

// freePort is a port that is free on the loopback addresses at this moment, for UDP and TCP.
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

// question is a query of the peer library.
func question(name string, qtype uint16) *peer.Msg {
	return new(peer.Msg).SetQuestion(name, qtype)
}

// exchange asks at an address and port; the deadline is only reached by a fault.
func exchange(t *testing.T, network string, at netip.AddrPort, m *peer.Msg) *peer.Msg {
	t.Helper()
	c := peer.Client{Net: network, Timeout: 20 * time.Second, UDPSize: 4096}
	r, _, err := c.Exchange(m, at.String())
	if err != nil {
		t.Fatalf("asking %v over %s: %v", at, network, err)
	}
	return r
}

// nodeIn is the node whose address an answer gives; it has to be one address.
func nodeIn(t *testing.T, r *peer.Msg) int {
	t.Helper()
	var found []netip.Addr
	for _, record := range r.Answer {
		if a, ok := record.(*peer.A); ok {
			address, _ := netip.AddrFromSlice(a.A.To4())
			found = append(found, address)
		}
	}
	if r.Rcode != peer.RcodeSuccess || len(found) != 1 {
		t.Fatalf("not an answer with one address: %v", r)
	}
	return int(found[0].As4()[2])
}

// assertEven checks that all nodes were given and none much more often than another.
func assertEven(t *testing.T, counts map[int]int, nodes, spread int) {
	t.Helper()
	var all []int
	for _, n := range counts {
		all = append(all, n)
	}
	if len(all) != nodes || slices.Max(all)-slices.Min(all) > spread {
		t.Errorf("answers by node: %v; want %d nodes, max - min at most %d", counts, nodes, spread)
	}
}
