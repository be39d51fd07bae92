package guard

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"

	"golang.org/x/sys/unix"
)

// roundRobin is the guard's real-time priority: above everything that is not real-time, below what the kernel needs itself.
const roundRobin = 10

// memoryLimit makes the collector work before the guard grows: it needs some megabytes.
const memoryLimit = 32 << 20

// prepare makes the process ready to act at once: real-time scheduling, and memory that is never swapped out. It returns what was
// refused; the guard works without.
func prepare() error {
	debug.SetMemoryLimit(memoryLimit)
	return errors.Join(scheduleRealTime(), lockMemory())
}

// scheduleRealTime does it for every thread that there is; later ones inherit it.
func scheduleRealTime() error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("running at real-time priority: %w", err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			continue
		}
		attributes := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: roundRobin}
		if err := unix.SchedSetAttr(id, attributes, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("running at real-time priority (CAP_SYS_NICE allows it): %w", err)
		}
	}
	return nil
}

// lockMemory keeps what has been touched in memory, and what will be.
func lockMemory() error {
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		return fmt.Errorf("locking memory (CAP_IPC_LOCK allows it): %w", err)
	}
	return nil
}
