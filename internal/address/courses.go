package address

import (
	"net/netip"
	"slices"
	"time"
)

// wakings are the times after taking at which the clients of an address are woken: a client's answer
// may have gone to the old owner, or the packet may have been lost.
var wakings = []time.Duration{0, 200 * time.Millisecond, time.Second, 2 * time.Second}

// courses say when the clients of which address are to be woken. It is a value without a clock; the zero courses is empty.
type courses struct{ running map[netip.Addr]course }

// start begins the course of an address. After a planned move the first time is left out: the old owner reset the clients itself,
// and says by then which it could not.
func (s *courses) start(a netip.Addr, planned bool, now time.Time) {
	if s.running == nil {
		s.running = map[netip.Addr]course{}
	}
	c := course{start: now}
	if planned {
		c.next = 1
	}
	s.running[a] = c
}

func (s *courses) stop(a netip.Addr) { delete(s.running, a) }

func (s *courses) runs(a netip.Addr) bool { _, runs := s.running[a]; return runs }

// round is one waking of an address.
type round struct {
	address     netip.Addr
	first, last bool
}

// due returns the wakings that have come, sorted, and goes on. Those that were missed are not made up for.
func (s *courses) due(now time.Time) []round {
	var list []round
	for a, c := range s.running {
		first := c.next
		for c.next < len(wakings) && !now.Before(c.start.Add(wakings[c.next])) {
			c.next++
		}
		if c.next == first {
			continue
		}
		last := c.next == len(wakings)
		list = append(list, round{a, first == 0, last})
		if s.running[a] = c; last {
			delete(s.running, a)
		}
	}
	slices.SortFunc(list, func(a, b round) int { return a.address.Compare(b.address) })
	return list
}

// next is when due has something to return next; false when nothing runs.
func (s *courses) next() (time.Time, bool) {
	var earliest time.Time
	for _, c := range s.running {
		if at := c.start.Add(wakings[c.next]); earliest.IsZero() || at.Before(earliest) {
			earliest = at
		}
	}
	return earliest, len(s.running) > 0
}
