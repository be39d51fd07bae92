package probe

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/cluster"
)

// shell is an exec check of a shell script.
func shell(script string, args ...string) cluster.Check {
	return cluster.Check{Name: "own", Kind: cluster.CheckExec, Command: append([]string{"/bin/sh", "-c", script, "sh"}, args...)}
}

func TestExec(t *testing.T) {
	address := netip.MustParseAddr("10.0.0.7")
	for _, tc := range []struct {
		name, script string
		good         bool
		want         string
	}{
		{"good", "exit 0", true, "exec /bin/sh: exit code 0"},
		{"good with words", "echo all well", true, "exec /bin/sh: exit code 0: all well"},
		{"bad", "echo disk full >&2; exit 3", false, "exec /bin/sh: exit status 3: disk full"},
		{"killed by a signal", "kill -TERM $$", false, "exec /bin/sh: signal: terminated"},
		{"is told what it checks", "echo $HOLDFAST_CHECK $HOLDFAST_ADDRESS", true, ": own 10.0.0.7"},
		{"gets no input", "cat", true, "exit code 0"},
		{"gets a clean environment", `test -z "$HOME"`, true, "exit code 0"},
		{"control characters are no evidence", `printf 'a\033[31mb\r\nc'`, true, ": a [31mb c"},
		{"long output is cut", "i=0; while [ $i -lt 2000 ]; do echo 0123456789; i=$((i+1)); done", true, "0123456789 01 ..."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			good, said := outcome(t, shell(tc.script), address, nil, patience)
			if good != tc.good || !strings.Contains(said, tc.want) {
				t.Errorf("good %v, %q; want %v, %q", good, said, tc.good, tc.want)
			}
			if len(said) > maxEvidence+100 {
				t.Errorf("%d bytes of evidence", len(said))
			}
		})
	}
	if good, said := outcome(t, cluster.Check{Kind: cluster.CheckExec, Command: []string{"/no/such/program"}}, address, nil, patience); good ||
		said != "exec /no/such/program: starting it: no such file or directory" {
		t.Errorf("good %v, %q", good, said)
	}
}

// TestExecTimeoutKillsTheWholeGroup has a script whose child would outlive it by an hour.
func TestExecTimeoutKillsTheWholeGroup(t *testing.T) {
	pids := t.TempDir() + "/pids"
	good, said := outcome(t, shell(`sleep 3600 & echo $$ $! >$1; echo started; wait`, pids), netip.Addr{}, nil, 2*time.Second)
	if want := "exec /bin/sh: killed, because it did not end within 2s: started"; good || said != want {
		t.Errorf("good %v, %q; want %q", good, said, want)
	}
	wantGone(t, pids)
}

// TestExecLeavesNothingBehind has a script that ends at once and leaves a child in the background, which also keeps the
// output open.
func TestExecLeavesNothingBehind(t *testing.T) {
	pids := t.TempDir() + "/pids"
	if good, said := outcome(t, shell(`sleep 3600 & echo $$ $! >$1`, pids), netip.Addr{}, nil, patience); !good {
		t.Error(said)
	}
	wantGone(t, pids)
}

// wantGone waits until the processes whose numbers stand in the file no longer run. Killing is done when the try returns;
// the kernel takes its time to finish it.
func wantGone(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	giveUp, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, field := range strings.Fields(string(data)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		for alive(pid) {
			select {
			case <-giveUp.Done():
				_ = unix.Kill(pid, unix.SIGKILL)
				t.Fatalf("process %d still runs", pid)
			case <-time.After(time.Millisecond):
			}
		}
	}
}

// alive reports whether a process runs; one that has ended and that nobody has waited for does not.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

// TestExecOutputIsBounded floods the pipe for the whole of its time.
func TestExecOutputIsBounded(t *testing.T) {
	p, err := New(shell("while :; do echo 0123456789012345678901234567890123456789; done"), netip.Addr{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := p.Try(ctx); err == nil {
		t.Error("a program without end was good")
	}
	output := p.(*program).running.output
	output.mu.Lock()
	defer output.mu.Unlock()
	if len(output.kept) != maxOutput || output.dropped == 0 {
		t.Errorf("%d bytes kept and %d dropped, want %d kept", len(output.kept), output.dropped, maxOutput)
	}
}

// TestExecThatCannotBeKilled stands for a program that hangs in the kernel: no second one is started beside it.
func TestExecThatCannotBeKilled(t *testing.T) {
	p, err := New(shell("exit 0"), netip.Addr{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Try(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := p.(*program).running
	ended := last.ended
	last.ended = make(chan struct{}) // as if it had never ended
	if _, err := p.Try(t.Context()); err == nil || !strings.Contains(err.Error(), "has still not ended") {
		t.Errorf("%v; want a refusal", err)
	}
	last.ended = ended
	if _, err := p.Try(t.Context()); err != nil {
		t.Errorf("after the end of the earlier run: %v", err)
	}
}

func TestExecCalledOff(t *testing.T) {
	p, err := New(shell("exec sleep 3600"), netip.Addr{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Try(ctx); !errors.Is(err, errStopped) {
		t.Errorf("%v does not say that it was stopped", err)
	}
	if pid := p.(*program).running.cmd.Process.Pid; unix.Kill(-pid, 0) == nil {
		t.Errorf("process group %d still exists", pid)
	}
}
