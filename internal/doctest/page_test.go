package doctest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the lists of settings and metrics anew")

// root is the top of the tree.
const root = "../.."

// page is one page for people.
type page struct {
	path string // from the root
	text string
}

// block is one fenced block of a page.
type block struct {
	page string
	line int    // of the opening fence
	info string // what stands behind the fence, for example "console lab"
	text string // without the indentation of the fence
}

// pages are all pages that the tests read.
func pages(t *testing.T) []page {
	t.Helper()
	var list []page
	for _, pattern := range []string{"README.md", "ARCHITECTURE.md", "docs/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			place, err := filepath.Rel(root, name)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, page{filepath.ToSlash(place), string(text)})
		}
	}
	if len(list) < 9 {
		t.Fatalf("only %d pages were found", len(list))
	}
	return list
}

// blocks are the fenced blocks of a page. A fence that is not closed ends with the page.
func (p page) blocks() []block {
	var list []block
	var open *block
	var text bytes.Buffer
	indent := ""
	for i, line := range strings.Split(p.text, "\n") {
		trimmed := strings.TrimLeft(line, " ")
		switch {
		case open == nil && strings.HasPrefix(trimmed, "```"):
			indent = line[:len(line)-len(trimmed)]
			open = &block{page: p.path, line: i + 1, info: strings.TrimSpace(strings.TrimPrefix(trimmed, "```"))}
			text.Reset()
		case open != nil && trimmed == "```":
			open.text = text.String()
			list = append(list, *open)
			open = nil
		case open != nil:
			text.WriteString(strings.TrimPrefix(line, indent) + "\n")
		}
	}
	if open != nil {
		open.text = text.String()
		list = append(list, *open)
	}
	return list
}

var prompt = regexp.MustCompile(`^[$#] (.+)$`)

// commands are the lines of a block that a person would type.
func (b block) commands() []string {
	var list []string
	for line := range strings.Lines(b.text) {
		if m := prompt.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			list = append(list, m[1])
		}
	}
	return list
}

func TestBlocks(t *testing.T) {
	got := page{"a.md", "x\n   ```console lab\n   $ holdfast status\n   yes\n   # holdfast get\n   ```\n```yaml\na: 1\n```\n"}.blocks()
	if len(got) != 2 || got[0].info != "console lab" || got[0].line != 2 || got[1].text != "a: 1\n" {
		t.Fatalf("got %+v", got)
	}
	if c := got[0].commands(); len(c) != 2 || c[0] != "holdfast status" || c[1] != "holdfast get" {
		t.Errorf("commands %q", c)
	}
}
