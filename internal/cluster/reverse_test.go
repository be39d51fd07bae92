package cluster

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestReverseZones: which addresses a zone covers, and what it calls them (RFC 1035 section 3.5, RFC 3596 section 2.5, RFC 2317 section 4).
func TestReverseZones(t *testing.T) {
	for _, c := range []struct{ text, covers, address, name string }{
		{"10.in-addr.arpa", "10.0.0.0-10.255.255.255", "10.1.2.3", "3.2.1.10.in-addr.arpa"},
		{"10.10.10.IN-ADDR.ARPA.", "10.10.10.0-10.10.10.255", "10.10.10.7", "7.10.10.10.in-addr.arpa"},
		{"7.10.10.10.in-addr.arpa", "10.10.10.7", "10.10.10.7", "7.10.10.10.in-addr.arpa"},
		{"0-127.10.10.10.in-addr.arpa", "10.10.10.0-10.10.10.127", "10.10.10.7", "7.0-127.10.10.10.in-addr.arpa"},
		{"7-7.10.10.10.in-addr.arpa", "10.10.10.7", "10.10.10.7", "7.7-7.10.10.10.in-addr.arpa"},
		{"8.B.d.0.1.0.0.2.ip6.arpa", "2001:db8::-2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db8::abcd",
			"d.c.b.a.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"},
		{"f.ip6.arpa", "f000::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fe80::1", "1" + strings.Repeat(".0", 28) + ".8.e.f.ip6.arpa"},
	} {
		z, err := ParseReverseZone(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := z.Covers.String(); got != c.covers {
			t.Errorf("%s covers %s, want %s", c.text, got, c.covers)
		}
		if got := z.NameOf(netip.MustParseAddr(c.address)); got != c.name || z.Classless() != strings.Contains(strings.SplitN(c.text, ".", 2)[0], "-") {
			t.Errorf("%s calls %s %s, want %s; classless %v", c.text, c.address, got, c.name, z.Classless())
		}
	}
}

// The name of any address, cut at any label, is a zone that covers the address and calls it the same.
func TestReverseZonesCoverWhatTheyName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "four")))
		root := ReverseZone{Name: reverse4, Free: 4}
		if rapid.Bool().Draw(t, "six") {
			a, root = netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "sixteen"))), ReverseZone{Name: reverse6, Free: 32}
		}
		name := root.NameOf(a)
		labels := strings.Split(name, ".")
		cut := rapid.IntRange(0, root.Free-1).Draw(t, "cut")
		z, err := ParseReverseZone(strings.Join(labels[cut:], "."))
		if err != nil {
			t.Fatal(err)
		}
		if !z.Covers.Contains(a) || z.NameOf(a) != name || z.Free != cut {
			t.Errorf("%s of %v: covers %v, calls it %s, %d free", z.Name, a, z.Covers, z.NameOf(a), z.Free)
		}
	})
}

// Addresses have the names of the pools and service addresses that they belong to, whichever subnet the zone was written at.
func TestReverses(t *testing.T) {
	c, err := Parse("reverse.yaml", []byte(`
cluster: {name: demo}
nodes: [{name: node1, lnn: 1, interfaces: [eth0], addresses: [192.168.7.1]}]
groupnets:
  - name: groupnet0
    subnets:
      - name: subnet0
        cidr: 10.10.10.0/24
        sc-service-name: ns.company.com
        sc-service-addrs: [10.10.10.4-10.10.10.6]
        sc-reverse-zones: [10.10.in-addr.arpa, 0-15.10.10.10.in-addr.arpa]
        pools:
          - {name: pool0, ranges: [10.10.10.10-10.10.10.19], sc-dns-zone: cluster.company.com, sc-dns-zone-aliases: [files.company.com]}
          - {name: pool1, ranges: [10.10.10.20-10.10.10.29]}
      - name: subnet1
        cidr: 10.10.11.0/24
        pools:
          - {name: pool2, ranges: [10.10.11.10], sc-dns-zone: other.company.com, sc-subnet: subnet0}
      - name: subnet6
        cidr: 2001:db8::/64
        sc-reverse-zones: [8.b.d.0.1.0.0.2.ip6.arpa]
        pools:
          - {name: pool6, ranges: ["2001:db8::7"], sc-dns-zone: cluster.company.com, sc-subnet: subnet0}
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range c.Reverses() {
		said := r.Name + " by " + r.Service.String() + ":"
		for _, n := range r.Names {
			said += fmt.Sprintf(" %v=%s", n.Range, n.Name)
		}
		got = append(got, said)
	}
	want := []string{
		"10.10.in-addr.arpa by groupnet0.subnet0: 10.10.10.4-10.10.10.6=ns.company.com 10.10.10.10-10.10.10.19=cluster.company.com 10.10.11.10=other.company.com",
		"0-15.10.10.10.in-addr.arpa by groupnet0.subnet0: 10.10.10.4-10.10.10.6=ns.company.com 10.10.10.10-10.10.10.19=cluster.company.com",
		"8.b.d.0.1.0.0.2.ip6.arpa by groupnet0.subnet0: 2001:db8::7=cluster.company.com",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
