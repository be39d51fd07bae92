package doctest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/cluster"
)

// keepList compares the part of a page between its two marks with what it should be, or writes it with -update.
func keepList(t *testing.T, name, begin, end, want string) {
	t.Helper()
	file := filepath.Join(root, name)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), begin)
	firstLine, rest, _ := strings.Cut(rest, "\n")
	got, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no marks %q and %q", name, begin, end)
	}
	want = "\n" + strings.TrimSpace(want) + "\n\n"
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+firstLine+"\n"+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s is not what the program has; write it anew with -update (-want +got):\n%s", name, diff)
	}
}

// schema is as much of a JSON schema as the list of settings needs.
type schema struct {
	Description string             `json:"description"`
	Type        string             `json:"type"`
	Default     any                `json:"default"`
	Enum        []any              `json:"enum"`
	Minimum     *json.Number       `json:"minimum"`
	Maximum     *json.Number       `json:"maximum"`
	MaxItems    *int               `json:"maxItems"`
	Properties  map[string]*schema `json:"properties"`
	Required    []string           `json:"required"`
	Items       *schema            `json:"items"`
	Additional  json.RawMessage    `json:"additionalProperties"`
}

// TestSettingsList: docs/configuration.md has every setting, as the program's own schema says.
func TestSettingsList(t *testing.T) {
	var whole schema
	if err := json.Unmarshal(cluster.Schema(), &whole); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, name := range []string{"cluster", "nodes", "groupnets"} {
		writeSettings(&out, name, whole.Properties[name])
	}
	if strings.Count(out.String(), "| `") < 60 {
		t.Errorf("only these settings were found:\n%s", out.String())
	}
	keepList(t, "docs/configuration.md", "<!-- settings:", "<!-- end of settings -->", out.String())
}

// writeSettings writes the table of one kind of object, and behind it those of the objects inside.
func writeSettings(out *strings.Builder, title string, s *schema) {
	help := s.Description
	if s.Items != nil {
		help += ": a list"
		if s.MaxItems != nil {
			help += fmt.Sprintf(" of at most %d", *s.MaxItems)
		}
		s = s.Items
	}
	fmt.Fprintf(out, "### %s\n\n%s.\n\n| setting | meaning | values | default |\n|---|---|---|---|\n", title, upperFirst(help))
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if ra, rb := rank(s, a), rank(s, b); ra != rb {
			return ra - rb
		}
		return strings.Compare(a, b)
	})
	var inside []string
	for _, name := range names {
		p := s.Properties[name]
		if p.Properties != nil || p.Items != nil && p.Items.Properties != nil {
			inside = append(inside, name)
			continue
		}
		standard := defaultOf(p, slices.Contains(s.Required, name))
		fmt.Fprintf(out, "| `%s` | %s | %s | %s |\n", name, p.Description, values(p), standard)
	}
	out.WriteString("\n")
	for _, name := range inside {
		writeSettings(out, title+" / "+name, s.Properties[name])
	}
}

// rank puts what is needed first, in the order in which the program names it.
func rank(s *schema, name string) int {
	if i := slices.Index(s.Required, name); i >= 0 {
		return i
	}
	return len(s.Required)
}

// values are what a setting may be, in words.
func values(p *schema) string {
	switch {
	case len(p.Enum) > 0:
		var words []string
		for _, w := range p.Enum {
			if text, ok := w.(string); ok {
				words = append(words, "`"+text+"`")
			}
		}
		return strings.Join(words, ", ")
	case p.Type == "integer" && p.Minimum != nil && p.Maximum != nil:
		return fmt.Sprintf("%s to %s", *p.Minimum, *p.Maximum)
	case p.Type == "boolean":
		return "`true`, `false`"
	case p.Type == "array":
		text := "list"
		if p.MaxItems != nil {
			text = fmt.Sprintf("list, at most %d", *p.MaxItems)
		}
		if p.Items != nil && p.Items.Minimum != nil {
			text += " of " + values(p.Items)
		}
		return text
	case p.Type == "object":
		return "mapping"
	}
	return "text"
}

func defaultOf(p *schema, required bool) string {
	switch value := p.Default.(type) {
	case nil:
		if required {
			return "needed"
		}
		return "none"
	case string:
		if value == "" {
			return "none"
		}
		return "`" + value + "`"
	case []any:
		if len(value) == 0 {
			return "none"
		}
		words := make([]string, len(value))
		for i, item := range value {
			words[i] = fmt.Sprint(item)
		}
		return "`" + strings.Join(words, ",") + "`"
	case map[string]any:
		return "none"
	default:
		text, _ := json.Marshal(value)
		return "`" + string(text) + "`"
	}
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

var (
	// "holdfast_x_y", with its help behind it.
	wholeMetric = regexp.MustCompile(`"(holdfast_[a-z_]+[a-z])",\s*(?:Help:\s*)?((?:"(?:[^"\\]|\\.)*"(?:\s*\+\s*)?)+)`)
	// "holdfast_x_" + name, in a file whose shorthand takes name and help.
	metricPrefix  = regexp.MustCompile(`"(holdfast_[a-z]+_)"\s*\+\s*name`)
	shortMetric   = regexp.MustCompile(`\b(?:counter|gauge|vector|histogram)\("([a-z_]+)",\s*((?:"(?:[^"\\]|\\.)*"(?:\s*\+\s*)?)+)`)
	prefixedWhole = regexp.MustCompile(`Name: "(holdfast_[a-z_]+[a-z])",\s*Help: ((?:"(?:[^"\\]|\\.)*"(?:\s*\+\s*)?)+)`)
	quoted        = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)
)

// metricsIn finds the metrics that a source file defines, and their help.
func metricsIn(text string) map[string]string {
	found := map[string]string{}
	join := func(help string) string {
		var out strings.Builder
		for _, m := range quoted.FindAllStringSubmatch(help, -1) {
			out.WriteString(m[1])
		}
		return out.String()
	}
	for _, pattern := range []*regexp.Regexp{wholeMetric, prefixedWhole} {
		for _, m := range pattern.FindAllStringSubmatch(text, -1) {
			found[m[1]] = join(m[2])
		}
	}
	if prefix := metricPrefix.FindStringSubmatch(text); prefix != nil {
		for _, m := range shortMetric.FindAllStringSubmatch(text, -1) {
			found[prefix[1]+m[1]] = join(m[2])
		}
	}
	return found
}

// TestMetricsList: docs/operating.md has every metric, with the help that the program gives.
func TestMetricsList(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "internal/*/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for metric, help := range metricsIn(string(text)) {
			all[metric] = help
		}
	}
	if len(all) < 45 {
		t.Errorf("only %d metrics were found", len(all))
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	var out strings.Builder
	out.WriteString("| metric | |\n|---|---|\n")
	for _, name := range names {
		fmt.Fprintf(&out, "| `%s` | %s |\n", name, strings.ReplaceAll(all[name], "|", `\|`))
	}
	keepList(t, "docs/operating.md", "<!-- metrics:", "<!-- end of metrics -->", out.String())
}
