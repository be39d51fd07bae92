package dns

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// documented checks that the table in docs/dns.md has a row about this resolver, and if it is about this version, that it says
// the same about TTL 0. How many clients wait and how long differs from run to run: of that the page has one run's figures.
func documented(t *testing.T, row string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/dns.md")
	if err != nil {
		t.Fatal(err)
	}
	measured := cells(row)
	for line := range strings.Lines(string(page)) {
		said := cells(line)
		if len(said) != len(measured) || unversioned(said[0]) != unversioned(measured[0]) || said[1] != measured[1] {
			continue
		}
		if said[0] == measured[0] && !alikeFresh(said[2], measured[2]) {
			t.Errorf("docs/dns.md says of %s (%s) and TTL 0: %q; it is %q", said[0], said[1], said[2], measured[2])
		}
		return
	}
	t.Errorf("the table in docs/dns.md has no row like\n%s", row)
}

// alikeFresh compares what is said of TTL 0 but for the seconds, which grow on a busy machine.
func alikeFresh(a, b string) bool {
	seconds := regexp.MustCompile(`\d+ s`)
	return seconds.ReplaceAllString(a, "") == seconds.ReplaceAllString(b, "")
}

func cells(row string) (all []string) {
	for cell := range strings.SplitSeq(strings.Trim(strings.TrimSpace(row), "|"), "|") {
		all = append(all, strings.TrimSpace(cell))
	}
	return all
}

// unversioned is the name of a resolver and of a setting, without its version.
func unversioned(name string) string {
	return regexp.MustCompile(` \d+(\.\d+)*`).ReplaceAllString(name, "")
}
