package steering

import "time"

// How a node's starts make it wait.
const (
	MaxStarts    = 16               // starts that are remembered
	FlapWindow   = 10 * time.Minute // in which they count
	HoldDownBase = 2 * time.Second
	HoldDownMax  = 10 * time.Minute
)

// Past is what a node knows of its own past when it begins an incarnation.
type Past struct {
	Outage   time.Duration // for how long its addresses were with others
	HoldDown time.Duration // for how long it must stay fit before it is given anything
}

// RecentStarts keeps the starts that still count, and adds this one. Times are of the node's wall clock, which may have been set back.
func RecentStarts(starts []time.Time, this, now time.Time) []time.Time {
	var kept []time.Time
	for _, start := range starts {
		if now.Sub(start) < FlapWindow && !start.Equal(this) {
			kept = append(kept, start)
		}
	}
	kept = append(kept, this)
	return kept[max(len(kept)-MaxStarts, 0):]
}

// PastOf works out the outage, from when the node's addresses went to others (zero: they did not), and the hold-down: none for a first
// start, then the base, doubled with every further one.
func PastOf(starts []time.Time, away, now time.Time) Past {
	past := Past{}
	if !away.IsZero() {
		past.Outage = max(now.Sub(away), 0)
	}
	if flaps := len(starts) - 1; flaps > 0 {
		past.HoldDown = min(HoldDownBase<<min(flaps-1, MaxStarts), HoldDownMax)
	}
	return past
}
