package guard

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/linux/link"
)

// In these tests every processor is busy with something of a higher priority. The guard is a process of its own, as on a node, so that
// all of it has its priority; what makes busy is one too (this test binary, told so by busyVariable), which ends by itself.

const (
	guardVariable = "HOLDFAST_TEST_GUARD_TO_BE"
	busyVariable  = "HOLDFAST_TEST_BUSY_PRIORITY"
)

// busyFor is for how long. The kernel leaves 50 ms of each second to those who are not real-time (sched_rt_runtime_us, sched(7)).
const busyFor = 400 * time.Millisecond

// beBusy keeps every processor busy at a real-time priority, and prints between which moments all of them were. It ends by its own
// clock; if that went wrong the kernel would kill it (RLIMIT_RTTIME, getrlimit(2)).
func beBusy(priority uint32) {
	const limit = uint64((busyFor + 100*time.Millisecond) / time.Microsecond)
	if err := unix.Setrlimit(unix.RLIMIT_RTTIME, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		fmt.Println("refused", err)
		return
	}
	var processors unix.CPUSet
	if err := unix.SchedGetaffinity(0, &processors); err != nil {
		fmt.Println("refused", err)
		return
	}
	runtime.GOMAXPROCS(processors.Count() + 1) // also where the control group has less
	var here atomic.Int32
	var all sync.WaitGroup
	var mu sync.Mutex
	var begun, ended time.Time
	var failed error
	giveUp := time.Now().Add(patience)
	for processor := range 1024 {
		if !processors.IsSet(processor) {
			continue
		}
		all.Go(func() {
			runtime.LockOSThread()
			var only unix.CPUSet
			only.Set(processor)
			err := unix.SchedSetaffinity(0, &only)
			here.Add(1)
			for int(here.Load()) < processors.Count() && time.Now().Before(giveUp) {
				runtime.Gosched()
			}
			if err == nil {
				err = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: priority}, 0)
			}
			began := time.Now()
			end := began.Add(busyFor)
			for err == nil && time.Now().Before(end) {
			}
			_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr}, 0)
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
			if began.After(begun) {
				begun = began
			}
			if ended.IsZero() || end.Before(ended) {
				ended = end
			}
		})
	}
	all.Wait()
	if failed != nil {
		fmt.Println("refused", failed)
		return
	}
	fmt.Println("busy", begun.Format(time.RFC3339Nano), ended.Format(time.RFC3339Nano))
}

// busy keeps every processor busy at a priority and returns between which moments.
func busy(t *testing.T, priority int) (begun, ended time.Time) {
	t.Helper()
	command := exec.Command("/proc/self/exe")
	command.Env = append(os.Environ(), fmt.Sprintf("%s=%d", busyVariable, priority))
	out, err := command.Output()
	words := strings.Fields(string(out))
	if err == nil && len(words) > 0 && words[0] == "refused" {
		t.Skipf("real-time scheduling is refused here: %s", out)
	}
	if err == nil && len(words) == 3 {
		begun, err = time.Parse(time.RFC3339Nano, words[1])
	}
	if err == nil && len(words) == 3 {
		ended, err = time.Parse(time.RFC3339Nano, words[2])
	}
	if err != nil || ended.IsZero() {
		t.Fatalf("making the processors busy: %v; it said %q", err, out)
	}
	return begun, ended
}

// guardProcess is the guard of a node as a process, in the place of the one in this process.
type guardProcess struct {
	command *exec.Cmd
	mu      sync.Mutex
	log     bytes.Buffer
}

func (g *guardProcess) Write(line []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.log.Write(line)
}

func (g *guardProcess) said() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.log.String()
}

func (n *node) guardProcess() *guardProcess {
	n.t.Helper()
	n.stop()
	n.closeFilter() // its tables have one owner
	g := &guardProcess{command: exec.Command("/proc/self/exe")}
	g.command.Env = append(os.Environ(), guardVariable+"="+n.path)
	g.command.Stderr = g
	if err := n.kernel.In(g.command.Start); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = g.command.Process.Kill(); _ = g.command.Wait() })
	n.until("the guard listens", func() bool { return strings.Contains(g.said(), "msg=guarding") })
	if said := g.said(); strings.Contains(said, "less than it could have") {
		n.t.Skipf("real-time scheduling is refused here: %s", said)
	}
	return g
}

// takeFor puts moving addresses on, with a lifetime that the kernel keeps.
func (n *node) takeFor(lifetime time.Duration) {
	n.t.Helper()
	for _, a := range movingAddresses[:3] {
		operation := link.Operation{Verb: link.Add, Object: link.Address{Interface: "ext0", Prefix: link.Host(a), Valid: lifetime, Preferred: lifetime}}
		for _, err := range n.kernel.Apply([]link.Operation{operation}) {
			if err != nil {
				n.t.Fatal(err)
			}
		}
	}
}

// nobodysOwn is what is left of takeFor.
const nobodysOwn = "10.0.0.1/24 10.0.0.30/24"

var silencedAt = regexp.MustCompile(`time=(\S+) level=WARN msg="silenced this node"`)

// TestBusyAboveTheAgent: an agent that gets no processor any more cannot renew its right, and the guard, which is above what keeps the
// processors busy, takes the addresses off at the deadline, while they are.
func TestBusyAboveTheAgent(t *testing.T) {
	if testing.Short() {
		t.Skip("it keeps every processor busy")
	}
	n := newNode(t)
	g := n.guardProcess()
	a := n.agent()
	a.say("right 200") // renewed each 50 ms
	n.takeFor(link.Forever)
	begun, ended := busy(t, roundRobin-1)
	n.until("the moving addresses are off", func() bool { return n.holds() == nobodysOwn })
	during := false
	for _, words := range silencedAt.FindAllStringSubmatch(g.said(), -1) {
		at, err := time.Parse(time.RFC3339Nano, words[1])
		if err != nil {
			t.Fatal(err)
		}
		during = during || at.After(begun) && at.Before(ended)
	}
	if !during {
		t.Errorf("not silenced while the processors were busy, from %v to %v; the guard said\n%s", begun, ended, g.said())
	}
	a.say("goodbye")
}

// TestBusyAboveTheGuard: where even the guard gets no processor, it acts as soon as it gets one, and without any guard the kernel's
// lifetime ends what nobody renews. Either way nothing stays.
func TestBusyAboveTheGuard(t *testing.T) {
	if testing.Short() {
		t.Skip("it keeps every processor busy")
	}
	for name, c := range map[string]struct {
		lifetime time.Duration
		frozen   bool // the guard never gets a processor again
		silenced bool
	}{
		"the guard":           {link.Forever, false, true},
		"the kernel's bounds": {time.Second, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			g := n.guardProcess()
			a := n.agent()
			a.say("right 200")
			n.takeFor(c.lifetime)
			a.signal(syscall.SIGSTOP) // or it might be sooner than the guard to get a processor, and renew
			if c.frozen {
				_ = g.command.Process.Signal(syscall.SIGSTOP)
			}
			busy(t, roundRobin+1)
			n.until("the moving addresses are off", func() bool { return n.holds() == nobodysOwn })
			if got := strings.Contains(g.said(), "silenced this node"); got != c.silenced {
				t.Errorf("silenced by the guard: %v; it said\n%s", got, g.said())
			}
		})
	}
}
