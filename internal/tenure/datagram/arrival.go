package datagram

import "time"

// maxStep is by how much the wall clock may run off from the clock of leases between two looks at both, before it counts as having been
// set. Between two looks lies an interval at most as a rule; the most that the kernel slews in it (500 parts in a million) is
// less.
const maxStep = time.Millisecond

// arrivals converts the kernel's times of arrival, which are of the wall clock, to the clock of leases.
//
// A time of arrival that comes out too late costs a node a right that it had a little longer. One that comes out too early could
// revive a right that had run out, and then two nodes hold one address. So whenever the wall clock cannot be trusted, the time of arrival is
// the present, which is never before it: if the wall clock was set since the socket was last empty, by any of the looks taken
// meanwhile; if the time comes out before the moment at which the socket was known to be empty, or after the present; or if the
// kernel gave none. A wall clock that was set to and fro unseen between two looks is caught by those bounds, but for a shift that is
// smaller than the time since the socket was empty.
type arrivals struct {
	looked  bool
	offset  time.Duration // what the wall clock was ahead at the last look
	least   time.Duration // the smaller one of the last two, which makes arrivals the later ones
	stepped time.Time     // the last look that found the wall clock set
}

// look compares the clocks. The wall clock must have been read before the other: a thread that is held up between the two then makes
// arrivals later, never earlier.
func (a *arrivals) look(wall, now time.Time) {
	offset := wall.Round(0).Sub(now)
	if !a.looked {
		a.looked, a.offset, a.least = true, offset, offset
		return
	}
	if difference := offset - a.offset; difference > maxStep || difference < -maxStep {
		a.stepped = now
	}
	a.offset, a.least = offset, min(offset, a.offset)
}

// timing says how a time of arrival was found.
type timing int

const (
	timed       timing = iota // by the kernel's time
	timeless                  // the kernel gave none
	clockSet                  // the wall clock has been set
	beforeEmpty               // it came out before the socket was empty
	afterNow                  // it came out after the present
	timings                   // the bound
)

// of converts one time of arrival. The socket was empty at some moment after empty; now is the present.
func (a *arrivals) of(kernel, empty, now time.Time) (time.Time, timing) {
	if kernel.IsZero() {
		return now, timeless
	}
	if a.stepped.After(empty) {
		return now, clockSet
	}
	switch arrived := now.Add(kernel.Sub(now) - a.least); {
	case arrived.Before(empty):
		return now, beforeEmpty
	case arrived.After(now):
		return now, afterNow
	default:
		return arrived, timed
	}
}
