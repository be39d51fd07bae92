package dns

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/cluster"
)

// Public bug reports of other products, each as a test by the number it has in the project's list of them.

// TestReport13NegativeAnswers: clients gave up after an AAAA query got NXDOMAIN for a name that has only A records
// (slackhq/nebula PR 1668, acme-dns PR 374, eucalyptus PR 278, abh/geodns 37), negative answers were kept for 0 s or
// far too long (Consul 4713), and names below contradicted the apex (abh/geodns 136, dnsflagday 90 and 95).
func TestReport13NegativeAnswers(t *testing.T) {
	a := newTestAnswerer(t, testView(), AnswererOptions{})
	for _, name := range []string{"plain.example.org.", "ns.deep.plain.example.org.", "deep.plain.example.org.", "cluster.example.com.", "ssip.example.com."} {
		for _, qtype := range []dnsmessage.Type{dnsmessage.TypeAAAA, dnsmessage.TypeMX, dnsmessage.TypeTXT, dnsmessage.TypeSRV, 65, typeDS} {
			m := askFor(t, a, name, qtype)
			if m.RCode != dnsmessage.RCodeSuccess {
				t.Errorf("%s %v: %v, but the name exists", name, qtype, m.RCode)
			}
			if len(m.Answers) == 0 {
				assertNegative(t, name, m)
			}
		}
	}
	m := askFor(t, a, "missing.plain.example.org.", dnsmessage.TypeA)
	if m.RCode != dnsmessage.RCodeNameError {
		t.Errorf("a name that does not exist: %v", m.RCode)
	}
	assertNegative(t, "missing", m)
	if m := askFor(t, a, "elsewhere.example.", dnsmessage.TypeA); m.RCode != dnsmessage.RCodeRefused || m.Authoritative {
		t.Errorf("outside every zone: %v, AA %v", m.RCode, m.Authoritative)
	}
	// The name in NS at the apex must resolve, here, to the same addresses that come along.
	ns := askFor(t, a, "cluster.example.com.", dnsmessage.TypeNS)
	target := ns.Answers[0].Body.(*dnsmessage.NSResource).NS.String()
	resolved := text(append(askFor(t, a, target, dnsmessage.TypeA).Answers, askFor(t, a, target, dnsmessage.TypeAAAA).Answers...))
	if got := text(ns.Additionals); got != resolved {
		t.Errorf("NS brings %q along, but its target resolves to %q", got, resolved)
	}
}

func assertNegative(t *testing.T, what string, m dnsmessage.Message) {
	t.Helper()
	if len(m.Answers) != 0 || len(m.Authorities) != 1 || !m.Authoritative {
		t.Errorf("%s: not an authoritative negative answer with one SOA: %+v", what, m)
		return
	}
	soa, ok := m.Authorities[0].Body.(*dnsmessage.SOAResource)
	if !ok || soa.MinTTL == 0 || m.Authorities[0].Header.TTL != soa.MinTTL {
		t.Errorf("%s: authority %+v: want SOA with a TTL of its minimum, above 0 (RFC 2308 section 3)", what, m.Authorities[0])
	}
}

// TestReport14LetterCase: resolvers that randomise the letter case of their questions got no answer, or a question in
// other case, which they take for forged (netbirdio/netbird 2647, interactsh 138; zonemaster Nameserver08 and 09).
func TestReport14LetterCase(t *testing.T) {
	a := newTestAnswerer(t, testView(), AnswererOptions{})
	plain := []byte("cluster.example.com.")
	for pattern := range 256 {
		mixed := bytes.Clone(plain)
		for i := range mixed {
			if pattern>>(i%8)&1 == 1 {
				mixed[i] = strings.ToUpper(string(plain[i : i+1]))[0]
			}
		}
		message := asked{name: string(mixed), qtype: dnsmessage.TypeA}.pack(t)
		wire, _ := a.Answer(nil, udp(message))
		if question := message[headerSize:]; !bytes.Equal(wire[headerSize:headerSize+len(question)], question) {
			t.Fatalf("the question %q comes back as %q", question, wire[headerSize:])
		}
		if m := ask(t, a, udp(message)); len(addressesOf(m)) != 1 || m.Answers[0].Header.Name.String() != string(mixed) {
			t.Fatalf("asked for %s, got %s", mixed, text(m.Answers))
		}
	}
}

// TestReport15EDNSAndSize: servers answered FORMERR with the OPT copied (dns-violations 58 and 59), let EDNS version 1
// pass (zonemaster-engine PR 650), mirrored options that they do not know (dnsdist 10006), and cut answers to nothing
// without TC or beyond what the client can take (Consul 1813, 1931, 3355 and 3937).
func TestReport15EDNSAndSize(t *testing.T) {
	v := testView()
	many := testPool("many", false, 100)
	many.MaxAnswers = maxPicked
	huge := testPool("huge", true, 100)
	huge.MaxAnswers = maxPicked
	v.Zones = append(v.Zones, Zone{Name: "many.example.com", Service: "ssip.example.com", Pools: []Pool{many, huge}})
	a := newTestAnswerer(t, v, AnswererOptions{})
	unknown := []dnsmessage.Option{{Code: 3, Data: nil}, {Code: 65001, Data: []byte("mirror me")}}
	cookie := []dnsmessage.Option{{Code: optionCookie, Data: []byte("12345678")}}
	for _, c := range []struct {
		why       string
		q         asked
		rcode     dnsmessage.RCode
		options   []uint16 // that come back
		limit     int
		truncated bool
	}{
		{why: "no EDNS, large", q: asked{name: "many.example.com."}, limit: 512, truncated: true},
		{why: "bufsize 512", q: asked{name: "many.example.com.", edns: true, udpSize: 512}, limit: 512, truncated: true},
		{why: "bufsize 0 counts as 512 (RFC 6891 6.2.3)", q: asked{name: "many.example.com.", edns: true, udpSize: 1}, limit: 512, truncated: true},
		{why: "bufsize 1232", q: asked{name: "many.example.com.", edns: true}, limit: 1232},
		{why: "bufsize 65535 does not go beyond ours", q: asked{name: "many.example.com.", edns: true, udpSize: 65535}, limit: 1232},
		{why: "beyond 1232", q: asked{name: "many.example.com.", qtype: dnsmessage.TypeAAAA, edns: true, udpSize: 65535}, limit: 1232, truncated: true},
		{why: "bufsize 1, small answer", q: asked{name: "cluster.example.com.", edns: true, udpSize: 1}, limit: 512},
		{why: "small answer without EDNS", q: asked{name: "cluster.example.com."}, limit: 512},
		{why: "unknown options", q: asked{name: "cluster.example.com.", edns: true, options: unknown}, limit: 1232},
		{why: "cookie", q: asked{name: "cluster.example.com.", edns: true, options: cookie}, limit: 1232, options: []uint16{optionCookie}},
		{why: "version 1", q: asked{name: "cluster.example.com.", edns: true, version: 1, options: unknown}, rcode: rcodeBadVersion, limit: 1232},
		{why: "DO", q: asked{name: "cluster.example.com.", edns: true, do: true}, limit: 1232},
	} {
		t.Run(c.why, func(t *testing.T) {
			if c.q.qtype == 0 {
				c.q.qtype = dnsmessage.TypeA
			}
			wire, _ := a.Answer(nil, udp(c.q.pack(t)))
			if len(wire) > c.limit {
				t.Errorf("%d octets, the limit is %d", len(wire), c.limit)
			}
			m := ask(t, a, udp(c.q.pack(t)))
			if rcodeOf(m) != c.rcode || m.Truncated != c.truncated {
				t.Errorf("%v, TC %v", rcodeOf(m), m.Truncated)
			}
			if empty := len(m.Answers) == 0; empty != (c.truncated || c.rcode != 0) {
				t.Errorf("%d answers", len(m.Answers))
			}
			assertOPT(t, m, c.q, c.options)
			if c.truncated {
				if m := ask(t, a, tcp(c.q.pack(t))); m.Truncated || len(m.Answers) != maxPicked {
					t.Errorf("over TCP: TC %v, %d answers", m.Truncated, len(m.Answers))
				}
			}
		})
	}
}

// assertOPT checks that there is one OPT record when the query had one and none otherwise, and what it says.
func assertOPT(t *testing.T, m dnsmessage.Message, q asked, options []uint16) {
	t.Helper()
	var found []dnsmessage.Resource
	for _, r := range m.Additionals {
		if r.Header.Type == dnsmessage.TypeOPT {
			found = append(found, r)
		}
	}
	if !q.edns {
		if len(found) > 0 {
			t.Error("an OPT record for a query without one")
		}
		return
	}
	if len(found) != 1 {
		t.Fatalf("%d OPT records", len(found))
	}
	h := found[0].Header
	if h.Class != ourUDPLimit || h.TTL>>16&0xff != 0 || (h.TTL&0x8000 != 0) != q.do {
		t.Errorf("OPT header %+v", h)
	}
	var got []uint16
	for _, o := range found[0].Body.(*dnsmessage.OPTResource).Options {
		got = append(got, o.Code)
	}
	if len(got) != len(options) || len(got) > 0 && got[0] != options[0] {
		t.Errorf("options %v, want %v", got, options)
	}
}

// TestReport16EvenSpread: several addresses in an answer, or a resolver that keeps them, send everyone to one node
// (weaveworks/weave 1245, golang/go 13283, mesos-dns 507, unbound 215). One address per answer, chosen by the server.
func TestReport16EvenSpread(t *testing.T) {
	t.Run("10,000 queries of one resolver", func(t *testing.T) {
		a := newTestAnswerer(t, testView(), AnswererOptions{})
		nodes, addresses := map[int]int{}, map[netip.Addr]int{}
		message := asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA}.pack(t)
		for range 10000 {
			got := addressesOf(ask(t, a, udp(message)))
			if len(got) != 1 {
				t.Fatalf("%d addresses in one answer", len(got))
			}
			nodes[nodeOf(got[0])]++
			addresses[got[0]]++
		}
		assertEven(t, nodes, 4, 1)
		assertEven(t, addresses, 8, 1)
	})
	t.Run("three service addresses that share", func(t *testing.T) {
		holders := newHolders(t, 3, 7, cluster.RotationShared)
		nodes := map[int]int{}
		for i := range 10000 {
			nodes[holders[i%3].ask(t)]++
			if i%50 == 0 { // the others hear late, as on a real network
				share(holders)
			}
		}
		assertEven(t, nodes, 7, 3*50)
	})
}

func assertEven[K comparable](t *testing.T, counts map[K]int, want, spread int) {
	t.Helper()
	if len(counts) != want {
		t.Fatalf("%d different, want %d: %v", len(counts), want, counts)
	}
	low, high := -1, 0
	for _, n := range counts {
		high = max(high, n)
		if low < 0 || n < low {
			low = n
		}
	}
	if high-low > spread {
		t.Errorf("max - min is %d, want at most %d: %v", high-low, spread, counts)
	}
}

// TestMalformedQueries: every one gets FORMERR with its id, or silence.
func TestMalformedQueries(t *testing.T) {
	good := asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA, edns: true}.pack(t)
	question := good[headerSize : len(good)-11]
	opt := good[len(good)-11:]
	build := func(counts [4]uint16, parts ...[]byte) []byte {
		m := []byte{0x12, 0x34, 0, 0}
		for _, n := range counts {
			m = binary.BigEndian.AppendUint16(m, n)
		}
		return append(m, bytes.Join(parts, nil)...)
	}
	withOption := func(code uint16, data ...byte) []byte {
		m := bytes.Clone(opt)
		binary.BigEndian.PutUint16(m[9:], uint16(4+len(data)))
		m = binary.BigEndian.AppendUint16(m, code)
		m = binary.BigEndian.AppendUint16(m, uint16(len(data)))
		return append(m, data...)
	}
	one := [4]uint16{1, 0, 0, 1}
	longLabel := append([]byte{64}, bytes.Repeat([]byte{'x'}, 64)...)
	longName := append(bytes.Repeat([]byte("\x3f"+strings.Repeat("x", 63)), 4), 0, 0, 1, 0, 1)
	overrun := withOption(65001, 1, 2, 3)
	overrun[14] = 9 // the option's length, beyond the record's
	address := append([]byte{0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4}, 10, 0, 0, 1)
	a := newTestAnswerer(t, testView(), AnswererOptions{})
	for name, message := range map[string][]byte{
		"no question (RFC 9619)":             build([4]uint16{0, 0, 0, 0}),
		"no question, OPT without cookie":    build([4]uint16{0, 0, 0, 1}, opt),
		"two questions (RFC 9619)":           build([4]uint16{2, 0, 0, 0}, question, question),
		"65,535 questions":                   build([4]uint16{65535, 0, 0, 0}, question),
		"question cut in the name":           build(one, question[:5]),
		"question cut in the type":           build(one, question[:len(question)-3]),
		"label of 64":                        build(one, longLabel),
		"name of 257":                        build(one, longName),
		"pointer in the question":            build(one, []byte{0xC0, 0x0C, 0, 1, 0, 1}),
		"reserved label type":                build(one, []byte{0x80, 'x', 0, 0, 1, 0, 1}),
		"answer counted but missing":         build([4]uint16{1, 1, 0, 0}, question),
		"OPT counted but missing":            build(one, question),
		"OPT cut":                            build(one, question, opt[:8]),
		"two OPT records (RFC 6891 6.1.1)":   build([4]uint16{1, 0, 0, 2}, question, opt, opt),
		"OPT below a name (RFC 6891 6.1.2)":  build(one, question, []byte{1, 'x'}, opt),
		"option beyond the record":           build([4]uint16{1, 0, 0, 2}, question, overrun, address),
		"cookie of 7 (RFC 7873 5.2.2)":       build(one, question, withOption(optionCookie, 1, 2, 3, 4, 5, 6, 7)),
		"cookie of 8 and 7":                  build(one, question, withOption(optionCookie, make([]byte, 15)...)),
		"cookie of 8 and 33":                 build(one, question, withOption(optionCookie, make([]byte, 41)...)),
		"client subnet too short":            build(one, question, withOption(optionClientSubnet, 0, 1, 24)),
		"client subnet with scope":           build(one, question, withOption(optionClientSubnet, 0, 1, 24, 24, 10, 0, 0)),
		"client subnet with too many octets": build(one, question, withOption(optionClientSubnet, 0, 1, 24, 0, 10, 0, 0, 0)),
		"client subnet with bits beyond":     build(one, question, withOption(optionClientSubnet, 0, 1, 23, 0, 10, 0, 1)),
		"client subnet of 33 bits":           build(one, question, withOption(optionClientSubnet, 0, 1, 33, 0, 10, 0, 1, 0, 0)),
		"client subnet of family 3":          build(one, question, withOption(optionClientSubnet, 0, 3, 8, 0, 10)),
	} {
		t.Run(name, func(t *testing.T) {
			m := ask(t, a, udp(message))
			if m.RCode != dnsmessage.RCodeFormatError || m.ID != 0x1234 || m.Authoritative || len(m.Answers)+len(m.Authorities) > 0 {
				t.Errorf("response %+v", m)
			}
		})
	}
	response := bytes.Clone(good)
	response[2] |= 0x80
	for name, message := range map[string][]byte{"a response": response, "empty": nil, "half a header": good[:11]} {
		if wire, outcome := a.Answer(nil, udp(message)); len(wire) > 0 || outcome.Dropped != DropNotAQuery {
			t.Errorf("%s gets %x, %+v", name, wire, outcome)
		}
	}
}

// TestDotInsideALabel: such a name is legal (RFC 2181 section 11) and is nobody's here, or below a wildcard a name like
// any other; it comes back as it was.
func TestDotInsideALabel(t *testing.T) {
	a := newTestAnswerer(t, testView(), AnswererOptions{})
	for suffix, want := range map[string]dnsmessage.RCode{
		"\x07cluster\x07example\x03com\x00": dnsmessage.RCodeSuccess,
		"\x05plain\x07example\x03org\x00":   dnsmessage.RCodeNameError,
		"\x07example\x03net\x00":            dnsmessage.RCodeRefused,
	} {
		message := append([]byte("\x12\x34\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03a.b"+suffix), 0, 1, 0, 1)
		wire, outcome := a.Answer(nil, udp(message))
		if outcome.RCode != want || !bytes.HasPrefix(wire[headerSize:], message[headerSize:]) {
			t.Errorf("%q: %+v, %q", suffix, outcome, wire)
		}
	}
}
