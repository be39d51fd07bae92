package lastgood

import "time"

// Clocks are what this machine's clocks show at one moment.
type Clocks struct {
	Wall  time.Time
	Boot  string        // identifier of this start of the machine; empty: not known
	Since time.Duration // since the machine was started, suspends included (CLOCK_BOOTTIME)
}

// Stamp is how old a view was when it was written, and when that was.
type Stamp struct {
	Age     time.Duration
	AtLeast bool // it may have been older
	Clocks
}

// Aged is how old the view is now, and whether it may be older. It is never less than what is known for certain, and never less than it
// was when it was written.
func (s *Stamp) Aged(now Clocks) (age time.Duration, atLeast bool) {
	age = max(0, s.Age)
	if s.Boot != "" && s.Boot == now.Boot && now.Since >= s.Since {
		return add(age, now.Since-s.Since), s.AtLeast
	}
	least := max(0, now.Since)
	if s.Boot == "" || s.Boot == now.Boot {
		least = 0 // it may be the same start of the machine
	}
	passed := now.Wall.Sub(s.Wall)
	return add(age, max(least, passed)), s.AtLeast || passed < least
}

// add keeps a sum from becoming negative by being too large.
func add(a, b time.Duration) time.Duration {
	if sum := a + b; sum >= a {
		return sum
	}
	return 1<<63 - 1
}
