package datagram

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/holdfast/holdfast/internal/tenure"
)

// counting is a Handler that counts, and acknowledges heartbeats if it has a link to do so.
type counting struct {
	link  *Link
	heard int
	last  tenure.Message
	ack   tenure.Message
}

func (c *counting) Received(m *tenure.Message, from, network int, _ time.Time) {
	c.heard++
	c.last = *m
	if c.link != nil && m.Kind == tenure.Heartbeat {
		c.ack = tenure.Message{Kind: tenure.Acknowledgement, Subject: from, Incarnation: m.Incarnation, Number: m.Number, Life: 5}
		c.link.Queue(from, network, &c.ack)
	}
}

func (c *counting) Turn(time.Time) time.Time { return time.Time{} }

// round is what Serve does each time, but for waiting.
func (l *Link) round(h Handler) {
	h.Turn(l.drain(h))
	l.flush()
}

func openLink(t testing.TB, lnn int, registerer prometheus.Registerer) *Link {
	t.Helper()
	l, err := Open(Options{Self: lnn, Key: [32]byte{1}, Local: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, Registerer: registerer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// mesh opens links with the numbers 1 to count that know each other.
func mesh(t testing.TB, count int) []*Link {
	t.Helper()
	var links []*Link
	peers := map[int][]netip.AddrPort{}
	for lnn := 1; lnn <= count; lnn++ {
		links = append(links, openLink(t, lnn, nil))
		peers[lnn] = links[lnn-1].Local()
	}
	for _, l := range links {
		l.SetPeers(peers)
	}
	return links
}

func heartbeat() tenure.Message {
	return tenure.Message{Kind: tenure.Heartbeat, Subject: 1, Incarnation: 7, Number: 8, Span: 300 * time.Millisecond, Interval: 100 * time.Millisecond}
}

// value is what a counter or a gauge shows.
func value(t testing.TB, m prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetCounter().GetValue() + out.GetGauge().GetValue()
}

// meet has the links that turn in turn exchange messages until so many have been heard by the last.
func meet(t testing.TB, links []*Link, handlers []*counting, queue func()) {
	t.Helper()
	for range 100 {
		queue()
		for range 3 {
			for i, l := range links {
				l.round(handlers[i])
			}
		}
		met := true
		for _, h := range handlers {
			met = met && h.heard > 0
		}
		if met {
			return
		}
	}
	t.Fatal("they do not hear each other")
}

func TestNothingIsAllocatedForADatagram(t *testing.T) {
	links := mesh(t, 2)
	a, b := links[0], links[1]
	handlers := []*counting{{}, {link: b}}
	m := heartbeat()
	meet(t, links, handlers, func() { a.Queue(2, EveryNetwork, &m) })

	handlers[0].heard = 0
	const runs = 200
	allocated := testing.AllocsPerRun(runs, func() {
		m.Number++
		a.Queue(2, EveryNetwork, &m)
		a.round(handlers[0])
		b.round(handlers[1])
		a.round(handlers[0])
	})
	if allocated != 0 {
		t.Errorf("%v allocations for a heartbeat and its acknowledgement", allocated)
	}
	if handlers[0].heard == 0 {
		t.Error("nothing was acknowledged")
	}

	content := [MessageSize]byte{}
	var back tenure.Message
	b1 := make([]byte, messageDatagram)
	h := header{what: aMessage, sender: 1, session: token{1}, receiver: 2, pass: token{2}}
	if allocated := testing.AllocsPerRun(runs, func() {
		h.number++
		h.write(b1)
		_ = Encode(&content, &m)
		copy(b1[headerSize:], content[:])
		seal(a.key, b1)
		h.read(b1)
		opened, _ := open(b.key, b1)
		_ = Decode(&back, (*[MessageSize]byte)(opened))
	}); allocated != 0 {
		t.Errorf("%v allocations for sealing and opening", allocated)
	}
	if back != m {
		t.Errorf("opened %+v, sealed %+v", back, m)
	}
}

// What was sent to a node and is sent to it after it was no peer for a while has another number: the nonce is never the same.
func TestNumbersGoOnForAPeerThatComesBack(t *testing.T) {
	links := mesh(t, 2)
	a, m := links[0], heartbeat()
	addresses := map[int][]netip.AddrPort{2: links[1].Local()}
	for i := range 3 {
		a.SetPeers(nil)
		a.Queue(2, 0, &m)
		a.SetPeers(addresses)
		a.Queue(2, 0, &m)
		if sent := a.peers[2].exchange.sent; sent != uint64(i+1) {
			t.Errorf("the number is %d", sent)
		}
	}
}

// Every single changed bit, and every missing or further byte, is seen.
func TestDatagramsThatAreNotAsTheyWereSealed(t *testing.T) {
	links := mesh(t, 2)
	a, b := links[0], links[1]
	b.apply()
	m := heartbeat()
	sealed := make([]byte, messageDatagram)
	head := header{what: aMessage, sender: 1, session: a.session, receiver: 2, number: 77, pass: token{9}}
	b.peers[1].exchange.offered = token{9}
	head.write(sealed)
	if err := Encode((*[MessageSize]byte)(sealed[headerSize:]), &m); err != nil {
		t.Fatal(err)
	}
	seal(a.key, sealed)
	for i := range 8 * len(sealed) {
		flipped := bytes.Clone(sealed)
		flipped[i/8] ^= 1 << (i % 8)
		if why := b.judge(flipped, 0); why == delivered || why == replay || why == wrongSession {
			t.Errorf("with bit %d changed it is judged %q", i, refusalNames[why])
		}
	}
	for n := range len(sealed) {
		if why := b.judge(bytes.Clone(sealed[:n]), 0); why != malformed {
			t.Errorf("its first %d bytes are judged %q", n, refusalNames[why])
		}
	}
	if why := b.judge(append(bytes.Clone(sealed), 0), 0); why != malformed {
		t.Errorf("with one byte more it is judged %q", refusalNames[why])
	}
	if why := b.judge(bytes.Clone(sealed), 0); why != delivered {
		t.Errorf("as it was sealed, it is judged %q", refusalNames[why])
	}
	if why := b.judge(bytes.Clone(sealed), 0); why != replay {
		t.Errorf("again, it is judged %q", refusalNames[why])
	}
}

// relay is a Handler at which another message arrives whenever one is handed over, up to a number.
type relay struct {
	counting
	arrive func()
	most   int
}

func (r *relay) Received(m *tenure.Message, from, network int, arrived time.Time) {
	r.counting.Received(m, from, network, arrived)
	if r.heard < r.most {
		r.arrive()
	}
}

// acquainted is two links that have heard each other, and what has the first say a heartbeat to the second at once.
func acquainted(t *testing.T) (a, b *Link, say func()) {
	t.Helper()
	links, m := mesh(t, 2), heartbeat()
	meet(t, links, []*counting{{}, {link: links[1]}}, func() { links[0].Queue(2, EveryNetwork, &m) })
	return links[0], links[1], func() {
		links[0].Queue(2, 0, &m)
		links[0].flush()
	}
}

// What arrives while other messages are handed over comes before the turn as well, up to a bound.
func TestDrainIsToTheEnd(t *testing.T) {
	_, b, say := acquainted(t)
	h := &relay{arrive: say, most: 5}
	say()
	if now := b.drain(h); h.heard != 5 || now.Before(b.networks[0].empty) {
		t.Errorf("%d were handed over, the socket was empty at %s, and the turn is at %s", h.heard, b.networks[0].empty, now)
	}
	h = &relay{arrive: say, most: 2 * maxDrain}
	say()
	if b.drain(h); h.heard < maxDrain || h.heard > maxDrain+receiveBatch || value(t, b.metrics.cut) != 1 {
		t.Errorf("%d were handed over, of those that never end", h.heard)
	}
}

// All that waited when the wall clock was set is timed by the reading, in the second batch as well.
func TestClockSetWhileBatchesWait(t *testing.T) {
	_, b, say := acquainted(t)
	for range receiveBatch + 20 {
		say()
	}
	b.wall = func() time.Time { return time.Now().Add(time.Hour) }
	h := &counting{}
	if b.drain(h); h.heard != receiveBatch+20 || value(t, b.metrics.untimed[clockSet]) != receiveBatch+20 {
		t.Errorf("%d were heard, and %v timed by the reading because of the clock", h.heard, value(t, b.metrics.untimed[clockSet]))
	}
}

// What is beyond a bound is dropped and counted.
func TestBounds(t *testing.T) {
	registry := prometheus.NewRegistry()
	a, b := openLink(t, 1, registry), openLink(t, 2, nil)
	a.SetPeers(map[int][]netip.AddrPort{2: b.Local()})
	b.SetPeers(map[int][]netip.AddrPort{1: a.Local()})
	m, h := heartbeat(), &counting{}
	for range maxQueued + 5 {
		a.Queue(2, 0, &m)
	}
	if got := value(t, a.metrics.unsent[queueFull]); got != 5 {
		t.Errorf("%v were beyond the bound of a turn, want 5", got)
	}
	a.flush()
	if sent := value(t, a.metrics.sent); sent != maxQueued {
		t.Errorf("%v were sent", sent)
	}
	a.Queue(2, 0, &m)
	if got := value(t, a.metrics.unsent[queueFull]); got != 5 {
		t.Error("the next turn begins with a full queue")
	}
	b.round(h)
	refused, said, limited := value(t, b.metrics.refused[wrongSession]), value(t, b.metrics.hellos[helloSaid]), value(t, b.metrics.hellos[helloLimited])
	if refused < 10 || said+limited != refused || said < hellosEach || limited == 0 {
		t.Errorf("%v were refused; %v hellos were said and %v held back", refused, said, limited)
	}
}

// FuzzJudge gives a link datagrams of anybody, and such that bear a good seal but come from a node that has lost its mind.
func FuzzJudge(f *testing.F) {
	links := mesh(f, 2)
	l := links[0]
	h := &counting{}
	l.drain(h)
	f.Add(make([]byte, messageDatagram), true)
	f.Add(make([]byte, helloDatagram), true)
	f.Add([]byte{1, 1, 0, 2}, false)
	f.Add(bytes.Repeat([]byte{1, 2}, helloDatagram/2), true)
	f.Fuzz(func(t *testing.T, b []byte, good bool) {
		if good && len(b) >= headerSize+16 {
			b[0], b[1] = layoutVersion, aMessage
			if len(b) == helloDatagram {
				b[1] = aHello
			}
			b[2], b[3], b[20], b[21] = 0, 2, 0, 1
			seal(l.key, b)
		}
		if why := l.judge(b, 0); why < 0 || why >= refusals || good && why == badSeal {
			t.Errorf("judged %d", why)
		}
		l.flush()
	})
}

// BenchmarkSixteenPeers: a node says a heartbeat to sixteen others, each acknowledges it, and it takes the acknowledgements. All of them run
// on this one goroutine, so that a datagram is sealed, sent, received and opened for the time that is given.
func BenchmarkSixteenPeers(b *testing.B) {
	links := mesh(b, 17)
	var handlers []*counting
	for _, l := range links {
		handlers = append(handlers, &counting{link: l})
	}
	handlers[0].link = nil
	m := heartbeat()
	queue := func() {
		m.Number++
		for lnn := 2; lnn <= 17; lnn++ {
			links[0].Queue(lnn, EveryNetwork, &m)
		}
	}
	meet(b, links, handlers, queue)
	handlers[0].heard = 0
	b.ReportAllocs()
	rounds := 0
	for b.Loop() {
		rounds++
		queue()
		links[0].round(handlers[0])
		for i, l := range links[1:] {
			l.round(handlers[i+1])
		}
		links[0].round(handlers[0])
	}
	datagrams := float64(32 * rounds)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/datagrams, "ns/datagram")
	b.ReportMetric(datagrams/b.Elapsed().Seconds(), "datagrams/s")
	if handlers[0].heard < 16*rounds {
		b.Fatalf("%d acknowledgements for %d heartbeats", handlers[0].heard, 16*rounds)
	}
}

// BenchmarkSealAndOpen is the share of it that the seal has.
func BenchmarkSealAndOpen(b *testing.B) {
	key, err := newKey([32]byte{1})
	if err != nil {
		b.Fatal(err)
	}
	datagram := make([]byte, messageDatagram)
	h := header{what: aMessage, sender: 1, session: token{1}, receiver: 2}
	b.ReportAllocs()
	for b.Loop() {
		h.number++
		h.write(datagram)
		seal(key, datagram)
		if _, ok := open(key, datagram); !ok {
			b.Fatal("not opened")
		}
	}
}
