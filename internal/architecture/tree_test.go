package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// module is the path that all packages of the product begin with.
const module = "github.com/holdfast/holdfast/"

// source is one Go file.
type source struct {
	path      string // from the root, with slashes
	file      *ast.File
	positions *token.FileSet
	lines     int
	test      bool // a test, or in a package that only tests import
	generated bool
}

// folder is the package's place from the root, for example internal/dns.
func (s source) folder() string { return path.Dir(s.path) }

// at names a place in the file.
func (s source) at(n ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.positions.Position(n.Pos()).Line)
}

// imports returns what the file imports: path to the import's place.
func (s source) imports() map[string]*ast.ImportSpec {
	found := map[string]*ast.ImportSpec{}
	for _, spec := range s.file.Imports {
		if name, err := strconv.Unquote(spec.Path.Value); err == nil {
			found[name] = spec
		}
	}
	return found
}

// importedAs returns the import path that a name stands for in this file.
func (s source) importedAs(name string) string {
	for importPath, spec := range s.imports() {
		local := path.Base(importPath)
		if strings.HasPrefix(local, "v") && len(local) == 2 {
			local = path.Base(path.Dir(importPath)) // math/rand/v2
		}
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if local == name {
			return importPath
		}
	}
	return ""
}

func parse(name, text string) (source, error) {
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return source{}, err
	}
	return source{
		path: name, file: file, positions: positions, lines: strings.Count(text, "\n"),
		test:      strings.HasSuffix(name, "_test.go") || strings.HasSuffix(path.Dir(name), "test") || strings.HasPrefix(name, "test/"),
		generated: ast.IsGenerated(file),
	}, nil
}

// root is the top of the tree.
const root = "../.."

// skipped are the folders that hold nothing of ours.
var skipped = []string{".git", "bin", "build", "testdata", "node_modules"}

// walk calls visit with every file of the tree and its place from the root.
func walk(t *testing.T, visit func(name string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(skipped, entry.Name()):
			return filepath.SkipDir
		case entry.Name() == ".git": // of a worktree, which says where the repository is
		case entry.Type().IsRegular():
			inside, err := filepath.Rel(root, name)
			if err != nil {
				return err
			}
			visit(filepath.ToSlash(inside))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

var parsed struct {
	once    sync.Once
	sources []source
}

// tree parses every Go file, once for all tests.
func tree(t *testing.T) []source {
	t.Helper()
	parsed.once.Do(func() {
		walk(t, func(name string) {
			if path.Ext(name) != ".go" {
				return
			}
			text, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				t.Fatal(err)
			}
			s, err := parse(name, string(text))
			if err != nil {
				t.Fatal(err)
			}
			parsed.sources = append(parsed.sources, s)
		})
	})
	if len(parsed.sources) < 100 {
		t.Fatalf("only %d files were found: the rules would hold for nothing", len(parsed.sources))
	}
	return parsed.sources
}

// rule is a function from the tree to what breaks the rule, each with its place and what to do.
type rule func([]source) []string

// hold applies a rule to the tree.
func hold(t *testing.T, r rule) {
	t.Helper()
	for _, finding := range r(tree(t)) {
		t.Error(finding)
	}
}

// breaks applies a rule to small sources, and fails unless it finds exactly what is wanted, by the beginnings of the findings.
func breaks(t *testing.T, r rule, files map[string]string, want ...string) {
	t.Helper()
	var sources []source
	for _, name := range slices.Sorted(maps.Keys(files)) {
		s, err := parse(name, files[name])
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, s)
	}
	got := r(sources)
	if len(got) != len(want) {
		t.Errorf("%d findings, want %d: %q", len(got), len(want), got)
		return
	}
	for i, prefix := range want {
		if !strings.HasPrefix(got[i], prefix) {
			t.Errorf("finding %d is %q, want it to begin with %q", i, got[i], prefix)
		}
	}
}
