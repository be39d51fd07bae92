package rules

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
)

var (
	noon  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	alice = Author{Origin: "broker-a", Operator: "alice"}
)

func members(refs ...string) (list []Member) {
	for _, ref := range refs {
		name, gateway, _ := strings.Cut(ref, "/")
		list = append(list, Member{Ref: fleet.Ref{Fleet: name, Gateway: gateway}})
	}
	return list
}

func network(name string, subnets ...string) Value {
	n := &Network{Name: name, Members: members("f/" + name)}
	for _, s := range subnets {
		n.Subnets = append(n.Subnets, netip.MustParsePrefix(s))
	}
	return Value{Network: n}
}

func assign(target, network string) Value {
	return Value{Assignment: &Assignment{Target: target, Network: network}}
}

// put makes a book of values, and ends the test if one is refused.
func put(t testing.TB, b *Book, values ...Value) *Book {
	t.Helper()
	for _, v := range values {
		var err error
		if b, err = b.Put(v, alice, noon); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func compiled(t testing.TB, b *Book) *Table {
	t.Helper()
	table, faults := b.Compile()
	if len(faults) > 0 {
		t.Fatalf("faults: %v", faults)
	}
	return table
}

// The assignment counts before the longest subnet, and that before the default network.
func TestFind(t *testing.T) {
	table := compiled(t, put(t, new(Book),
		network("wide", "10.0.0.0/8", "2001:db8::/32"), network("narrow", "10.1.0.0/16", "2001:db8:1::/48"), network("host", "10.1.2.3/32", "2001:db8:1::5/128"),
		network("mapped", "::ffff:192.0.2.0/120"), network("names"), assign("DB1.example", "names"), assign("anywhere", DefaultNetwork)))
	tests := []struct{ target, address, network, subnet string }{
		{"", "10.9.9.9", "wide", "10.0.0.0/8"},
		{"", "10.1.9.9", "narrow", "10.1.0.0/16"},
		{"", "10.1.2.3", "host", "10.1.2.3/32"},
		{"", "::ffff:10.1.2.3", "host", "10.1.2.3/32"},
		{"", "::ffff:10.9.9.9", "wide", "10.0.0.0/8"},
		{"", "192.0.2.77", "mapped", "192.0.2.0/24"},
		{"", "2001:db8::1", "wide", "2001:db8::/32"},
		{"", "2001:db8:1::1", "narrow", "2001:db8:1::/48"},
		{"", "2001:db8:1::5%eth0", "host", "2001:db8:1::5/128"},
		{"", "11.0.0.0", "default", ""},
		{"", "2002::", "default", ""},
		{"", "", "default", ""},
		{"db1.example", "10.1.2.3", "names", ""},
		{"DB1.EXAMPLE", "", "names", ""},
		{"db2.example", "10.1.2.3", "host", "10.1.2.3/32"},
		{"anywhere", "10.1.2.3", "default", ""},
	}
	for _, test := range tests {
		var address netip.Addr
		if test.address != "" {
			address = netip.MustParseAddr(test.address)
		}
		m := table.Find(test.target, address, noon)
		subnet := ""
		if m.By == BySubnet {
			subnet = m.Subnet.String()
		}
		if m.Network != test.network || subnet != test.subnet || (m.Members == nil) != (test.network == "default") {
			t.Errorf("%s %s: network %s by %q, want %s by %q", test.target, test.address, m.Network, subnet, test.network, test.subnet)
		}
	}
}

// Find agrees with the plain way of looking at every subnet.
func TestFindIsTheLongest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b, subnets := new(Book), []netip.Prefix{}
	for i := range 60 {
		var address netip.Addr
		bits := r.IntN(17)
		if i%2 == 0 {
			address, bits = netip.AddrFrom4([4]byte{10, byte(r.IntN(4)), byte(r.IntN(4)), byte(r.IntN(4))}), 16+bits
		} else {
			address, bits = netip.AddrFrom16([16]byte{0x20, 1, 14: byte(r.IntN(4)), 15: byte(r.IntN(4))}), 112+bits
		}
		subnet := netip.PrefixFrom(address, bits).Masked()
		if next, err := b.Put(network(fmt.Sprint("n", i), subnet.String()), alice, noon); err == nil {
			b, subnets = next, append(subnets, subnet)
		}
	}
	table := compiled(t, b)
	for range 5000 {
		address := netip.AddrFrom4([4]byte{10, byte(r.IntN(5)), byte(r.IntN(5)), byte(r.IntN(5))})
		if r.IntN(2) == 0 {
			address = netip.AddrFrom16([16]byte{0x20, 1, 14: byte(r.IntN(5)), 15: byte(r.IntN(5))})
		}
		var want netip.Prefix
		for _, s := range subnets {
			if s.Contains(address) && (!want.IsValid() || s.Bits() > want.Bits()) {
				want = s
			}
		}
		if m := table.Find("", address, noon); m.Subnet != want {
			t.Fatalf("%s is in %s, want %s", address, m.Subnet, want)
		}
	}
}

// An override takes the place of a network's gateways, and of those of the default one, until it ends or is removed.
func TestOverride(t *testing.T) {
	until := noon.Add(time.Hour)
	b := put(t, new(Book), network("n", "10.0.0.0/8"),
		Value{Override: &Override{Network: "n", Members: members("f/up"), Until: until}},
		Value{Override: &Override{Network: DefaultNetwork, Members: members("f/other")}})
	table := compiled(t, b)
	at := func(address string, now time.Time) string {
		m := table.Find("", netip.MustParseAddr(address), now)
		if (m.Override != nil) != (m.Members[0].Gateway != "n") {
			t.Errorf("the match has gateway %s and override %v", m.Members[0].Gateway, m.Override)
		}
		return m.Members[0].Gateway
	}
	if got := at("10.0.0.1", noon) + at("10.0.0.1", until) + at("11.0.0.1", until.AddDate(9, 0, 0)); got != "upnother" {
		t.Errorf("gateways %s", got)
	}
	b, err := b.Remove(Key{KindOverride, DefaultNetwork}, alice, noon)
	if err != nil {
		t.Fatal(err)
	}
	if m := compiled(t, b).Find("", netip.Addr{}, noon); m.Members != nil {
		t.Errorf("after its removal the default network still has %v", m.Members)
	}
}

// What is refused when it is saved, each with a text that says what to write.
func TestRefusedAtSave(t *testing.T) {
	long := strings.Repeat("n", MaxName+1)
	over := func(m []Member) Value { return Value{Override: &Override{Network: DefaultNetwork, Members: m}} }
	with := func(change func(n *Network)) Value {
		v := network("new", "10.7.0.0/16")
		change(v.Network)
		return v
	}
	var many []Member
	for i := range MaxMembers + 1 {
		many = append(many, members(fmt.Sprint("f/", i))...)
	}
	var tooMany []netip.Prefix
	for i := range MaxSubnets + 1 {
		tooMany = append(tooMany, netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i), 0}), 24))
	}
	b := put(t, new(Book), network("taken", "10.1.0.0/16"), assign("db", "taken"))
	tests := []struct {
		value Value
		says  string
	}{
		{network("new", "10.1.0.0/16"), "network new: the subnet 10.1.0.0/16 already belongs to network taken"},
		{network("new", "::ffff:10.1.0.0/112"), "the subnet 10.1.0.0/16 already belongs"},
		{network("new", "10.2.0.0/16", "10.2.0.0/16"), "the subnet 10.2.0.0/16 is there twice"},
		{network("new", "10.2.0.1/16"), "was 10.2.0.0/16 meant?"},
		{network("new", "::ffff:0:0/95"), "write the IPv4 subnet"},
		{with(func(n *Network) { n.Subnets = []netip.Prefix{{}} }), "a subnet is an address and a length"},
		{with(func(n *Network) { n.Subnets = tooMany }), "has 1025 subnets, at most 1024"},
		{with(func(n *Network) { n.Members = nil }), "no gateway is named"},
		{with(func(n *Network) { n.Members = many }), "257 gateways are named, at most 256"},
		{with(func(n *Network) { n.Members = members("f/a", "f/b", "f/a") }), "gateway f/a is named twice"},
		{with(func(n *Network) { n.Members = members("f/") }), "a gateway has no name"},
		{with(func(n *Network) { n.Members = members("/a") }), "a fleet has no name"},
		{with(func(n *Network) { n.Members[0].Weight = -1 }), "the weight of f/new is -1; it is 1 to 1000"},
		{with(func(n *Network) { n.Members[0].Weight = 1001 }), "the weight of f/new is 1001"},
		{with(func(n *Network) { n.Members[0].Order = -1 }), "the order of f/new is -1"},
		{with(func(n *Network) { n.Exhausted = 2 }), "on-exhausted is error or default"},
		{with(func(n *Network) { n.Note = "two\nlines" }), "the note is one line"},
		{with(func(n *Network) { n.Note = strings.Repeat("x", 256) }), "the note has 256 bytes, at most 255"},
		{network(DefaultNetwork, "10.2.0.0/16"), "it is there by itself"},
		{network("", "10.2.0.0/16"), "a network has no name"},
		{network(long), "has 51 characters, at most 50"},
		{network("a b"), "has the character ' '"},
		{assign("x", "nowhere"), "assignment x: there is no network nowhere; make it first"},
		{assign("", "taken"), "a target has no name"},
		{Value{Override: &Override{Network: "nowhere", Members: members("f/a")}}, "override nowhere: there is no network nowhere"},
		{over(nil), "override of default: no gateway is named"},
		{Value{Override: &Override{Network: DefaultNetwork, Members: members("f/a"), Until: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}}, "cannot end in the year 10000"},
		{Value{Policy: &Policy{Name: "p"}}, "a fleet has no name"},
		{Value{}, "a change is about one network"},
		{Value{Policy: &Policy{Name: "p", Fleet: "f"}, Network: &Network{Name: "n"}}, "a change is about one network"},
	}
	for _, test := range tests {
		next, err := b.Put(test.value, alice, noon)
		if err == nil || next != nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%v: %v, want %s", test.value.Key(), err, test.says)
		}
	}
	for says, key := range map[string]Key{
		"target db is assigned to it": {KindNetwork, "taken"},
		"there is no policy none":     {KindPolicy, "none"},
	} {
		if _, err := b.Remove(key, alice, noon); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("removing %s: %v, want %s", key, err, says)
		}
	}
	if _, err := b.Put(network("new"), Author{Origin: "a b"}, noon); err == nil {
		t.Error("a broker with a blank in its name was taken")
	}
	if _, err := b.Put(network("new"), Author{Origin: "a", Reason: "\x00"}, noon); err == nil {
		t.Error("a reason that cannot be printed was taken")
	}
}

// A network keeps its own subnets when it is changed, and larger and smaller ones may overlap others.
func TestAcceptedAtSave(t *testing.T) {
	b := put(t, new(Book), network("a", "10.0.0.0/8"), network("b", "10.0.0.0/9", "::/0", "0.0.0.0/0"), network("a", "10.0.0.0/8", "10.0.0.0/16"))
	if m := compiled(t, b).Find("", netip.MustParseAddr("10.0.1.1"), noon); m.Subnet.Bits() != 16 || m.Members[0].Weight != 1 {
		t.Errorf("found %v", m)
	}
	b, err := b.Remove(Key{KindNetwork, "a"}, alice, noon)
	if err != nil {
		t.Fatal(err)
	}
	put(t, b, network("c", "10.0.0.0/8")) // what was removed no longer takes the subnet
}

// KB 4255978: a gateway that was removed is named by rules for up to ten minutes. The rules that name it are flagged as soon as the view
// lacks it.
func TestReport4DanglingReferencesAreFlagged(t *testing.T) {
	b := put(t, new(Book), network("n", "10.0.0.0/8"), Value{Network: &Network{Name: "m", Members: members("f/gone", "g/x")}},
		Value{Policy: &Policy{Name: "p", Fleet: "g"}}, Value{Override: &Override{Network: "n", Members: members("f/gone")}})
	knows := func(name, gateway string) (bool, bool) { return name == "f", gateway != "gone" }
	want := []string{
		"network m: it names gateway f/gone, which is not in its fleet; it may have been removed, or the key is mistyped",
		"network m: it names gateway g/x, and fleet g is not linked",
		"override n: it names gateway f/gone, which is not in its fleet; it may have been removed, or the key is mistyped",
		"policy p: it names fleet g, which is not linked",
	}
	if got := b.Dangling(knows); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("flagged:\n%v\nwant:\n%v", got, want)
	}
}

// KB 4255978: with the central manager down, policies and rules were flagged as invalid although their gateways work. What is old is not
// invalid: a fleet of which there is only an old view knows its gateways, and one without any view knows all.
func TestReport5OldIsNotInvalid(t *testing.T) {
	b := put(t, new(Book), network("n", "10.0.0.0/8"), Value{Policy: &Policy{Name: "p", Fleet: "f"}})
	if got := b.Dangling(func(string, string) (bool, bool) { return true, true }); len(got) != 0 {
		t.Errorf("flagged: %v", got)
	}
}

// manyRules is a table with as many networks as the bar says.
func manyRules(t testing.TB, n int) *Table {
	b := &Book{seen: map[string]uint64{"a": uint64(n)}, kept: map[Key][]Entry{}}
	for i := range n {
		v, err := network(fmt.Sprint("n", i), fmt.Sprintf("10.%d.%d.0/%d", i>>8, i&255, 24)).clean()
		if err != nil {
			t.Fatal(err)
		}
		b.kept[v.Key()] = []Entry{{Origin: "a", Number: uint64(i + 1), Key: v.Key(), Value: v}}
	}
	return compiled(t, b)
}

func BenchmarkFind(b *testing.B) {
	table := manyRules(b, 10_000)
	r := rand.New(rand.NewPCG(1, 2))
	addresses := make([]netip.Addr, 1024)
	for i := range addresses {
		addresses[i] = netip.AddrFrom4([4]byte{10, byte(r.IntN(40)), byte(r.IntN(256)), 9})
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		table.Find("target.example", addresses[i%len(addresses)], noon)
	}
}
