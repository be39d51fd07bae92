package dns

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/cluster"
)

// TestBatchAnswersCornersAlike: all types, classes and operations that have a meaning, others among them, and every size of buffer around
// those that count, are answered from what is prepared as they are alone, of names that exist, do not, and are outside.
func TestBatchAnswersCornersAlike(t *testing.T) {
	v := testView()
	many := testPool("many", false, 100)
	many.MaxAnswers = maxPicked
	v.Zones = append(v.Zones, Zone{Name: "many.example.com", Service: "ssip.example.com", Pools: []Pool{many}})
	wide := Service{Subnet: cluster.SubnetID{Groupnet: "groupnet0", Subnet: "subnet1"}, Name: "wide.example.com"}
	for i := range byte(32) {
		wide.Addresses = append(wide.Addresses, netip.AddrFrom4([4]byte{10, 1, 0, i}))
	}
	wide.All = wide.Addresses
	v.Services = append(v.Services, wide)
	v.Zones = append(v.Zones, Zone{Name: "broad.example.com", Service: "wide.example.com", Pools: []Pool{testPool("broad", false, 1)}})
	faithful := testPool("faithful", false, 7)
	faithful.Affinity = cluster.AffinityPrefix
	v.Zones = append(v.Zones, Zone{Name: "faithful.example.com", Service: "ssip.example.com", Pools: []Pool{faithful}})
	alone, b := twins(t, v, RateLimit{Off: true})
	for _, name := range []string{"plain.example.org.", "missing.plain.example.org.", "ssip.example.com.", "elsewhere.example.", "bucket.cluster.example.com."} {
		plain := asked{name: name, qtype: tA, rd: true}.pack(t)
		vary := func(offset, most int) {
			message := bytes.Clone(plain)
			for value := 0; value < most; value = next(value) {
				binary.BigEndian.PutUint16(message[offset:], uint16(value))
				agreeOn(t, alone, b, message, testNow)
			}
		}
		vary(len(plain)-4, 1<<16) // types
		vary(len(plain)-2, 1<<16) // classes
		vary(2, 1<<16)            // operations and flags
		for section := 4; section < headerSize; section += 2 {
			vary(section, 4) // counts
		}
	}
	for name, qtype := range map[string]dnsmessage.Type{"many.example.com.": tA, "cluster.example.com.": tA, "x.plain.example.org.": tA,
		"wide.example.com.": tA, "faithful.example.com.": tA, "broad.example.com.": tNS} {
		message := asked{name: name, qtype: qtype, edns: true, options: []dnsmessage.Option{{Code: optionCookie, Data: []byte("12345678")}}}.pack(t)
		class := len(message) - 8 - 12 // the OPT record: root, type, and then this; the option is behind it
		for size := 0; size < 1300; size += 3 {
			binary.BigEndian.PutUint16(message[class:], uint16(size))
			agreeOn(t, alone, b, message, testNow)
		}
	}
	keepalive := asked{name: "cluster.example.com.", qtype: tA, edns: true, options: []dnsmessage.Option{{Code: optionKeepalive}}}.pack(t)
	agreeOn(t, alone, b, keepalive, testNow)
}

// TestBatchKnowsMappedClients: an IPv4 address inside an IPv6 one is that client, for the rate limit and for cookies.
func TestBatchKnowsMappedClients(t *testing.T) {
	alone, b := twins(t, testView(), RateLimit{PerSecond: 1, Burst: 3})
	mapped := netip.AddrFrom16(testClient.As16())
	query := func(cookie string) []byte {
		return asked{name: "cluster.example.com.", qtype: tA, edns: true, options: []dnsmessage.Option{{Code: optionCookie, Data: []byte(cookie)}}}.pack(t)
	}
	learned := cookieOf(t, ask(t, alone, udp(query("12345678"))))
	together(b, query("12345678"), testClient, testNow)
	for i, message := range [][]byte{query(learned), query("12345678"), query("12345678"), query("12345678"), query("12345678"), query(learned)} {
		want, wanted := alone.Answer(nil, Request{Message: message, Client: mapped, Service: testService, Now: testNow})
		got, outcome, _ := together(b, message, mapped, testNow)
		if !bytes.Equal(got, want) || outcome != wanted {
			t.Errorf("query %d\nalone    %x %+v\ntogether %x %+v", i, want, wanted, got, outcome)
		}
	}
}

// TestViewsChangeUnderABatch: a batch that has been read is answered from the view that it was read with, wholly, whatever comes meanwhile; the
// next one from the new view, whose rotation stands where the old one's answers left it, with all of them told.
func TestViewsChangeUnderABatch(t *testing.T) {
	_, b := twins(t, testView(), RateLimit{Off: true})
	query := asked{name: "cluster.example.com.", qtype: tA}.pack(t)
	memory := make([][]byte, 8)
	read := func() {
		b.begin(testNow)
		for i := range memory {
			memory[i] = append(make([]byte, 0, maxQuery), query...)
			b.read(memory[i], testClient)
		}
		b.decide()
	}
	nodes := func(rcode dnsmessage.RCode) (out []int) {
		for i := range memory {
			n, outcome, done := b.respond(i, memory[i])
			if !done || outcome.RCode != rcode {
				t.Fatalf("query %d: %+v, done %v", i, outcome, done)
			}
			var m dnsmessage.Message
			if err := m.Unpack(memory[i][:n]); err != nil || len(m.Answers) != 1 {
				t.Fatalf("query %d: %v, %+v", i, err, m)
			}
			out = append(out, nodeOf(addressesOf(m)[0]))
		}
		return out
	}
	read()
	if got := nodes(noError); !slices.Equal(got, []int{1, 2, 3, 4, 1, 2, 3, 4}) {
		t.Errorf("before anything changes, nodes %v", got) // and more than a batch is worked out ahead from here on
	}
	fewer := testView()
	fewer.Zones[0].Pools[0].Nodes = fewer.Zones[0].Pools[0].Nodes[:3]
	read()
	b.answerer.SetView(fewer)
	if got := nodes(noError); !slices.Equal(got, []int{1, 2, 3, 4, 1, 2, 3, 4}) {
		t.Errorf("while the view changes, nodes %v", got)
	}
	read()
	if got := nodes(noError); !slices.Equal(got, []int{1, 2, 3, 1, 2, 3, 1, 2}) {
		t.Errorf("then nodes %v", got)
	}
	if told := given(b.answerer); told != 24 {
		t.Errorf("told %d answers of 24", told)
	}
	read()
	b.answerer.SetView(&View{Ready: true}) // without any zone
	if got := nodes(noError); !slices.Equal(got, []int{3, 1, 2, 3, 1, 2, 3, 1}) {
		t.Errorf("while its zone goes, nodes %v", got)
	}
	read()
	if _, outcome, done := b.respond(0, memory[0]); !done || outcome.RCode != refusedCode {
		t.Errorf("a name that is gone is answered from what was prepared for it: %+v, done %v", outcome, done)
	}
}

// TestBatchLimitsEachPrefix: of the queries of many prefixes in one batch, as many of each are answered, slip and are dropped as would be alone,
// and only those that are answered have a pick.
func TestBatchLimitsEachPrefix(t *testing.T) {
	alone, b := twins(t, testView(), RateLimit{PerSecond: 1, Burst: 3})
	query := asked{name: "cluster.example.com.", qtype: tA}.pack(t)
	random := rand.New(rand.NewPCG(3, 4))
	type fate struct {
		client  netip.Addr
		outcome Outcome
	}
	for step := range 100 {
		now := testNow.Add(time.Duration(step) * 300 * time.Millisecond)
		clients, memory := make([]netip.Addr, batchSize), make([][]byte, batchSize)
		fates := map[fate]int{}
		b.begin(now)
		for i := range memory {
			clients[i] = netip.AddrFrom4([4]byte{192, 0, byte(random.IntN(24)), 1})
			memory[i] = append(make([]byte, 0, maxQuery), query...)
			b.read(memory[i], clients[i])
			_, outcome := alone.Answer(nil, Request{Message: query, Client: clients[i], Service: testService, Now: now})
			fates[fate{clients[i], outcome}]++
		}
		b.decide()
		for i := range memory {
			_, outcome, done := b.respond(i, memory[i])
			if !done {
				_, outcome = b.answerer.answer(nil, Request{Message: query, Client: clients[i], Service: testService, Now: now}, b.allowance(i, true))
			}
			fates[fate{clients[i], outcome}]--
		}
		for f, difference := range fates {
			if difference != 0 {
				t.Errorf("step %d, %v, %+v: %d more alone than together", step, f.client, f.outcome, difference)
			}
		}
		if one, other := given(alone), given(b.answerer); one != other {
			t.Errorf("step %d: %d picks, together %d", step, one, other)
		}
	}
}

// TestBatchRefusesAlike: what is outside every zone is refused from what is prepared, as a single query is, unless a search domain might complete
// it or its type says more.
func TestBatchRefusesAlike(t *testing.T) {
	v := testView()
	v.Searches = nil
	for _, limit := range []RateLimit{{Off: true}, {PerSecond: 10, Burst: 100}} {
		alone, b := twins(t, v, limit)
		for _, q := range seedQueries(t) {
			agreeOn(t, alone, b, q, testNow)
		}
	}
	alone, b := twins(t, v, RateLimit{Off: true})
	completing, c := twins(t, testView(), RateLimit{Off: true})
	for _, q := range []asked{{name: "elsewhere.example.", qtype: tA}, {name: "data.", qtype: tANY, edns: true, rd: true}, {name: ".", qtype: tNS}, {name: "in-addr.arpa.", qtype: tPTR}} {
		if !agreeOn(t, alone, b, q.pack(t), testNow) {
			t.Errorf("%s is not refused from what is prepared", q.name)
		}
		if agreeOn(t, completing, c, q.pack(t), testNow) {
			t.Errorf("%s is refused, and no search domain was tried", q.name)
		}
	}
	for _, qtype := range []dnsmessage.Type{dnsmessage.TypeAXFR, dnsmessage.TypeOPT, typeTKEY} {
		if agreeOn(t, alone, b, asked{name: "elsewhere.example.", qtype: qtype}.pack(t), testNow) {
			t.Errorf("type %d is answered from what is prepared", qtype)
		}
	}
	v.Ready = false
	alone, b = twins(t, v, RateLimit{Off: true})
	if agreeOn(t, alone, b, asked{name: "elsewhere.example.", qtype: tA}.pack(t), testNow) {
		t.Error("it is refused before there is a view")
	}
}
