package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast/holdfast/internal/bubble"
	"github.com/holdfast/holdfast/internal/tenure"
)

// The goroutine that takes everything off when the right ends may be late, for want of a processor or because the kernel is. Another
// incarnation must not begin before it is done: under its right the addresses would be kept that the record has given to another node by
// then (found by the simulator, seeds 100982, 102045 and 103456: "both hold").
func TestNoOtherIncarnationBeforeTheSilence(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		keeper := newTenancy(1, 5, tenure.Timing{Interval: 100 * time.Millisecond, Multiplier: 3}, time.Now)
		keeper.changed, keeper.found = func() {}, func(tenure.Finding) {}
		kernel, took := make(chan bool), 0
		keeper.silence = func(string) { <-kernel; took++ }
		ctx, cancel := context.WithCancel(t.Context())
		go keeper.keepSilent(ctx)
		keeper.step(&tenure.Configured{Timing: keeper.timing, Voices: []tenure.Voice{{LNN: 1}, {LNN: 2}, {LNN: 3}}}, time.Now())
		keeper.step(&tenure.Entered{Incarnation: 7}, time.Now())
		keeper.step(dueNow, time.Now())
		m := tenure.Message{Kind: tenure.Acknowledgement, Subject: 1, Incarnation: 7, Number: 1, Life: 9}
		keeper.step(&tenure.Received{Message: &m, From: 2, Arrived: time.Now()}, time.Now())
		if !keeper.Permitted() {
			t.Fatal("it has no right that could end")
		}
		keeper.step(&tenure.Told{LNN: 1, Over: 7, By: "the others"}, time.Now())
		synctest.Wait()
		if needs, _ := keeper.needsIncarnation(); needs || !keeper.peer.Ended() {
			t.Error("another incarnation begins while what the last one held is on the interfaces")
		}
		for len(keeper.wake) > 0 {
			<-keeper.wake
		}
		close(kernel)
		synctest.Wait()
		if needs, _ := keeper.needsIncarnation(); !needs || took != 1 {
			t.Errorf("after the silence no other begins (%d silences)", took)
		}
		if len(keeper.wake) == 0 {
			t.Error("nothing looks again after the silence")
		}
		cancel()
		synctest.Wait()
	})
}
