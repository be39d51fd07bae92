package doctest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// models are the files that the models are made of. They are read here so that go test looks again when one has changed.
func models(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../docs/model/*.pml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no models in docs/model: %v", err)
	}
	files = append(files, "../../scripts/model")
	for _, file := range files {
		if _, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// needSpin skips where the models cannot be checked.
func needSpin(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("spin"); err != nil {
		t.Skip("checking the models needs SPIN (Debian package spin)")
	}
	for _, compiler := range []string{"cc", "gcc"} {
		if _, err := exec.LookPath(compiler); err == nil {
			return
		}
	}
	t.Skip("checking the models needs a C compiler (Debian packages gcc and libc6-dev)")
}

// TestModel runs the short checks of the models: rules of the design that hold, and broken ones, each of which must be caught. All
// of them are in `make model`.
func TestModel(t *testing.T) {
	needSpin(t)
	models(t)
	list, err := exec.CommandContext(t.Context(), "../../scripts/model", "list", "quick").Output()
	if err != nil {
		t.Fatal(err)
	}
	turn := make(chan struct{}, 2) // each may need a gigabyte
	for line := range strings.Lines(string(list)) {
		name, expected, _ := strings.Cut(strings.TrimSpace(line), " ")
		t.Run(name+" "+expected, func(t *testing.T) {
			t.Parallel()
			turn <- struct{}{}
			defer func() { <-turn }()
			if out, err := exec.CommandContext(t.Context(), "../../scripts/model", "run", name).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestModelCanSurprise: a rule that is expected to hold and does not, a broken one that is not caught, and a run that does not come
// to its end are each told and fail the whole.
func TestModelCanSurprise(t *testing.T) {
	needSpin(t)
	dir := t.TempDir()
	for _, file := range models(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(file) == "model" {
			text = []byte(strings.NewReplacer("| holds ", "| caught", "| caught", "| holds ").Replace(string(text)))
		}
		to := filepath.Join(dir, strings.TrimPrefix(file, "../../"))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	surprised := func(script, memory string, names ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), script, append([]string{"run"}, names...)...)
		command.Env = append(os.Environ(), "MODEL_MEMORY="+memory)
		out, err := command.Output()
		if err == nil || strings.Count(string(out), "\nFAIL") != len(names) {
			t.Errorf("%s with %s megabytes: %v, and not every run is told as a failure:\n%s", filepath.Base(script), memory, err, out)
		}
	}
	surprised(filepath.Join(dir, "scripts/model"), "6000", "observers-2", "old-record")
	surprised("../../scripts/model", "1", "observers-2")
}
