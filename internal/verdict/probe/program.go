package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/cluster"
)

const (
	maxOutput   = 4096                   // bytes of output that are kept; the rest is read and dropped
	maxEvidence = 200                    // bytes of output that become evidence
	pipeGrace   = 200 * time.Millisecond // how long output may stay open after the program has ended
	killGrace   = time.Second            // how long the kernel may take to end a killed program
)

// program is good when a command exits with code 0. It runs in a process group of its own, which is killed by its
// number at the timeout and also when the program itself has ended: nothing that it started stays behind, unless it
// has left the group on purpose. It gets no input, a short PATH, HOLDFAST_CHECK and HOLDFAST_ADDRESS.
//
// At most one run of a program exists at a time: while one cannot be ended (it hangs in the kernel), every further try
// fails at once and says so.
type program struct {
	check   cluster.Check
	address netip.Addr

	mu      sync.Mutex
	running *run // the last run, while it may not have ended
}

func newProgram(check cluster.Check, address netip.Addr) (Probe, error) {
	if len(check.Command) == 0 || !filepath.IsAbs(check.Command[0]) {
		return nil, fmt.Errorf("check %s: exec needs a command that begins with an absolute path, not %q", check.Name, check.Command)
	}
	return &program{check: check, address: address}, nil
}

// run is one start of the program.
type run struct {
	cmd    *exec.Cmd
	output *head
	ended  chan struct{} // closed when the program is reaped; err is valid from then on
	err    error

	mu     sync.Mutex
	reaped bool // its process number may belong to another process now
}

func (p *program) Try(ctx context.Context) (string, error) {
	name := p.check.Command[0]
	r, err := p.start()
	if err != nil {
		return "", fmt.Errorf("exec %s: %w", name, err)
	}
	select {
	case <-r.ended:
		return r.result(name)
	case <-ctx.Done():
	}
	r.kill()
	select {
	case <-r.ended:
	case <-time.After(killGrace):
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return "", fmt.Errorf("exec %s: %w", name, errStopped)
	}
	return "", fmt.Errorf("exec %s: killed, because it did not end within %s%s", name, p.check.Timeout, r.output.quoted())
}

func (p *program) start() (*run, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running != nil {
		select {
		case <-p.running.ended:
		default:
			return nil, fmt.Errorf("an earlier run (process %d) was killed and has still not ended", p.running.cmd.Process.Pid)
		}
	}
	cmd := exec.Command(p.check.Command[0], p.check.Command[1:]...) //nolint:gosec // running the operator's command is the purpose
	cmd.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOLDFAST_CHECK=" + p.check.Name, "HOLDFAST_ADDRESS=" + p.address.String(),
	}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = pipeGrace
	r := &run{cmd: cmd, output: &head{}, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = r.output, r.output
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting it: %w", plain(err))
	}
	p.running = r
	go r.reap()
	return r, nil
}

// reap waits for the end of the program without taking its number away, kills what is left of its group, and only then
// lets the number go.
func (r *run) reap() {
	defer close(r.ended)
	for {
		err := unix.Waitid(unix.P_PID, r.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	r.kill()
	r.mu.Lock()
	r.reaped = true
	r.mu.Unlock()
	r.err = r.cmd.Wait()
}

// kill ends every process of the group, as long as the group's number is certainly still its own.
func (r *run) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.reaped {
		_ = unix.Kill(-r.cmd.Process.Pid, unix.SIGKILL) // no such process: there is nothing to end
	}
}

func (r *run) result(name string) (string, error) {
	if r.err != nil && !errors.Is(r.err, exec.ErrWaitDelay) {
		return "", fmt.Errorf("exec %s: %w%s", name, r.err, r.output.quoted())
	}
	return fmt.Sprintf("exec %s: exit code 0%s", name, r.output.quoted()), nil
}

// head keeps the first maxOutput bytes and drops the rest.
type head struct {
	mu      sync.Mutex
	kept    []byte
	dropped int
}

func (h *head) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	room := min(len(b), maxOutput-len(h.kept))
	h.kept = append(h.kept, b[:room]...)
	h.dropped += len(b) - room
	return len(b), nil
}

// quoted is the output as evidence: one short line of printable characters, or nothing.
func (h *head) quoted() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	line := strings.Join(strings.FieldsFunc(strings.ToValidUTF8(string(h.kept), "?"), func(r rune) bool {
		return !unicode.IsPrint(r)
	}), " ")
	line = strings.TrimSpace(line)
	if line == "" {
		return ""
	}
	if len(line) > maxEvidence {
		line = strings.ToValidUTF8(line[:maxEvidence], "") + " ..."
	}
	return ": " + line
}
