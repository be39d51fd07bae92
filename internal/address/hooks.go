package address

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

// Bounds of hooks.
const (
	// HookOutputMax is how many bytes of a hook's output are kept: the first ones; the rest is read and dropped.
	HookOutputMax = 8 << 10
	// HookTimeout applies to a hook that has none of its own.
	HookTimeout = 5 * time.Second
	// hookPipeWait is how long the output is waited for after the hook itself has ended, where something that it
	// started, and that left its process group, keeps the output open.
	hookPipeWait = 100 * time.Millisecond
)

// HookCall is the move for which hooks run. From or To may be zero, which stands for nobody.
type HookCall struct {
	Phase    cluster.HookPhase
	Address  netip.Addr
	From, To cluster.Member
}

// HookResult is what one hook did.
type HookResult struct {
	Hook      cluster.Hook
	Call      HookCall
	Started   time.Time
	Took      time.Duration
	Output    string // standard output and error, at most HookOutputMax bytes
	Truncated bool   // there was more output
	Err       error  // nil: it exited with 0
}

// HookRunner runs operators' commands around moves. It is safe for concurrent use. The order of the phases (prepare on
// all nodes, release, take, done) is the caller's; within a phase hooks run one after the other, as configured.
type HookRunner struct {
	Now func() time.Time // default time.Now
}

// Run runs the hooks of the call's phase and returns what each did. A hook that fails does not keep back the next. A hook
// that runs longer than its timeout, or than ctx lasts, is killed with all that it started in its process group. The
// command has the agent's environment and HOLDFAST_PHASE, HOLDFAST_ADDRESS, HOLDFAST_FROM and HOLDFAST_TO; the last
// two are members as in "3:ext-1", or empty for nobody.
func (h HookRunner) Run(ctx context.Context, hooks []cluster.Hook, call HookCall) []HookResult {
	var results []HookResult
	for _, hook := range hooks {
		if hook.Phase == call.Phase {
			results = append(results, h.runOne(ctx, hook, call))
		}
	}
	return results
}

func (h HookRunner) runOne(ctx context.Context, hook cluster.Hook, call HookCall) HookResult {
	now := h.Now
	if now == nil {
		now = time.Now
	}
	result := HookResult{Hook: hook, Call: call, Started: now()}
	if len(hook.Command) == 0 {
		result.Err = fmt.Errorf("%s hook has no command", hook.Phase)
		return result
	}
	timeout := hook.Timeout
	if timeout <= 0 {
		timeout = HookTimeout
	}
	limited, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	output := &boundedOutput{max: HookOutputMax}
	command := exec.CommandContext(limited, hook.Command[0], hook.Command[1:]...) //nolint:gosec // running the operator's command is the purpose
	command.Env = append(os.Environ(), hookEnvironment(call)...)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = hookPipeWait
	err := command.Run()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // it exited with 0; what it left running is its own business
	case ctx.Err() != nil:
		result.Err = fmt.Errorf("%s hook %s for %v was killed: %w", hook.Phase, hook.Command[0], call.Address, context.Cause(ctx))
	case limited.Err() != nil:
		result.Err = fmt.Errorf("%s hook %s for %v was killed: it ran longer than %v", hook.Phase, hook.Command[0], call.Address, timeout)
	default:
		result.Err = fmt.Errorf("%s hook %s for %v: %w", hook.Phase, hook.Command[0], call.Address, err)
	}
	result.Took = now().Sub(result.Started)
	result.Output, result.Truncated = output.text()
	return result
}

func hookEnvironment(call HookCall) []string {
	member := func(m cluster.Member) string {
		if m.IsZero() {
			return ""
		}
		return m.String()
	}
	return []string{
		"HOLDFAST_PHASE=" + string(call.Phase), "HOLDFAST_ADDRESS=" + call.Address.String(),
		"HOLDFAST_FROM=" + member(call.From), "HOLDFAST_TO=" + member(call.To),
	}
}

// boundedOutput keeps the first bytes that are written to it and drops the rest.
type boundedOutput struct {
	mu      sync.Mutex // a writer may outlive the command, see hookPipeWait
	kept    bytes.Buffer
	max     int
	dropped bool
}

func (o *boundedOutput) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	room := o.max - o.kept.Len()
	o.kept.Write(b[:min(room, len(b))])
	o.dropped = o.dropped || len(b) > room
	return len(b), nil
}

func (o *boundedOutput) text() (string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.kept.String(), o.dropped
}
