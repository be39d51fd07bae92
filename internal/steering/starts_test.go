package steering

import (
	"testing"
	"time"
)

// The wall clock is only used across starts, for how long a node was away and how often it started. Set back by a day, it makes
// an outage that never was shorter, not negative, and holds a node down no longer than the bound.
func TestAClockThatWasSetBack(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	yesterday := noon.Add(-24 * time.Hour)
	starts := []time.Time{noon.Add(-time.Minute), noon}
	past := PastOf(RecentStarts(starts, yesterday, yesterday), noon, yesterday)
	if past.Outage != 0 {
		t.Errorf("the outage is said to be %s", past.Outage)
	}
	if past.HoldDown < 0 || past.HoldDown > HoldDownMax {
		t.Errorf("the hold-down is %s, beyond its bound of %s", past.HoldDown, HoldDownMax)
	}
	for i := range 3 * MaxStarts {
		at := yesterday.Add(time.Duration(i) * time.Second)
		starts = RecentStarts(starts, at, at)
	}
	if len(starts) > MaxStarts {
		t.Errorf("%d starts are kept, more than %d", len(starts), MaxStarts)
	}
}
