package dns

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/cluster"
)

// testNow is when all queries of the tests are asked.
var testNow = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

var testClient, testService = netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("10.0.0.4")

// testPool is a pool of nodes with two addresses each: node n has 10.0.n.1 and 10.0.n.2, or the like in IPv6.
func testPool(name string, ipv6 bool, nodes int) Pool {
	p := Pool{ID: cluster.PoolID{Groupnet: "groupnet0", Subnet: "subnet0", Pool: name}, Policy: cluster.RoundRobin, IPv6: ipv6}
	for lnn := 1; lnn <= nodes; lnn++ {
		pattern := "10.0.%d.%d"
		if ipv6 {
			pattern = "2001:db8:0:%d::%d"
		}
		p.Nodes = append(p.Nodes, Node{
			LNN: lnn, Name: fmt.Sprintf("node%d", lnn), Weight: 1, Eligible: true,
			Addresses: []netip.Addr{netip.MustParseAddr(fmt.Sprintf(pattern, lnn, 1)), netip.MustParseAddr(fmt.Sprintf(pattern, lnn, 2))},
		})
	}
	return p
}

// testView has one zone of each kind:
//
//	cluster.example.com     IPv4 and IPv6, wildcard, alias files.example.com
//	plain.example.org       IPv4 only, no wildcard; its service name ns.deep.plain.example.org lies inside it
//	sub.plain.example.org   a zone of its own inside the other
//	nobody.example.net      a pool without an eligible node
//
//	10.in-addr.arpa         names of the addresses of the first two, and of service addresses; 3.0.10.in-addr.arpa is a zone of its own inside
//	2001:db8::/32           the same in IPv6
//
// Its search domains complete names that are in none of them.
func testView() *View {
	nobody := testPool("nobody", false, 2)
	for i := range nobody.Nodes {
		nobody.Nodes[i].Eligible, nobody.Nodes[i].Why = false, "suspended by the operator"
	}
	addresses := func(texts ...string) (out []netip.Addr) {
		for _, text := range texts {
			out = append(out, netip.MustParseAddr(text))
		}
		return out
	}
	subnet := cluster.SubnetID{Groupnet: "groupnet0", Subnet: "subnet0"}
	return &View{
		Searches: []Search{{Groupnet: "groupnet0", Domains: []string{"example.com", "Plain.Example.org", "example.net."}}},
		Ready:    true, ServerTTL: 900 * time.Second, NegativeTTL: 5 * time.Second, Serial: 42,
		Services: []Service{
			{Subnet: subnet, Name: "ssip.example.com", Addresses: addresses("10.0.0.4", "10.0.0.5"), All: addresses("10.0.0.4", "10.0.0.5", "10.0.0.6")},
			{Subnet: subnet, Name: "SSIP.example.com.", Addresses: addresses("2001:db8::4"), All: addresses("2001:db8::4")},
			{Subnet: subnet, Name: "ns.deep.plain.example.org", Addresses: addresses("10.0.0.7"), All: addresses("10.0.0.7")},
		},
		Zones: []Zone{
			{Name: "Cluster.Example.com", Aliases: []string{"files.example.com"}, Wildcard: true, Service: "ssip.example.com",
				Pools: []Pool{testPool("v4", false, 4), testPool("v6", true, 3)}},
			{Name: "plain.example.org", Service: "ns.deep.plain.example.org", Pools: []Pool{testPool("plain", false, 2)}},
			{Name: "sub.plain.example.org", Service: "ns.deep.plain.example.org", Pools: []Pool{testPool("sub", false, 2)}},
			{Name: "nobody.example.net", Service: "ssip.example.com", Pools: []Pool{nobody}},
		},
		Reverse: testReverse(),
	}
}

func testReverse() []Reverse {
	names := func(texts ...string) (out []cluster.ReverseName) {
		for i := 0; i < len(texts); i += 2 {
			r, err := cluster.ParseRange(texts[i])
			if err != nil {
				panic(err)
			}
			out = append(out, cluster.ReverseName{Range: r, Name: texts[i+1]})
		}
		return out
	}
	zone := func(text string) cluster.ReverseZone {
		z, err := cluster.ParseReverseZone(text)
		if err != nil {
			panic(err)
		}
		return z
	}
	return []Reverse{
		{Zone: zone("10.in-addr.arpa"), Service: "ssip.example.com", Names: names("10.0.1.1-10.0.2.2", "Cluster.Example.com", "10.0.0.4-10.0.0.6", "ssip.example.com",
			"9.255.255.250-10.0.0.1", "before.example.com")},
		{Zone: zone("3.0.10.in-addr.arpa"), Service: "ssip.example.com", Names: names("10.0.2.250-10.0.3.2", "plain.example.org")},
		{Zone: zone("0-127.5.0.192.in-addr.arpa"), Service: "ssip.example.com", Names: names("192.0.5.7-192.0.5.200", "files.example.com")},
		{Zone: zone("9.5.0.192.in-addr.arpa"), Service: "ssip.example.com", Names: names("192.0.5.7-192.0.5.200", "files.example.com")},
		{Zone: zone("8.b.d.0.1.0.0.2.ip6.arpa"), Names: names("2001:db8:0:1::1-2001:db8:0:1::2", "cluster.example.com", "2001:db8::4", "ssip.example.com")},
	}
}

func newTestAnswerer(t testing.TB, v *View, o AnswererOptions) *Answerer {
	t.Helper()
	if o.CookieSecrets == nil {
		o.CookieSecrets = []CookieSecret{{1, 2, 3}}
	}
	a := NewAnswerer(o)
	if faults := a.SetView(v); len(faults) > 0 {
		t.Fatalf("the view of the test is refused: %v", faults)
	}
	return a
}

// asked describes a query to be packed.
type asked struct {
	name    string
	qtype   dnsmessage.Type
	class   dnsmessage.Class    // default IN
	opcode  dnsmessage.OpCode   // default QUERY
	edns    bool                // with an OPT record
	version uint8               // of EDNS
	do      bool                // DNSSEC OK
	udpSize int                 // default 1232
	options []dnsmessage.Option // of the OPT record
	rd      bool
}

// pack writes the query with the library.
func (q asked) pack(t testing.TB) []byte {
	t.Helper()
	if q.class == 0 {
		q.class = dnsmessage.ClassINET
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 0x1234, OpCode: q.opcode, RecursionDesired: q.rd},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(q.name), Type: q.qtype, Class: q.class}},
	}
	if q.edns {
		if q.udpSize == 0 {
			q.udpSize = 1232
		}
		h := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("."), Class: dnsmessage.Class(q.udpSize), TTL: uint32(q.version) << 16}
		if q.do {
			h.TTL |= 0x8000
		}
		m.Additionals = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{Options: q.options}}}
	}
	wire, err := m.Pack()
	if err != nil {
		t.Fatalf("packing the query: %v", err)
	}
	return wire
}

// udp asks over UDP.
func udp(message []byte) Request {
	return Request{Message: message, Client: testClient, Service: testService, Now: testNow}
}

// tcp asks over TCP.
func tcp(message []byte) Request {
	r := udp(message)
	r.TCP = true
	return r
}

// ask answers one query and unpacks the response with the library.
func ask(t testing.TB, a *Answerer, req Request) dnsmessage.Message {
	t.Helper()
	wire, outcome := a.Answer(nil, req)
	if outcome.Dropped != DropNone {
		t.Fatalf("the query is dropped: %s", outcome.Dropped)
	}
	var m dnsmessage.Message
	if err := m.Unpack(wire); err != nil {
		t.Fatalf("the response does not unpack: %v\n%x", err, wire)
	}
	return m
}

// askFor asks a plain question over UDP.
func askFor(t testing.TB, a *Answerer, name string, qtype dnsmessage.Type) dnsmessage.Message {
	t.Helper()
	return ask(t, a, udp(asked{name: name, qtype: qtype}.pack(t)))
}

// rcodeOf is the whole response code, with the upper bits from the OPT record.
func rcodeOf(m dnsmessage.Message) dnsmessage.RCode {
	for _, r := range m.Additionals {
		if r.Header.Type == dnsmessage.TypeOPT {
			return r.Header.ExtendedRCode(m.RCode)
		}
	}
	return m.RCode
}

// text writes records as "owner TTL type data", sorted, without OPT.
func text(records []dnsmessage.Resource) string {
	var out []string
	for _, r := range records {
		var data string
		switch b := r.Body.(type) {
		case *dnsmessage.AResource:
			data = netip.AddrFrom4(b.A).String()
		case *dnsmessage.AAAAResource:
			data = netip.AddrFrom16(b.AAAA).String()
		case *dnsmessage.NSResource:
			data = b.NS.String()
		case *dnsmessage.PTRResource:
			data = b.PTR.String()
		case *dnsmessage.SOAResource:
			data = fmt.Sprintf("%v %v %d min %d", b.NS, b.MBox, b.Serial, b.MinTTL)
		case *dnsmessage.OPTResource:
			continue
		case *dnsmessage.UnknownResource:
			data = fmt.Sprintf("%q", b.Data)
		}
		out = append(out, fmt.Sprintf("%v %d %s %s", r.Header.Name, r.Header.TTL, strings.TrimPrefix(r.Header.Type.String(), "Type"), data))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// addressesOf are the addresses in the answer section, in their order.
func addressesOf(m dnsmessage.Message) (out []netip.Addr) {
	for _, r := range m.Answers {
		switch b := r.Body.(type) {
		case *dnsmessage.AResource:
			out = append(out, netip.AddrFrom4(b.A))
		case *dnsmessage.AAAAResource:
			out = append(out, netip.AddrFrom16(b.AAAA))
		}
	}
	return out
}

// nodeOf is the node of testPool that has an address, 0 when there is none.
func nodeOf(a netip.Addr) int {
	if a.Is4() {
		return int(a.As4()[2])
	}
	sixteen := a.As16()
	return int(binary.BigEndian.Uint16(sixteen[6:]))
}
