package cluster

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// Texts that would overflow the YAML library's stack, or take it minutes, are refused before it sees them.
func TestHostileTexts(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"brackets", strings.Repeat("[", 100_000), "nested more than 32 deep"},
		{"braces", strings.Repeat("{a: ", 100_000), "nested more than 32 deep"},
		{"hyphens", strings.Repeat("- ", 100_000), "nested more than 32 deep"},
		{"anchors", strings.Repeat("&a ", 100_000), "nested more than 32 deep"},
		{"keys in a block", strings.Repeat("a: b\n", 100_000), "more than 4160 settings in one place"},
		{"keys in braces", "{" + strings.Repeat("a: b, ", 100_000) + "}", "more than 4160 settings in one place"},
		{"question marks", strings.Repeat("? a\n", 100_000), "more than 4160 settings in one place"},
		{"closing brackets", strings.Repeat("]", 100_000), "not valid YAML"},
		{"too large", strings.Repeat("#", MaxFileBytes+1), "the file has 1048577 bytes; at most 1048576 are read"},
		{"binary", "\x00\x01\x02\xff", "a configuration is written as settings"},
		{"many faults", "nodes: [" + strings.Repeat("x, ", 200) + "]", "and 101 more; mend these first"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse("hostile.yaml", []byte(test.text))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %.300v, want %q", err, test.want)
			}
			if lines := strings.Count(fmt.Sprint(err), "\n"); lines > 3*(maxFaults+2) {
				t.Errorf("the error has %d lines", lines)
			}
		})
	}
}

// Each bound accepts what lies on it and refuses the next.
func TestBounds(t *testing.T) {
	for _, test := range []struct {
		name string
		most int
		want string // said of one more
		fill func(c *Config, n int)
	}{
		{"nodes", MaxNodes, "nodes: has 257 entries; at most 256 are taken", func(c *Config, n int) {
			for i := len(c.Nodes); i < n; i++ {
				c.Nodes = append(c.Nodes, NewNode(fmt.Sprintf("n%d", i), i+10))
			}
		}},
		{"groupnets", MaxGroupnets, "groupnets: has 65 entries; at most 64 are taken", func(c *Config, n int) {
			for i := len(c.Groupnets); i < n; i++ {
				c.Groupnets = append(c.Groupnets, NewGroupnet(fmt.Sprintf("g%d", i)))
			}
		}},
		{"pools over several subnets", MaxPools, "groupnets: there are 257 pools; at most 256 are taken", func(c *Config, n int) {
			g := &c.Groupnets[0]
			s := NewSubnet("subnet1")
			s.CIDR = netip.MustParsePrefix("10.11.0.0/24")
			g.Subnets = append(g.Subnets, s)
			for i := 1; i < n; i++ {
				s := &g.Subnets[i%2]
				s.Pools = append(s.Pools, NewPool(fmt.Sprintf("p%d", i)))
			}
		}},
		{"addresses of a pool", MaxPoolAddresses, "groupnet0.subnet1.p.ranges: has 4097 addresses; a pool has at most 4096", func(c *Config, n int) {
			s, p := NewSubnet("subnet1"), NewPool("p")
			s.CIDR = netip.MustParsePrefix("10.64.0.0/16")
			low := netip.MustParseAddr("10.64.1.0")
			high := netip.AddrFrom4([4]byte{10, 64, byte(1 + (n-1)>>8), byte(n - 1)})
			p.Ranges = []Range{{low, high}}
			s.Pools = []Pool{p}
			c.Groupnets[0].Subnets = append(c.Groupnets[0].Subnets, s)
		}},
		{"service addresses", MaxServiceAddresses, "groupnet0.subnet0.sc-service-addrs: has 33 addresses; at most 32 are taken, and two to six do well", func(c *Config, n int) {
			s := &c.Groupnets[0].Subnets[0]
			s.ServiceAddrs = []Range{{netip.MustParseAddr("10.10.0.10"), netip.AddrFrom4([4]byte{10, 10, 0, byte(9 + n)})}}
		}},
		{"checks", maxChecks, "groupnet0.subnet0.pool0.checks: has 17 entries; at most 16 are taken", func(c *Config, n int) {
			p := &c.Groupnets[0].Subnets[0].Pools[0]
			for i := range n {
				check := NewCheck(fmt.Sprintf("c%d", i), CheckTCP)
				check.Port = 80
				p.Checks = append(p.Checks, check)
			}
		}},
		{"aliases", maxAliases, "groupnet0.subnet0.pool0.sc-dns-zone-aliases: has 65 items; at most 64 are taken", func(c *Config, n int) {
			p := &c.Groupnets[0].Subnets[0].Pools[0]
			p.Zone = "zone.lab"
			for i := range n {
				p.ZoneAliases = append(p.ZoneAliases, fmt.Sprintf("a%d.lab", i))
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := example()
			test.fill(c, test.most)
			if errs := c.Validate().Errors(); len(errs) > 0 {
				t.Errorf("%d refused: %v", test.most, errs)
			}
			c = example()
			test.fill(c, test.most+1)
			if errs := c.Validate().Errors(); len(errs) != 1 || errs[0].String() != test.want {
				t.Errorf("%d: got %v, want %q", test.most+1, errs, test.want)
			}
		})
	}
}

// A configuration at every bound at once, as large as it gets, still fits into a file and reads back.
func TestLargestClusterFitsIntoAFile(t *testing.T) {
	c := New("largest")
	for i := range MaxNodes {
		n := NewNode(fmt.Sprintf("node%d", i+1), i+1)
		n.Interfaces = []string{"ext-1", "ext-2", "int-a", "int-b"}
		n.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{192, 168, byte(i), 1}), netip.AddrFrom4([4]byte{192, 169, byte(i), 1})}
		c.Nodes = append(c.Nodes, n)
	}
	g := NewGroupnet("groupnet0")
	for i := range MaxPools {
		s, p := NewSubnet(fmt.Sprintf("subnet%d", i)), NewPool("pool0")
		s.CIDR = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 16)
		s.ServiceName = fmt.Sprintf("ns%d.company.com", i)
		s.ServiceAddrs = []Range{{netip.AddrFrom4([4]byte{10, byte(i), 0, 4}), netip.AddrFrom4([4]byte{10, byte(i), 0, 9})}}
		p.Ranges = []Range{{netip.AddrFrom4([4]byte{10, byte(i), 1, 0}), netip.AddrFrom4([4]byte{10, byte(i), 16, 255})}}
		p.AllocMethod = AllocDynamic
		p.Zone = fmt.Sprintf("zone%d.company.com", i)
		for j := range MaxNodes {
			p.Interfaces = append(p.Interfaces, Member{j + 1, "ext-1"})
		}
		s.Pools = []Pool{p}
		g.Subnets = append(g.Subnets, s)
	}
	c.Groupnets = []Groupnet{g}
	text := Print(c)
	if _, err := Parse("largest.yaml", text); err != nil {
		t.Fatalf("%d bytes: %.1000v", len(text), err)
	}
}
