package doctest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var (
	packageName  = regexp.MustCompile("`((?:cmd|internal|proto|packaging|scripts|test|tools)(?:/[a-z0-9]+)*)/?`")
	fileName     = regexp.MustCompile("`((?:cmd|internal)/[a-z0-9/]+/[a-z_0-9]+\\.go)`")
	functionName = regexp.MustCompile("`((?:cmd|internal)/[a-z0-9/]+/[a-z_0-9]+\\.go):([A-Za-z]+(?:\\.[A-Za-z]+)?)`")
)

// TestNames: every package, file and function that a page names is there.
func TestNames(t *testing.T) {
	functions := 0
	for _, p := range pages(t) {
		for _, pattern := range []*regexp.Regexp{packageName, fileName} {
			for _, m := range pattern.FindAllStringSubmatch(p.text, -1) {
				if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
					t.Errorf("%s: there is no %s", p.path, m[1])
				}
			}
		}
		for _, m := range functionName.FindAllStringSubmatch(p.text, -1) {
			functions++
			declared, err := declarations(filepath.Join(root, m[1]))
			if err != nil {
				t.Errorf("%s: %v", p.path, err)
			} else if !declared[m[2]] {
				t.Errorf("%s: %s has no %s", p.path, m[1], m[2])
			}
		}
	}
	if functions < 60 {
		t.Errorf("only %d functions are named", functions)
	}
}

// declarations are the functions, methods (Type.Method), types and constants of a file.
func declarations(name string) (map[string]bool, error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			found[receiver(d)+d.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					found[spec.Name.Name] = true
				case *ast.ValueSpec:
					for _, n := range spec.Names {
						found[n.Name] = true
					}
				}
			}
		}
	}
	return found, nil
}

// receiver is "Type." for a method and empty for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return ""
	}
	of := d.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name + "."
	}
	return ""
}
