package doctest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// citation is a page that a comment names, and the heading behind it: docs/dns.md, "How a node is picked".
var citation = regexp.MustCompile(`\b((?:[a-z]+/)*[A-Za-z0-9-]+\.md)\b(?:,? "([^"]+)"| section [0-9]+)?`)

// TestCitations: every page that a comment of the code names is in the tree, down to the heading.
func TestCitations(t *testing.T) {
	headings := map[string]map[string]bool{}
	for _, p := range pages(t) {
		headings[p.path] = anchors(p.text)
	}
	cited := 0
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".go" {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, comment := range file.Comments {
			for _, m := range citations(comment) {
				cited++
				if fault := uncitable(m[1], m[2], headings); fault != "" {
					t.Errorf("%s: %q: %s", name, m[0], fault)
				}
			}
		}
		return nil
	})
	if err != nil || cited < 15 {
		t.Errorf("%d pages are cited, %v", cited, err)
	}
}

// citations are the pages that one comment names, whatever its line breaks.
func citations(comment *ast.CommentGroup) [][]string {
	return citation.FindAllStringSubmatch(strings.Join(strings.Fields(comment.Text()), " "), -1)
}

// uncitable says what is wrong with a citation; empty if nothing is. A name without a folder may be a page in docs.
func uncitable(file, heading string, headings map[string]map[string]bool) string {
	anchor := ""
	for name := range anchors("# " + heading) {
		anchor = "#" + name
	}
	if heading == "" {
		anchor = ""
	}
	fault := resolve("", file+anchor, headings)
	if fault != "" && path.Dir(file) == "." && resolve("docs/x", file+anchor, headings) == "" {
		return ""
	}
	return fault
}

func TestCitationsCanBreak(t *testing.T) {
	headings := map[string]map[string]bool{"docs/dns.md": anchors("## How a node is picked\n")}
	for text, fine := range map[string]bool{
		"(docs/dns.md)": true, "see docs/dns.md, \"How a\nnode is picked\".": true, "docs/dns.md, \"Nothing\"": false,
		"spec/steering.md section 3": false, "dns.md": true, "design.md \"A dead man's hand\"": false,
	} {
		var lines []*ast.Comment
		for line := range strings.Lines(text) {
			lines = append(lines, &ast.Comment{Text: "// " + strings.TrimSpace(line)})
		}
		found := citations(&ast.CommentGroup{List: lines})
		if len(found) != 1 {
			t.Errorf("%s: found %q", text, found)
		} else if got := uncitable(found[0][1], found[0][2], headings); (got == "") != fine {
			t.Errorf("%s: %q", text, got)
		}
	}
}
