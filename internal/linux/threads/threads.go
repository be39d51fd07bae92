// Package threads changes how the kernel schedules this process, which it does thread by thread.
//
// Its functions are safe for concurrent use, but for Hurry. They do it to the threads that there are; threads that these start later inherit
// it, unless it is for a moment only. It does not undo what is not.
package threads

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// each calls a function with the number of each thread of this process, until one fails. A thread that is gone meanwhile needs nothing.
func each(do func(thread int) error) error {
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, entry := range list {
		thread, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if err := do(thread); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// passes bounds how often all looks whether threads were started meanwhile.
const passes = 10

// all is each, also with the threads that were started meanwhile: by one whose turn was yet to come, and so as it still was.
func all(do func(thread int) error) error {
	seen := map[int]bool{}
	for range passes {
		before := len(seen)
		err := each(func(thread int) error {
			if seen[thread] {
				return nil
			}
			seen[thread] = true
			return do(thread)
		})
		if err != nil || len(seen) == before {
			return err
		}
	}
	return nil
}

// RunInRealTime schedules the process before everything that is not real-time (SCHED_RR, sched(7)), with a priority of 1 to 99.
func RunInRealTime(priority uint32) error {
	attributes := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: priority}
	if err := all(func(thread int) error { return unix.SchedSetAttr(thread, attributes, 0) }); err != nil {
		return fmt.Errorf("running at real-time priority (CAP_SYS_NICE allows it): %w", err)
	}
	return nil
}

// Renice sets the process's nice value (setpriority(2)).
func Renice(nice int) error {
	if err := all(func(thread int) error { return unix.Setpriority(unix.PRIO_PROCESS, thread, nice) }); err != nil {
		return fmt.Errorf("setting the nice value to %d (CAP_SYS_NICE allows it): %w", nice, err)
	}
	return nil
}
