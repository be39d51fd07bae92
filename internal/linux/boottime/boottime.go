// Package boottime is the clock by which leases and deadlines are counted: CLOCK_BOOTTIME, which goes on while the machine
// sleeps and which nobody can set back.
//
// Now is safe for concurrent use. The times it returns look like wall-clock times of the moment the process started plus what
// has passed since, so that they may be printed; they carry no second, monotonic reading and may be compared and subtracted.
// It does not follow the wall clock: where people need today's wall-clock time, use time.Now.
package boottime

import (
	"time"

	"golang.org/x/sys/unix"
)

var (
	startWall = time.Now().Round(0)
	startBoot = read()
)

// Now returns the present time.
func Now() time.Time { return startWall.Add(read() - startBoot) }

func read() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("boottime: this kernel has no CLOCK_BOOTTIME: " + err.Error()) // every kernel since 2.6.39 has it
	}
	return time.Duration(ts.Nano())
}

// Nanoseconds returns what CLOCK_BOOTTIME shows at a time that Now returned or that was reckoned from one. It is how two processes of
// one machine name a moment to each other: the times of Now themselves depend on when a process started.
func Nanoseconds(t time.Time) int64 { return int64(startBoot + t.Sub(startWall)) }
