package dns

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// ordinaryFrom is where the numbers of types and classes have no special meaning any more, but at the end of private use. Beyond it
// some are tried.
const ordinaryFrom = 512

func next(number int) int {
	if number < ordinaryFrom || number > 65500 {
		return number + 1
	}
	return number + 61
}

// TestEveryType asks a name that exists, one that does not, and one outside for each type that has a meaning and many that have none:
// whatever the type, the first is never denied (RFC 2308 section 2.2, RFC 3597 section 5), the second always is, the third is always refused. The
// types that are no record types are answered by their meaning (RFC 6895 section 3.1), wherever they are asked.
func TestEveryType(t *testing.T) {
	a := newTestAnswerer(t, testView(), AnswererOptions{})
	meta := map[dnsmessage.Type]dnsmessage.RCode{41: dnsmessage.RCodeFormatError, 249: dnsmessage.RCodeNotImplemented,
		250: dnsmessage.RCodeFormatError, 251: refusedCode, 252: refusedCode, 253: dnsmessage.RCodeNotImplemented, 254: dnsmessage.RCodeNotImplemented}
	answered := map[dnsmessage.Type]bool{tA: true, tNS: true, tSOA: true, tANY: true}
	for _, name := range []struct {
		name  string
		rcode dnsmessage.RCode
	}{{"plain.example.org.", noError}, {"missing.plain.example.org.", nxDomain}, {"elsewhere.example.", refusedCode}} {
		message := asked{name: name.name, qtype: tA}.pack(t)
		out := make([]byte, 0, minUDPAnswer)
		for number := 0; number < 1<<16; number = next(number) {
			qtype := dnsmessage.Type(number)
			binary.BigEndian.PutUint16(message[len(message)-4:], uint16(qtype))
			wire, outcome := a.Answer(out, tcp(message)) // which no rate limit holds up
			want, special := meta[qtype]
			if !special {
				want = name.rcode
			}
			if outcome.RCode != want || outcome.Dropped != DropNone {
				t.Fatalf("%s type %d: %+v, want %v", name.name, qtype, outcome, want)
			}
			answers, authority := binary.BigEndian.Uint16(wire[6:]), binary.BigEndian.Uint16(wire[8:])
			positive := want == noError && answered[qtype]
			negative := !special && want != refusedCode && !positive
			if (answers > 0) != positive || (authority == 1) != negative || (wire[2]&4 != 0) != (positive || negative) {
				t.Fatalf("%s type %d: %d answers, %d in authority, flags %x", name.name, qtype, answers, authority, wire[2:4])
			}
		}
	}
}

// TestEveryClass: there is nothing here but class IN (RFC 6895 section 3.2), and REFUSED says nothing of what exists elsewhere.
func TestEveryClass(t *testing.T) {
	a := newTestAnswerer(t, testView(), AnswererOptions{})
	message := asked{name: "cluster.example.com.", qtype: tA}.pack(t)
	for class := 0; class < 1<<16; class = next(class) {
		binary.BigEndian.PutUint16(message[len(message)-2:], uint16(class))
		wire, outcome := a.Answer(nil, tcp(message)) // which no rate limit holds up
		want := refusedCode
		if class == 1 {
			want = noError
		}
		if outcome.RCode != want || !bytes.Equal(wire[headerSize:len(message)], message[headerSize:]) {
			t.Fatalf("class %d: %+v, %x", class, outcome, wire)
		}
	}
}

// TestEveryOperation: only QUERY is known here (RFC 6895 section 2.2), and the others get NOTIMP with their operation and id,
// whatever their sections hold: UPDATE counts zones, prerequisites and updates there (RFC 2136 section 2), NOTIFY may carry the
// new SOA (RFC 1996 section 3.7), and a DSO message has no sections at all (RFC 8490 section 5.4).
func TestEveryOperation(t *testing.T) {
	a := newTestAnswerer(t, testView(), AnswererOptions{})
	plain := asked{name: "cluster.example.com.", qtype: tSOA}.pack(t)
	bodies := map[string][]byte{"a question": plain, "only a header": plain[:headerSize], "counts of what is not there": bytes.Clone(plain)}
	copy(bodies["counts of what is not there"][4:], "\x00\x01\xff\xff\xff\xff\xff\xff")
	for what, body := range bodies {
		for opcode := 1; opcode < 16; opcode++ {
			message := bytes.Clone(body)
			message[2] = byte(opcode<<3) | 1
			for _, req := range []Request{udp(message), tcp(message)} {
				wire, outcome := a.Answer(nil, req)
				if outcome.RCode != dnsmessage.RCodeNotImplemented || !bytes.Equal(wire[:2], message[:2]) || wire[2] != 0x80|byte(opcode<<3)|1 || len(wire) > len(plain) {
					t.Errorf("operation %d with %s: %+v, %x", opcode, what, outcome, wire)
				}
			}
		}
	}
}

// TestZoneTransfersAreRefused: in one message, over TCP too (RFC 5936 section 2.2.1), with and without the SOA that IXFR brings
// along (RFC 1995 section 3).
func TestZoneTransfersAreRefused(t *testing.T) {
	a := newTestAnswerer(t, testView(), AnswererOptions{})
	ixfr := asked{name: "cluster.example.com.", qtype: typeIXFR}.pack(t)
	binary.BigEndian.PutUint16(ixfr[8:], 1)
	ixfr = append(ixfr, "\xc0\x0c\x00\x06\x00\x01\x00\x00\x00\x00\x00\x16\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x01"...)
	for why, message := range map[string][]byte{"AXFR": asked{name: "cluster.example.com.", qtype: dnsmessage.TypeAXFR}.pack(t),
		"IXFR": asked{name: "cluster.example.com.", qtype: typeIXFR}.pack(t), "IXFR with the SOA that the client has": ixfr} {
		for _, req := range []Request{udp(message), tcp(message)} {
			if m := ask(t, a, req); m.RCode != refusedCode || m.Authoritative || len(m.Answers)+len(m.Authorities) > 0 {
				t.Errorf("%s: %+v", why, m)
			}
		}
	}
}

// TestCookiesOfAllHolders: a cookie that a client learned at one service address proves it at every other, of either family
// of service addresses, is sent back unchanged, and lifts the rate limit there (RFC 9018 section 3: servers behind one name
// share their secret).
func TestCookiesOfAllHolders(t *testing.T) {
	options := AnswererOptions{CookieSecrets: []CookieSecret{{7}}, RateLimit: RateLimit{PerSecond: 1, Burst: 1}}
	first, second := newTestAnswerer(t, testView(), options), newTestAnswerer(t, testView(), options)
	query := func(cookie string) []byte {
		return asked{name: "cluster.example.com.", qtype: tA, edns: true, options: []dnsmessage.Option{{Code: optionCookie, Data: []byte(cookie)}}}.pack(t)
	}
	learned := cookieOf(t, ask(t, first, udp(query("12345678"))))
	if len(learned) != clientCookieSize+serverCookieSize {
		t.Fatalf("learned %x", learned)
	}
	for i, service := range parseAddresses("10.0.0.5", "2001:db8::4") {
		for range 20 { // far beyond the limit
			req := udp(query(learned))
			req.Service, req.Now = service, testNow.Add(time.Duration(i)*time.Second)
			m := ask(t, second, req)
			if got := cookieOf(t, m); got != learned || len(m.Answers) != 1 {
				t.Fatalf("at %v: cookie %x, %+v", service, got, m)
			}
		}
	}
	stranger := newTestAnswerer(t, testView(), AnswererOptions{CookieSecrets: []CookieSecret{{8}}})
	if got := cookieOf(t, ask(t, stranger, udp(query(learned)))); got == learned || len(got) != len(learned) {
		t.Errorf("another cluster gives the cookie back: %x", got)
	}
}

// TestSizesOfEDNS: the smallest and largest buffers that a query can name. Below 512 counts as 512 (RFC 6891 section 6.2.3), and
// nothing over UDP is larger than what passes every IPv6 path, whatever the client can take.
func TestSizesOfEDNS(t *testing.T) {
	v := testView()
	many := testPool("many", false, 100)
	many.MaxAnswers = maxPicked
	v.Zones = append(v.Zones, Zone{Name: "many.example.com", Service: "ssip.example.com", Pools: []Pool{many}})
	a := newTestAnswerer(t, v, AnswererOptions{})
	message := asked{name: "many.example.com.", qtype: tA, edns: true}.pack(t)
	class := len(message) - 8 // the OPT record: root, type, and then this
	whole := 0
	for _, size := range []int{0, 1, 511, 512, 513, 1231, 1232, 1233, 4096, 65535} {
		binary.BigEndian.PutUint16(message[class:], uint16(size))
		wire, outcome := a.Answer(nil, udp(message))
		if limit := min(max(size, minUDPAnswer), ourUDPLimit); len(wire) > limit {
			t.Errorf("for a buffer of %d: %d octets", size, len(wire))
		}
		if outcome.Truncated {
			if answers := binary.BigEndian.Uint16(wire[6:]); answers != 0 || size >= ourUDPLimit {
				t.Errorf("for a buffer of %d: truncated, with %d answers", size, answers)
			}
			continue
		}
		if whole == 0 {
			whole = len(wire)
		}
		if len(wire) != whole || size < whole {
			t.Errorf("for a buffer of %d: %d octets, the whole answer has %d", size, len(wire), whole)
		}
	}
	if whole == 0 {
		t.Error("the answer fits nowhere, so the test says nothing")
	}
}

// keepaliveOf is the time in a keepalive option, -1: there is none.
func keepaliveOf(t *testing.T, m dnsmessage.Message) int {
	t.Helper()
	for _, r := range m.Additionals {
		if opt, ok := r.Body.(*dnsmessage.OPTResource); ok {
			for _, o := range opt.Options {
				if o.Code == optionKeepalive && len(o.Data) == 2 {
					return int(binary.BigEndian.Uint16(o.Data))
				}
			}
		}
	}
	return -1
}

// TestKeepaliveOption: a client that asks over TCP learns for how long its connection may be idle (RFC 7828 section 3.3.2), in
// units of 100 ms. Over UDP the option is ignored, as it is where it says a time, which only servers do.
func TestKeepaliveOption(t *testing.T) {
	a := newTestAnswerer(t, testView(), AnswererOptions{})
	keepalive := dnsmessage.Option{Code: optionKeepalive}
	cookie := dnsmessage.Option{Code: optionCookie, Data: []byte("12345678")}
	subnet := dnsmessage.Option{Code: optionClientSubnet, Data: []byte{0, 1, 24, 0, 192, 0, 2}}
	for _, c := range []struct {
		why     string
		options []dnsmessage.Option
		tcp     bool
		idle    time.Duration
		want    int
	}{
		{"over TCP", []dnsmessage.Option{keepalive}, true, 10 * time.Second, 100},
		{"with others", []dnsmessage.Option{cookie, keepalive, subnet}, true, time.Second, 10},
		{"twice", []dnsmessage.Option{keepalive, keepalive}, true, time.Second, 10},
		{"the connection is over", []dnsmessage.Option{keepalive}, true, 0, 0},
		{"longer than can be said", []dnsmessage.Option{keepalive}, true, 24 * time.Hour, 65535},
		{"not asked", []dnsmessage.Option{cookie}, true, time.Second, -1},
		{"over UDP", []dnsmessage.Option{keepalive}, false, time.Second, -1},
		{"with a time", []dnsmessage.Option{{Code: optionKeepalive, Data: []byte{0, 9}}}, true, time.Second, -1},
	} {
		req := udp(asked{name: "cluster.example.com.", qtype: tA, edns: true, options: c.options}.pack(t))
		req.TCP, req.Idle = c.tcp, c.idle
		m := ask(t, a, req)
		if got := keepaliveOf(t, m); got != c.want || len(m.Answers) != 1 {
			t.Errorf("%s: time %d, want %d; %d answers", c.why, got, c.want, len(m.Answers))
		}
	}
}
