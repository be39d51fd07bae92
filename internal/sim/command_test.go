package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// play runs the command and returns what it wrote, and its exit code.
func play(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	command := Command()
	var written bytes.Buffer
	command.SetOut(&written)
	command.SetErr(io.Discard) // how far it is, where that takes long
	command.SetArgs(args)
	err := command.ExecuteContext(t.Context())
	var coded interface{ ExitCode() int }
	switch {
	case errors.As(err, &coded):
		code = coded.ExitCode()
	case err != nil:
		return err.Error(), 2
	}
	return written.String(), code
}

// lastLine is the last line of an output.
func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}

// TestCommandInterrupted: what is interrupted ends with a last line that counts what was played.
func TestCommandInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	command := Command()
	var written bytes.Buffer
	command.SetOut(&written)
	command.SetErr(io.Discard)
	command.SetArgs([]string{"--seeds", "1000000", "--parallel", "2"})
	timer := time.AfterFunc(200*time.Millisecond, interrupt)
	defer timer.Stop()
	if err := command.ExecuteContext(ctx); err != nil {
		t.Fatal(err)
	}
	var played, wrong int
	if n, err := fmt.Sscanf(lastLine(written.String()), "seeds=%d failed=%d", &played, &wrong); n != 2 || err != nil || played >= 1000000 || wrong > 0 {
		t.Errorf("it ends with\n%s", written.String())
	}
}

// TestProgress: where there is no terminal, how far it is comes in plain lines, and seldom.
func TestProgress(t *testing.T) {
	var written bytes.Buffer
	now := time.Unix(0, 0)
	p := newProgress(&written, false, 1000, now)
	for range 610 {
		now = now.Add(100 * time.Millisecond)
		p.played(1, now)
	}
	p.clear()
	const want = "300 of 1000 seeds, 1 failed, 10 a second, 1m10s left\n600 of 1000 seeds, 1 failed, 10 a second, 40s left\n"
	if written.String() != want {
		t.Errorf("it says\n%swant\n%s", written.String(), want)
	}
}

func TestCommand(t *testing.T) {
	if out, code := play(t, "--seeds", "6", "--seed-base", "40", "--parallel", "2"); out != "seeds=6 failed=0\n" || code != 0 {
		t.Errorf("piped, with nothing wrong, it ends with code %d and writes\n%s", code, out)
	}
	out, code := play(t, "--seeds", "4", "--break", "lease", "--shrink=false", "--story", "restart just after a confirmation")
	if lastLine(out) != "seeds=4 failed=4" || code != 1 || strings.Count(out, "\n") != 5 {
		t.Errorf("with a broken rule it ends with code %d and writes\n%s", code, out)
	}
	one, _ := play(t, "--seed", "43", "--trace")
	two, _ := play(t, "--seed", "43", "--trace")
	if one != two || !strings.HasPrefix(one, "seed 43, ") || !strings.Contains(one, "may hold under incarnation 1: true") || lastLine(one) != "seeds=1 failed=0" {
		t.Errorf("the timeline of one seed:\n%s", one)
	}
}

// TestCommandScenario: what a failure shows can be played from a file.
func TestCommandScenario(t *testing.T) {
	out, code := play(t, "--seed", "1", "--break", "lease", "--story", "restart just after a confirmation")
	_, scenario, found := strings.Cut(out, "\n{")
	scenario, _, ended := strings.Cut(scenario, "\n}")
	if code != 1 || !found || !ended {
		t.Fatalf("a failure ends with code %d and shows\n%s", code, out)
	}
	path := filepath.Join(t.TempDir(), "scenario.json")
	if err := os.WriteFile(path, []byte("{"+scenario+"}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := play(t, "--scenario", path, "--break", "lease", "--shrink=false"); code != 1 || lastLine(out) != "seeds=1 failed=1" {
		t.Errorf("played from a file it ends with code %d and writes\n%s", code, out)
	}
}

// TestCommandMisused: what cannot be done is said.
func TestCommandMisused(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--trace", "say which with --seed"},
		{"--break nothing", `no rule "nothing"`},
		{"--story nothing", `no story "nothing"`},
		{"--scenario nowhere", "reading the scenario"},
		{"--seed 1 --seeds 2", "none of the others can be"},
	} {
		if out, code := play(t, strings.Fields(c.args)...); code != 2 || !strings.Contains(out, c.want) {
			t.Errorf("%s: code %d, %q; want %q in it", c.args, code, out, c.want)
		}
	}
}
