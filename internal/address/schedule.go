package address

import (
	"net/netip"
	"slices"
	"time"
)

// repeats are the times after taking at which an address is announced again (ARCHITECTURE.md, "The way of one failover"). The first
// announcement, at once, is made by whoever starts the schedule.
var repeats = []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}

// schedule says which addresses are to be announced when. It is a value without a clock. The zero schedule is empty.
type schedule struct {
	running map[netip.Addr]course
}

// course is how far one address has come.
type course struct {
	start time.Time
	next  int // index in repeats
}

// start begins the repeats of an address anew, from an announcement that is made now.
func (s *schedule) start(a netip.Addr, now time.Time) {
	if s.running == nil {
		s.running = map[netip.Addr]course{}
	}
	s.running[a] = course{start: now}
}

// stop ends the repeats of an address.
func (s *schedule) stop(a netip.Addr) { delete(s.running, a) }

// due returns the addresses whose next repeat has come, sorted, and goes on to the one after. Repeats that were missed
// are not made up for: one announcement now says the same.
func (s *schedule) due(now time.Time) []netip.Addr {
	var list []netip.Addr
	for a, c := range s.running {
		first := c.next
		for c.next < len(repeats) && !now.Before(c.start.Add(repeats[c.next])) {
			c.next++
		}
		if c.next == first {
			continue
		}
		list = append(list, a)
		if s.running[a] = c; c.next == len(repeats) {
			delete(s.running, a)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}

// next returns when due has something to return next; false when nothing is running.
func (s *schedule) next() (time.Time, bool) {
	var earliest time.Time
	for _, c := range s.running {
		if at := c.start.Add(repeats[c.next]); earliest.IsZero() || at.Before(earliest) {
			earliest = at
		}
	}
	return earliest, len(s.running) > 0
}
