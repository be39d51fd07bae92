package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDelegationInBIND has a BIND that delegates the zone as the site's DNS server: `network dns check` finds nothing wrong. Then the
// delegation is taken out of BIND's zone file: the check says so and what prints it anew, and the nodes that hold service addresses
// have the problem.
func TestDelegationInBIND(t *testing.T) {
	l := startLab(t, 3, cast{nodes: 3, clients: 1, groupnet: "dns-servers: [10.10.0.2]\ndns-search: [lab]"}.file())
	check := func() result {
		r, err := l.try("node1", "holdfast", "network", "dns", "check")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := check(); r.code != 0 || !regexp.MustCompile(`cluster\.lab +10\.10\.0\.2 +groupnet0 +yes `).MatchString(r.out) {
		t.Errorf("a delegation that works, exit code %d:\n%s%s", r.code, r.out, r.complaints)
	}
	if out := l.must(t, "node1", "holdfast", "problems", "list"); strings.Contains(out, "dns.delegation") {
		t.Errorf("all is well, and there is a problem:\n%s", out)
	}

	l.undelegate(t)
	eventually(t, "the check says what is wrong", func() error {
		r := check()
		for _, want := range []string{"NS: NXDOMAIN: the server knows of no such name, so the zone is not delegated there", "holdfast network dns delegation cluster.lab"} {
			if r.code != 1 || !strings.Contains(r.out, want) {
				return fmt.Errorf("exit code %d, no %q in\n%s%s", r.code, want, r.out, r.complaints)
			}
		}
		return nil
	})
	l.must(t, "node1", "holdfast", "network", "pools", "modify", pool0, "--sc-dns-zone-aliases", "files.lab") // is asked about at once
	eventually(t, "the problem is there", func() error {
		out, err := l.get("node1", "holdfast", "problems", "list")
		if err == nil && (!strings.Contains(out, "dns.delegation") || !strings.Contains(out, "groupnet0 10.10.0.2")) {
			err = errors.New(out)
		}
		return err
	})
	t.Run("a short name at a service address", func(t *testing.T) {
		for question, want := range map[string]string{"cluster A": `(?m)^cluster\.\s+0\s+IN\s+A\s+10\.10\.0\.1`, "ssip A": `(?m)^ssip\.\s+900\s+IN\s+A\s+10\.10\.0\.`,
			"cluster AAAA": `(?m)^cluster\.\s+5\s+IN\s+SOA\s+ssip\.lab\.`, "elsewhere A": `status: REFUSED`} {
			out := l.must(t, "client1", append([]string{"dig", "@10.10.0.4"}, strings.Fields(question)...)...)
			if !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("dig %s shows no %q:\n%s", question, want, out)
			}
		}
	})
}

// undelegate takes the NS records of the zone out of the parent's file and makes BIND read it anew.
func (l *lab) undelegate(t *testing.T) {
	t.Helper()
	directory := filepath.Join(l.dir, "nodes", "resolver")
	path := filepath.Join(directory, "parent1.zone")
	zone, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	without := regexp.MustCompile(`(?m)^cluster\.lab\. IN NS .*\n`).ReplaceAll(zone, nil)
	if len(without) == len(zone) {
		t.Fatalf("no delegation in\n%s", zone)
	}
	if err := os.WriteFile(path, without, 0o644); err != nil {
		t.Fatal(err)
	}
	l.must(t, "resolver", "sh", "-c", `for p in /proc/[0-9]*; do if [ "$(readlink "$p/exe")" = "$1" ]; then kill -HUP "${p#/proc/}" && found=yes; fi; done; [ "$found" ]`,
		"sh", filepath.Join(directory, "named"))
}
