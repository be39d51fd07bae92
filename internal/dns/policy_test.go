package dns

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
)

// holder is one holder of a service address with its own answerer.
type holder struct {
	a       *Answerer
	service netip.Addr
	message []byte
}

// newHolders are holders of one pool with so many nodes.
func newHolders(t *testing.T, count, nodes int, rotation cluster.Rotation) []*holder {
	t.Helper()
	pool := testPool("pool0", false, nodes)
	pool.Rotation = rotation
	v := &View{Ready: true, ServerTTL: 900e9, NegativeTTL: 5e9, Zones: []Zone{{Name: "zone.example", Pools: []Pool{pool}}}}
	message := asked{name: "zone.example.", qtype: dnsmessage.TypeA}.pack(t)
	var out []*holder
	for i := range count {
		out = append(out, &holder{newTestAnswerer(t, v, AnswererOptions{RateLimit: RateLimit{Off: true}}),
			netip.AddrFrom4([4]byte{10, 0, 0, byte(4 + i)}), message})
	}
	return out
}

// ask returns the node in the answer.
func (h *holder) ask(t *testing.T) int {
	t.Helper()
	req := udp(h.message)
	req.Service = h.service
	return nodeOf(addressesOf(ask(t, h.a, req))[0])
}

// share lets every holder hear what the others gave.
func share(holders []*holder) {
	for i, h := range holders {
		given := h.a.TakeGiven()
		for j, other := range holders {
			if i != j {
				other.a.Merge(given)
			}
		}
	}
}

// TestSharedRotation is the bar of a shared rotation: 50 nodes, 10 answers from the first service address and
// then 40 from the second are 50 different nodes; and 7 nodes behind 3 service addresses in turn, where any 7 answers in
// a row name 7 nodes.
func TestSharedRotation(t *testing.T) {
	holders := newHolders(t, 2, 50, cluster.RotationShared)
	seen := map[int]int{}
	for range 10 {
		seen[holders[0].ask(t)]++
		share(holders)
	}
	for range 40 {
		seen[holders[1].ask(t)]++
	}
	assertEven(t, seen, 50, 0)

	holders = newHolders(t, 3, 7, cluster.RotationShared)
	var last []int
	for i := range 210 {
		h := holders[i%3]
		if i > 100 { // the third service address is taken over by the first holder
			h = holders[i%2]
		}
		last = append(last, h.ask(t))
		share(holders)
		if len(last) >= 7 {
			window := map[int]int{}
			for _, n := range last[len(last)-7:] {
				window[n]++
			}
			assertEven(t, window, 7, 0)
		}
	}
}

// TestIndependentRotation: the second service address begins at the first option, on another node and on the same, and
// begins again when it was released in between.
func TestIndependentRotation(t *testing.T) {
	holders := newHolders(t, 2, 5, cluster.RotationIndependent)
	for want := 1; want <= 3; want++ {
		if got := holders[0].ask(t); got != want {
			t.Errorf("first holder gives node %d, want %d", got, want)
		}
	}
	share(holders)
	second := *holders[0]
	second.service = netip.MustParseAddr("10.0.0.9")
	for name, h := range map[string]*holder{"another node": holders[1], "another address on the node": &second} {
		if got := h.ask(t); got != 1 {
			t.Errorf("%s gives node %d, want 1", name, got)
		}
	}
	holders[0].a.Release(holders[0].service)
	if got := holders[0].ask(t); got != 1 {
		t.Errorf("after a release node %d, want 1", got)
	}
	if given := holders[0].a.TakeGiven(); len(given.Answers) > 0 {
		t.Errorf("independent rotation shares %v", given)
	}
}

// TestRotationOutlivesViews: a new view does not begin the rotation anew, and a node that is not eligible is left out.
func TestRotationOutlivesViews(t *testing.T) {
	v := testView()
	a := newTestAnswerer(t, v, AnswererOptions{})
	next := func() int { return nodeOf(addressesOf(askFor(t, a, "cluster.example.com.", dnsmessage.TypeA))[0]) }
	if first, second := next(), next(); first != 1 || second != 2 {
		t.Fatalf("nodes %d and %d", first, second)
	}
	v = testView()
	v.Zones[0].Pools[0].Nodes[2].Eligible = false
	v.Zones[0].Pools[0].Nodes[2].Why = "draining"
	a.SetView(v)
	if third := next(); third != 4 {
		t.Errorf("node %d after a view without node 3, want 4", third)
	}
}

// TestMeasuredPolicyCountsOwnAnswers: between two samples the least loaded node does not get every client, and a fresh
// sample sets that count back.
func TestMeasuredPolicyCountsOwnAnswers(t *testing.T) {
	view := func(sample uint64, connections ...int) *View {
		v := testView()
		p := &v.Zones[0].Pools[0]
		p.Policy, p.Nodes = cluster.ConnCount, p.Nodes[:len(connections)]
		for i, n := range connections {
			p.Nodes[i].Load = placement.Load{Known: true, Connections: n}
			p.Nodes[i].Sampled = sample
		}
		return v
	}
	a := newTestAnswerer(t, view(1, 10, 0, 0), AnswererOptions{})
	counts := map[int]int{}
	for range 20 {
		counts[nodeOf(addressesOf(askFor(t, a, "cluster.example.com.", dnsmessage.TypeA))[0])]++
	}
	if counts[1] != 0 || counts[2] != 10 || counts[3] != 10 {
		t.Errorf("answers before the second sample: %v", counts)
	}
	a.SetView(view(2, 10, 10, 9))
	if got := nodeOf(addressesOf(askFor(t, a, "cluster.example.com.", dnsmessage.TypeA))[0]); got != 3 {
		t.Errorf("after the second sample node %d, want 3", got)
	}
}

// TestMaxAnswers: different nodes first, then more addresses of the same, never one twice, and the first still rotates.
func TestMaxAnswers(t *testing.T) {
	for _, c := range []struct{ limit, nodes, want int }{{2, 4, 2}, {4, 4, 4}, {6, 4, 6}, {99, 4, 8}, {3, 1, 2}, {-1, 4, 1}} {
		v := testView()
		p := &v.Zones[0].Pools[0]
		p.MaxAnswers, p.Nodes = c.limit, p.Nodes[:c.nodes]
		a := newTestAnswerer(t, v, AnswererOptions{})
		firsts := map[int]int{}
		for range 4 * c.nodes {
			got := addressesOf(askFor(t, a, "cluster.example.com.", dnsmessage.TypeA))
			seen, nodes := map[netip.Addr]bool{}, map[int]bool{}
			for _, address := range got {
				seen[address], nodes[nodeOf(address)] = true, true
			}
			if len(got) != c.want || len(seen) != c.want || len(nodes) != min(c.want, c.nodes) {
				t.Fatalf("max-answers %d of %d nodes: %v", c.limit, c.nodes, got)
			}
			firsts[nodeOf(got[0])]++
		}
		if c.limit < 3 {
			assertEven(t, firsts, min(c.nodes, 4/max(c.limit, 1)), 0)
		}
	}
}

// TestMaxAnswersWithWeights: a very heavy node does not keep the others out of an answer of several addresses.
func TestMaxAnswersWithWeights(t *testing.T) {
	v := testView()
	p := &v.Zones[0].Pools[0]
	p.MaxAnswers, p.Nodes[1].Weight = 4, 100
	a := newTestAnswerer(t, v, AnswererOptions{})
	for range 50 {
		nodes := map[int]int{}
		for _, address := range addressesOf(askFor(t, a, "cluster.example.com.", dnsmessage.TypeA)) {
			nodes[nodeOf(address)]++
		}
		assertEven(t, nodes, 4, 0)
	}
}

// TestOnNone is what each setting answers when no node may be given.
func TestOnNone(t *testing.T) {
	for _, c := range []struct {
		setting cluster.OnNone
		rcode   dnsmessage.RCode
		answers int
		soa     bool
		said    string
	}{{cluster.OnNoneServFail, dnsmessage.RCodeServerFailure, 0, false, "SERVFAIL"}, {"", dnsmessage.RCodeServerFailure, 0, false, "SERVFAIL"},
		{cluster.OnNoneAll, dnsmessage.RCodeSuccess, 4, false, "all 4 addresses that are held"}, {cluster.OnNoneNoData, dnsmessage.RCodeSuccess, 0, true, "NODATA"}} {
		v := testView()
		v.Zones[3].Pools[0].OnNone = c.setting
		a := newTestAnswerer(t, v, AnswererOptions{})
		m := askFor(t, a, "nobody.example.net.", dnsmessage.TypeA)
		if m.RCode != c.rcode || len(m.Answers) != c.answers || (len(m.Authorities) == 1) != c.soa {
			t.Errorf("on-none %q: %v, %d answers, %d authorities", c.setting, m.RCode, len(m.Answers), len(m.Authorities))
		}
		d, err := a.Explain("nobody.example.net", dnsmessage.TypeA, testNow)
		if err != nil || d.Chosen != c.said || len(d.LeftOut) != 2 || d.LeftOut[0].Reason != "suspended by the operator" {
			t.Errorf("on-none %q explains %+v, %v", c.setting, d, err)
		}
	}
}

// TestNotReady: SERVFAIL to everything until the first full view, so that resolvers turn elsewhere.
func TestNotReady(t *testing.T) {
	v := testView()
	v.Ready = false
	waiting := newTestAnswerer(t, v, AnswererOptions{})
	for _, a := range []*Answerer{NewAnswerer(AnswererOptions{}), waiting} {
		for _, name := range []string{"cluster.example.com.", "elsewhere.example."} {
			m := ask(t, a, udp(asked{name: name, qtype: dnsmessage.TypeA, edns: true}.pack(t)))
			if m.RCode != dnsmessage.RCodeServerFailure || m.Authoritative || len(m.Authorities) > 0 || len(m.Questions) != 1 {
				t.Errorf("%s: %+v", name, m)
			}
		}
		if d, err := a.Explain("cluster.example.com", dnsmessage.TypeA, testNow); err != nil || !strings.Contains(d.Reason, "not yet") {
			t.Errorf("explains %+v, %v", d, err)
		}
	}
}

// TestAffinity: a client prefix keeps its node whatever holder answers; prefixes are spread by weight; when a node goes,
// only its own clients move; client-subnet counts before the resolver's address and comes back with the scope used.
func TestAffinity(t *testing.T) {
	v := testView()
	p := &v.Zones[0].Pools[0]
	p.Affinity = cluster.AffinityPrefix
	p.Nodes[3].Weight = 3
	first, second := newTestAnswerer(t, v, AnswererOptions{}), newTestAnswerer(t, v, AnswererOptions{})
	message := asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA}.pack(t)
	from := func(a *Answerer, prefix, host int) netip.Addr {
		req := udp(message)
		req.Client = netip.AddrFrom4([4]byte{100, byte(prefix >> 8), byte(prefix), byte(host)})
		return addressesOf(ask(t, a, req))[0]
	}
	const prefixes = 3000
	before, counts := make([]netip.Addr, prefixes), map[int]int{}
	for i := range prefixes {
		before[i] = from(first, i, 1)
		counts[nodeOf(before[i])]++
		if other := from(second, i, 77); other != before[i] {
			t.Fatalf("prefix %d gets %v and, elsewhere, %v", i, before[i], other)
		}
	}
	for lnn, want := range map[int]int{1: 500, 2: 500, 3: 500, 4: 1500} {
		if counts[lnn] < want*4/5 || counts[lnn] > want*6/5 {
			t.Errorf("node %d has %d of %d prefixes, want about %d", lnn, counts[lnn], prefixes, want)
		}
	}
	v = testView()
	v.Zones[0].Pools[0].Affinity = cluster.AffinityPrefix
	v.Zones[0].Pools[0].Nodes[3].Weight = 3
	v.Zones[0].Pools[0].Nodes[0].Eligible = false
	first.SetView(v)
	for i := range prefixes {
		if now := from(first, i, 1); now != before[i] && nodeOf(before[i]) != 1 {
			t.Fatalf("prefix %d moved from %v to %v, though its node stayed", i, before[i], now)
		}
	}
	for _, c := range []struct{ option, scope string }{
		{"\x00\x01\x18\x00\x64\x00\x07", "\x18"},                                                 // 100.0.7.0/24
		{"\x00\x01\x20\x00\x64\x00\x07\x09", "\x18"},                                             // /32: 24 bits count
		{"\x00\x01\x10\x00\x64\x00", "\x10"},                                                     // /16: all it has
		{"\x00\x02\x38\x00\x20\x01\x0d\xb8\x00\x00\x01", "\x38"},                                 // IPv6 client of the IPv4 pool
		{"\x00\x01\x00\x00", "\x00"}, {"\x00\x02\x00\x00", "\x00"}, {"\x00\x00\x00\x00", "\x00"}, // asked not to
	} {
		m := ask(t, second, udp(asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA, edns: true,
			options: []dnsmessage.Option{{Code: optionClientSubnet, Data: []byte(c.option)}}}.pack(t)))
		got := fmt.Sprintf("%x", m.Additionals[0].Body.(*dnsmessage.OPTResource).Options[0].Data)
		want := fmt.Sprintf("%x", c.option[:3]+c.scope+c.option[4:])
		if got != want || len(m.Answers) != 1 {
			t.Errorf("option %x comes back as %s, want %s", c.option, got, want)
		}
		if c.option[:4] == "\x00\x01\x18\x00" && addressesOf(m)[0] != before[7] {
			t.Errorf("the client behind the resolver gets %v, its own query got %v", addressesOf(m)[0], before[7])
		}
	}
}

// TestExplainForetells: Explain says what the next answer then is, and asking why changes nothing.
func TestExplainForetells(t *testing.T) {
	v := testView()
	v.Zones[0].Pools[0].Nodes[1].Eligible = false
	v.Zones[0].Pools[0].Nodes[1].Why = "failing its checks"
	v.Zones[0].Pools[1].Nodes[2].Addresses = nil
	a := newTestAnswerer(t, v, AnswererOptions{})
	for range 10 {
		for _, qtype := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA} {
			for range 3 {
				if _, err := a.Explain("cluster.example.com.", qtype, testNow); err != nil {
					t.Fatal(err)
				}
			}
			d, _ := a.Explain("Bucket.cluster.example.com", qtype, testNow)
			got := addressesOf(askFor(t, a, "cluster.example.com.", qtype))[0]
			if want := fmt.Sprintf("%v (node%d)", got, nodeOf(got)); d.Chosen != want || d.Reason == "" || len(d.LeftOut) != 1 || d.At != testNow {
				t.Fatalf("explained %+v, then answered %s", d, want)
			}
		}
	}
	for _, c := range []struct {
		name  string
		qtype dnsmessage.Type
		want  string
		said  string
	}{
		{"cluster.example.com", dnsmessage.TypeNS, "the service name ssip.example.com", "ssip.example.com"},
		{"ssip.example.com", dnsmessage.TypeA, "the service addresses 10.0.0.4, 10.0.0.5", "10.0.0.4, 10.0.0.5"},
		{"x.plain.example.org", dnsmessage.TypeA, "NXDOMAIN", "NXDOMAIN"},
		{"plain.example.org", dnsmessage.TypeAAAA, "NODATA", "NODATA"},
		{"plain.example.org", dnsmessage.TypeAXFR, "REFUSED", "REFUSED"},
		{"plain.example.org", dnsmessage.TypeSOA, "SOA", "SOA"},
		{"plain.example.org", dnsmessage.TypeALL, "HINFO", "HINFO"},
	} {
		if d, err := a.Explain(c.name, c.qtype, testNow); err != nil || !strings.Contains(d.Reason, c.want) || d.Chosen != c.said {
			t.Errorf("%s %v: %+v, %v; want %q", c.name, c.qtype, d, err, c.want)
		}
	}
	for _, name := range []string{"elsewhere.example", "", "a b"} {
		if d, err := a.Explain(name, dnsmessage.TypeA, testNow); err == nil {
			t.Errorf("%q is explained: %+v", name, d)
		}
	}
}

// TestFaultyView: names that cannot be answered are left out and named, the rest is answered.
func TestFaultyView(t *testing.T) {
	v := testView()
	v.Zones = append(v.Zones, Zone{Name: "bad name.example"}, Zone{Name: "CLUSTER.example.com", Pools: []Pool{testPool("late", false, 1)}},
		Zone{Name: "two.example.com", Pools: []Pool{testPool("a", false, 1), testPool("b", false, 1)}}, Zone{Name: "ssip2.example.com"})
	v.Services = append(v.Services, Service{Name: "ssip2.example.com"}, Service{Name: "no..pe"})
	a := NewAnswerer(AnswererOptions{})
	faults := a.SetView(v)
	if len(faults) != 5 {
		t.Errorf("%d faults: %v", len(faults), faults)
	}
	if m := askFor(t, a, "cluster.example.com.", dnsmessage.TypeA); len(m.Answers) != 1 {
		t.Errorf("the good zone answers %+v", m)
	}
}

// TestTwoZonesOfOneName: the alias of an IPv4 pool is the zone of an IPv6 pool. Both are answered, with one SOA.
func TestTwoZonesOfOneName(t *testing.T) {
	v := testView()
	v.Zones = append(v.Zones, Zone{Name: "old.example.com", Aliases: []string{"both.example.com"}, Service: "ssip.example.com", Pools: []Pool{testPool("four", false, 2)}},
		Zone{Name: "Both.example.com", Wildcard: true, Service: "ns.deep.plain.example.org", Pools: []Pool{testPool("six", true, 2)}})
	a := newTestAnswerer(t, v, AnswererOptions{})
	for _, c := range []struct {
		name    string
		qtype   dnsmessage.Type
		answers int
	}{
		{"both.example.com.", dnsmessage.TypeA, 1}, {"both.example.com.", dnsmessage.TypeAAAA, 1}, {"x.both.example.com.", dnsmessage.TypeAAAA, 1},
		{"old.example.com.", dnsmessage.TypeA, 1}, {"old.example.com.", dnsmessage.TypeAAAA, 0},
	} {
		if m := askFor(t, a, c.name, c.qtype); len(m.Answers) != c.answers || m.RCode != dnsmessage.RCodeSuccess {
			t.Errorf("%s %v: %+v", c.name, c.qtype, m)
		}
	}
	if got := text(askFor(t, a, "both.example.com.", dnsmessage.TypeNS).Answers); got != "both.example.com. 900 NS ssip.example.com." {
		t.Errorf("NS is %s", got)
	}
}

// TestExplainSaysWhatAnAnswerCarries: affinity and max-answers change what a client gets, so an explanation says them.
func TestExplainSaysWhatAnAnswerCarries(t *testing.T) {
	for _, affinity := range []cluster.Affinity{cluster.AffinityOff, cluster.AffinityPrefix} {
		for _, most := range []int{1, 2} {
			v := testView()
			v.Zones[0].Pools[0].Affinity, v.Zones[0].Pools[0].MaxAnswers = affinity, most
			a := newTestAnswerer(t, v, AnswererOptions{})
			d, err := a.Explain("cluster.example.com.", dnsmessage.TypeA, testNow)
			if err != nil || strings.Contains(d.Reason, "up to 2 addresses (max-answers)") != (most == 2) ||
				strings.Contains(d.Reason, "client affinity is on") != (affinity == cluster.AffinityPrefix) {
				t.Errorf("affinity %s, %d answers: %q, %v", affinity, most, d.Reason, err)
			}
		}
	}
}

// TestServiceTurnsAreBounded: a pool keeps so many positions apart; what is beyond shares one, and one that is forgotten makes room.
func TestServiceTurnsAreBounded(t *testing.T) {
	var s poolState
	service := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }
	turns := map[*turn]bool{}
	for i := range maxServiceTurns {
		turns[s.of(cluster.RotationIndependent, service(i))] = true
	}
	if len(turns) != maxServiceTurns || turns[&s.shared] {
		t.Errorf("%d service addresses have %d turns of their own", maxServiceTurns, len(turns))
	}
	if s.of(cluster.RotationIndependent, service(maxServiceTurns)) != &s.shared || len(s.turns()) != maxServiceTurns {
		t.Errorf("one too many has a turn of its own; %d are kept", len(s.turns()))
	}
	if s.of(cluster.RotationIndependent, service(3)) == &s.shared {
		t.Error("one that has a turn lost it")
	}
	s.forget(service(3))
	if s.of(cluster.RotationIndependent, service(maxServiceTurns)) == &s.shared {
		t.Error("the room of one that was forgotten is not used")
	}
}
