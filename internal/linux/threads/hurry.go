package threads

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Hurry schedules those threads of the process that are scheduled ordinarily before everything that is not real-time (SCHED_RR, sched(7)),
// with a priority of 1 to 99, until back is called. Threads that are in real time already stay as they are; none has that same priority for
// another reason. What is started meanwhile, threads and processes, is ordinary (SCHED_FLAG_RESET_ON_FORK): no program that this one runs
// goes on in real time. After an error everything is as it was, as far as the kernel lets it.
//
// Back gives every thread its old place, and those that were started meanwhile the nice value of the process. Only one Hurry may be under
// way in a process.
func Hurry(priority uint32) (back func() error, err error) {
	own, err := unix.Getpriority(unix.PRIO_PROCESS, os.Getpid()) // sched_getattr says none of a thread that is in real time
	if err != nil {
		return nil, fmt.Errorf("reading the nice value of the process: %w", err)
	}
	nice := int32(20 - own) // getpriority(2), "C library/kernel differences"
	before := map[int]*unix.SchedAttr{}
	back = func() error { return calm(before, priority, nice) }
	hurried := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: priority, Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	err = each(func(thread int) error {
		now, err := unix.SchedGetAttr(thread, 0)
		if err != nil || now.Policy != unix.SCHED_NORMAL {
			return err
		}
		if err := unix.SchedSetAttr(thread, hurried, 0); err != nil {
			return err
		}
		before[thread] = now
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("running at real-time priority for a moment (CAP_SYS_NICE allows it): %w", err), back())
	}
	return back, nil
}

// calm ends a hurry. A thread that is gone needs nothing; after any other error the remaining ones are tried too.
//
// A thread that was being started when the one that starts it was hurried may be in real time too, without the mark that its own children
// are not: the kernel copies one after the other.
func calm(before map[int]*unix.SchedAttr, priority uint32, nice int32) error {
	if len(before) == 0 {
		return nil
	}
	var failed error
	for thread, was := range before {
		if err := settle(thread, was); err != nil && !errors.Is(err, unix.ESRCH) {
			failed = errors.Join(failed, fmt.Errorf("going back from real-time priority: %w", err))
		}
	}
	return errors.Join(failed, all(func(thread int) error {
		now, err := unix.SchedGetAttr(thread, 0)
		switch {
		case err != nil:
			return err
		case now.Policy == unix.SCHED_RR && now.Priority == priority:
			return settle(thread, &unix.SchedAttr{Policy: unix.SCHED_NORMAL, Nice: nice})
		case before[thread] == nil && now.Policy == unix.SCHED_NORMAL && now.Nice != nice:
			return unix.Setpriority(unix.PRIO_PROCESS, thread, int(nice))
		}
		return nil
	}))
}

// settle gives a thread its place back. Without privileges the mark that its children are reset cannot be taken off again; they are
// ordinary anyway.
func settle(thread int, was *unix.SchedAttr) error {
	was.Size = unix.SizeofSchedAttr
	err := unix.SchedSetAttr(thread, was, 0)
	if errors.Is(err, unix.EPERM) {
		marked := *was
		marked.Flags |= unix.SCHED_FLAG_RESET_ON_FORK
		err = unix.SchedSetAttr(thread, &marked, 0)
	}
	return err
}
