package dns

import (
	"bytes"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// TestRateLimit: a prefix that asks too much gets silence and, every second time, a truncated response; others are not
// touched; TCP and a valid cookie are never limited; in a second it has earned a second's worth again.
func TestRateLimit(t *testing.T) {
	a := newTestAnswerer(t, testView(), AnswererOptions{RateLimit: RateLimit{PerSecond: 10, Burst: 20}})
	plain := asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA}.pack(t)
	type tally struct{ answered, slipped, silent int }
	flood := func(req Request, n int) (c tally) {
		for range n {
			wire, outcome := a.Answer(nil, req)
			switch {
			case outcome.Dropped == DropRateLimited && len(wire) == 0:
				c.silent++
			case outcome.Slipped && outcome.Truncated && len(wire) == len(plain):
				c.slipped++
			case outcome == (Outcome{}):
				c.answered++
			default:
				t.Fatalf("outcome %+v, %d octets", outcome, len(wire))
			}
		}
		return c
	}
	from := func(client string, at time.Duration) Request {
		r := udp(plain)
		r.Client, r.Now = netip.MustParseAddr(client), testNow.Add(at)
		return r
	}
	for _, c := range []struct {
		why  string
		req  Request
		want tally
	}{
		{"the burst, then the limit", from("192.0.2.1", 0), tally{20, 40, 40}},
		{"a neighbour in the /24", from("192.0.2.200", 0), tally{0, 50, 50}},
		{"the next /24", from("192.0.3.1", 0), tally{20, 40, 40}},
		{"IPv4 inside IPv6 is IPv4", from("::ffff:192.0.2.7", 0), tally{0, 50, 50}},
		{"a second later", from("192.0.2.1", time.Second), tally{10, 45, 45}},
		{"a clock set back earns nothing", from("192.0.2.1", 0), tally{0, 50, 50}},
		{"and costs nothing", from("192.0.2.1", time.Second), tally{10, 45, 45}},
		{"IPv6", from("2001:db8:0:1ff::1", 0), tally{20, 40, 40}},
		{"a neighbour in the /56", from("2001:db8:0:100::2", 0), tally{0, 50, 50}},
		{"the next /56", from("2001:db8:0:200::1", 0), tally{20, 40, 40}},
	} {
		if got := flood(c.req, 100); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.why, got, c.want)
		}
	}
	overTCP := from("192.0.2.1", 0)
	overTCP.TCP = true
	if got := flood(overTCP, 100); got.answered != 100 {
		t.Errorf("over TCP: %+v", got)
	}
}

// TestRateLimitAndCookies: over the limit, a client cookie gets BADCOOKIE with the server cookie instead of truncation,
// and with that the client is served.
func TestRateLimitAndCookies(t *testing.T) {
	a := newTestAnswerer(t, testView(), AnswererOptions{RateLimit: RateLimit{PerSecond: 1, Burst: 1}})
	withCookie := func(cookie []byte) Request {
		return udp(asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA, edns: true,
			options: []dnsmessage.Option{{Code: optionCookie, Data: cookie}}}.pack(t))
	}
	a.Answer(nil, withCookie([]byte("12345678")))
	a.Answer(nil, withCookie([]byte("12345678")))
	m := ask(t, a, withCookie([]byte("12345678")))
	if rcodeOf(m) != rcodeBadCookie || m.Truncated || len(m.Answers) != 0 {
		t.Fatalf("over the limit: %v, %+v", rcodeOf(m), m)
	}
	proven := withCookie([]byte(cookieOf(t, m)))
	for range 100 {
		if m := ask(t, a, proven); len(m.Answers) != 1 {
			t.Fatalf("with a server cookie: %+v", m)
		}
	}
}

// TestRateTableBound: more prefixes than the table holds push out the fullest bucket, which is counted, and a prefix
// under fire is not pushed out by idle ones.
func TestRateTableBound(t *testing.T) {
	l := newRateLimiter(RateLimit{PerSecond: 1, Burst: 5, Prefixes: bucketWays})
	attacked := netip.MustParseAddr("198.51.100.1")
	for range 10 {
		l.take(attacked, testNow)
	}
	for i := range 100 {
		l.take(netip.AddrFrom4([4]byte{10, 0, byte(i), 1}), testNow)
		if got := l.take(attacked, testNow); got == allowed {
			t.Fatalf("after %d other prefixes the attacked one is forgotten", i+1)
		}
	}
	if got := l.evicted(); got != 100-(bucketWays-1) {
		t.Errorf("%d evictions", got)
	}
	before := l.evicted()
	for i := range 100 { // those that are full again have nothing to forget
		l.take(netip.AddrFrom4([4]byte{10, 1, byte(i), 1}), testNow.Add(time.Duration(i+1)*time.Hour))
	}
	if got := l.evicted() - before; got != 0 {
		t.Errorf("%d evictions of full buckets", got)
	}
	if newRateLimiter(RateLimit{Off: true}) != nil {
		t.Error("the limit is on though switched off")
	}
}

// TestRateLimitBoundsAll: however many ask for one prefix at once, and in whatever amounts, together they get what one would, and of what
// is over every second slips.
func TestRateLimitBoundsAll(t *testing.T) {
	const askers, asks = 4, 2000
	l := newRateLimiter(RateLimit{PerSecond: 1000, Burst: 5000})
	client := netip.MustParseAddr("192.0.2.1")
	l.take(client, testNow)
	for second := range 3 {
		now := testNow.Add(time.Duration(second) * time.Second)
		var granted, over, slips atomic.Int64
		var running sync.WaitGroup
		for asker := range askers {
			running.Go(func() {
				for i := range asks {
					count := 1 + (i+asker)%batchSize
					got, slip := l.takeMany(l.key(client), count, l.due(now))
					g := group{granted: got, slip: slip}
					for range count {
						switch g.next() {
						case allowed:
							granted.Add(1)
						case slipped:
							slips.Add(1)
							over.Add(1)
						default:
							over.Add(1)
						}
					}
				}
			})
		}
		running.Wait()
		want := int64(1000)
		if second == 0 {
			want = 4999
		}
		if granted.Load() != want {
			t.Errorf("second %d: %d are granted, want %d", second, granted.Load(), want)
		}
		if half := over.Load() / 2; slips.Load() < half || slips.Load() > half+1 {
			t.Errorf("second %d: %d of %d slip", second, slips.Load(), over.Load())
		}
	}
}

// TestRateLimitGoesRound: the time in a bucket goes round; over the place where it begins anew, the limit is as anywhere else. A bucket whose
// time has come round since it was used is empty, never more than full, and fills as any other.
func TestRateLimitGoesRound(t *testing.T) {
	const perSecond, burst = 1e9, 1000
	l := newRateLimiter(RateLimit{PerSecond: perSecond, Burst: burst})
	client := netip.MustParseAddr("192.0.2.1")
	l.due(testNow) // begins to count
	ask := func(at time.Duration, want int) {
		t.Helper()
		if got, _ := l.takeMany(l.key(client), 5*burst, l.due(testNow.Add(at))); got != want {
			t.Errorf("after %v: %d are granted, want %d", at, got, want)
		}
	}
	forget := func() {
		for i := range l.buckets {
			l.buckets[i].Store(0)
		}
	}
	round := time.Duration(bucketDue + 1) // at a response a nanosecond
	for _, start := range []time.Duration{-2 * round, -round, round, 2 * round} {
		forget()
		ask(start-700, burst)
		ask(start-700, 0)
		for at := start - 600; at <= start+700; at += 100 {
			ask(at, 100)
		}
		ask(start+700+burst/2, burst/2)
		ask(start+700+burst/2-1, 0) // the clock is set back: as if just emptied
	}
	for _, idle := range []time.Duration{round/2 - burst, round/2 + burst, round - 2, round, round + burst/2, 5*round/2 + burst} {
		forget()
		ask(0, burst)
		got, _ := l.takeMany(l.key(client), 5*burst, l.due(testNow.Add(idle)))
		if got > burst {
			t.Errorf("idle for %v: %d are granted", idle, got)
		}
		ask(idle+burst, burst) // full again by then, whatever it was
	}
	for _, far := range []time.Duration{math.MinInt64, math.MaxInt64} {
		if got, _ := l.takeMany(l.key(client), 5*burst, l.due(testNow.Add(far))); got > burst {
			t.Errorf("after %v: %d are granted", far, got)
		}
	}
}

// TestLimitedAnswersDoNotTurn: a query over the limit does not advance the rotation.
func TestLimitedAnswersDoNotTurn(t *testing.T) {
	a := newTestAnswerer(t, testView(), AnswererOptions{RateLimit: RateLimit{PerSecond: 1, Burst: 1}})
	message := asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA}.pack(t)
	for range 4 {
		a.Answer(nil, udp(message))
	}
	if got := addressesOf(ask(t, a, tcp(message))); nodeOf(got[0]) != 2 {
		t.Errorf("second answer is of node %d, want 2", nodeOf(got[0]))
	}
}

// FuzzAnswer: whatever arrives, there is no panic; a response unpacks, is within its limit, repeats the id and, where it
// has a question, that question; and a slip is no larger than the query and a server cookie.
func FuzzAnswer(f *testing.F) {
	for _, row := range rcodeTable {
		f.Add(row.q.pack(f), false)
	}
	f.Add(asked{name: "ssip.example.com.", qtype: dnsmessage.TypeNS, edns: true, do: true, udpSize: 1,
		options: []dnsmessage.Option{{Code: optionCookie, Data: []byte("12345678")}, {Code: optionClientSubnet, Data: []byte("\x00\x01\x18\x00\x0a\x00\x01")}}}.pack(f), true)
	f.Add([]byte("\x12\x34\x00\x00\x00\x01\x00\x00\x00\x00\x00\x01\xc0\x0c\x00\x01\x00\x01"), false)
	free := newTestAnswerer(f, testView(), AnswererOptions{RateLimit: RateLimit{Off: true}})
	limited := newTestAnswerer(f, testView(), AnswererOptions{RateLimit: RateLimit{PerSecond: 1, Burst: 1}}) // its clock stands still
	f.Fuzz(func(t *testing.T, message []byte, overTCP bool) {
		req := udp(message)
		req.TCP = overTCP
		for _, a := range []*Answerer{free, limited} {
			checkAnswer(t, a, req)
		}
	})
}

// checkAnswer has a query answered, and checks what FuzzAnswer says of the response.
func checkAnswer(t *testing.T, a *Answerer, req Request) {
	t.Helper()
	message, overTCP := req.Message, req.TCP
	prefix := []byte("before")
	out, outcome := a.Answer(prefix, req)
	if !bytes.HasPrefix(out, prefix) {
		t.Fatal("what stood before the response is gone")
	}
	wire := out[len(prefix):]
	if outcome.Dropped != DropNone {
		if len(wire) != 0 {
			t.Fatal("a dropped query has a response")
		}
		return
	}
	limit := ourUDPLimit
	if overTCP {
		limit = 65535
	}
	if len(wire) < headerSize || len(wire) > limit {
		t.Fatalf("%d octets", len(wire))
	}
	if outcome.Slipped && len(wire) > len(message)+serverCookieSize {
		t.Fatalf("a slip of %d octets for %d", len(wire), len(message))
	}
	if !bytes.Equal(wire[:2], message[:2]) || wire[2]&0x80 == 0 {
		t.Fatalf("header %x for %x", wire[:12], message[:12])
	}
	if questions := wire[5]; questions > 0 {
		var p dnsmessage.Parser
		if _, err := p.Start(wire); err != nil || p.SkipAllQuestions() != nil {
			t.Fatalf("the question does not parse: %x", wire)
		}
		if end := questionEnd(wire); !bytes.Equal(wire[headerSize:end], message[headerSize:end]) {
			t.Fatalf("question %x for %x", wire[headerSize:end], message[headerSize:])
		}
	}
	var m dnsmessage.Message
	if err := m.Unpack(wire); err != nil && !bytes.Contains(message[headerSize:], []byte(".")) {
		t.Fatalf("the response does not unpack: %v\n%x", err, wire)
	}
}

// questionEnd is where the only question of a message ends.
func questionEnd(m []byte) int {
	off := headerSize
	for m[off] != 0 {
		off += 1 + int(m[off])
	}
	return off + 5
}

// BenchmarkAnswer is one answer by policy, without the sockets.
func BenchmarkAnswer(b *testing.B) {
	for name, q := range map[string]asked{
		"plain": {name: "cluster.example.com.", qtype: dnsmessage.TypeA},
		"edns":  {name: "cluster.example.com.", qtype: dnsmessage.TypeA, edns: true},
		"cookie": {name: "cluster.example.com.", qtype: dnsmessage.TypeA, edns: true,
			options: []dnsmessage.Option{{Code: optionCookie, Data: []byte("12345678")}}},
		"wildcard": {name: "bucket.cluster.example.com.", qtype: dnsmessage.TypeA, edns: true},
		"nxdomain": {name: "a.b.c.plain.example.org.", qtype: dnsmessage.TypeA, edns: true},
	} {
		b.Run(name, func(b *testing.B) {
			a := newTestAnswerer(b, testView(), AnswererOptions{RateLimit: RateLimit{PerSecond: 1e9}})
			req := udp(q.pack(b))
			out := make([]byte, 0, ourUDPLimit)
			b.ReportAllocs()
			for b.Loop() {
				a.Answer(out, req)
			}
		})
	}
}
