package datagram

import "time"

// allowance bounds how often something is done: so many at once, and one more after each interval. The zero allowance is full.
type allowance struct {
	full time.Time // when it will be full again
}

// take takes one of at most burst, and reports whether there was one.
func (a *allowance) take(now time.Time, burst int, each time.Duration) bool {
	after := a.full
	if after.Before(now) {
		after = now
	}
	after = after.Add(each)
	if after.Sub(now) > time.Duration(burst)*each {
		return false
	}
	a.full = after
	return true
}
