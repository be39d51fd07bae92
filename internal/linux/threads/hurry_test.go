package threads

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// hurried does it in a process of several threads, the first of which is in real time already, and says what is wrong.
func hurried() error {
	const nice = 3
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
	ordinary := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Nice: nice} // however the test itself is run
	if err := all(func(thread int) error { return unix.SchedSetAttr(thread, ordinary, 0) }); err != nil {
		return err
	}
	apart := os.Getpid()
	if err := unix.SchedSetAttr(apart, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 7}, 0); err != nil {
		return err
	}
	there := map[int]bool{}
	if err := each(func(thread int) error { there[thread] = true; return nil }); err != nil {
		return err
	}
	back, err := Hurry(1)
	if err != nil {
		return err
	}
	during := scheduled(apart, func(thread int, a *unix.SchedAttr) bool {
		return a.Policy == unix.SCHED_RR && a.Priority == 1 || !there[thread]
	})
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
	after := scheduled(apart, func(_ int, a *unix.SchedAttr) bool {
		return a.Policy == unix.SCHED_NORMAL && a.Nice == nice && a.Flags == 0
	})
	if was, err := unix.SchedGetAttr(apart, 0); err != nil || was.Priority != 7 {
		return fmt.Errorf("the one that was in real time already: %+v, %w", was, err)
	}
	return errors.Join(during, childErr, ordinaryProgram(child), after)
}

// ordinaryProgram reports whether what the kernel says of a program names the policy of ordinary ones.
func ordinaryProgram(sched []byte) error {
	for line := range strings.Lines(string(sched)) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == "policy" && words[2] != "0" {
			return fmt.Errorf("a program that was started meanwhile: %q", line)
		}
	}
	return nil
}

// scheduled reports whether all threads but one are scheduled in some way.
func scheduled(apart int, so func(int, *unix.SchedAttr) bool) error {
	seen := 0
	err := each(func(thread int) error {
		seen++
		is, err := unix.SchedGetAttr(thread, 0)
		if err == nil && thread != apart && !so(thread, is) {
			err = fmt.Errorf("thread %d is scheduled otherwise: %+v", thread, is)
		}
		return err
	})
	if err == nil && seen < 5 {
		err = fmt.Errorf("saw %d threads", seen)
	}
	return err
}

// code is an error as an exit code, as toAll has it.
func code(err error) int {
	switch {
	case errors.Is(err, unix.EPERM):
		return 3
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// hurriedAtBirth does it again and again while threads are started, and says whether one stays in real time.
func hurriedAtBirth() error {
	const starters, hurries = 3, 1000
	var done atomic.Int64 // hurries
	over := make(chan struct{})
	defer close(over)
	for range starters {
		go func() {
			for ended := make(chan struct{}, 1); ; {
				go func() {
					runtime.LockOSThread() // a thread of its own, which ends with it
					for born := done.Load(); done.Load() < min(born+3, hurries); {
						runtime.Gosched()
					}
					ended <- struct{}{}
				}()
				select {
				case <-over:
					return
				case <-ended:
				}
			}
		}()
	}
	stayed := map[int]bool{} // in real time at the end of the last one; it may have been born just then
	for ; done.Load() < hurries; done.Add(1) {
		back, err := Hurry(1)
		if err == nil {
			runtime.Gosched() // some are started now
			err = back()
		}
		if err != nil {
			return err
		}
		stays := map[int]bool{}
		err = each(func(thread int) error {
			is, err := unix.SchedGetAttr(thread, 0)
			if stays[thread] = err == nil && is.Policy == unix.SCHED_RR; stays[thread] && stayed[thread] {
				return fmt.Errorf("thread %d stays in real time: %+v", thread, is)
			}
			return err
		})
		if err != nil {
			return err
		}
		stayed = stays
	}
	return nil
}
