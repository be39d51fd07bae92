package guard

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/linux/nft"
)

// The agents of these tests are processes of their own (this test binary, told so by agentVariable), so that they can be killed and
// frozen. The guard runs in the test's process, on a kernel of its own.

const agentVariable = "HOLDFAST_TEST_GUARD_SOCKET"

func TestMain(m *testing.M) {
	if path := os.Getenv(agentVariable); path != "" {
		agentLife(path)
		return
	}
	if path := os.Getenv(guardVariable); path != "" {
		command := Command()
		command.SetArgs([]string{"--socket", path})
		if err := command.Execute(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if priority, err := strconv.Atoi(os.Getenv(busyVariable)); err == nil {
		beBusy(uint32(priority))
		return
	}
	os.Exit(m.Run())
}

// patience is how long what takes milliseconds may take. Nothing is judged by it.
const patience = 20 * time.Second

// agentLife obeys lines: right forever, right MILLISECONDS (and renewed from then on), lapse, goodbye, absent. Each is answered by one.
func agentLife(path string) {
	c := NewClient(ClientOptions{Path: path, Logger: slog.New(slog.DiscardHandler)})
	c.Moving(movingAddresses)
	go c.Run(context.Background())
	for deadline := time.Now().Add(patience); c.Absent() != "" && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("here", c.Absent())
	input := bufio.NewScanner(os.Stdin)
	var last int64
	renewing := make(chan struct{})
	for input.Scan() {
		words := strings.Fields(input.Text())
		switch words[0] {
		case "right":
			last = Forever
			if ms, err := strconv.Atoi(words[1]); err == nil {
				last = now() + int64(ms)*1e6
				go func() {
					for {
						select {
						case <-renewing:
							return
						case <-time.After(time.Duration(ms) * time.Millisecond / 4):
							c.Deadline(now() + int64(ms)*1e6)
						}
					}
				}()
			}
			c.Deadline(last)
		case "lapse":
			c.Deadline(0)
		case "goodbye":
			c.Goodbye()
		}
		fmt.Println("done", last, c.Absent())
	}
}

var movingAddresses = []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("10.0.0.8"), netip.MustParseAddr("fd00::7"), netip.MustParseAddr("10.0.0.30")}

// agentProcess is the test's end of an agent.
type agentProcess struct {
	t       *testing.T
	command *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Scanner
}

func (n *node) agent() *agentProcess {
	n.t.Helper()
	a := &agentProcess{t: n.t, command: exec.Command("/proc/self/exe")}
	a.command.Env = append(os.Environ(), agentVariable+"="+n.path)
	a.command.Stderr = os.Stderr
	a.input, _ = a.command.StdinPipe()
	output, err := a.command.StdoutPipe()
	if err == nil {
		err = a.command.Start()
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = a.command.Process.Kill(); _ = a.command.Wait() })
	a.output = bufio.NewScanner(output)
	if line := a.line(); line != "here " {
		n.t.Fatalf("the agent said %q", line)
	}
	return a
}

func (a *agentProcess) line() string {
	a.t.Helper()
	if !a.output.Scan() {
		a.t.Fatal("the agent ended")
	}
	return a.output.Text()
}

func (a *agentProcess) say(line string) string {
	a.t.Helper()
	fmt.Fprintln(a.input, line)
	return a.line()
}

func (a *agentProcess) signal(s syscall.Signal) { _ = a.command.Process.Signal(s) }

// node is a kernel of its own with a guard.
type node struct {
	t      *testing.T
	path   string
	kernel *link.Kernel
	filter *nft.Filter
	stop   func()

	closeFilter func()

	mu   sync.Mutex
	done []string // silence, remove, lift, in their order
}

func newNode(t *testing.T) *node {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("ip(8) is not installed")
	}
	n := &node{t: t, path: filepath.Join(t.TempDir(), "guard.sock")}
	made := make(chan error)
	skip := false
	go func() {
		runtime.LockOSThread() // and never unlock: the thread dies, and the namespace with it
		err := unix.Unshare(unix.CLONE_NEWNET)
		skip = err != nil
		if err == nil {
			n.kernel, err = link.Open()
		}
		if err == nil {
			n.filter, err = nft.Open()
		}
		made <- err
	}()
	if err := <-made; skip {
		t.Skipf("no permission to make a network namespace: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	n.closeFilter = sync.OnceFunc(n.filter.Close)
	t.Cleanup(func() { n.closeFilter(); n.kernel.Close() })
	n.run("ip link add ext0 type veth peer name ext1")
	n.run("ip link set ext0 up")
	n.run("ip addr add 10.0.0.1/24 dev ext0")
	n.run("ip addr add 10.0.0.30/24 dev ext0") // an operator's: it is not a host prefix
	n.start()
	return n
}

// start runs a guard.
func (n *node) start() {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended, ready := make(chan error, 1), make(chan struct{})
	go func() {
		ended <- Serve(ctx, Options{
			Path: n.path, Kernel: recorder{n.kernel, n}, Filter: filterRecorder{n.filter, n}, Logger: slog.New(slog.NewTextHandler(n.t.Output(), nil)),
			Ready: func() { close(ready) },
		})
	}()
	select {
	case <-ready:
	case err := <-ended:
		n.t.Fatal(err)
	}
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			n.t.Errorf("the guard ended with %v", err)
		}
	})
	n.t.Cleanup(func() { n.stop() })
}

func (n *node) run(line string) {
	n.t.Helper()
	err := n.kernel.In(func() error {
		out, err := exec.Command(strings.Fields(line)[0], strings.Fields(line)[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
		return nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// take puts the addresses on, as the agent does.
func (n *node) take() {
	n.t.Helper()
	for _, a := range []string{"10.0.0.7", "10.0.0.8", "fd00::7", "10.0.0.9"} {
		operation := link.Operation{Verb: link.Add, Object: link.Address{Interface: "ext0", Prefix: link.Host(netip.MustParseAddr(a)), Valid: link.Forever, Preferred: link.Forever}}
		for _, err := range n.kernel.Apply([]link.Operation{operation}) {
			if err != nil {
				n.t.Fatal(err)
			}
		}
	}
}

const (
	everything = "10.0.0.1/24 10.0.0.30/24 10.0.0.7/32 10.0.0.8/32 10.0.0.9/32 fd00::7/128"
	atRest     = "10.0.0.1/24 10.0.0.30/24 10.0.0.9/32" // what does not move, is an operator's, or is nobody's
)

func (n *node) holds() string {
	n.t.Helper()
	list, err := n.kernel.Addresses()
	if err != nil {
		n.t.Fatal(err)
	}
	var names []string
	for _, a := range list {
		if a.Interface == "ext0" {
			names = append(names, a.Prefix.String())
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (n *node) until(what string, ok func() bool) {
	n.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			n.t.Fatalf("waited in vain until %s: it holds %s, and the guard did %v", what, n.holds(), n.did())
		}
	}
}

func (n *node) untilAtRest() {
	n.t.Helper()
	n.until("the moving addresses are off", func() bool { return n.holds() == atRest })
}

func (n *node) did() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.done)
}

func (n *node) note(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.done) == 0 || n.done[len(n.done)-1] != what {
		n.done = append(n.done, what)
	}
}

type recorder struct {
	*link.Kernel
	n *node
}

func (r recorder) Apply(operations []link.Operation) []error {
	if len(operations) > 0 {
		r.n.note("remove")
	}
	return r.Kernel.Apply(operations)
}

type filterRecorder struct {
	*nft.Filter
	n *node
}

func (f filterRecorder) Silence() error { f.n.note("silence"); return f.Filter.Silence() }
func (f filterRecorder) Lift() error    { f.n.note("lift"); return f.Filter.Lift() }

func (n *node) wants(what ...string) {
	n.t.Helper()
	if did := n.did(); !slices.Equal(did, what) {
		n.t.Errorf("the guard did %v, want %v", did, what)
	}
}

// TestAgentKilled: its addresses go, those of nobody and the machine's own stay, and the next agent that has the right is heard again.
func TestAgentKilled(t *testing.T) {
	n := newNode(t)
	a := n.agent()
	a.say("right forever")
	n.take()
	a.signal(syscall.SIGKILL)
	n.untilAtRest()
	n.wants("silence", "remove")
	next := n.agent()
	next.say("right forever")
	n.until("the silence is lifted", func() bool { return slices.Contains(n.did(), "lift") })
	n.take7()
	if got := n.holds(); !strings.Contains(got, "10.0.0.7/32") {
		t.Errorf("it holds %s", got)
	}
	next.say("goodbye")
	n.wants("silence", "remove", "lift")
}

func (n *node) take7() { n.t.Helper(); n.run("ip addr add 10.0.0.7/32 dev ext0") }

// TestAgentFrozen: an agent that stands still keeps what it has until its deadline, and not longer.
func TestAgentFrozen(t *testing.T) {
	n := newNode(t)
	a := n.agent()
	n.take()
	said := strings.Fields(a.say("right 400"))
	a.signal(syscall.SIGSTOP)
	deadline, err := strconv.ParseInt(said[1], 10, 64) // what it handed over last is this, or later
	if err != nil {
		t.Fatal(err)
	}
	n.untilAtRest()
	if off := now(); off < deadline {
		t.Errorf("the addresses went %v before the deadline", time.Duration(deadline-off))
	}
	n.wants("silence", "remove")
	a.signal(syscall.SIGCONT)
	n.until("the right that is renewed lifts the silence", func() bool { return slices.Contains(n.did(), "lift") })
	a.say("goodbye")
}

// TestAgentLapses: an agent that says so is silenced at once.
func TestAgentLapses(t *testing.T) {
	n := newNode(t)
	a := n.agent()
	a.say("right forever")
	n.take()
	a.say("lapse")
	n.untilAtRest()
	n.wants("silence", "remove")
}

// TestGoodbye: an agent that ends in order leaves nothing to do, and a guard that has seen no right does nothing at an agent's death.
func TestGoodbye(t *testing.T) {
	n := newNode(t)
	a := n.agent()
	a.say("right forever")
	n.take()
	a.say("goodbye")
	a.signal(syscall.SIGKILL)
	second := n.agent() // the guard has one agent at a time, so it is through with the first
	second.signal(syscall.SIGKILL)
	n.agent()
	if got := n.holds(); got != everything {
		t.Errorf("it holds %s", got)
	}
	n.wants()
}

// TestGuardRestarts: while it is away nothing happens; the agent finds the new one, which then does its duty.
func TestGuardRestarts(t *testing.T) {
	n := newNode(t)
	a := n.agent()
	a.say("right forever")
	n.take()
	n.stop()
	if got := n.holds(); got != everything {
		t.Errorf("without a guard it holds %s", got)
	}
	n.until("the agent notices", func() bool { return strings.Contains(a.say("absent"), "guard") })
	n.start()
	n.until("the agent is back", func() bool { return strings.HasSuffix(a.say("absent"), " ") })
	if got := n.holds(); got != everything {
		t.Errorf("with a new guard it holds %s", got)
	}
	a.signal(syscall.SIGKILL)
	n.untilAtRest()
	n.wants("silence", "remove")
}

// TestGarbageIsRefused: a process that speaks otherwise is told so; an agent that does is as good as dead.
func TestGarbageIsRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines [][]byte
		want  string
	}{
		{"no hello", [][]byte{message{kind: kindDeadline, deadline: Forever}.bytes()}, "hello"},
		{"unknown", [][]byte{{200, 1, 2, 3}}, "unknown kind"},
		{"another version", [][]byte{{byte(kindHello), 77}}, "version 77"},
		{"too long", [][]byte{make([]byte, 3*maxMessage)}, "no sense"},
		{"a part without a beginning", [][]byte{{byte(kindHello), version}, {byte(kindMoving), 2}}, "beginning"},
		{"the guard's own words", [][]byte{{byte(kindHello), version}, message{kind: kindDeadline, deadline: Forever}.bytes(), {byte(kindSilenced)}}, "not to say"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			conn := n.dial()
			for _, line := range c.lines {
				if _, err := conn.Write(line); err != nil {
					t.Fatal(err)
				}
			}
			if got := n.refusedBy(conn); !strings.Contains(got, c.want) {
				t.Errorf("the guard said %q", got)
			}
			n.agent().say("right forever") // it guards on
		})
	}
}

func (n *node) dial() *os.File {
	n.t.Helper()
	conn, err := connect(n.path)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// refusedBy reads until the guard refuses.
func (n *node) refusedBy(conn *os.File) string {
	n.t.Helper()
	for {
		m, err := receive(conn)
		if err != nil {
			n.t.Fatalf("the guard closed the connection without a word: %v", err)
		}
		if m.kind == kindRefused {
			return m.text
		}
	}
}

// TestStrangerIsRefused: another user, and a second agent.
func TestStrangerIsRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	n := newNode(t)
	if err := os.Chmod(n.path, 0o666); err != nil {
		t.Fatal(err)
	}
	for directory := filepath.Dir(n.path); directory != os.TempDir() && directory != "/"; directory = filepath.Dir(directory) {
		if err := os.Chmod(directory, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	conns := make(chan *os.File)
	go func() {
		runtime.LockOSThread() // and never unlock: only this thread is nobody
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			t.Logf("becoming somebody else: %v", errno) // a user namespace of one user has nobody else
			conns <- nil
			return
		}
		conn, err := connect(n.path)
		if err != nil {
			t.Error(err)
		}
		conns <- conn
	}()
	stranger := <-conns
	if stranger == nil {
		t.Skip("nobody else can be had here")
	}
	defer stranger.Close()
	if got := n.refusedBy(stranger); !strings.Contains(got, "user 65534") {
		t.Errorf("the guard said %q", got)
	}
	a := n.agent()
	a.say("right forever")
	n.take()
	if got := n.refusedBy(n.dial()); !strings.Contains(got, "an agent is connected already") {
		t.Errorf("the guard said %q", got)
	}
	if got := n.holds(); got != everything {
		t.Errorf("it holds %s", got)
	}
	a.say("goodbye")
}

// TestSecondGuard: one guard runs on a node, and a socket that a dead one left is no hindrance (TestGuardRestarts removes it in order).
func TestSecondGuard(t *testing.T) {
	n := newNode(t)
	err := Serve(t.Context(), Options{Path: n.path, Kernel: n.kernel, Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "another guard") {
		t.Errorf("the second one ended with %v", err)
	}
	n.stop()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: n.path}); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
	n.start()
	n.agent()
}

// TestThousandAddresses prints how long a node of a thousand addresses takes to be silent and clean; it asserts only that it becomes so.
func TestThousandAddresses(t *testing.T) {
	n := newNode(t)
	var all []netip.Addr
	var operations []link.Operation
	for a := netip.MustParseAddr("10.2.0.0"); len(all) < 1000; a = a.Next() {
		all = append(all, a)
		operations = append(operations, link.Operation{Verb: link.Add, Object: link.Address{Interface: "ext0", Prefix: link.Host(a), Valid: link.Forever, Preferred: link.Forever}})
	}
	for _, err := range n.kernel.Apply(operations) {
		if err != nil {
			t.Fatal(err)
		}
	}
	told := make(chan string, 1)
	c := NewClient(ClientOptions{Path: n.path, Logger: slog.New(slog.DiscardHandler), Told: func(what string) { told <- what }})
	c.Moving(all)
	go c.Run(t.Context())
	n.until("the guard is there", func() bool { return c.Absent() == "" })
	c.Deadline(now() + int64(time.Second))
	select {
	case what := <-told:
		t.Log(what)
	case <-time.After(patience):
		t.Fatal("the guard did not silence the node")
	}
	n.until("all are off", func() bool { return !strings.Contains(n.holds(), "10.2.") })
	c.Goodbye()
}
