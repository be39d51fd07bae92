package agent

import (
	"os"
	"runtime"
)

// spareProcessors is by how many the runtime may have more threads in Go code at once than there are processors. A thread that comes back from
// the kernel goes on in Go only when it has one of the runtime's places. If there are as many as processors, a burst of ordinary work has them
// all, and those that have them may wait for a processor while the heartbeats' thread, which is scheduled at once, waits for a place: 20 ms of that
// were seen on nodes with two busy processors, which is a death at 10 ms x 3.
const spareProcessors = 6

// makePlaces gives the runtime its places, unless the operator has said how many there are to be (GOMAXPROCS).
func makePlaces() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + spareProcessors)
	}
}
