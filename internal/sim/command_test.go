package sim

import (
	"bytes"
	"context"
	"encoding/json"
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
		written.WriteString(err.Error()) // the program says it on standard error, and adds nothing to what is empty
		code = coded.ExitCode()
	case err != nil:
		t.Errorf("%v ends with an error that has no exit code: %v", args, err)
	}
	return written.String(), code
}

// lastLine is the last line of an output.
func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}

// TestCommandInterrupted: what is interrupted ends with a last line that counts what was played, and not as if all had been.
func TestCommandInterrupted(t *testing.T) {
	for _, output := range []string{"table", "json"} {
		ctx, interrupt := context.WithCancel(t.Context())
		command := Command()
		var written bytes.Buffer
		command.SetOut(&written)
		command.SetErr(io.Discard)
		command.SetArgs([]string{"--seeds", "1000000", "--parallel", "2", "--output", output})
		timer := time.AfterFunc(200*time.Millisecond, interrupt)
		defer timer.Stop()
		var end *ended
		if err := command.ExecuteContext(ctx); !errors.As(err, &end) || end.code != exitFailed {
			t.Fatalf("it ends with %v", err)
		}
		var played, wrong, said int
		if output == "json" {
			var got answer
			if err := json.Unmarshal(written.Bytes(), &got); err != nil || !got.Interrupted {
				t.Fatalf("%v; it says\n%s", err, written.String())
			}
			played, wrong = int(got.Seeds), int(got.Failed)
		} else if n, err := fmt.Sscanf(lastLine(written.String()), "seeds=%d failed=%d", &played, &wrong); n != 2 || err != nil {
			t.Fatalf("it ends with\n%s", written.String())
		}
		if n, err := fmt.Sscanf(end.text, "interrupted after %d of 1000000", &said); n != 1 || err != nil || said != played || played >= 1000000 || wrong > 0 {
			t.Errorf("it ends with %q, and\n%s", end.text, written.String())
		}
	}
}

// TestCommandJSON: one object, the same each time, from which a scenario can be played.
func TestCommandJSON(t *testing.T) {
	args := []string{"--seeds", "3", "--break", "lease", "--shrink=false", "--story", "restart just after a confirmation", "-o", "json"}
	out, code := play(t, args...)
	again, _ := play(t, args...)
	var got struct {
		Seeds, Failed int
		Failures      []struct {
			Seed       int
			Kind, Text string
			Scenario   json.RawMessage
			Smaller    *struct{ Scenario json.RawMessage }
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitFailed || out != again {
		t.Fatalf("%v; code %d\n%s", err, code, out)
	}
	if got.Seeds != 3 || got.Failed != 3 || len(got.Failures) != 3 || got.Failures[2].Seed != 2 || got.Failures[0].Kind != string(RightOfOver) || got.Failures[0].Smaller != nil {
		t.Errorf("it says\n%s", out)
	}
	scenario, err := Decode(got.Failures[0].Scenario)
	if err != nil {
		t.Fatal(err)
	}
	if result := Play(scenario, Options{Break: BreakLease}); result.Failure != got.Failures[0].Text {
		t.Errorf("played again: %q, not %q", result.Failure, got.Failures[0].Text)
	}
	if out, code := play(t, "--seeds", "1", "--output", "json"); code != 0 || !strings.Contains(out, `"failures": []`) {
		t.Errorf("code %d\n%s", code, out)
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

// TestCommandMisused: what cannot be done is said, with the exit code for a wrong command line.
func TestCommandMisused(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--trace", "say which with --seed"},
		{"--trace --seed 1 -o json", "contradict each other"},
		{"--break nothing", `--break "nothing": there is no such rule`},
		{"--story nothing", `--story "nothing": there is no such story`},
		{"--seed 1 --story nothing", `--story "nothing": there is no such story`},
		{"--scenario nowhere", "open nowhere: no such file"},
		{"--scenario command_test.go", "--scenario command_test.go cannot be played: line 1: it is not JSON"},
		{"--seeds 0", "--seeds 0: write how many"},
		{"--parallel -4", "--parallel -4: write 1 to 1024"},
		{"--parallel 0", "--parallel 0: write 1 to 1024"},
		{"--seed-base 18446744073709551615 --seeds 2", "the last seed would be more than 18446744073709551615"},
		{"--output yaml", `--output "yaml": write table or json`},
	} {
		if out, code := play(t, strings.Fields(c.args)...); code != exitUsage || !strings.Contains(out, c.want) {
			t.Errorf("%s: code %d, %q; want %q in it", c.args, code, out, c.want)
		}
	}
}

// TestFlagsExclude: what says which are played is said once.
func TestFlagsExclude(t *testing.T) {
	for _, args := range []string{"--seed 1 --seeds 2", "--seed 1 --seed-base 2", "--scenario a --seed 1", "--scenario a --seeds 1", "--scenario a --seed-base 1", "--scenario a --story b"} {
		command := Command()
		command.SetOut(io.Discard)
		command.SetArgs(strings.Fields(args))
		if err := command.Execute(); err == nil || !strings.Contains(err.Error(), "none of the others can be") {
			t.Errorf("%s: %v", args, err)
		}
	}
}
