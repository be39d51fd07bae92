package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	node "github.com/holdfast/holdfast/internal/agent"
)

// TestSizeOfNumbersNeedsNoAgent: the sizing examples of the specification, where no agent runs.
func TestSizeOfNumbersNeedsNoAgent(t *testing.T) {
	size := func(args ...string) result {
		var out, errs bytes.Buffer
		code := Run(t.Context(), Deps{
			Out: &out, Err: &errs, Now: testNow, Size: node.Size,
			Environment: func(string) string { return filepath.Join(t.TempDir(), "nobody") },
		}, append([]string{"network", "pools", "size"}, args...))
		return result{code, out.String(), errs.String()}
	}
	r := size("--nodes", "4", "--addresses", "12", "--clients", "600")
	if r.code != 0 || !strings.Contains(r.out, "after one loss    3      4               200") {
		t.Errorf("%+v", r)
	}
	if r := size("--nodes", "4", "--addresses", "4", "--clients", "600", "-o", "json"); r.code != 0 || !strings.Contains(r.out, `"clients_most": 300`) {
		t.Errorf("%+v", r)
	}
	if r := size("--nodes", "300", "--addresses", "4"); r.code != exitUsage || !strings.Contains(r.err, "1 to 256 nodes") {
		t.Errorf("too many nodes: %+v", r)
	}
	if r := size("groupnet0.subnet0.pool0"); r.code != exitUnreachable {
		t.Errorf("a pool, which only an agent knows: %+v", r)
	}
}
