package sim

import "time"

// clock is the clock of one machine since its boot: only its rate matters, and that may be wrong by 0.1%.
type clock struct {
	ahead time.Duration // of the beginning of the history
	parts int64         // so many millionths too fast
}

const million = 1_000_000

// at is what the clock shows at a moment of the history.
func (c clock) at(moment time.Duration) time.Time {
	return epoch.Add(c.ahead + moment + time.Duration(int64(moment)/million*c.parts+int64(moment)%million*c.parts/million))
}

// when is the first moment of the history at which the clock shows a time that has not come before.
func (c clock) when(shows time.Time) time.Duration {
	since := int64(shows.Sub(epoch) - c.ahead)
	moment := time.Duration(since - since/(million+c.parts)*c.parts - since%(million+c.parts)*c.parts/(million+c.parts))
	for c.at(moment).Before(shows) {
		moment++
	}
	return moment
}
