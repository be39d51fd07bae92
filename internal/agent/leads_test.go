package agent

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/internal/cluster"
)

// Which server should lead where: pools of both families under one name are one lead with both service names, a server is asked about the
// names of its own groupnet, and a pool's service subnet says which name server the zone has.
func TestSiteServers(t *testing.T) {
	config, err := cluster.Parse("test", []byte(`
cluster: {name: test}
nodes:
  - {name: node1, lnn: 1, interfaces: [eth0], addresses: [192.0.2.11]}
groupnets:
  - name: groupnet0
    dns-servers: [192.0.2.1, "2001:db8::1"]
    subnets:
      - {name: four, cidr: 10.0.0.0/24, sc-service-name: ns4.test, sc-service-addrs: [10.0.0.4], pools: [
          {name: pool0, ranges: [10.0.0.100-10.0.0.101], ifaces: ["1:eth0"], sc-dns-zone: data.test}]}
      - {name: six, cidr: "fd00::/64", sc-service-name: ns6.test, sc-service-addrs: ["fd00::4"], sc-reverse-zones: [0.0.d.f.ip6.arpa], pools: [
          {name: pool0, ranges: ["fd00::100-fd00::101"], ifaces: ["1:eth0"], sc-dns-zone: data.test, sc-dns-zone-aliases: [six.test]}]}
      - {name: guest, cidr: 10.1.0.0/24, sc-reverse-zones: [96-127.0.1.10.in-addr.arpa, 0-1.0.1.10.in-addr.arpa], pools: [
          {name: pool0, ranges: [10.1.0.100], ifaces: ["1:eth0"], sc-dns-zone: guest.test, sc-subnet: four}]}
  - name: other
    subnets:
      - {name: subnet0, cidr: 10.2.0.0/24, sc-service-name: ns.other.test, sc-service-addrs: [10.2.0.4], pools: [
          {name: pool0, ranges: [10.2.0.100], ifaces: ["1:eth0"], sc-dns-zone: other.test}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	servers := siteServers(config, nil)
	if len(servers) != 2 || servers[0].subject() != "groupnet0 192.0.2.1" || servers[1].subject() != "groupnet0 2001:db8::1" {
		t.Fatalf("%v", servers)
	}
	var got []string
	for _, lead := range servers[0].leads {
		said := fmt.Sprintf("%s v4 %v v6 %v", lead.Zone, lead.IPv4, lead.IPv6)
		for _, s := range lead.Services {
			said += fmt.Sprintf(" %s %v", s.Service, s.Addresses)
		}
		for _, a := range []string{"10.0.0.100", "10.0.0.102", "fd00::101", "10.1.0.100", "10.0.0.4"} {
			if lead.Given(netip.MustParseAddr(a)) {
				said += " " + a
			}
		}
		if lead.Address.IsValid() {
			said += fmt.Sprintf(" %v=%s", lead.Address, lead.Called)
		}
		got = append(got, said)
	}
	want := `data.test v4 true v6 true ns4.test [10.0.0.4] ns6.test [fd00::4] 10.0.0.100 fd00::101
guest.test v4 true v6 false ns4.test [10.0.0.4] 10.1.0.100
six.test v4 false v6 true ns6.test [fd00::4] fd00::101
96-127.0.1.10.in-addr.arpa v4 false v6 false ns4.test [10.0.0.4] 10.1.0.100=guest.test
0-1.0.1.10.in-addr.arpa v4 false v6 false ns4.test [10.0.0.4]
0.0.d.f.ip6.arpa v4 false v6 false ns6.test [fd00::4] fd00::4=ns6.test`
	if strings.Join(got, "\n") != want {
		t.Errorf("leads:\n%s\nwant:\n%s", strings.Join(got, "\n"), want)
	}
	if servers := siteServers(config, []string{"Guest.TEST."}); len(servers) != 2 || len(servers[0].leads) != 1 || servers[0].leads[0].Zone != "guest.test" {
		t.Errorf("one zone: %v", servers)
	}
	if servers := siteServers(config, []string{"other.test"}); len(servers) != 0 {
		t.Errorf("a zone whose groupnet has no servers: %v", servers)
	}
}

// Names are completed only where a groupnet has search domains and lets its service addresses use them.
func TestSearches(t *testing.T) {
	config := &cluster.Config{Groupnets: []cluster.Groupnet{
		{Name: "none", ServerSideDNSSearch: true},
		{Name: "off", DNSSearch: []string{"a.test"}},
		{Name: "on", DNSSearch: []string{"b.test", "a.test"}, ServerSideDNSSearch: true},
	}}
	if got := fmt.Sprint(searches(config)); got != "[{on [b.test a.test]}]" {
		t.Errorf("%s", got)
	}
}
