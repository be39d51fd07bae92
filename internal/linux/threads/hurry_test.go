package threads

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// hurried does it in a process of several threads, one of which is in real time already, and says what is wrong.
func hurried() error {
	var here, over sync.WaitGroup
	over.Add(1)
	own := make(chan int, 1)
	for i := range 4 {
		here.Add(1)
		go func() {
			runtime.LockOSThread()
			if i == 0 {
				_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 7}, 0)
				own <- unix.Gettid()
			}
			here.Done()
			over.Wait()
		}()
	}
	here.Wait()
	defer over.Done()
	apart := <-own
	all, err := unix.SchedGetAttr(os.Getpid(), 0)
	if err != nil {
		return err
	}
	back, err := Hurry(1)
	if err != nil {
		return err
	}
	during := scheduled(apart, func(a *unix.SchedAttr) bool { return a.Policy == unix.SCHED_RR && a.Priority == 1 })
	child, childErr := exec.Command("cat", "/proc/self/sched").Output()
	started := make(chan *unix.SchedAttr)
	go func() { // on a thread that there was not before
		runtime.LockOSThread()
		attributes, _ := unix.SchedGetAttr(0, 0)
		started <- attributes
		over.Wait()
	}()
	<-started
	if err := back(); err != nil {
		return err
	}
	after := scheduled(apart, func(a *unix.SchedAttr) bool {
		return a.Policy == unix.SCHED_NORMAL && a.Nice == all.Nice && a.Flags == 0
	})
	if was, err := unix.SchedGetAttr(apart, 0); err != nil || was.Priority != 7 {
		return fmt.Errorf("the one that was in real time already: %+v, %w", was, err)
	}
	return errors.Join(during, childErr, ordinary(child), after)
}

// ordinary reports whether what the kernel says of a program names the policy of ordinary ones.
func ordinary(sched []byte) error {
	for line := range strings.Lines(string(sched)) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == "policy" && words[2] != "0" {
			return fmt.Errorf("a program that was started meanwhile: %q", line)
		}
	}
	return nil
}

// scheduled reports whether all threads but one are scheduled in some way.
func scheduled(apart int, so func(*unix.SchedAttr) bool) error {
	seen := 0
	err := each(func(thread int) error {
		seen++
		is, err := unix.SchedGetAttr(thread, 0)
		if err == nil && thread != apart && !so(is) {
			err = fmt.Errorf("thread %d is scheduled otherwise: %+v", thread, is)
		}
		return err
	})
	if err == nil && seen < 5 {
		err = fmt.Errorf("saw %d threads", seen)
	}
	return err
}

// inHurry is hurried as an exit code, as toAll has it.
func inHurry() int {
	switch err := hurried(); {
	case errors.Is(err, unix.EPERM):
		return 3
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
