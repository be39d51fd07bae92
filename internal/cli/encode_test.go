package cli

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/google/go-cmp/cmp"
)

func testNow() time.Time { return now }

// TestJSONReadsBack: whatever is written is JSON, and means what was given.
func TestJSONReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := drawTree(t, 3)
		for _, pretty := range []bool{true, false} {
			var b strings.Builder
			writeJSON(&b, tree, "", pretty)
			var got any
			if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
				t.Fatalf("%v in %s", err, b.String())
			}
			if diff := cmp.Diff(plainValue(tree), got); diff != "" {
				t.Fatal(diff)
			}
			if !pretty && strings.Contains(b.String(), "\n") {
				t.Fatal("a line of JSON has a line break")
			}
		}
	})
}

func drawTree(t *rapid.T, depth int) any {
	most := 5
	if depth == 0 {
		most = 3
	}
	switch rapid.IntRange(0, most).Draw(t, "kind") {
	case 0:
		return rapid.String().Draw(t, "text")
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return int64(rapid.Int32().Draw(t, "number"))
	case 3:
		return nil
	case 4:
		out := list{}
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			out = append(out, drawTree(t, depth-1))
		}
		return out
	default:
		out := object{}
		for _, name := range rapid.SliceOfNDistinct(rapid.String(), 0, 3, rapid.ID).Draw(t, "names") {
			out = append(out, member{name, drawTree(t, depth-1)})
		}
		return out
	}
}

// plainValue is what encoding/json reads for a tree.
func plainValue(tree any) any {
	switch v := tree.(type) {
	case object:
		out := map[string]any{}
		for _, m := range v {
			out[m.name] = plainValue(m.value)
		}
		return out
	case list:
		out := []any{}
		for _, item := range v {
			out = append(out, plainValue(item))
		}
		return out
	case int64:
		return float64(v)
	default:
		return v
	}
}

// TestYAMLQuotesWhatIsNoString: the scalars that YAML readers take for something else.
func TestYAMLQuotesWhatIsNoString(t *testing.T) {
	for text, want := range map[string]string{
		"round_robin": "round_robin", "groupnet0.subnet0": "groupnet0.subnet0", "two words": "two words",
		"": `""`, "yes": `"yes"`, "No": `"No"`, "null": `"null"`, "1:eth0": `"1:eth0"`, "10.0.0.1": `"10.0.0.1"`, "a: b": `"a: b"`, "a #b": `"a #b"`,
		"- a": `"- a"`, "fd00::1": `"fd00::1"`, "a\nb": `"a\nb"`, "*x": `"*x"`, "trailing ": `"trailing "`, "<b>": `"<b>"`, "y": `"y"`,
	} {
		if got := plainOrQuoted(text); got != want {
			t.Errorf("%q is written %s, want %s", text, got, want)
		}
	}
}

func TestYAMLShape(t *testing.T) {
	var b strings.Builder
	writeYAML(&b, object{
		{"none", list{}}, {"empty", object{}}, {"rate", 0.25}, {"infinite", math.Inf(1)},
		{"nodes", list{object{{"name", "node1"}, {"addresses", list{"10.0.0.1", "fd00::1"}}}, list{"a", "b"}, "c"}},
	}, "")
	want := `none: []
empty: {}
rate: 0.25
infinite: null
nodes:
  - name: node1
    addresses:
      - "10.0.0.1"
      - "fd00::1"
  - - a
    - b
  - c
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 300 * time.Millisecond: "300ms", 59 * time.Second: "59s", 61 * time.Second: "1m1s",
		3*time.Hour + 5*time.Minute: "3h5m", 50 * time.Hour: "2d2h",
	} {
		if got := span(d); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
	}
}

// TestTerminalIsNotSteered: what comes from the network cannot move the reader's cursor.
func TestTerminalIsNotSteered(t *testing.T) {
	p := &page{out: &strings.Builder{}}
	p.line("a\x1b[2Jb\nc")
	p.table([]string{"X"}, [][]string{{"\x1b]0;title\x07"}})
	if text := p.out.String(); strings.ContainsAny(text, "\x1b\x07") {
		t.Errorf("control characters went through: %q", text)
	}
}
