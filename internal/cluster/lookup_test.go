package cluster

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func memberTexts(members []Member) string {
	var out []string
	for _, m := range members {
		out = append(out, m.String())
	}
	return strings.Join(out, " ")
}

func TestMembers(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(c *Config, p *Pool)
		want string
	}{
		{"ifaces and rules, without duplicates, by number and then name", func(*Config, *Pool) {}, "1:eth0 1:eth1 2:eth0 2:eth1 3:eth0"},
		{"ifaces alone", func(_ *Config, p *Pool) { p.Rules = nil }, "1:eth1 3:eth0"},
		{"a rule without a class matches every node", func(_ *Config, p *Pool) { p.Rules = []Rule{{Name: "r", Interface: "eth0"}} }, "1:eth0 1:eth1 2:eth0 3:eth0"},
		{"the class any matches every node", func(_ *Config, p *Pool) { p.Rules = []Rule{{Name: "r", Interface: "eth0", Class: "any"}} }, "1:eth0 1:eth1 2:eth0 3:eth0"},
		{"a class that no node has yet", func(_ *Config, p *Pool) { p.Rules = []Rule{{Name: "r", Interface: "*", Class: "later"}} }, "1:eth1 3:eth0"},
		{"a node that joins and matches becomes a member", func(c *Config, p *Pool) {
			n := NewNode("node4", 4)
			n.Class, n.Interfaces = "storage", []string{"eth7", "ib0"}
			c.Nodes = append(c.Nodes, n)
		}, "1:eth0 1:eth1 2:eth0 2:eth1 3:eth0 4:eth7"},
		{"a witness hosts nothing", func(c *Config, p *Pool) {
			n := NewNode("judge", 4)
			n.Class, n.Interfaces, n.Witness = "storage", []string{"eth0"}, true
			c.Nodes = append(c.Nodes, n)
		}, "1:eth0 1:eth1 2:eth0 2:eth1 3:eth0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := example()
			test.edit(c, &c.Groupnets[0].Subnets[0].Pools[0])
			if got := memberTexts(c.Members(examplePool)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
	if got := example().Members(PoolID{"groupnet0", "subnet0", "none"}); got != nil {
		t.Errorf("a pool that does not exist has members: %v", got)
	}
}

func TestAddressesOfPoolAndSubnet(t *testing.T) {
	c := example()
	var got []string
	for _, a := range c.Addresses(examplePool) {
		got = append(got, a.String())
	}
	want := []string{"10.10.0.100", "10.10.0.101", "10.10.0.102", "10.10.0.103", "10.10.0.104", "10.10.0.105", "10.10.0.110"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := c.ServiceAddresses(exampleSubnet); len(got) != 0 {
		t.Errorf("service addresses: %v", got)
	}
	next, err := ModifySubnet(c, exampleSubnet, []Edit{{"sc-service-addrs", Set, "10.10.0.6,10.10.0.4-10.10.0.5"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(next.ServiceAddresses(exampleSubnet)); got != "[10.10.0.4 10.10.0.5 10.10.0.6]" {
		t.Errorf("service addresses: %s", got)
	}
	// What Validate has not seen is bounded all the same.
	c.Groupnets[0].Subnets[0].Pools[0].Ranges = []Range{{netip.MustParseAddr("fd00::"), netip.MustParseAddr("fdff::")}}
	if n := len(c.Addresses(examplePool)); n != MaxPoolAddresses {
		t.Errorf("%d addresses", n)
	}
}

func TestLookups(t *testing.T) {
	c := example()
	if n, ok := c.Node(2); !ok || n.Name != "node2" {
		t.Error(n, ok)
	}
	if _, ok := c.Node(9); ok {
		t.Error("node 9 exists")
	}
	if n, ok := c.NodeNamed("NODE3"); !ok || n.LNN != 3 {
		t.Error(n, ok)
	}
	if _, ok := c.NodeNamed("node9"); ok {
		t.Error("node9 exists")
	}
	p, s, g, ok := c.Pool(examplePool)
	if !ok || p.Name != "pool0" || s.Name != "subnet0" || g.Name != "groupnet0" {
		t.Error(p, s, g, ok)
	}
	for _, id := range []PoolID{{}, {"groupnet0", "subnet0", ""}, {"groupnet0", "", "pool0"}, {"", "subnet0", "pool0"}} {
		if _, _, _, ok := c.Pool(id); ok {
			t.Errorf("%v exists", id)
		}
	}
	if id, ok := c.ServiceSubnet(examplePool); !ok || id != exampleSubnet {
		t.Error(id, ok)
	}
	p.ServiceSubnet = "gone"
	if _, ok := c.ServiceSubnet(examplePool); ok {
		t.Error("a subnet that does not exist answers")
	}
	p.Weights = map[int]int{1: 5}
	if a, b, d := c.Weight(p, 1), c.Weight(p, 2), c.Weight(p, 99); a != 5 || b != 3 || d != 1 {
		t.Errorf("weights %d %d %d, want the pool's 5, the node's 3, and 1", a, b, d)
	}
}

func TestVoters(t *testing.T) {
	for _, test := range []struct{ name, nodes, want string }{ // a: auto, t: true, f: false, w: witness; lnn 1, 2, 3 ...
		{"one node", "a", "1"},
		{"two nodes: one voter, for two are worse", "aa", "1"},
		{"two and a witness", "aaw", "1 2 3"},
		{"three", "aaa", "1 2 3"},
		{"four: three", "aaaa", "1 2 3"},
		{"five", "aaaaa", "1 2 3 4 5"},
		{"eight: five", "aaaaaaaa", "1 2 3 4 5"},
		{"an explicit one counts, autos fill up", "aaat", "1 2 4"},
		{"those that must not are passed over", "faaaf", "2 3 4"},
		{"only those that must", "ftff", "2"},
		{"two explicit, no more allowed", "ttf", "1 2"},
		{"three explicit among eight: five in all", "aaaaattt", "1 2 6 7 8"},
		{"a witness among six", "aaaaaw", "1 2 3 4 6"},
		{"nobody may", "fff", ""},
		{"no node", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := New("demo")
			for i, letter := range test.nodes {
				n := NewNode(fmt.Sprintf("node%d", i+1), i+1)
				n.Voter = map[rune]Voter{'a': VoterAuto, 't': VoterTrue, 'f': VoterFalse, 'w': VoterAuto}[letter]
				n.Witness = letter == 'w'
				c.Nodes = append(c.Nodes, n)
			}
			rand.New(rand.NewPCG(1, 1)).Shuffle(len(c.Nodes), func(i, j int) { c.Nodes[i], c.Nodes[j] = c.Nodes[j], c.Nodes[i] })
			var got []string
			for _, n := range c.Voters() {
				got = append(got, fmt.Sprint(n.LNN))
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("got %v, want %s", got, test.want)
			}
			c.Settings.StoreEndpoints = []string{"store:2379"}
			if got := c.Voters(); len(got) != 0 {
				t.Errorf("with an external store: %v", got)
			}
		})
	}
}

const twoTenants = `
cluster: {name: demo}
groupnets:
  - name: groupnet0
    subnets:
      - {name: subnet0, cidr: 10.0.0.0/24, pools: [{name: pool0}, {name: pool1}]}
      - {name: subnet1, cidr: 10.1.0.0/24, pools: [{name: pool0}]}
  - name: groupnet1
    subnets:
      - {name: subnet0, cidr: 10.2.0.0/24, pools: [{name: pool1}, {name: pool2}]}
      - {name: subnet2, cidr: 10.3.0.0/24}
`

func TestParseIDs(t *testing.T) {
	c, err := Parse("two.yaml", []byte(twoTenants))
	if err != nil {
		t.Fatal(err)
	}
	subnet := func(s string) (string, error) { id, err := ParseSubnetID(c, s); return id.String(), err }
	pool := func(s string) (string, error) { id, err := ParsePoolID(c, s); return id.String(), err }
	for _, test := range []struct {
		parse      func(string) (string, error)
		text, want string // want is an error when it has a space
	}{
		{subnet, "groupnet0.subnet0", "groupnet0.subnet0"},
		{subnet, "groupnet1.subnet0", "groupnet1.subnet0"},
		{subnet, "subnet1", "groupnet0.subnet1"},
		{subnet, "subnet0", "groupnet0.subnet0"}, // groupnet1 has one, too
		{subnet, "subnet2", "there is no subnet subnet2 in groupnet0; write groupnet1.subnet2 if you mean that one"},
		{subnet, "subnet9", "there is no subnet groupnet0.subnet9; there are groupnet0.subnet0, groupnet0.subnet1, groupnet1.subnet0 and groupnet1.subnet2"},
		{subnet, "groupnet0.sunbet0", "there is no subnet groupnet0.sunbet0; did you mean groupnet0.subnet0?"},
		{subnet, "a.b.c", `"a.b.c" has too many dots for a subnet; write it as groupnet0.subnet0`},
		{subnet, "", `"" is not the id of a subnet; write it as groupnet0.subnet0`},
		{subnet, "groupnet0.", `"groupnet0." is not the id of a subnet; write it as groupnet0.subnet0`},
		{pool, "groupnet0.subnet0.pool0", "groupnet0.subnet0.pool0"},
		{pool, "subnet0.pool0", "groupnet0.subnet0.pool0"},
		{pool, "subnet1.pool0", "groupnet0.subnet1.pool0"},
		{pool, "subnet0.pool1", "groupnet0.subnet0.pool1"}, // groupnet1 has one, too
		{pool, "subnet0.pool2", "there is no pool subnet0.pool2 in groupnet0; write groupnet1.subnet0.pool2 if you mean that one"},
		{pool, "pool0", `"pool0" does not say the subnet; write groupnet0.subnet0.pool0 or groupnet0.subnet1.pool0`},
		{pool, "groupnet0.subnet0.pool0.x", `"groupnet0.subnet0.pool0.x" is not a pool; write it as groupnet0.subnet0.pool0; did you mean groupnet0.subnet0.pool0?`},
		{pool, "a b.c", `"a b.c" is not the id of a pool; write it as groupnet0.subnet0.pool0`},
	} {
		got, err := test.parse(test.text)
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%q: got %s\nwant %s", test.text, got, test.want)
		}
	}
	if got := idTexts(c.Pools()); !slices.IsSorted(got) || len(got) != 5 {
		t.Errorf("pools: %v", got)
	}
	if got := idTexts(c.Subnets()); !slices.IsSorted(got) || len(got) != 4 {
		t.Errorf("subnets: %v", got)
	}
	if id, err := NewPoolID("subnet7.new"); err != nil || id.String() != "groupnet0.subnet7.new" {
		t.Error(id, err)
	}
	if id, err := NewSubnetID("new"); err != nil || id.String() != "groupnet0.new" {
		t.Error(id, err)
	}
	for _, bad := range []string{"new", "a.b.c.d", "a..b"} {
		if _, err := NewPoolID(bad); err == nil {
			t.Errorf("NewPoolID takes %q", bad)
		}
	}
}

// Without a groupnet of the default name a short id means what it fits, and nothing when it fits several.
func TestShortIDsWithoutTheDefaultGroupnet(t *testing.T) {
	c, err := Parse("two.yaml", []byte(strings.ReplaceAll(twoTenants, "groupnet0", "groupnet2")))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"subnet1.pool0": "groupnet2.subnet1.pool0",
		"subnet0.pool2": "groupnet1.subnet0.pool2",
		"subnet0.pool1": `"subnet0.pool1" is ambiguous: there is no groupnet0, and several other groupnets have it; write groupnet1.subnet0.pool1 or groupnet2.subnet0.pool1`,
		"subnet9.pool1": "there is no pool groupnet0.subnet9.pool1; there are groupnet1.subnet0.pool1, groupnet1.subnet0.pool2, groupnet2.subnet0.pool0, groupnet2.subnet0.pool1 and groupnet2.subnet1.pool0",
	} {
		id, err := ParsePoolID(c, text)
		got := id.String()
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %s\nwant %s", text, got, want)
		}
	}
	if id, err := ParseSubnetID(c, "subnet2"); err != nil || id.String() != "groupnet1.subnet2" {
		t.Error(id, err)
	}
	if _, err := ParseSubnetID(c, "subnet0"); err == nil || !strings.Contains(err.Error(), "ambiguous") {
		t.Errorf("subnet0: %v", err)
	}
}

func TestRangeArithmetic(t *testing.T) {
	parse := func(texts ...string) (out []Range) {
		for _, s := range texts {
			r, err := ParseRange(s)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, r)
		}
		return out
	}
	text := func(ranges []Range) string { return strings.Trim(fmt.Sprint(ranges), "[]") }
	for _, test := range []struct{ from, cut, want string }{
		{"10.0.0.4-10.0.0.6", "10.0.0.5", "10.0.0.4 10.0.0.6"},
		{"10.0.0.4-10.0.0.6", "10.0.0.4", "10.0.0.5-10.0.0.6"},
		{"10.0.0.4-10.0.0.6", "10.0.0.5-10.0.0.6", "10.0.0.4"},
		{"10.0.0.4-10.0.0.6", "10.0.0.4-10.0.0.6", ""},
		{"10.0.0.4-10.0.0.6", "10.0.0.6-10.0.0.7", "not all in"},
		{"10.0.0.4-10.0.0.6", "10.0.0.9", "not all in"},
		{"0.0.0.1-255.255.255.254", "255.255.255.254", "0.0.0.1-255.255.255.253"},
		{"fd00::1-fd00::ffff:0", "fd00::ffff", "fd00::1-fd00::fffe fd00::1:0-fd00::ffff:0"},
	} {
		got, ok := without(parse(test.from), parse(test.cut)[0])
		if !ok && test.want != "not all in" || ok && text(got) != test.want {
			t.Errorf("%s without %s: got %s %v, want %s", test.from, test.cut, text(got), ok, test.want)
		}
	}
	if got := text(merged(parse("10.0.0.9", "10.0.0.4-10.0.0.5", "fd00::1", "10.0.0.6-10.0.0.8", "10.0.0.20", "fd00::2-fd00::3", "10.0.0.4"))); got != "10.0.0.4-10.0.0.9 10.0.0.20 fd00::1-fd00::3" {
		t.Errorf("merged: %s", got)
	}
	last := netip.MustParseAddr("255.255.255.255")
	if got := text(merged([]Range{{netip.MustParseAddr("255.255.255.250"), last}, {last, last}})); got != "255.255.255.250-255.255.255.255" {
		t.Errorf("merged at the end of all addresses: %s", got)
	}
	for _, test := range []struct {
		text string
		want int
	}{{"10.0.0.1", 1}, {"10.0.0.1-10.0.1.0", 256}, {"fd00::1-fd00::2", 2}, {"fd00::1-fd00:0:0:1::", 1000}, {"1::1-fd00::", 1000}, {"fd00::ffff:ffff:ffff:ffff-fd00:0:0:1::", 2}} {
		if got := parse(test.text)[0].Size(1000); got != test.want {
			t.Errorf("%s has %d addresses, want %d", test.text, got, test.want)
		}
	}
}
