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

// TestDelegationGolden compares what is printed for each flavour, with one name and with separate names, with the
// files in testdata/delegation.
func TestDelegationGolden(t *testing.T) {
	for _, flavour := range Flavours() {
		for _, separate := range []bool{false, true} {
			name := flavour
			if separate {
				name += "-separate"
			}
			t.Run(name, func(t *testing.T) {
				got, err := Delegation(siteInput(separate), flavour)
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
	const parentZone = "$ORIGIN company.com.\n@ 60 IN SOA ns hostmaster 1 3600 600 86400 60\n@ 60 IN NS ns\nns 60 IN A 192.0.2.1\n"
	checks := []struct {
		flavour, program string
		before           string
		args             func(file string) []string
	}{
		{"bind", "named-checkzone", parentZone, func(f string) []string { return []string{"-i", "full", "company.com", f} }},
		{"bind-forward", "named-checkconf", "", func(f string) []string { return []string{f} }},
		{"unbound", "unbound-checkconf", "", func(f string) []string { return []string{f} }},
		{"dnsmasq", "dnsmasq", "", func(f string) []string { return []string{"--test", "-C", f} }},
	}
	for _, c := range checks {
		for _, separate := range []bool{false, true} {
			t.Run(c.flavour, func(t *testing.T) {
				program, err := exec.LookPath(c.program)
				if err != nil {
					t.Skipf("%s is not installed", c.program)
				}
				printed, err := Delegation(siteInput(separate), c.flavour)
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
