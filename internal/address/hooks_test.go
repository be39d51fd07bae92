package address

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

func shell(phase cluster.HookPhase, script string) cluster.Hook {
	return cluster.Hook{Phase: phase, Command: []string{"/bin/sh", "-c", script}}
}

// Public report 12 (Samba bug 15858): one node was not told before the move. The runner's part: for each call the hooks
// of that phase run, all of them, in order, and are told the phase, the address, and both ends.
func TestReport12HookOrder(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	record := func(name string) string {
		return fmt.Sprintf(`echo "%s $HOLDFAST_PHASE $HOLDFAST_ADDRESS $HOLDFAST_FROM>$HOLDFAST_TO" >> %s`, name, log)
	}
	hooks := []cluster.Hook{
		shell(cluster.HookDone, record("one")), shell(cluster.HookPrepare, record("two")+"; exit 3"),
		shell(cluster.HookTake, record("three")), shell(cluster.HookRelease, record("four")),
		shell(cluster.HookPrepare, record("five")),
	}
	from, to := cluster.Member{LNN: 1, Interface: "ext-1"}, cluster.Member{LNN: 2, Interface: "ext-1"}
	for _, phase := range []cluster.HookPhase{cluster.HookPrepare, cluster.HookRelease, cluster.HookTake, cluster.HookDone} {
		results := HookRunner{}.Run(t.Context(), hooks, HookCall{phase, addr("10.0.0.7"), from, to})
		if failed := results[0].Err != nil; failed != (phase == cluster.HookPrepare) {
			t.Errorf("%s: %v", phase, results[0].Err)
		}
	}
	got, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "order", `
two prepare 10.0.0.7 1:ext-1>2:ext-1
five prepare 10.0.0.7 1:ext-1>2:ext-1
four release 10.0.0.7 1:ext-1>2:ext-1
three take 10.0.0.7 1:ext-1>2:ext-1
one done 10.0.0.7 1:ext-1>2:ext-1`, strings.TrimSpace(string(got)))
}

func runHook(t *testing.T, hook cluster.Hook) HookResult {
	t.Helper()
	return HookRunner{}.Run(t.Context(), []cluster.Hook{hook}, HookCall{Phase: hook.Phase, Address: addr("10.0.0.7")})[0]
}

func TestHookOutputIsKeptAndBounded(t *testing.T) {
	result := runHook(t, shell(cluster.HookTake, `echo out; echo err >&2; echo "from '$HOLDFAST_FROM'"`))
	if result.Output != "out\nerr\nfrom ''\n" || result.Truncated || result.Err != nil {
		t.Errorf("got %+v", result)
	}
	result = runHook(t, shell(cluster.HookTake, `i=0; while [ $i -lt 2000 ]; do echo 0123456789; i=$((i+1)); done`))
	if len(result.Output) != HookOutputMax || !result.Truncated || result.Err != nil {
		t.Errorf("%d bytes kept, truncated %v, error %v", len(result.Output), result.Truncated, result.Err)
	}
}

// A hook that runs too long is killed with what it started: the read end of the pipe ends only when all have.
func TestHookIsKilledWithItsGroup(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	hook := shell(cluster.HookTake, fmt.Sprintf("sleep 20 > /proc/%d/fd/%d & echo started; wait", os.Getpid(), write.Fd()))
	hook.Timeout = 300 * time.Millisecond
	result := runHook(t, hook)
	write.Close()
	if result.Err == nil || !strings.Contains(result.Err.Error(), "longer than 300ms") || result.Output != "started\n" {
		t.Errorf("got %+v, want it killed after its timeout", result)
	}
	_ = read.SetReadDeadline(time.Now().Add(10 * time.Second)) // reached only by a failure
	if _, err := read.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("reading from the pipe gave %v, want its end: what the hook started is still running", err)
	}
}

func TestHookFailures(t *testing.T) {
	if result := runHook(t, cluster.Hook{Phase: cluster.HookTake, Command: []string{"/nonexistent/hook"}}); !errors.Is(result.Err, os.ErrNotExist) {
		t.Errorf("got %v, want that there is no such file", result.Err)
	}
	if result := runHook(t, cluster.Hook{Phase: cluster.HookTake}); result.Err == nil {
		t.Error("a hook without a command succeeded")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	results := HookRunner{}.Run(ctx, []cluster.Hook{shell(cluster.HookTake, "sleep 600")}, HookCall{Phase: cluster.HookTake})
	if !errors.Is(results[0].Err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", results[0].Err)
	}
	// Something that it left running in a session of its own does not keep the caller.
	if result := runHook(t, shell(cluster.HookTake, "setsid sleep 2 & echo left")); result.Err != nil || result.Took > time.Second {
		t.Errorf("got %v after %v", result.Err, result.Took)
	}
}
