package dns

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	peer "github.com/miekg/dns"
)

// TestBINDForwardsToHighPorts needs no privilege: BIND asks two service addresses on loopback at a port of the test's.
func TestBINDForwardsToHighPorts(t *testing.T) {
	if _, err := exec.LookPath("named"); err != nil {
		t.Skip("named is not installed (Debian package bind9)")
	}
	on, port := addresses("127.0.0.33", "127.0.0.34"), freePort(t)
	startServer(t, port, on)
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), freePort(t))
	var zones strings.Builder
	for _, zone := range []string{"cluster.company.com", "large.company.com"} {
		fmt.Fprintf(&zones, "zone \"%s\" { type forward; forward only; forwarders { %v port %d; %v port %d; }; };\n", zone, on[0], port, on[1], port)
	}
	// BIND listens on addresses of interfaces only, which of the loopback ones is 127.0.0.1.
	dir := t.TempDir()
	runResolver(t, dir, "named", named(t, dir, at, "", zones.String()), at, "cluster.company.com")
	counts := map[int]int{}
	for range 200 {
		counts[nodeIn(t, exchange(t, "udp", at, question("cluster.company.com.", peer.TypeA)))]++
	}
	assertEven(t, counts, 4, 2)
	if r := exchange(t, "tcp", at, question("large.company.com.", peer.TypeA)); len(r.Answer) != 60 {
		t.Errorf("the large answer through BIND: %v", r)
	}
	if r := exchange(t, "udp", at, question("x.large.company.com.", peer.TypeA)); r.Rcode != peer.RcodeNameError {
		t.Errorf("a missing name through BIND: %v", r)
	}
}
