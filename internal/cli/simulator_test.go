package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast/holdfast/internal/sim"
)

// simulate runs the simulator as the binary does.
func simulate(t *testing.T, line string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := Run(t.Context(), Deps{
		In: strings.NewReader(""), Out: &out, Err: &errs, Now: func() time.Time { return now }, Environment: func(string) string { return "" },
		Commands: []*cobra.Command{sim.Command()},
	}, strings.Fields(line))
	return result{code, out.String(), errs.String()}
}

// simulatorMisused are wrong command lines of the simulator, and what is said of each.
func simulatorMisused(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return "sim --scenario " + path
	}
	return map[string]string{
		"sim --seeds -1":                        `--seeds "-1": write a whole number that is not negative`,
		"sim --seed abc":                        `--seed "abc": write a whole number that is not negative`,
		"sim --parallel many":                   `--parallel "many": write a whole number`,
		"sim --seeds 0":                         `--seeds 0`,
		"sim --story nothing":                   `no such story`,
		"sim --break nothing":                   `no such rule`,
		"sim --trace":                           `--seed`,
		"sim --seed 1 --seed-base 5":            `--seed and --seed-base contradict each other`,
		"sim --scenario x --story y":            `--scenario and --story contradict each other`,
		"sim --scenario /no/such/file":          `/no/such/file`,
		"sim -o yaml":                           `table or json`,
		file("half.json", "{"):                  `it ends in the middle`,
		file("words.json", `{"Nodes":"three"}`): `Nodes is text where a whole number belongs`,
		file("flood.json", `{"Nodes":3,"Multiplier":3,"Interval":100000000,"Addresses":3,"Networks":1,"Faults":[{"Kind":"flood"}]}`): `no Kind "flood"`,
	}
}

// TestSimulatorMisused: what cannot be played is a wrong command line, with its exit code and where to look.
func TestSimulatorMisused(t *testing.T) {
	for line, want := range simulatorMisused(t) {
		r := simulate(t, line)
		if r.code != exitUsage || !strings.Contains(r.err, want) || !strings.Contains(r.err, "See 'holdfast sim --help'") || r.out != "" {
			t.Errorf("holdfast %s: exit code %d, want 2 and %q; said:\n%s%s", line, r.code, want, r.out, r.err)
		}
	}
}
