package doctest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	link = regexp.MustCompile(`\]\(([^()\s]+)\)`)

	// numbered is a link whose label says which decision it leads to.
	numbered = regexp.MustCompile(`\[[^\]]*decisions/(\d{4})[^\]]*\]\([^()\s]*/(\d{4})-[^()\s]*\)`)
)

// TestLinks: what a page points to is there, down to the heading.
func TestLinks(t *testing.T) {
	headings := map[string]map[string]bool{}
	for _, p := range pages(t) {
		headings[p.path] = anchors(p.text)
	}
	checked := 0
	for _, p := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(p.text, -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			checked++
			if fault := resolve(p.path, m[1], headings); fault != "" {
				t.Errorf("%s: the link %s: %s", p.path, m[1], fault)
			}
		}
	}
	for _, p := range pages(t) {
		for _, fault := range mislabelled(p.text) {
			t.Errorf("%s: %s", p.path, fault)
		}
	}
	if checked < 20 {
		t.Errorf("only %d links were found", checked)
	}
}

// mislabelled are the links that promise another decision than the one that they lead to.
func mislabelled(text string) []string {
	var faults []string
	for _, m := range numbered.FindAllStringSubmatch(text, -1) {
		if m[1] != m[2] {
			faults = append(faults, m[0]+" leads to another decision than it says")
		}
	}
	return faults
}

// resolve says what is wrong with a link of a page; empty if nothing is.
func resolve(from, target string, headings map[string]map[string]bool) string {
	file, anchor, _ := strings.Cut(target, "#")
	to := from
	if file != "" {
		to = path.Join(path.Dir(from), file)
	}
	if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(to))); err != nil {
		return "there is no " + to
	}
	if anchor != "" && !headings[to][anchor] {
		return fmt.Sprintf("%s has no heading %q", to, anchor)
	}
	return ""
}

// anchors are the names of a page's headings as forges make them.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for line := range strings.Lines(text) {
		title := strings.TrimLeft(line, "#")
		if title == line || !strings.HasPrefix(title, " ") {
			continue
		}
		var name strings.Builder
		for _, r := range strings.ToLower(strings.TrimSpace(title)) {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				name.WriteRune(r)
			case r == ' ':
				name.WriteRune('-')
			}
		}
		found[name.String()] = true
	}
	return found
}

func TestLinksCanBreak(t *testing.T) {
	headings := map[string]map[string]bool{"README.md": anchors("# A `b`, c\n#not one\n")}
	for target, fine := range map[string]bool{"go.mod": true, "nothing.md": false, "#a-b-c": true, "#not-one": false, "README.md#a-b-c": true} {
		if got := resolve("README.md", target, headings); (got == "") != fine {
			t.Errorf("%s: %q", target, got)
		}
	}
	if got := mislabelled("[decisions/0009](decisions/0010-x.md) [docs/decisions/0009](docs/decisions/0009-y.md)"); len(got) != 1 {
		t.Errorf("got %q", got)
	}
}
