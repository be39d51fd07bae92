package architecture

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	_ "github.com/holdfast/holdfast/internal/agent" // defines, with what it imports, every kind of problem
	"github.com/holdfast/holdfast/internal/problem"
)

var update = flag.Bool("update", false, "write docs/problems.md anew")

const problemsPage = "docs/problems.md"

var problemCode = regexp.MustCompile(`^[a-z]+(-[a-z]+)*(\.[a-z0-9]+(-[a-z0-9]+)*)+$`)

// TestProblemsPage: operators find every problem that the program can report on one page, in the program's own words.
func TestProblemsPage(t *testing.T) {
	var page strings.Builder
	page.WriteString("# Problems\n\nEvery problem that Holdfast can report, as `holdfast status`, the metric `holdfast_agent_problems` and the log show it.\n" +
		"Written by `go test ./internal/architecture -run TestProblemsPage -update` from the program's own register; do not edit it.\n\n" +
		"Severities: **info**, worth knowing; **warning**, redundancy or quality is reduced; **error**, some clients are or soon will be\n" +
		"affected; **critical**, clients are losing service.\n")
	for _, kind := range problem.Kinds() {
		fmt.Fprintf(&page, "\n## %s\n\n**%s.** %s\n\nWhat to do: %s\n", kind.Code, kind.Severity, kind.Meaning, kind.Remedy)
	}
	file := filepath.Join(root, problemsPage)
	if *update {
		if err := os.WriteFile(file, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	on, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(page.String(), string(on)); diff != "" {
		t.Errorf("%s is not up to date; run go test ./internal/architecture -run TestProblemsPage -update (-want +got):\n%s", problemsPage, diff)
	}
}

// TestProblemsAreComplete: a problem is told in sentences, under a code that a script can match, with a known severity.
func TestProblemsAreComplete(t *testing.T) {
	for _, kind := range problem.Kinds() {
		for _, finding := range incomplete(kind) {
			t.Errorf("problem %s: %s", kind.Code, finding)
		}
	}
}

func incomplete(kind *problem.Kind) []string {
	var findings []string
	if !problemCode.MatchString(kind.Code) {
		findings = append(findings, "the code is not of the form area.what-is-wrong")
	}
	switch kind.Severity {
	case problem.Info, problem.Warning, problem.Error, problem.Critical:
	default:
		findings = append(findings, fmt.Sprintf("there is no severity %q", kind.Severity))
	}
	for _, text := range []string{kind.Meaning, kind.Remedy} {
		if !strings.HasSuffix(text, ".") || strings.ToUpper(text[:1]) != text[:1] {
			findings = append(findings, fmt.Sprintf("%q is not a sentence", text))
		}
	}
	return findings
}

func TestProblemsAreCompleteCanBreak(t *testing.T) {
	good := problem.Kind{Code: "store.is-full", Severity: problem.Error, Meaning: "It is full.", Remedy: "Make room."}
	if got := incomplete(&good); len(got) != 0 {
		t.Errorf("got %q for a good one", got)
	}
	bad := problem.Kind{Code: "Store full", Severity: "bad", Meaning: "it is full.", Remedy: "Make room"}
	if got := incomplete(&bad); len(got) != 4 {
		t.Errorf("got %q for a bad one", got)
	}
}
