package threads

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// asked says to this test binary, as a process of its own, what it is to do to itself.
const asked = "HOLDFAST_TEST_THREADS"

func TestMain(m *testing.M) {
	var do func() error
	switch os.Getenv(asked) {
	case "":
		os.Exit(m.Run())
	case "real time":
		do = func() error { return RunInRealTime(1) }
	case "nice":
		do = func() error { return Renice(3) }
	case "hurry":
		os.Exit(code(hurried()))
	case "hurries":
		os.Exit(code(hurriedAtBirth()))
	}
	os.Exit(toAll(do))
}

// toAll does it in a process of several threads and says whether it was done to each; 3: it was refused.
func toAll(do func() error) int {
	var here, over sync.WaitGroup
	over.Add(1)
	for range 4 {
		here.Add(1)
		go func() {
			runtime.LockOSThread()
			here.Done()
			over.Wait()
		}()
	}
	here.Wait()
	defer over.Done()
	if err := do(); errors.Is(err, unix.EPERM) {
		return 3
	} else if err != nil {
		return 1
	}
	seen := 0
	err := each(func(thread int) error {
		seen++
		is, err := unix.SchedGetAttr(thread, 0)
		if err == nil && !(is.Policy == unix.SCHED_RR && is.Priority == 1) && is.Nice != 3 {
			err = errors.New("not this one")
		}
		return err
	})
	if err != nil || seen < 5 {
		return 1
	}
	return 0
}

// TestEveryThread: what is asked for is done to all threads that there are; a hurry only to those that are not in real time already, for as
// long as it lasts, and not to what is started meanwhile, at whichever moment.
func TestEveryThread(t *testing.T) {
	for _, what := range []string{"real time", "nice", "hurry", "hurries"} {
		t.Run(what, func(t *testing.T) {
			command := exec.Command("/proc/self/exe")
			command.Env = append(os.Environ(), asked+"="+what)
			out, err := command.CombinedOutput()
			if command.ProcessState.ExitCode() == 3 {
				t.Skip("real-time scheduling is refused here (CAP_SYS_NICE allows it)")
			}
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestThreadsThatAreGone: one that ends meanwhile is no failure; another failure is one, and ends it.
func TestThreadsThatAreGone(t *testing.T) {
	calls := 0
	if err := each(func(int) error { calls++; return unix.ESRCH }); err != nil || calls == 0 {
		t.Errorf("%v after %d calls", err, calls)
	}
	calls = 0
	if err := each(func(int) error { calls++; return unix.EPERM }); !errors.Is(err, unix.EPERM) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
	for _, done := range []error{RunInRealTime(1000), Renice(0)} {
		if done != nil && !strings.Contains(done.Error(), "CAP_SYS_NICE") {
			t.Error(done)
		}
	}
}
