package cluster

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew; commit only what you understand")

// TestFaults reads every file of testdata/faults. The golden file beside it is all that an operator is told.
func TestFaults(t *testing.T) {
	files, err := filepath.Glob("testdata/faults/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c, faults := ParseWithWarnings(filepath.Base(file), data)
			checkGolden(t, strings.TrimSuffix(file, ".yaml")+".golden", faults.Error()+"\n")

			_, parseErr := Parse(filepath.Base(file), data)
			if refused := len(faults.Errors()) > 0; refused != (parseErr != nil) || refused != (c == nil) {
				t.Errorf("refused %v, but Parse says %v and the configuration is %v", refused, parseErr, c)
			}
			for _, f := range faults {
				if f.Line == 0 || f.Column == 0 {
					t.Errorf("no line or column: %v", f)
				}
			}
		})
	}
}

func checkGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", file, diff)
	}
}

// However much is worth a warning, what refuses a file is said.
func TestFaultsDoNotDrownInWarnings(t *testing.T) {
	var text strings.Builder
	text.WriteString("cluster: {name: demo}\nnodes:\n")
	for n := 1; n <= 2*maxFaults; n++ {
		fmt.Fprintf(&text, "  - {name: node%d, lnn: %d, rack: left, voter: false}\n", n, n)
	}
	text.WriteString("groupnets:\n  - {name: groupnet0, subnets: [{name: subnet0, cidr: nonsense}]}\n")
	_, faults := ParseWithWarnings("many.yaml", []byte(text.String()))
	if errs := faults.Errors(); len(errs) == 0 || len(errs) > maxFaults || !strings.Contains(errs.Error(), "nonsense") {
		t.Errorf("said of what is wrong: %v", errs)
	}
}
