//go:build race

package bubble

import (
	"runtime"
	"sync"
)

// bubbles counts those that are there now.
var bubbles struct {
	sync.Mutex
	count      int
	processors int // how many there were before the first
}

// oneProcessor has Go run on one processor until the last bubble is gone, and returns what to call when this one is.
func oneProcessor() (gone func()) {
	bubbles.Lock()
	defer bubbles.Unlock()
	if bubbles.count++; bubbles.count == 1 {
		bubbles.processors = runtime.GOMAXPROCS(1)
	}
	return func() {
		bubbles.Lock()
		defer bubbles.Unlock()
		if bubbles.count--; bubbles.count == 0 {
			runtime.GOMAXPROCS(bubbles.processors)
		}
	}
}
