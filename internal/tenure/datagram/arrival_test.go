package datagram

import (
	"testing"
	"time"
)

// TestArrivals: the clock of leases shows seconds after its start, and the wall clock is ahead by hours.
func TestArrivals(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	const hours = 5 * 3600
	type look struct{ wall, now float64 }
	for _, c := range []struct {
		name               string
		looks              []look
		kernel, empty, now float64 // by the wall clock; by the clock of leases
		want               float64
		how                timing
	}{
		{"the kernel's time counts", []look{{hours + 1, 1}, {hours + 2, 2}}, hours + 1.5, 1, 2, 1.5, timed},
		{"also long after, for a thread that was late", []look{{hours + 1, 1}, {hours + 99, 99}}, hours + 1.1, 1, 99, 1.1, timed},
		{"a clock that runs off slowly makes it later", []look{{hours + 1, 1}, {hours + 2.0005, 2}}, hours + 1.5, 1, 2, 1.5, timed},
		{"in both directions", []look{{hours + 1, 1}, {hours + 1.9995, 2}}, hours + 1.5, 1, 2, 1.5005, timed},
		{"no time", []look{{hours + 1, 1}, {hours + 2, 2}}, -1, 1, 2, 2, timeless},
		{"set back: an earlier time would come out", []look{{hours + 1, 1}, {hours + 2 - .3, 2}}, hours + 1.5, 1, 2, 2, clockSet},
		{"set forward", []look{{hours + 1, 1}, {hours + 2 + .3, 2}}, hours + 1.5, 1, 2, 2, clockSet},
		{"seen by an earlier look", []look{{hours + 1, 1}, {hours + 1.7, 2}, {hours + 2.7, 3}}, hours + 1.5, 1, 3, 3, clockSet},
		{"set before the socket was empty, which is over", []look{{hours + 1, 1}, {hours + 1.7, 2}, {hours + 2.7, 3}}, hours + 2.2, 2, 3, 2.5, timed},
		{"set to and fro, unseen: before it was empty", []look{{hours + 1, 1}, {hours + 2, 2}}, hours + .9, 1, 2, 2, beforeEmpty},
		{"set to and fro, unseen: after the present", []look{{hours + 1, 1}, {hours + 2, 2}}, hours + 2.1, 1, 2, 2, afterNow},
	} {
		var a arrivals
		for _, l := range c.looks {
			a.look(at(l.wall), at(l.now))
		}
		kernel := at(c.kernel)
		if c.kernel < 0 {
			kernel = time.Time{}
		}
		got, how := a.of(kernel, at(c.empty), at(c.now))
		if !got.Equal(at(c.want)) || how != c.how {
			t.Errorf("%s: %s after the start (%d), want %vs (%d)", c.name, got.Sub(start), how, c.want, c.how)
		}
	}
}

func TestAllowance(t *testing.T) {
	var a allowance
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, c := range []struct {
		at   time.Duration
		want bool
	}{
		{0, true}, {0, true}, {0, true}, {0, false}, {time.Second - 1, false}, {time.Second, true}, {time.Second, false},
		{time.Hour, true}, {time.Hour, true}, {time.Hour, true}, {time.Hour, false},
	} {
		if got := a.take(start.Add(c.at), 3, time.Second); got != c.want {
			t.Errorf("%d, after %s: %v", i, c.at, got)
		}
	}
}
