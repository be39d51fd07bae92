package guard

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/linux/threads"
)

// roundRobin is the guard's real-time priority: above everything that is not real-time, below what the kernel needs itself.
const roundRobin = 10

// memoryLimit makes the collector work before the guard grows: it needs some megabytes.
const memoryLimit = 32 << 20

// prepare makes the process ready to act at once: real-time scheduling, and memory that is never swapped out. It returns what was
// refused; the guard works without.
func prepare() error {
	debug.SetMemoryLimit(memoryLimit)
	// With more than one, the runtime looks every 20 µs for a while whether a thread that waits in the kernel should lend its place to
	// another: a thousand times a second, most of what an idle guard costs.
	runtime.GOMAXPROCS(1)
	return errors.Join(threads.RunInRealTime(roundRobin), lockMemory())
}

// lockMemory keeps what has been touched in memory, and what will be.
func lockMemory() error {
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		return fmt.Errorf("locking memory (CAP_IPC_LOCK allows it): %w", err)
	}
	return nil
}
