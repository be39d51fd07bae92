package dns

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/cluster"
)

const tPTR = dnsmessage.TypePTR

// TestReverseNames is the table of what names of addresses are answered.
func TestReverseNames(t *testing.T) {
	a := newTestAnswerer(t, testView(), AnswererOptions{RateLimit: RateLimit{Off: true}})
	const soa4, soa6 = "10.in-addr.arpa. 5 SOA ssip.example.com. hostmaster.example.com. 42 min 5",
		"8.b.d.0.1.0.0.2.ip6.arpa. 5 SOA 8.b.d.0.1.0.0.2.ip6.arpa. hostmaster.8.b.d.0.1.0.0.2.ip6.arpa. 42 min 5"
	const zeros = "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0."
	soaOf := func(zone string) string { return strings.Replace(soa4, "10.in-addr.arpa.", zone, 1) }
	for _, c := range []struct {
		why               string
		name              string
		qtype             dnsmessage.Type
		rcode             dnsmessage.RCode
		answer, authority string
	}{
		{"an address of a pool has the name of its zone (RFC 1035 section 3.5)", "1.1.0.10.in-addr.arpa.", tPTR, noError, "1.1.0.10.in-addr.arpa. 900 PTR cluster.example.com.", ""},
		{"and a service address the service name", "5.0.0.10.in-addr.arpa.", tPTR, noError, "5.0.0.10.in-addr.arpa. 900 PTR ssip.example.com.", ""},
		{"letters of any case, and the question comes back as it was (RFC 4343)", "1.1.0.10.In-aDDr.ARPA.", tPTR, noError, "1.1.0.10.In-aDDr.ARPA. 900 PTR cluster.example.com.", ""},
		{"the last of a range", "2.2.0.10.in-addr.arpa.", tPTR, noError, "2.2.0.10.in-addr.arpa. 900 PTR cluster.example.com.", ""},
		{"the one behind it does not exist (RFC 2308 section 2.1)", "3.2.0.10.in-addr.arpa.", tPTR, nxDomain, "", soa4},
		{"a range that begins outside the zone", "0.0.0.10.in-addr.arpa.", tPTR, noError, "0.0.0.10.in-addr.arpa. 900 PTR before.example.com.", ""},
		{"another type of a name that exists (RFC 2308 section 2.2)", "1.1.0.10.in-addr.arpa.", tA, noError, "", soa4},
		{"ANY is minimal (RFC 8482 section 4.2)", "1.1.0.10.in-addr.arpa.", tANY, noError, `1.1.0.10.in-addr.arpa. 900 HINFO "\aRFC8482\x00"`, ""},
		{"an address that nothing has", "9.9.9.10.in-addr.arpa.", tPTR, nxDomain, "", soa4},
		{"an empty non-terminal exists, because a name below it does (RFC 8020 section 2)", "1.0.10.in-addr.arpa.", tPTR, noError, "", soa4},
		{"and has nothing", "0.10.in-addr.arpa.", tANY, noError, "", soa4},
		{"one that leads to nothing does not exist", "9.0.10.in-addr.arpa.", tPTR, nxDomain, "", soa4},
		{"nor anything below an address", "x.1.1.0.10.in-addr.arpa.", tPTR, nxDomain, "", soa4},
		{"an octet is written in one way", "01.1.0.10.in-addr.arpa.", tPTR, nxDomain, "", soa4},
		{"and is one", "257.1.0.10.in-addr.arpa.", tPTR, nxDomain, "", soa4},
		{"however long its label is", "99999999999999999999999999999999999999999999999999999999999999.1.0.10.in-addr.arpa.", tPTR, nxDomain, "", soa4},
		{"a name that is no address", "www.10.in-addr.arpa.", tA, nxDomain, "", soa4},
		{"a zone inside another is asked first (RFC 1034 section 4.3.2)", "2.3.0.10.in-addr.arpa.", tPTR, noError, "2.3.0.10.in-addr.arpa. 900 PTR plain.example.org.", ""},
		{"and denies by itself", "3.3.0.10.in-addr.arpa.", tPTR, nxDomain, "", soaOf("3.0.10.in-addr.arpa.")},
		{"DS of it is its parent's (RFC 4035 section 3.1.4.1)", "3.0.10.in-addr.arpa.", typeDS, noError, "", soa4},
		{"the top of a zone", "10.in-addr.arpa.", tSOA, noError, "10.in-addr.arpa. 900 SOA ssip.example.com. hostmaster.example.com. 42 min 5", ""},
		{"its name servers", "10.in-addr.arpa.", tNS, noError, "10.in-addr.arpa. 900 NS ssip.example.com.", ""},
		{"it has no name itself", "10.in-addr.arpa.", tPTR, noError, "", soa4},
		{"unless it is that of an address", "9.5.0.192.in-addr.arpa.", tPTR, noError, "9.5.0.192.in-addr.arpa. 900 PTR files.example.com.", ""},
		{"part of a /24 (RFC 2317 section 4)", "8.0-127.5.0.192.in-addr.arpa.", tPTR, noError, "8.0-127.5.0.192.in-addr.arpa. 900 PTR files.example.com.", ""},
		{"of which it has no more", "128.0-127.5.0.192.in-addr.arpa.", tPTR, nxDomain, "", soaOf("0-127.5.0.192.in-addr.arpa.")},
		{"what is not delegated is not answered", "8.5.0.192.in-addr.arpa.", tPTR, refusedCode, "", ""},
		{"nor the zone above all", "in-addr.arpa.", tPTR, refusedCode, "", ""},
		{"an IPv6 address, digit by digit (RFC 3596 section 2.5)", "2." + zeros + "1.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.", tPTR, noError,
			"2." + zeros + "1.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa. 900 PTR cluster.example.com.", ""},
		{"another", "3." + zeros + "1.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.", tPTR, nxDomain, "", soa6},
		{"the way to it", "1.0.0.0.0.0.0.0.8.B.D.0.1.0.0.2.ip6.arpa.", tPTR, noError, "", strings.Replace(soa6, "8.b.d.0.1.0.0.2.ip6.arpa. 5", "8.B.D.0.1.0.0.2.ip6.arpa. 5", 1)},
		{"the way to nothing", "2.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.", tPTR, nxDomain, "", soa6},
		{"two digits in one label", "10.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.", tPTR, nxDomain, "", soa6},
		{"no digit", "g.8.b.d.0.1.0.0.2.ip6.arpa.", tPTR, nxDomain, "", soa6},
	} {
		m := askFor(t, a, c.name, c.qtype)
		if m.RCode != c.rcode || text(m.Answers) != c.answer || text(m.Authorities) != c.authority {
			t.Errorf("%s: %s %v: %v\ngot  %s | %s\nwant %s | %s", c.why, c.name, c.qtype, m.RCode, text(m.Answers), text(m.Authorities), c.answer, c.authority)
		}
		if m.Authoritative != (c.rcode != refusedCode) {
			t.Errorf("%s: authoritative %v", c.why, m.Authoritative)
		}
	}
}

// TestReverseNamesAreTheAddresses asks for every address around those that have names, and for whatever leads there: a name exists if, and only
// if, a name below it or itself has a record (RFC 8020 section 2).
func TestReverseNamesAreTheAddresses(t *testing.T) {
	r, err := cluster.ParseRange("10.0.0.250-10.0.2.5")
	if err != nil {
		t.Fatal(err)
	}
	zone, err := cluster.ParseReverseZone("0.10.in-addr.arpa")
	if err != nil {
		t.Fatal(err)
	}
	a := newTestAnswerer(t, &View{Ready: true, Reverse: []Reverse{{Zone: zone, Names: []cluster.ReverseName{{Range: r, Name: "a.test"}}}}}, AnswererOptions{RateLimit: RateLimit{Off: true}})
	for at, last := netip.MustParseAddr("10.0.0.0"), netip.MustParseAddr("10.0.3.255"); at.Compare(last) <= 0; at = at.Next() {
		m := askFor(t, a, cluster.ReverseNameOf(at)+".", tPTR)
		if found := len(m.Answers) == 1 && m.RCode == noError; found != r.Contains(at) || !found && m.RCode != nxDomain {
			t.Fatalf("%v: %v %s", at, m.RCode, text(m.Answers))
		}
		_, above, _ := strings.Cut(cluster.ReverseNameOf(at), ".")
		if third := at.As4()[2]; (askFor(t, a, above+".", tPTR).RCode == noError) != (third <= 2) {
			t.Fatalf("%s: %v", above, askFor(t, a, above+".", tPTR))
		}
	}
}

// What cannot be a zone, or a name in one, is left out and said.
func TestReverseFaults(t *testing.T) {
	v := testView()
	v.Reverse = append(v.Reverse, v.Reverse[0], Reverse{Zone: cluster.ReverseZone{Name: "a b"}})
	v.Reverse[1].Names[0].Name = "no name"
	faults := NewAnswerer(AnswererOptions{}).SetView(v)
	var all []string
	for _, fault := range faults {
		all = append(all, fault.Error())
	}
	said := strings.Join(all, "\n")
	for _, want := range []string{"reverse zone 10.in-addr.arpa is left out, because an earlier zone has the name", `reverse zone "a b" is left out`, `the name "no name" of 10.0.2.250-10.0.3.2 is left out`} {
		if !strings.Contains(said, want) {
			t.Errorf("faults:\n%s\nwant one with %q", said, want)
		}
	}
}

// TestExplainReverse: what a name of an address is answered, and that another is not.
func TestExplainReverse(t *testing.T) {
	a := newTestAnswerer(t, testView(), AnswererOptions{})
	for name, want := range map[string]string{"1.1.0.10.in-addr.arpa": "cluster.example.com", "9.9.9.10.in-addr.arpa": "NXDOMAIN", "0.10.in-addr.arpa": "NODATA"} {
		if d, err := a.Explain(name, tPTR, testNow); err != nil || d.Chosen != want || d.Reason == "" {
			t.Errorf("%s: %+v, %v; want %s", name, d, err, want)
		}
	}
}

// FuzzReverse: a name below a reverse zone is answered if, and only if, it is the name of an address that has one, in its one form.
func FuzzReverse(f *testing.F) {
	for _, labels := range []string{"\x011\x011\x010\x0210", "\x012\x012\x010\x0210", "\x0201\x011\x010\x0210", "\x010\x010\x010\x0210", "\x03256\x011\x010\x0210", "\x011\x010\x0210", "\x012\x013\x010\x0210", "\x018\x050-127\x015\x010\x03192", "\x019\x015\x010\x03192"} {
		f.Add([]byte(labels+"\x07in-addr"), uint16(dnsmessage.TypePTR))
	}
	f.Add([]byte(strings.Repeat("\x010", 32)+"\x03ip6"), uint16(dnsmessage.TypePTR))
	f.Add([]byte("\x012"+strings.Repeat("\x010", 15)+"\x011"+strings.Repeat("\x010", 7)+"\x018\x01B\x01d\x010\x011\x010\x010\x012\x03ip6"), uint16(dnsmessage.TypePTR))
	v := testView()
	alone, b := twins(f, v, RateLimit{Off: true})
	f.Fuzz(func(t *testing.T, labels []byte, qtype uint16) {
		message := append([]byte("\x12\x34\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00"), labels...)
		message = append(message, "\x04arpa\x00"...)
		name := message[headerSize:]
		message = append(message, byte(qtype>>8), byte(qtype), 0, 1)
		var q query
		if q.read(message) != nil || q.nameLen != len(name) {
			return // not one name
		}
		agreeOn(t, alone, b, message, testNow)
		if dnsmessage.Type(qtype) != tPTR || bytes.Contains(name, []byte(".")) {
			return // of a label with a dot the library makes nothing
		}
		m := ask(t, alone, udp(message))
		want, text := "", q.name().String()
		if z, err := cluster.ParseReverseZone(strings.Replace(text, ".0-127.5.0.192.", ".5.0.192.", 1)); err == nil && z.Free == 0 {
			for _, r := range v.Reverse {
				for _, n := range r.Names {
					if n.Contains(z.Covers.Low) && r.Zone.Covers.Contains(z.Covers.Low) && strings.HasSuffix("."+text, "."+r.Zone.Name) {
						want = strings.ToLower(n.Name) + "." // of zones in each other the inner one is later
					}
				}
			}
		}
		got := ""
		if len(m.Answers) == 1 {
			got = m.Answers[0].Body.(*dnsmessage.PTRResource).PTR.String()
		}
		if got != want {
			t.Fatalf("%v: %q, want %q", q.name(), got, want)
		}
	})
}

// TestZonesBelowAnAddress: a zone of another kind may lie below the name of an address, which then is an empty non-terminal of the table, and still has
// its name.
func TestZonesBelowAnAddress(t *testing.T) {
	v := testView()
	v.Zones = append(v.Zones, Zone{Name: "odd.1.1.0.10.in-addr.arpa", Pools: []Pool{testPool("odd", false, 1)}})
	alone, b := twins(t, v, RateLimit{Off: true})
	for _, name := range []string{"1.1.0.10.in-addr.arpa.", "1.0.10.in-addr.arpa.", "2.1.0.10.in-addr.arpa.", "odd.1.1.0.10.in-addr.arpa.", "even.1.1.0.10.in-addr.arpa."} {
		for _, qtype := range []dnsmessage.Type{tPTR, tA, tANY} {
			agreeOn(t, alone, b, asked{name: name, qtype: qtype}.pack(t), testNow)
		}
	}
	if m := askFor(t, alone, "1.1.0.10.in-addr.arpa.", tPTR); len(m.Answers) != 1 {
		t.Errorf("%v %s", m.RCode, text(m.Answers))
	}
}
