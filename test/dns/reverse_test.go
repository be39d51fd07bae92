package dns

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	peer "github.com/miekg/dns"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/dns"
)

// The reverse zones of the tests: those of path delegated are delegated by the site's BIND, the others configured at the resolver. Of
// each there is one of IPv4, a part of a /24, and one of IPv6.
var reverseZones = map[path][]string{
	delegated: {"1.30.10.in-addr.arpa", "0-3.2.30.10.in-addr.arpa", "1.0.0.0.0.3.0.0.0.0.d.f.ip6.arpa"},
	forwarded: {"3.30.10.in-addr.arpa", "0-3.4.30.10.in-addr.arpa", "3.0.0.0.0.3.0.0.0.0.d.f.ip6.arpa"},
}

const reverseService, reverseTarget = "ns-reverse.company.com", "cluster.company.com"

func reverseDelegation(zones ...string) dns.DelegationInput {
	return dns.DelegationInput{Zones: zones, Service: reverseService, Addresses: addresses("10.20.1.4", "10.20.1.5"), TTL: 900 * time.Second}
}

// reverseView calls the first two addresses after the zero of each zone cluster.company.com.
func reverseView(t *testing.T) *dns.View {
	held := reverseDelegation().Addresses
	v := &dns.View{Ready: true, ServerTTL: 900 * time.Second, NegativeTTL: 5 * time.Second, Serial: 7,
		Services: []dns.Service{{Name: reverseService, Addresses: held, All: held}}}
	for _, zones := range reverseZones {
		for _, text := range zones {
			z, err := cluster.ParseReverseZone(text)
			if err != nil {
				t.Fatal(err)
			}
			first := z.Covers.Low.Next()
			v.Reverse = append(v.Reverse, dns.Reverse{Zone: z, Service: reverseService,
				Names: []cluster.ReverseName{{Range: cluster.Range{Low: first, High: first.Next()}, Name: reverseTarget}}})
		}
	}
	return v
}

func printedReverse(t *testing.T, flavour string, zones ...string) string {
	t.Helper()
	text, err := dns.Delegation(reverseDelegation(zones...), flavour)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// reverseBIND has the zones above, with what is printed for them: each line in that zone file to which it belongs, and the aliases of the parts
// that a resolver is configured for.
func reverseBIND(t *testing.T, dir string) []string {
	const top = "@ 60 IN SOA ns.company.com. hostmaster.company.com. 1 3600 600 86400 60\n@ 60 IN NS ns.company.com.\n"
	files := map[string]string{
		".":           "$ORIGIN .\n" + top + "company.com. 60 IN NS ns.company.com.\n30.10.in-addr.arpa. 60 IN NS ns.company.com.\n0.d.f.ip6.arpa. 60 IN NS ns.company.com.\nns.company.com. 60 IN A 10.20.0.2\n",
		"company.com": "$ORIGIN company.com.\n" + top + "ns 60 IN A 10.20.0.2\n", "30.10.in-addr.arpa": "$ORIGIN 30.10.in-addr.arpa.\n" + top, "0.d.f.ip6.arpa": "$ORIGIN 0.d.f.ip6.arpa.\n" + top,
	}
	for line := range strings.Lines(printedReverse(t, "bind", reverseZones[delegated]...) + printedReverse(t, "bind", reverseZones[forwarded]...)) {
		fields := strings.Fields(line)
		if line[0] == ';' || fields[3] == "NS" && !strings.Contains(strings.Join(reverseZones[delegated], ". ")+".", fields[0]) {
			continue
		}
		for zone := range files {
			if zone != "." && strings.HasSuffix(fields[0], "."+zone+".") {
				files[zone] += line
			}
		}
	}
	var configured strings.Builder
	for zone, content := range files {
		write(t, dir, zone+".zone", content)
		fmt.Fprintf(&configured, "zone %q { type primary; file \"%s.zone\"; };\n", zone, zone)
	}
	return named(t, dir, netip.AddrPortFrom(siteAddress, 53), "", configured.String()+printedReverse(t, "bind-forward", reverseZones[forwarded]...))
}

// TestReverseThroughResolvers asks what addresses are called, as clients do: through BIND, which has the zones above and stub zones for some,
// and through each of the other resolvers, configured with exactly what the product prints, with what it does with private addresses by itself.
func TestReverseThroughResolvers(t *testing.T) {
	for _, f := range fronts {
		if strings.Contains(f.name, ",") || f.program == "unshare" {
			continue // another setting of the same, which changes nothing here
		}
		t.Run(f.name, func(t *testing.T) {
			if _, err := f.find(); err != nil {
				t.Skip(err)
			}
			if _, err := exec.LookPath("named"); err != nil {
				t.Skip("named, which has the zones above, is not installed (Debian package bind9)")
			}
			inNamespace(t, append([]string{"address add 10.20.1.4/32 dev lo", "address add 10.20.1.5/32 dev lo"}, steeredLink...), func(t *testing.T) {
				s := dns.NewServer(dns.Options{})
				t.Cleanup(s.Close)
				s.SetView(reverseView(t))
				if err := s.Serve(t.Context(), reverseDelegation().Addresses); err != nil {
					t.Fatal(err)
				}
				site := t.TempDir()
				runResolver(t, site, "named", reverseBIND(t, site), netip.AddrPortFrom(siteAddress, 53), "company.com")
				at := netip.AddrPortFrom(siteAddress, 53)
				if f.program != "named" {
					dir := t.TempDir()
					at = netip.AddrPortFrom(f.at, 53)
					runResolver(t, dir, f.program, f.reverse(t, dir), at, "company.com")
				}
				for p, zones := range reverseZones {
					for _, zone := range zones {
						if f.program == "kresd" && p == forwarded && strings.Contains(zone, "0-3") {
							continue // its rules are by what a client asked, not by where an alias leads: a part of a /24 has to be delegated
						}
						reverseAnswers(t, at, p, zone)
					}
				}
			})
		})
	}
}

// privateAbove is what makes a resolver ask for names of private addresses at all, where it is not configured for the zone itself: by itself it
// says that there are none (RFC 6303). It is in docs/dns.md, "Reverse names".
var privateAbove = map[string]string{
	"unbound":       "server:\n    local-zone: \"10.in-addr.arpa.\" nodefault\n    local-zone: \"d.f.ip6.arpa.\" nodefault\n",
	"kresd":         "policy.add(policy.suffix(policy.PASS, policy.todnames({'10.in-addr.arpa.', 'd.f.ip6.arpa.'})))\n",
	"pdns_recursor": "#   serve-rfc1918=no\n",
}

// reverse is the configuration of a resolver for the reverse zones.
func (f front) reverse(t *testing.T, dir string) []string {
	flavour := map[string]string{"unbound": "unbound", "kresd": "knot", "pdns_recursor": "powerdns", "dnsmasq": "dnsmasq"}[f.program]
	return configure[f.program](t, dir, printedReverse(t, flavour, reverseZones[forwarded]...)+privateAbove[f.program])
}

// reverseAnswers asks for addresses that have a name, for one that has none, and for a type that they have not.
func reverseAnswers(t *testing.T, at netip.AddrPort, p path, zone string) {
	t.Helper()
	z, err := cluster.ParseReverseZone(zone)
	if err != nil {
		t.Fatal(err)
	}
	first := z.Covers.Low.Next()
	for _, a := range []netip.Addr{first, first.Next()} {
		r := askAsStub(t, at, question(cluster.ReverseNameOf(a)+".", peer.TypePTR))
		if target := pointer(r); r.Rcode != peer.RcodeSuccess || target != reverseTarget+"." {
			t.Errorf("%s zone %s: %v is called %q: %v", p, zone, a, target, r)
		}
	}
	if r := askAsStub(t, at, question(cluster.ReverseNameOf(first)+".", peer.TypeTXT)); r.Rcode != peer.RcodeSuccess || pointer(r) != "" {
		t.Errorf("%s zone %s: TXT: %v", p, zone, r)
	}
	if r := askAsStub(t, at, question(cluster.ReverseNameOf(first.Next().Next())+".", peer.TypePTR)); r.Rcode != peer.RcodeNameError {
		t.Errorf("%s zone %s: an address without a name: %v", p, zone, r)
	}
}

// pointer is the name that an answer gives; empty if it gives none.
func pointer(r *peer.Msg) string {
	for _, record := range r.Answer {
		if ptr, ok := record.(*peer.PTR); ok {
			return ptr.Ptr
		}
	}
	return ""
}
