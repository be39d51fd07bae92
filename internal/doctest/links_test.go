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

var link = regexp.MustCompile(`\]\(([^()\s]+)\)`)

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
	if checked < 20 {
		t.Errorf("only %d links were found", checked)
	}
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
}
