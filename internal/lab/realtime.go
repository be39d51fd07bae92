package lab

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// measuringPriority is the real-time priority (SCHED_RR, sched(7)) of what measures: below the heartbeats and the guard.
const measuringPriority = 2

// measureInTime puts this process before everything that is not real-time. What stands for a machine of its own should not wait for
// the cluster that shares this one's processors. Where that is refused, as in a user namespace, it measures as well as it can.
func measureInTime() error {
	threads, err := os.ReadDir("/proc/self/task") // later ones inherit it
	if err != nil {
		return fmt.Errorf("running at real-time priority: %w", err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			continue
		}
		attributes := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: measuringPriority}
		if err := unix.SchedSetAttr(id, attributes, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("running at real-time priority: %w", err)
		}
	}
	return nil
}
