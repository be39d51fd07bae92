package dns

import (
	"encoding/hex"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	peer "github.com/miekg/dns"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/dns"
)

// TestSecondOpinion reads every response to a matrix of queries with another library, and has it pack what it
// understood again: nothing may be lost, so that both agree on each field.
func TestSecondOpinion(t *testing.T) {
	on := addresses("127.0.0.31")
	port := freePort(t)
	startServer(t, port, on)
	at := netip.AddrPortFrom(on[0], port)
	names := []string{"cluster.company.com.", "CLUSTER.company.COM.", "bucket.cluster.company.com.", "files.company.com.",
		"large.company.com.", "x.large.company.com.", "cluster-ns1.company.com.", "ns1-cluster-ns1.company.com.", "company.com.", "."}
	types := []uint16{peer.TypeA, peer.TypeAAAA, peer.TypeNS, peer.TypeSOA, peer.TypeTXT, peer.TypeANY, peer.TypeDS, peer.TypeHTTPS, 65280}
	for _, name := range names {
		for _, qtype := range types {
			for _, network := range []string{"udp", "tcp"} {
				for _, edns := range []bool{false, true} {
					m := question(name, qtype)
					if edns {
						m.SetEdns0(1232, true)
					}
					r := exchange(t, network, at, m)
					compareAgain(t, m, r)
				}
			}
		}
	}
}

// compareAgain checks what holds for any response, and that it survives being packed and read once more.
func compareAgain(t *testing.T, m, r *peer.Msg) {
	t.Helper()
	q := m.Question[0]
	if r.Id != m.Id || !r.Response || len(r.Question) != 1 || r.Question[0] != q {
		t.Errorf("%s: the response is to something else: %v", q.String(), r)
	}
	if (r.IsEdns0() != nil) != (m.IsEdns0() != nil) {
		t.Errorf("%s: OPT record in the query: %v, in the response: %v", q.String(), m.IsEdns0(), r.IsEdns0())
	}
	if o := r.IsEdns0(); o != nil && (!o.Do() || o.UDPSize() != 1232 || o.Version() != 0 || len(o.Option) != 0) {
		t.Errorf("%s: OPT %v", q.String(), o)
	}
	for _, record := range append(append(r.Answer, r.Ns...), r.Extra...) {
		if record.Header().Rrtype == peer.TypeOPT {
			continue
		}
		if record.Header().Class != peer.ClassINET || !peer.IsSubDomain(peer.CanonicalName("company.com."), peer.CanonicalName(record.Header().Name)) {
			t.Errorf("%s: stray record %v", q.String(), record)
		}
	}
	wire, err := r.Pack()
	if err != nil {
		t.Fatalf("%s: the other library cannot pack what it read: %v", q.String(), err)
	}
	again := new(peer.Msg)
	if err := again.Unpack(wire); err != nil || again.String() != r.String() {
		t.Errorf("%s: %v\n%v\n%v", q.String(), err, r, again)
	}
}

// TestCookieAndSubnetOfThePeer uses the peer's own packing of both options.
func TestCookieAndSubnetOfThePeer(t *testing.T) {
	on := addresses("127.0.0.31")
	port := freePort(t)
	s := startServer(t, port, on)
	view := siteView(on)
	view.Zones[0].Pools[0].Affinity = cluster.AffinityPrefix
	s.SetView(view)
	at := netip.AddrPortFrom(on[0], port)
	ask := func(client string, cookie string) (*peer.Msg, *peer.EDNS0_SUBNET, string) {
		m := question("cluster.company.com.", peer.TypeA).SetEdns0(1232, false)
		o := m.IsEdns0()
		o.Option = append(o.Option, &peer.EDNS0_COOKIE{Code: peer.EDNS0COOKIE, Cookie: cookie},
			&peer.EDNS0_SUBNET{Code: peer.EDNS0SUBNET, Family: 1, SourceNetmask: 24, Address: net.ParseIP(client).To4()})
		r := exchange(t, "udp", at, m)
		var subnet *peer.EDNS0_SUBNET
		var server string
		for _, option := range r.IsEdns0().Option {
			switch option := option.(type) {
			case *peer.EDNS0_SUBNET:
				subnet = option
			case *peer.EDNS0_COOKIE:
				server = option.Cookie
			}
		}
		return r, subnet, server
	}
	nodes := map[int]bool{}
	for i := range 40 {
		client := netip.AddrFrom4([4]byte{100, 64, byte(i), 0}).String()
		first, subnet, cookie := ask(client, hex.EncodeToString([]byte("12345678")))
		if subnet == nil || subnet.SourceScope != 24 || subnet.SourceNetmask != 24 || subnet.Address.String() != client {
			t.Fatalf("client subnet comes back as %v", subnet)
		}
		second, _, again := ask(client, cookie)
		if nodeIn(t, first) != nodeIn(t, second) || len(cookie) != 48 || again != cookie {
			t.Fatalf("client %s: %v, then %v; cookies %s, %s", client, first.Answer, second.Answer, cookie, again)
		}
		nodes[nodeIn(t, first)] = true
	}
	if len(nodes) != 4 {
		t.Errorf("40 client prefixes get the nodes %v", nodes)
	}
}

// TestTruncationAndRetry: the peer's stock way of asking again over TCP gets the whole answer.
func TestTruncationAndRetry(t *testing.T) {
	on := addresses("127.0.0.31")
	port := freePort(t)
	startServer(t, port, on)
	at := netip.AddrPortFrom(on[0], port)
	if r := exchange(t, "udp", at, question("large.company.com.", peer.TypeA)); !r.Truncated || len(r.Answer) != 0 {
		t.Fatalf("over UDP: TC %v, %d answers", r.Truncated, len(r.Answer))
	}
	if r := exchange(t, "tcp", at, question("large.company.com.", peer.TypeA)); r.Truncated || len(r.Answer) != 60 {
		t.Errorf("over TCP: TC %v, %d answers", r.Truncated, len(r.Answer))
	}
}

// TestConnectionIsKept: one connection carries many queries of the peer (RFC 7766 section 6.2.1).
func TestConnectionIsKept(t *testing.T) {
	on := addresses("127.0.0.31")
	port := freePort(t)
	startServer(t, port, on)
	c, err := peer.DialTimeout("tcp", netip.AddrPortFrom(on[0], port).String(), 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	counts := map[int]int{}
	for range 100 {
		if err := c.WriteMsg(question("cluster.company.com.", peer.TypeA)); err != nil {
			t.Fatal(err)
		}
		r, err := c.ReadMsg()
		if err != nil {
			t.Fatal(err)
		}
		counts[nodeIn(t, r)]++
	}
	assertEven(t, counts, 4, 0)
}

// TestDelegationIsReadByThePeer: the records for BIND are a master file to another reader too, and ask for exactly the
// servers that answer.
func TestDelegationIsReadByThePeer(t *testing.T) {
	for _, separate := range []bool{false, true} {
		printed, err := dns.Delegation(site(separate), "bind")
		if err != nil {
			t.Fatal(err)
		}
		parser := peer.NewZoneParser(strings.NewReader(printed), "company.com.", "")
		count := map[uint16]int{}
		for record, ok := parser.Next(); ok; record, ok = parser.Next() {
			count[record.Header().Rrtype]++
		}
		if err := parser.Err(); err != nil {
			t.Error(err)
		}
		servers := 1
		if separate {
			servers = len(serviceAddresses)
		}
		if count[peer.TypeNS] != 2*servers || count[peer.TypeA] != 3 {
			t.Errorf("separate names %v: records %v", separate, count)
		}
	}
}

// site is what the site's DNS is told.
func site(separate bool) dns.DelegationInput {
	return dns.DelegationInput{Zones: []string{"cluster.company.com", "files.company.com"}, Service: "cluster-ns1.company.com",
		Addresses: serviceAddresses, TTL: 900 * time.Second, SeparateNames: separate}
}
