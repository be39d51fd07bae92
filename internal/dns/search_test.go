package dns

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/cluster"
)

// searchView is two groupnets, one and two, that have the search domains first.test and second.test in common. Their service
// addresses are 10.1.0.4 and 10.2.0.4.
//
//	data.first.test   one; wildcard
//	sub.data.first.test  two; no wildcard
//	data.second.test  two
//	second.test       one; wildcard
func searchView() *View {
	zone := func(groupnet, name string, wildcard bool) Zone {
		p := testPool(name, false, 1)
		p.ID.Groupnet = groupnet
		return Zone{Name: name, Wildcard: wildcard, Pools: []Pool{p}}
	}
	v := &View{Ready: true, Zones: []Zone{
		zone("one", "data.first.test", true), zone("two", "sub.data.first.test", false),
		zone("two", "data.second.test", false), zone("one", "second.test", true),
	}}
	for groupnet, address := range map[string]string{"one": "10.1.0.4", "two": "10.2.0.4"} {
		v.Services = append(v.Services, Service{Subnet: cluster.SubnetID{Groupnet: groupnet, Subnet: "subnet0"}, All: []netip.Addr{netip.MustParseAddr(address)}})
		v.Searches = append(v.Searches, Search{Groupnet: groupnet, Domains: []string{"first.test", "second.test"}})
	}
	return v
}

// TestSearchDomainsOfGroupnets: the service address that is asked says whose search domains and whose names count.
func TestSearchDomainsOfGroupnets(t *testing.T) {
	a := newTestAnswerer(t, searchView(), AnswererOptions{})
	none := searchView()
	none.Searches = nil
	without := newTestAnswerer(t, none, AnswererOptions{})
	long := strings.Repeat(strings.Repeat("x", 63)+".", 3) + strings.Repeat("x", 46) + ".data."
	for _, c := range []struct {
		why, service, name, from string // from: the zone whose SOA a TXT question is answered with; empty: REFUSED
	}{
		{"the first domain decides", "10.1.0.4", "data.", "data.first.test"},
		{"a name of another groupnet is passed over", "10.2.0.4", "data.", "data.second.test"},
		{"at any depth below a wildcard", "10.1.0.4", "a.b.data.", "data.first.test"},
		{"which ends where another groupnet's name begins", "10.1.0.4", "x.sub.data.", ""},
		{"as it does for the one that has the name", "10.2.0.4", "x.sub.data.", ""},
		{"a name of two labels", "10.2.0.4", "sub.data.", "sub.data.first.test"},
		{"a wildcard at the search domain: one label", "10.1.0.4", "anything.", "second.test"},
		{"but not every name in the world", "10.1.0.4", "www.anything.", ""},
		{"the wildcard of another groupnet", "10.2.0.4", "anything.", ""},
		{"an address that is no service address", "10.3.0.4", "data.", ""},
		{"completed it would be longer than a name may be", "10.1.0.4", long, ""},
		{"one octet less and it would not", "10.1.0.4", strings.Replace(long, "x", "", 1), "data.first.test"},
	} {
		t.Run(c.why, func(t *testing.T) {
			request := udp(asked{name: c.name, qtype: tTXT}.pack(t))
			request.Service = netip.MustParseAddr(c.service)
			m := ask(t, a, request)
			if c.from == "" {
				if m.RCode != refusedCode || m.Authoritative || len(m.Authorities) > 0 {
					t.Errorf("%v, AA %v, %s", m.RCode, m.Authoritative, text(m.Authorities))
				}
			} else if m.RCode != noError || !strings.Contains(text(m.Authorities), " hostmaster."+c.from+".") {
				t.Errorf("%v, %s; want an answer from %s", m.RCode, text(m.Authorities), c.from)
			}
			if m := ask(t, without, request); m.RCode != refusedCode {
				t.Errorf("without search domains: %v", m.RCode)
			}
		})
	}
}

// TestSearchAllocatesNothing: neither a name that is found directly, nor one that is completed, nor one that is not.
func TestSearchAllocatesNothing(t *testing.T) {
	a := newTestAnswerer(t, testView(), AnswererOptions{})
	buffer := make([]byte, 0, 512)
	for _, name := range []string{"cluster.example.com.", "cluster.", "bucket.cluster.", "www.company.test."} {
		request := udp(asked{name: name, qtype: dnsmessage.TypeA}.pack(t))
		a.Answer(buffer, request)
		if n := testing.AllocsPerRun(100, func() { a.Answer(buffer, request) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestExplainSearch says how a short name is completed, and refuses one that is not.
func TestExplainSearch(t *testing.T) {
	a := newTestAnswerer(t, searchView(), AnswererOptions{})
	d, err := a.Explain("data", dnsmessage.TypeA, testNow)
	if err != nil || d.Chosen != "10.0.1.1 (node1)" || !strings.HasPrefix(d.Reason, "in no zone; asked at 10.1.0.4 it is completed to data.first.test (dns-search)") {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := a.Explain("nothing.here", dnsmessage.TypeA, testNow); err == nil || !strings.Contains(err.Error(), "REFUSED") {
		t.Errorf("%+v, %v", d, err)
	}
}

// FuzzSearch: whatever is asked, the question comes back as it was, and every record is owned by the end of it.
func FuzzSearch(f *testing.F) {
	for _, name := range []string{"\x04data\x00", "\x01a\x04data\x00", "\x08anything\x00", "\x03sub\x04data\x00", "\x00"} {
		f.Add([]byte(name), uint16(dnsmessage.TypeA))
		f.Add([]byte(name), uint16(typeDS))
	}
	a := NewAnswerer(AnswererOptions{RateLimit: RateLimit{Off: true}}) // its clock stands still
	a.SetView(searchView())
	f.Fuzz(func(t *testing.T, name []byte, qtype uint16) {
		message := append([]byte("\x12\x34\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00"), name...)
		message = append(message, byte(qtype>>8), byte(qtype), 0, 1)
		request := udp(message)
		request.Service = netip.MustParseAddr("10.1.0.4")
		var q query
		if q.read(message) != nil || q.nameLen != len(name) {
			return // not one name
		}
		wire, _ := a.Answer(nil, request)
		if !bytes.HasPrefix(wire[headerSize:], message[headerSize:headerSize+len(name)+4]) {
			t.Fatalf("the question is not echoed: %x", wire)
		}
		var p dnsmessage.Parser
		if _, err := p.Start(wire); err != nil {
			t.Fatal(err)
		}
		if records := wire[len(message):]; len(records) > 0 {
			at := int(records[0]&0x3f)<<8 | int(records[1])
			if records[0]&0xc0 != 0xc0 || at < headerSize || at >= headerSize+len(name)-1 {
				t.Fatalf("the owner of the first record is at %d of a name of %d: %x", at, len(name), wire)
			}
		}
	})
}
