package cluster

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Text that some YAML reader takes for something else is quoted, although ours would not need it.
func TestPrintedText(t *testing.T) {
	for text, want := range map[string]string{
		"":                    `""`,
		"node1":               "node1",
		"y":                   `"y"`,
		"No":                  `"No"`,
		"ON":                  `"ON"`,
		"true":                `"true"`,
		"null":                `"null"`,
		"~":                   `"~"`,
		"1:20":                `"1:20"`,
		"3:ext-1":             `"3:ext-1"`,
		"10.0.0.7":            "10.0.0.7",
		"10.0.0.0/24":         "10.0.0.0/24",
		"10.0.0.4-10.0.0.6":   "10.0.0.4-10.0.0.6",
		"10.10":               `"10.10"`,
		"fd00::7":             `"fd00::7"`,
		"cluster.company.com": "cluster.company.com",
		"0x10":                `"0x10"`,
		"/bin/true":           "/bin/true",
		"-v":                  `"-v"`,
		"a b":                 `"a b"`,
		`say "hi" \ bye`:      `"say \"hi\" \\ bye"`,
		"tab\tbell\a":         `"tab\x09bell\x07"`,
		"größe":               `"größe"`,
	} {
		if got := scalarText(&node{text: text}); got != want {
			t.Errorf("%q prints as %s, want %s", text, got, want)
		}
	}
}

// The text form of a whole configuration, as `get` shows it and `diff` compares it.
func TestPrint(t *testing.T) {
	checkGolden(t, "testdata/example.printed.yaml", string(Print(example())))
}

// As JSON it has the same names and values in the same order, numbers as numbers.
func TestPrintJSON(t *testing.T) {
	text := PrintJSON(example())
	checkGolden(t, "testdata/example.printed.json", string(text))
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	root, faults := readDocument(Print(example()))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if diff := cmp.Diff(plain(root), value); diff != "" {
		t.Errorf("YAML and JSON differ (-YAML +JSON):\n%s", diff)
	}
}
