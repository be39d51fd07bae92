package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func splitLines(s string) []string { return strings.Split(s, "\n") }
func joinLines(s []string) string  { return strings.Join(s, "\n") }

// failer is what *testing.T and *rapid.T share.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkParse holds for any text: it is refused with faults that have places, or what it says prints and reads back.
func checkParse(t failer, data []byte) {
	t.Helper()
	c, faults := ParseWithWarnings("fuzzed.yaml", data)
	lines := strings.Count(plainLines(data), "\n") + 1
	for _, f := range faults {
		if f.Message == "" || f.Line < 1 && f.Excerpt != "" || f.Line > lines {
			t.Fatalf("a fault without a place: %+v", f)
		}
		if strings.ContainsAny(f.String(), "\x00\x1b\r") {
			t.Fatalf("a fault with control characters: %q", f.String())
		}
	}
	if len(faults.Errors()) > 0 {
		if c != nil {
			t.Fatalf("refused and accepted")
		}
		return
	}
	again, err := Parse("printed.yaml", Print(c))
	if err != nil {
		t.Fatalf("does not read back: %v\n%s", err, Print(c))
	}
	if diff := cmp.Diff(c, again, comparePlain); diff != "" {
		t.Fatalf("reads back differently:\n%s", diff)
	}
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/faults/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "testdata/reference.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(strings.Repeat("[", 40)))
	f.Add([]byte(strings.Repeat("- ", 40)))
	f.Add([]byte(strings.Repeat("{a: ", 40)))
	f.Add([]byte("cluster: {name: \"a\x00\"}"))
	f.Fuzz(func(t *testing.T, data []byte) { checkParse(t, data) })
}

func FuzzEdit(f *testing.F) {
	c, err := Parse("example.yaml", []byte(exampleYAML))
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range PoolSettings() {
		f.Add(s.Name, "set", s.Default)
	}
	f.Add("pins", "add", "10.10.0.100=1:eth0")
	f.Add("ranges", "remove", "10.10.0.101-10.10.0.102")
	f.Add("ranges", "add", "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
	f.Fuzz(func(t *testing.T, setting, op, value string) {
		next, err := ModifyPool(c, examplePool, []Edit{{setting, EditOp(op), value}})
		if err == nil {
			checkParse(t, Print(next))
		}
	})
}

func FuzzParseRange(f *testing.F) {
	for _, seed := range []string{"10.0.0.4-10.0.0.6", "10.0.0.4", "fd00::1-fd00::9", "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "1.2.3.4-1.2.3.3", "-", "10.0.0.0/8"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRange(s)
		if err != nil {
			return
		}
		again, err := ParseRange(r.String())
		if err != nil || again != r {
			t.Fatalf("%q reads as %v, which reads as %v: %v", s, r, again, err)
		}
		if n := r.Size(1 << 20); n < 1 {
			t.Fatalf("%v has %d addresses", r, n)
		}
	})
}
