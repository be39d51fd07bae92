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
	"github.com/holdfast/holdfast/internal/placement"
)

// together answers one query as a batch of one does; fast says whether it was answered from what is prepared.
func together(b *batch, message []byte, client netip.Addr, now time.Time) (response []byte, outcome Outcome, fast bool) {
	memory := append(make([]byte, 0, maxQuery), message...)
	b.begin(now)
	b.read(memory, client)
	b.decide()
	length, outcome, fast := b.respond(0, memory)
	b.end()
	if !fast {
		response, outcome = b.answerer.answer(nil, Request{Message: message, Client: client, Service: b.service, Now: now}, b.allowance(0, true))
		return response, outcome, false
	}
	return memory[:length], outcome, true
}

// seedQueries are queries of every form that the tests of single answers know, and those that clients send.
func seedQueries(t testing.TB) (out [][]byte) {
	for _, row := range rcodeTable {
		out = append(out, row.q.pack(t))
	}
	names := []string{"cluster.example.com.", "CluSTer.exAMple.com.", "bucket.cluster.example.com.", "a.b.c.cluster.example.com.", "ssip.example.com.", "ns1-ssip.example.com.",
		"plain.example.org.", "x.plain.example.org.", "deep.plain.example.org.", "nobody.example.net.", "elsewhere.example.", "data.", ".",
		"1.1.0.10.in-addr.arpa.", "9.9.9.10.in-addr.arpa.", "0.10.IN-addr.arpa.", "1.3.0.10.in-addr.arpa.", "10.in-addr.arpa.", "9.5.0.192.in-addr.arpa.", "8.b.d.0.1.0.0.2.ip6.arpa."}
	for _, name := range names {
		for _, qtype := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeNS, dnsmessage.TypeSOA, dnsmessage.TypeTXT, dnsmessage.TypeALL, dnsmessage.TypePTR, typeDS, dnsmessage.TypeAXFR, 65} {
			for _, form := range []asked{{}, {rd: true}, {edns: true}, {edns: true, udpSize: 512, do: true}, {edns: true, version: 1},
				{edns: true, udpSize: 4096, options: []dnsmessage.Option{{Code: optionCookie, Data: []byte("12345678")}}},
				{edns: true, options: []dnsmessage.Option{{Code: optionCookie, Data: []byte("1234567890123456789012345678901234567890")}}},
				{edns: true, options: []dnsmessage.Option{{Code: optionCookie, Data: []byte("123")}}},
				{edns: true, options: []dnsmessage.Option{{Code: optionClientSubnet, Data: []byte("\x00\x01\x18\x00\x0a\x00\x01")}}}} {
				form.name, form.qtype = name, qtype
				out = append(out, form.pack(t))
			}
		}
	}
	return out
}

// twins are two answerers that stand alike, one behind a batch.
func twins(t testing.TB, v *View, limit RateLimit) (alone *Answerer, b *batch) {
	o := AnswererOptions{RateLimit: limit}
	return newTestAnswerer(t, v, o), newBatch(newTestAnswerer(t, v, o), testService)
}

// agreeOn asks both twins the same.
func agreeOn(t testing.TB, alone *Answerer, b *batch, message []byte, now time.Time) (fast bool) {
	t.Helper()
	want, wanted := alone.Answer(nil, Request{Message: message, Client: testClient, Service: testService, Now: now})
	got, outcome, fast := together(b, message, testClient, now)
	if !bytes.Equal(got, want) || outcome != wanted {
		t.Fatalf("query %x\nalone    %x %+v\ntogether %x %+v (fast %v)", message, want, wanted, got, outcome, fast)
	}
	return fast
}

// TestBatchAnswersAlike: whatever a batch answers from what is prepared, it answers as a single query is answered, octet for octet, with the
// same picks; also with the cookies that it gave out, with letters in any case, the bits that are copied, and over the rate limit.
func TestBatchAnswersAlike(t *testing.T) {
	for _, limit := range []RateLimit{{Off: true}, {PerSecond: 1e6}, {PerSecond: 10, Burst: 700}} {
		alone, b := twins(t, testView(), limit)
		random := rand.New(rand.NewPCG(1, 2))
		fast, queries := 0, seedQueries(t)
		for round := range 3 {
			for _, q := range queries {
				q = slices.Clone(q)
				for i := 1; i < 4 && round > 0; i++ { // any id, RD, CD and the bits that nobody reads
					q[i] ^= byte(random.Uint32()) & [4]byte{0, 0xff, 0x07, 0xff}[i]
				}
				if agreeOn(t, alone, b, q, testNow) {
					fast++
				}
			}
		}
		if want := 3 * len(queries) / 4; fast < want && limit.PerSecond != 10 {
			t.Errorf("only %d of %d queries were answered from what is prepared", fast, 3*len(queries))
		}
	}
}

// TestBatchTakesItsCookies: a query with the cookie of an earlier response is answered from what is prepared, is not limited, and
// carries the same cookie until that has to be renewed.
func TestBatchTakesItsCookies(t *testing.T) {
	alone, b := twins(t, testView(), RateLimit{PerSecond: 1, Burst: 1})
	query := func(cookie []byte) []byte {
		return asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA, edns: true, options: []dnsmessage.Option{{Code: optionCookie, Data: cookie}}}.pack(t)
	}
	first := ask(t, alone, udp(query([]byte("12345678"))))
	_, _, _ = together(b, query([]byte("12345678")), testClient, testNow)
	mine := query([]byte(cookieOf(t, first)))
	for _, age := range []time.Duration{0, time.Second, cookieRenewAge, cookieRenewAge + time.Second, cookieMaxAge} {
		if !agreeOn(t, alone, b, mine, testNow.Add(age)) {
			t.Errorf("a cookie of age %v is left to the single answer", age)
		}
	}
	agreeOn(t, alone, b, mine, testNow.Add(cookieMaxAge+time.Second))
}

// TestBatchesPickAlike: batches of several sizes give the same picks in the same order as single queries do, for every policy and rotation,
// while samples and answers of other holders come in between, and nothing that is to be told is lost.
func TestBatchesPickAlike(t *testing.T) {
	for _, policy := range []cluster.Policy{cluster.RoundRobin, cluster.ConnCount, cluster.CPUUsage} {
		for _, rotation := range []cluster.Rotation{cluster.RotationShared, cluster.RotationIndependent} {
			random := rand.New(rand.NewPCG(7, uint64(len(policy))))
			view := func(sample uint64) *View {
				v := testView()
				p := &v.Zones[0].Pools[0]
				p.Policy, p.Rotation = policy, rotation
				for i := range p.Nodes {
					p.Nodes[i].Weight = 1 + i%3
					p.Nodes[i].Sampled = sample
					p.Nodes[i].Load = placement.Load{Known: true, Connections: random.IntN(20), CPU: random.Float64()}
				}
				return v
			}
			first := view(1)
			alone, b := twins(t, first, RateLimit{Off: true})
			query := asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA}.pack(t)
			for step := range 300 {
				switch random.IntN(4) {
				case 0:
					told := Told{Answers: []Answered{{Pool: testPool("v4", false, 1).ID, LNN: 1 + random.IntN(5), Count: uint32(random.IntN(9))}}}
					alone.Merge(told)
					b.answerer.Merge(told)
				case 1:
					v := view(uint64(2 + step))
					alone.SetView(v)
					b.answerer.SetView(v)
				case 2:
					if one, other := given(alone), given(b.answerer); one != other {
						t.Fatalf("%s, %s: told %d, and by the batch %d", policy, rotation, one, other)
					}
				}
				count := 1 + random.IntN(batchSize)
				b.begin(testNow)
				memory := make([][]byte, count)
				for i := range memory {
					memory[i] = append(make([]byte, 0, maxQuery), query...)
					b.read(memory[i], testClient)
				}
				b.decide()
				for i := range memory {
					want, _ := alone.Answer(nil, udp(query))
					n, _, done := b.respond(i, memory[i])
					if !done || !bytes.Equal(memory[i][:n], want) {
						t.Fatalf("%s, %s, step %d, query %d of %d: %x, alone %x", policy, rotation, step, i, count, memory[i][:n], want)
					}
				}
			}
		}
	}
}

// given is how many answers there are to tell.
func given(a *Answerer) (sum uint32) {
	for _, answered := range a.TakeGiven().Answers {
		sum += answered.Count
	}
	return sum
}

// TestBatchAllocatesNothing: neither a pick, nor a cookie, a wildcard, or an absence. What a turn works out ahead, once in many answers, is the
// one thing that is new.
func TestBatchAllocatesNothing(t *testing.T) {
	v := testView()
	v.Searches = nil
	_, b := twins(t, v, RateLimit{PerSecond: 1e9})
	for _, q := range []asked{
		{name: "elsewhere.example.", qtype: dnsmessage.TypeA},
		{name: "cluster.example.com.", qtype: dnsmessage.TypeA}, {name: "cluster.example.com.", qtype: dnsmessage.TypeAAAA, edns: true},
		{name: "x.cluster.example.com.", qtype: dnsmessage.TypeA}, {name: "x.plain.example.org.", qtype: dnsmessage.TypeA},
		{name: "cluster.example.com.", qtype: dnsmessage.TypeA, edns: true, options: []dnsmessage.Option{{Code: optionCookie, Data: []byte("12345678")}}},
	} {
		query, memory := q.pack(t), make([]byte, maxQuery)
		fast := true
		one := func() {
			copy(memory, query)
			b.begin(testNow)
			for range batchSize {
				b.read(memory[:len(query)], testClient)
			}
			b.decide()
			for i := range batchSize {
				copy(memory, query)
				_, _, done := b.respond(i, memory)
				fast = fast && done
			}
		}
		for range 64 {
			one()
		}
		if n := testing.AllocsPerRun(500, one); n > 0 || !fast {
			t.Errorf("%+v: %v allocations in a batch, fast %v", q, n, fast)
		}
	}
}

// FuzzBatchAnswersAlike: the same for whatever arrives.
func FuzzBatchAnswersAlike(f *testing.F) {
	for _, q := range seedQueries(f) {
		f.Add(q)
	}
	alone, b := twins(f, testView(), RateLimit{PerSecond: 1, Burst: 1 << 30})
	f.Fuzz(func(t *testing.T, message []byte) {
		if len(message) <= maxQuery {
			agreeOn(t, alone, b, message, testNow)
		}
	})
}

// TestNamesAreLowered: letters of ASCII alone, wherever they stand, and whatever the length; names that differ have other hashes.
func TestNamesAreLowered(t *testing.T) {
	hashes := map[uint64][]byte{}
	for length := 1; length <= maxWireName; length++ {
		name := make([]byte, length)
		for i := range name {
			name[i] = byte(i*7 + length)
		}
		var lowered [loweredSize]byte
		hash := lowerName(&lowered, name)
		for i, c := range name {
			if lowered[i] != lower(c) {
				t.Fatalf("octet %d of %d: %#x becomes %#x", i, length, c, lowered[i])
			}
		}
		if other := hashes[hash]; other != nil {
			t.Errorf("%x and %x have one hash", name, other)
		}
		hashes[hash] = name
	}
}

// TestLettersAreLoweredAlone: whatever stands beside them in the word that is lowered at once.
func TestLettersAreLoweredAlone(t *testing.T) {
	for pair := range 1 << 16 {
		name := []byte{byte(pair >> 8), byte(pair), 'x'}
		var lowered [loweredSize]byte
		lowerName(&lowered, name)
		if lowered[0] != lower(name[0]) || lowered[1] != lower(name[1]) || lowered[2] != 'x' {
			t.Fatalf("%x becomes %x", name, lowered[:3])
		}
	}
}

// TestIndexComparesNames: a name whose hash is that of another one is not taken for it.
func TestIndexComparesNames(t *testing.T) {
	name := "\x01a\x00"
	x := newNameIndex(map[string]*entry{name: {}})
	var lowered [loweredSize]byte
	hash := lowerName(&lowered, []byte(name))
	if x.find(hash, []byte(name)) == nil || x.find(hash, []byte("\x01b\x00")) != nil || x.find(hash+1, []byte(name)) != nil {
		t.Error("a name is found by another's hash, or not by its own")
	}
}

// BenchmarkBatch is one answer of a full batch, without the sockets.
func BenchmarkBatch(b *testing.B) {
	for name, q := range map[string]asked{
		"plain": {name: "cluster.example.com.", qtype: dnsmessage.TypeA},
		"edns":  {name: "cluster.example.com.", qtype: dnsmessage.TypeA, edns: true},
		"cookie": {name: "cluster.example.com.", qtype: dnsmessage.TypeA, edns: true,
			options: []dnsmessage.Option{{Code: optionCookie, Data: []byte("12345678")}}},
		"wildcard": {name: "bucket.cluster.example.com.", qtype: dnsmessage.TypeA, edns: true},
		"nxdomain": {name: "a.b.c.plain.example.org.", qtype: dnsmessage.TypeA, edns: true},
		"refused":  {name: "a.b.c.elsewhere.example.", qtype: dnsmessage.TypeA, edns: true},
	} {
		b.Run(name, func(b *testing.B) {
			v := testView()
			v.Searches = nil
			batch := newBatch(newTestAnswerer(b, v, AnswererOptions{RateLimit: RateLimit{PerSecond: 1e9}}), testService)
			query := q.pack(b)
			var memory [batchSize][]byte
			for i := range memory {
				memory[i] = make([]byte, maxQuery)
			}
			b.ReportAllocs()
			for at := 0; b.Loop(); at++ {
				if at%batchSize != 0 {
					continue // one batch is the work of all its queries
				}
				batch.begin(testNow)
				for i := range memory {
					copy(memory[i], query)
					binary.BigEndian.PutUint16(memory[i], uint16(i))
					batch.read(memory[i][:len(query)], testClient)
				}
				batch.decide()
				for i := range memory {
					if _, _, done := batch.respond(i, memory[i][:len(query)]); !done {
						b.Fatal("not prepared")
					}
				}
			}
		})
	}
}
