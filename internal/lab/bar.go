package lab

import (
	"fmt"
	"strings"
	"time"
)

// bar is what the product aims at for one kind of fault, where a machine is free to do it. Unlike the bound it fails nobody: a busy
// machine of two cores that runs the whole cluster may miss it. Zero: there is none of this kind.
type bar struct {
	BarMS     barMS   `json:"bar_ms"`
	BarProbes float64 `json:"bar_lost_probes,omitempty"` // the most that any run may lose
}

// barMS is what of a bar is in milliseconds.
type barMS struct {
	Median    float64 `json:"p50,omitempty"` // of the gaps
	P99       float64 `json:"p99,omitempty"`
	Reconnect float64 `json:"reconnect,omitempty"` // the longest of any run
}

// around is a round trip, the take and the first announcement, which come after the span in which a death is noticed.
const around = 20 * time.Millisecond

// The bars: a death is noticed within the span and taken right after it; with 10 ms x 3 the median is also below what keepalived needs at
// its smallest advert interval. A planned move is seen by hardly anybody. A dead switch costs two intervals after its heal.
func barOfDeath(interval, span time.Duration) bar {
	b := bar{BarMS: barMS{P99: milliseconds(span + around)}}
	if interval == 10*time.Millisecond && span == 3*interval {
		b.BarMS.Median = 35
	}
	return b
}
func barOfOrder(time.Duration, time.Duration) bar {
	return bar{BarMS: barMS{Reconnect: 10}, BarProbes: 2}
}
func barOfBlink(interval, _ time.Duration) bar {
	return bar{BarMS: barMS{P99: milliseconds(blink + 2*interval)}}
}

// metBy says whether what was measured keeps the bar.
func (b bar) metBy(c failoverCase) bool {
	within := func(bar, measured float64) bool { return bar == 0 || measured <= bar }
	again := 0.0
	if c.ReconnectMS != nil {
		again = c.ReconnectMS.Max
	}
	return within(b.BarMS.Median, c.GapMS.Median) && within(b.BarMS.P99, c.GapMS.P99) &&
		within(b.BarProbes, c.LostProbes.Max) && within(b.BarMS.Reconnect, again)
}

func (b bar) String() string {
	var parts []string
	for _, part := range []struct {
		what  string
		value float64
		unit  string
	}{{"median", b.BarMS.Median, " ms"}, {"p99", b.BarMS.P99, " ms"}, {"lost", b.BarProbes, ""}, {"again", b.BarMS.Reconnect, " ms"}} {
		if part.value > 0 {
			parts = append(parts, fmt.Sprintf("%s %.0f%s", part.what, part.value, part.unit))
		}
	}
	return strings.Join(parts, ", ")
}
