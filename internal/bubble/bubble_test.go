package bubble

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestTimersThatAreDueTogether is what brings the race detector of Go 1.26 down in a bubble that has more than one processor: goroutines that
// look at timers which are due at the same moment.
func TestTimersThatAreDueTogether(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	for range 20 {
		Test(t, func(t *testing.T) {
			var looking sync.WaitGroup
			for range 8 {
				looking.Go(func() { look(time.Now().Add(200 * time.Millisecond)) })
			}
			looking.Wait()
		})
	}
	if now := runtime.GOMAXPROCS(0); now != before {
		t.Errorf("%d processors after the bubbles, and %d before", now, before)
	}
}

// look takes what timers and a ticker have, without waiting for more than the next tick, until the end.
func look(end time.Time) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(end) {
		for range 20 {
			due := time.NewTimer(0)
			select {
			case <-due.C:
			default:
			}
		}
		<-tick.C
	}
}
