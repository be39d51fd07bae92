package agent

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/guard"
	"github.com/holdfast/holdfast/internal/linux/boottime"
	"github.com/holdfast/holdfast/internal/tenure"
)

// TestDeadlineIsHandedOver: the guard hears of every change of what is permitted, in the order in which it changes, and of a lapse before
// anything else is done about it.
func TestDeadlineIsHandedOver(t *testing.T) {
	start := time.Unix(1000, 0)
	now := start
	var heard []int64
	keeper := newTenancy(1, 5, tenure.Timing{Interval: 100 * time.Millisecond, Multiplier: 3}, func() time.Time { return now })
	keeper.changed, keeper.found = func() {}, func(tenure.Finding) {}
	keeper.handOver = func(deadline int64) { heard = append(heard, deadline) }
	keeper.step(&tenure.Configured{Timing: keeper.timing, Voices: []tenure.Voice{{LNN: 1}, {LNN: 2}, {LNN: 3}}}, now)
	keeper.step(&tenure.Entered{Incarnation: 7}, now)
	acknowledged := func(number uint64) int64 {
		m := tenure.Message{Kind: tenure.Acknowledgement, Subject: 1, Incarnation: 7, Number: number, Life: 9}
		keeper.step(&tenure.Received{Message: &m, From: 2, Arrived: now}, now)
		return keeper.deadline.Load()
	}
	keeper.step(dueNow, now)
	first := acknowledged(1)
	now = start.Add(100 * time.Millisecond)
	keeper.step(dueNow, now)
	second := acknowledged(2)
	now = start.Add(time.Hour)
	if len(keeper.silences) != 0 {
		t.Error("it was silenced although it holds")
	}
	keeper.step(dueNow, now)
	if want := []int64{first, second, 0}; !slices.Equal(heard, want) || first <= start.UnixNano() || second <= first {
		t.Errorf("the guard heard %v, want %v", heard, want)
	}
	if len(keeper.silences) != 1 {
		t.Error("its right ran out and it was not silenced")
	}
}

// TestGuardDeadline: the clock's readings are the same for every process of the machine; those of boottime.Now are not.
func TestGuardDeadline(t *testing.T) {
	soon := boottime.Now().Add(time.Minute)
	if got, want := guardDeadline(soon.UnixNano()), boottime.Nanoseconds(soon); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
	if guardDeadline(0) != 0 || guardDeadline(forever) != guard.Forever {
		t.Errorf("no right is %d, one without end %d", guardDeadline(0), guardDeadline(forever))
	}
}
