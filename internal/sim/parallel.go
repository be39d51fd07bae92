package sim

import (
	"context"
	"sync"
	"sync/atomic"
)

// maxAhead is how many histories may be done before one that was begun earlier: what became of them waits for that one.
const maxAhead = 1024

// Many plays the scenarios of many seeds, some at the same time, and hands over what became of each in the order of the seeds, on the
// caller's goroutine. When the context ends it plays no more; it returns how many it has handed over.
func Many(ctx context.Context, base, count uint64, parallel int, o Options, each func(Result)) uint64 {
	var next atomic.Uint64
	var workers sync.WaitGroup
	done := make(chan Result, max(parallel, 1)) // a worker waits here for whoever takes the results
	room := make(chan struct{}, maxAhead+max(parallel, 1))
	for range max(parallel, 1) {
		workers.Go(func() {
			for {
				select {
				case room <- struct{}{}:
				case <-ctx.Done():
					return
				}
				seed := next.Add(1) - 1
				if seed >= count || ctx.Err() != nil {
					return
				}
				done <- Play(scenarioOf(o.Story, base+seed), o)
			}
		})
	}
	go func() {
		workers.Wait()
		close(done)
	}()
	told := uint64(0)
	early := map[uint64]Result{} // those that wait for one that takes long
	for result := range done {
		early[result.Scenario.Seed] = result
		for {
			first, there := early[base+told]
			if !there {
				break
			}
			delete(early, base+told)
			told++
			each(first)
			<-room
		}
	}
	return told
}
