package cli

import (
	"bytes"
	"strings"
	"testing"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
)

// On a terminal a person sees what would follow, and nothing is done before the word yes.
func TestDeclareDeadAsksFirst(t *testing.T) {
	for _, c := range []struct {
		typed string
		code  int
		done  bool
	}{{"yes\n", 0, true}, {"y\n", exitFailed, false}, {"", exitFailed, false}, {"no\n", exitFailed, false}} {
		f := &fake{change: &pb.ChangeResult{Note: "node1: may hold by the word of node2"}}
		socket := agent(t, f)
		var out, errs bytes.Buffer
		code := Run(t.Context(), Deps{In: strings.NewReader(c.typed), InTerminal: true, Out: &out, Err: &errs, Now: testNow,
			Environment: func(string) string { return "" }}, []string{"node", "declare-dead", "node3", "--reason", "fire", "--socket", socket})
		last, _ := f.asked.(*pb.DeclareDeadRequest)
		if code != c.code || last == nil || last.Options.DryRun == c.done || last.Reason != "fire" {
			t.Errorf("typed %q: exit code %d, asked last %v\n%s", c.typed, code, last, errs.String())
		}
		if !strings.Contains(out.String(), "may hold by the word of node2") || !strings.Contains(errs.String(), "Type yes") {
			t.Errorf("typed %q: what would follow is not shown before the question: %s%s", c.typed, out.String(), errs.String())
		}
	}
}
