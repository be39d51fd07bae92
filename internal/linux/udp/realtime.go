package udp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrNotPermitted is wrapped by errors that say that this process may not have real-time scheduling.
var ErrNotPermitted = errors.New("real-time scheduling is not permitted: CAP_SYS_NICE or a limit on real-time priority (RLIMIT_RTPRIO, LimitRTPRIO= of systemd) allows it, and a share of the control group's real-time time where the kernel gives it out by groups")

// RunInRealTime schedules the calling thread, which is to be locked to its goroutine, before everything that is not real-time
// (SCHED_RR, sched(7)), with a priority of 1 to 99. Threads that it starts do not inherit it. The function that it returns gives
// the thread back its old place.
func RunInRealTime(priority int) (back func() error, err error) {
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return nil, fmt.Errorf("reading how the thread is scheduled: %w", err)
	}
	err = unix.SchedSetAttr(0, &unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: uint32(priority), Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}, 0)
	switch {
	case errors.Is(err, unix.EPERM):
		return nil, ErrNotPermitted
	case err != nil:
		return nil, fmt.Errorf("running at real-time priority: %w", err)
	}
	before.Size = unix.SizeofSchedAttr
	before.Flags |= unix.SCHED_FLAG_RESET_ON_FORK // only the privileged may take it off again
	return func() error {
		if err := unix.SchedSetAttr(0, before, 0); err != nil {
			return fmt.Errorf("going back from real-time priority: %w", err)
		}
		return nil
	}, nil
}
