package doctest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	upTime      = 90 * time.Second
	commandTime = 60 * time.Second
	pollEvery   = 100 * time.Millisecond
)

// runningLab is the lab in which the examples run.
type runningLab struct {
	t      *testing.T
	binary string
	dir    string
}

// TestExamplesRun types every command of the blocks marked "console lab", in the order of the pages, in one lab of three nodes:
// `holdfast lab` on the machine, everything else on node1. Each must end with exit code 0.
func TestExamplesRun(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	l := startLab(t)
	ran := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks() {
			if b.info != "console lab" {
				continue
			}
			l.awaitServing()
			for _, line := range b.commands() {
				ran++
				if out, err := l.run(l.words(line)); err != nil {
					t.Errorf("%s, the block at line %d: %s: %v\n%s", b.page, b.line, line, err, out)
				}
			}
		}
	}
	if ran < 40 {
		t.Errorf("only %d commands were run", ran)
	}
}

// startLab builds the binary and brings up a lab that ends with the test. It skips the test where that is not possible.
func startLab(t *testing.T) runningLab {
	t.Helper()
	for _, program := range []string{"ip", "nft", "named"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("a lab needs %s: install what scripts/packages lists for a lab", program)
		}
	}
	l := runningLab{t, filepath.Join(t.TempDir(), "holdfast"), filepath.Join(t.TempDir(), "lab")}
	// As make build does it, which has compiled it then.
	build := exec.CommandContext(inTime(t, 10*time.Minute), "go", "build", "-trimpath", "-o", l.binary, "./cmd/holdfast")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the binary: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), commandTime)
		defer cancel()
		out, err := exec.CommandContext(ctx, l.binary, "lab", "down", "--dir", l.dir).CombinedOutput()
		if err != nil && !t.Skipped() {
			t.Errorf("taking the lab down: %v\n%s", err, out)
		}
	})
	out, err := exec.CommandContext(inTime(t, upTime), l.binary, "lab", "up", "--dir", l.dir).CombinedOutput()
	if err != nil && bytes.Contains(out, []byte("not permitted")) {
		t.Skipf("this machine does not allow labs: %s", out)
	}
	if err != nil {
		t.Fatalf("bringing a lab up: %v\n%s", err, out)
	}
	return l
}

// words are the program and its arguments for a line of an example.
func (l runningLab) words(line string) []string {
	words := strings.Fields(line)
	if len(words) > 2 && words[0] == "holdfast" && words[1] == "lab" {
		return append([]string{l.binary, "lab", words[2], "--dir", l.dir}, words[3:]...)
	}
	return append([]string{l.binary, "lab", "exec", "--dir", l.dir, "node1", "--"}, words...)
}

func (l runningLab) run(words []string) (string, error) {
	ctx, cancel := context.WithTimeout(l.t.Context(), commandTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput()
	return string(out), err
}

// awaitServing waits until the cluster serves: an example may follow one that broke it.
func (l runningLab) awaitServing() {
	l.t.Helper()
	deadline := time.Now().Add(upTime)
	for {
		out, err := l.run(l.words("holdfast status --check"))
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("the cluster does not serve: %s", out)
		}
		time.Sleep(pollEvery)
	}
}
