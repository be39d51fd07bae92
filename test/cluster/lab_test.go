package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long a condition may take to come true. Nothing that works takes nearly so long, also on a busy machine.
const patience = 90 * time.Second

// pollEvery is how often a condition is looked at.
const pollEvery = 100 * time.Millisecond

// lab is one running lab. Its methods may be used from several goroutines.
type lab struct {
	dir   string
	nodes []string
	count int // of nodes
}

// startLab brings up a lab from a lab file and takes it down with the test. It returns when the cluster serves, unless a
// further argument of lab up says otherwise.
func startLab(t *testing.T, nodes int, file string, more ...string) *lab {
	t.Helper()
	need(t)
	l := &lab{dir: filepath.Join(filepath.Dir(holdfast), strings.ReplaceAll(t.Name(), "/", "-")), count: nodes}
	for i := range nodes {
		l.nodes = append(l.nodes, fmt.Sprintf("node%d", i+1))
	}
	path := filepath.Join(t.TempDir(), "lab.yaml")
	if err := os.WriteFile(path, []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	l.guard(t)
	up := append([]string{"lab", "up", "-f", path, "--dir", l.dir, "--wait", patience.String()}, more...)
	if out, err := exec.Command(holdfast, up...).CombinedOutput(); err != nil {
		l.report(t)
		t.Fatalf("lab up: %v\n%s", err, out)
	}
	return l
}

// guard takes the lab down at the end of the test, or of this process, whichever comes first.
func (l *lab) guard(t *testing.T) {
	t.Helper()
	watchdog := exec.Command("sh", "-c", `cat >/dev/null; exec "$0" lab down --dir "$1"`, holdfast, l.dir)
	watchdog.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	leash, err := watchdog.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watchdog.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			l.report(t)
		}
		_ = leash.Close()
		if err := watchdog.Wait(); err != nil && !t.Failed() && !t.Skipped() {
			t.Errorf("lab down: %v", err)
		}
		if _, err := os.Stat(l.dir); !errors.Is(err, os.ErrNotExist) && !t.Failed() {
			t.Errorf("the lab left its directory behind: %v", err)
		}
	})
}

// report logs what a reader needs to understand a failure.
func (l *lab) report(t *testing.T) {
	t.Helper()
	for _, node := range l.nodes {
		log, err := os.ReadFile(filepath.Join(l.dir, "nodes", node, "agent.log"))
		if err != nil {
			t.Logf("%s has no log: %v", node, err)
			continue
		}
		const most = 6000
		t.Logf("the end of the agent's log on %s:\n%s", node, log[max(0, len(log)-most):])
	}
	if keep := os.Getenv("HOLDFAST_KEEP_LOGS"); keep != "" {
		_ = exec.Command("cp", "-r", l.dir, keep).Run()
	}
}

// do runs a lab command, such as kill node2.
func (l *lab) do(t *testing.T, arguments ...string) string {
	t.Helper()
	line := append([]string{"lab", arguments[0], "--dir", l.dir}, arguments[1:]...)
	out, err := exec.Command(holdfast, line...).CombinedOutput()
	if err != nil {
		t.Fatalf("lab %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
	return string(out)
}

// result is what a program left behind.
type result struct {
	out, complaints string
	code            int
}

// try runs a program in a member and returns whatever comes of it.
func (l *lab) try(member string, argv ...string) (result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var out, complaints bytes.Buffer
	command := l.command(ctx, member, argv...)
	command.Stdout, command.Stderr = &out, &complaints
	err := command.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		err = nil
	}
	r := result{out: out.String(), complaints: complaints.String(), code: command.ProcessState.ExitCode()}
	if err != nil {
		err = fmt.Errorf("%s in %s: %w: %s", strings.Join(argv, " "), member, err, r.complaints)
	}
	return r, err
}

func (l *lab) command(ctx context.Context, member string, argv ...string) *exec.Cmd {
	line := append([]string{"lab", "exec", "--dir", l.dir, member, "--"}, argv...)
	command := exec.CommandContext(ctx, holdfast, line...)
	command.WaitDelay = 5 * time.Second
	return command
}

// get runs a program in a member that must succeed, and returns its output.
func (l *lab) get(member string, argv ...string) (string, error) {
	r, err := l.try(member, argv...)
	if err == nil && r.code != 0 {
		err = fmt.Errorf("%s in %s ended with %d: %s%s", strings.Join(argv, " "), member, r.code, r.out, r.complaints)
	}
	return r.out, err
}

// must is get for what cannot go wrong unless the test fails.
func (l *lab) must(t *testing.T, member string, argv ...string) string {
	t.Helper()
	out, err := l.get(member, argv...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// read runs a holdfast command in a node and decodes its JSON.
func (l *lab) read(node string, into any, arguments ...string) error {
	out, err := l.get(node, append(append([]string{"holdfast"}, arguments...), "--output", "json")...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		return fmt.Errorf("holdfast %s on %s printed no JSON that makes sense: %w", strings.Join(arguments, " "), node, err)
	}
	return nil
}

// program is one that runs on in a member until the test ends or stops it.
type program struct {
	command *exec.Cmd
	input   io.WriteCloser
	output  *bytes.Buffer // complete after stop
	ended   chan struct{}
	err     error
}

// start runs a program in a member in the background. Its input stays open until it is stopped.
func (l *lab) start(t *testing.T, member string, argv ...string) *program {
	t.Helper()
	p := &program{command: l.command(context.Background(), member, argv...), output: new(bytes.Buffer), ended: make(chan struct{})}
	p.command.Stdout, p.command.Stderr = p.output, p.output
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if p.input, err = p.command.StdinPipe(); err == nil {
		err = p.command.Start()
	}
	if err != nil {
		t.Fatalf("starting %s in %s: %v", strings.Join(argv, " "), member, err)
	}
	go func() {
		p.err = p.command.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() { p.stop() })
	return p
}

// stop ends the program as ctrl-C would, insists if need be, and returns what it printed.
func (p *program) stop() string {
	_ = p.input.Close()
	_ = syscall.Kill(-p.command.Process.Pid, syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		_ = syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL)
		<-p.ended
	}
	return p.output.String()
}

// signal sends a signal to the program and its children.
func (p *program) signal(s syscall.Signal) { _ = syscall.Kill(-p.command.Process.Pid, s) }

// kill is kill -9, and returns when the program is gone.
func (p *program) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// running says whether the program still runs.
func (p *program) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// eventually waits until a condition holds, and fails the test with what it last complained about if that takes too long.
func eventually(t *testing.T, what string, condition func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %v until %s; at last: %v", patience, what, err)
		}
		pause()
	}
}

// pause waits between two looks at something that changes by itself.
func pause() { <-time.After(pollEvery) }

// writeFile writes a file that lasts as long as the test and can be read in every member.
func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
