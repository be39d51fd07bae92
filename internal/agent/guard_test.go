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
	silencedAfter := -1
	keeper := &tenancy{
		now: func() time.Time { return now }, changed: func() {}, silence: func(string) { silencedAfter = len(heard) },
		handOver: func(deadline int64) { heard = append(heard, deadline) },
		holder:   tenure.NewHolder(7, []int{2, 3}, leaseMargin),
	}
	step := func(event tenure.HolderEvent) int64 {
		keeper.step(event, now)
		return keeper.deadline.Load()
	}
	first := step(tenure.LeaseRenewed{Sent: start, TTL: time.Second})
	step(tenure.Tick{})
	now = start.Add(250 * time.Millisecond)
	second := step(tenure.LeaseRenewed{Sent: now, TTL: time.Second})
	now = start.Add(time.Hour)
	step(tenure.Tick{})
	if want := []int64{first, second, 0}; !slices.Equal(heard, want) || first <= start.UnixNano() || second <= first {
		t.Errorf("the guard heard %v, want %v", heard, want)
	}
	if silencedAfter != 3 {
		t.Errorf("the node was silenced when the guard had heard %d deadlines, want all 3", silencedAfter)
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
