package dns

import (
	"flag"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew; read the difference before committing it")

// siteInput is the example of docs/dns.md, "What to set up", with an alias, and one service address of the other family.
func siteInput(separate bool) DelegationInput {
	return DelegationInput{
		Zones:   []string{"cluster.company.com", "files.company.com"},
		Service: "cluster-ns1.company.com",
		Addresses: []netip.Addr{netip.MustParseAddr("2001:db8::4"), netip.MustParseAddr("10.10.0.6"),
			netip.MustParseAddr("10.10.0.4"), netip.MustParseAddr("10.10.0.5")},
		TTL: 900 * time.Second, SeparateNames: separate,
	}
}

// reverseInput has reverse zones of both families, and a part of a /24.
func reverseInput() DelegationInput {
	in := siteInput(false)
	in.Zones = []string{"10.10.10.in-addr.arpa", "4-7.11.10.10.in-addr.arpa", "8.b.d.0.1.0.0.2.ip6.arpa"}
	return in
}

// TestDelegationGolden compares what is printed for each flavour, with one name, with separate names, and for reverse zones, with the
// files in testdata/delegation.
func TestDelegationGolden(t *testing.T) {
	for _, flavour := range Flavours() {
		for suffix, in := range map[string]DelegationInput{"": siteInput(false), "-separate": siteInput(true), "-reverse": reverseInput()} {
			name := flavour + suffix
			t.Run(name, func(t *testing.T) {
				got, err := Delegation(in, flavour)
				if err != nil {
					t.Fatal(err)
				}
				file := filepath.Join("testdata", "delegation", name+".golden")
				if *rewrite {
					if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), got); diff != "" {
					t.Errorf("printed text differs from %s (-want +got):\n%s", file, diff)
				}
			})
		}
	}
}

// TestDelegationIsAccepted gives what is printed to the program it is for, where that is installed.
func TestDelegationIsAccepted(t *testing.T) {
	const parentZone = "@ 60 IN SOA ns hostmaster 1 3600 600 86400 60\n@ 60 IN NS ns\nns 60 IN A 192.0.2.1\n"
	everyInput := []DelegationInput{siteInput(false), siteInput(true), reverseInput()}
	parts := reverseInput()
	parts.Zones = parts.Zones[1:2]
	checks := []struct {
		flavour, program string
		before           string
		args             func(file string) []string
		in               []DelegationInput
	}{
		{"bind", "named-checkzone", "$ORIGIN company.com.\n" + parentZone, func(f string) []string { return []string{"-i", "full", "company.com", f} },
			[]DelegationInput{siteInput(false), siteInput(true)}},
		{"bind", "named-checkzone", "$ORIGIN 11.10.10.in-addr.arpa.\n" + parentZone, func(f string) []string { return []string{"-i", "local", "11.10.10.in-addr.arpa", f} },
			[]DelegationInput{parts}},
		{"bind-forward", "named-checkconf", "", func(f string) []string { return []string{f} }, everyInput},
		{"unbound", "unbound-checkconf", "", func(f string) []string { return []string{f} }, everyInput},
		{"dnsmasq", "dnsmasq", "", func(f string) []string { return []string{"--test", "-C", f} }, everyInput},
	}
	for _, c := range checks {
		for _, in := range c.in {
			t.Run(c.flavour, func(t *testing.T) {
				program, err := exec.LookPath(c.program)
				if err != nil {
					t.Skipf("%s is not installed", c.program)
				}
				printed, err := Delegation(in, c.flavour)
				if err != nil {
					t.Fatal(err)
				}
				file := filepath.Join(t.TempDir(), "site.conf")
				if err := os.WriteFile(file, []byte(c.before+printed), 0o644); err != nil {
					t.Fatal(err)
				}
				out, err := exec.CommandContext(t.Context(), program, c.args(file)...).CombinedOutput()
				if err != nil {
					t.Errorf("%s refuses it: %v\n%s\n%s", c.program, err, out, printed)
				}
			})
		}
	}
}

// TestDelegationRefusals: each error says what is missing and how to set it.
func TestDelegationRefusals(t *testing.T) {
	broken := func(change func(*DelegationInput)) DelegationInput {
		in := siteInput(true)
		change(&in)
		return in
	}
	for _, c := range []struct {
		in      DelegationInput
		flavour string
		want    string
	}{
		{siteInput(false), "djbdns", "there are bind, bind-forward, coredns, dnsmasq"},
		{broken(func(in *DelegationInput) { in.Service = "" }), "bind", "set sc-service-name"},
		{broken(func(in *DelegationInput) { in.Addresses = nil }), "bind", "set sc-service-addrs"},
		{broken(func(in *DelegationInput) { in.Zones = nil }), "bind", "set sc-dns-zone"},
		{broken(func(in *DelegationInput) { in.Zones = []string{"a b.example"} }), "bind", "no host name may have"},
		{broken(func(in *DelegationInput) { in.Service = strings.Repeat("x", 61) + ".example" }), "bind", "must have 1 to 63"},
	} {
		if got, err := Delegation(c.in, c.flavour); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one with %q; printed %q", err, c.want, got)
		}
	}
}
