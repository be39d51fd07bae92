package fleet

import (
	"fmt"
	"time"
)

// Ref names one gateway of one fleet.
type Ref struct{ Fleet, Gateway string }

// String is FLEET/KEY, as rules name it.
func (r Ref) String() string { return r.Fleet + "/" + r.Gateway }

// Source is where a view comes from.
type Source uint8

// The sources. The zero Source is None: there is no view.
const (
	None Source = iota
	Live
	LastGood
)

// String is the source as answers show it.
func (s Source) String() string {
	switch s {
	case None:
		return "none"
	case Live:
		return "live"
	case LastGood:
		return "last-good"
	default:
		return fmt.Sprintf("source %d", uint8(s))
	}
}

// Mode is what is done about gateways of which only old news are known.
type Mode uint8

// The modes. The zero Mode is Probe.
const (
	Probe  Mode = iota // what was found dead by a direct check or a launch is left out
	Strict             // as the vendor does it: the last good view is believed, and a launch may fail
)

// String is the mode's name.
func (m Mode) String() string {
	if m == Strict {
		return "strict"
	}
	return "probe"
}

// Standing is what this broker itself knows of a gateway, beside what the central manager says. What every choice reads comes first.
type Standing struct {
	SuspectSince time.Time // since when a probe or a launch has failed and none has worked; zero: not suspected
	SilentSince  time.Time // since when its reports to the central manager have not changed, once that is too long; zero: they do
	Launches     uint32    // given to it by this broker since its last sample of health

	SuspectWhy string
	ProvenAt   time.Time // when a probe or a launch worked last; zero: never
	DownSince  time.Time // since when the central manager has said that it is down; zero: it does not
}

// Picture is what a broker knows of one fleet: the view, how old it is, and its own experience. Times are the broker's own and
// monotonic, so that no step of the clock makes a view younger.
type Picture struct {
	Fleet     string
	Asked     string // whom the broker asks, as operators know it
	View      *View  // nil: there never was one
	Source    Source
	FetchedAt time.Time  // of View; for one from disk reckoned from its age
	AtLeast   bool       // the view may be older than FetchedAt says: the clock was set back while the broker was not running
	Standings []Standing // of View.Gateways, at the same positions; lent until the next event

	CentralDown  bool      // the central manager cannot be reached, so it takes no sessions either
	CentralSince time.Time // since when CentralDown, or since when it has not been heard
	CentralWhy   string    // what the last poll came to, while it failed

	Mode      Mode
	WarnAge   time.Duration // from this age on the view is old; 0: never
	HardLimit time.Duration // from this age on the view is not used; 0: there is no limit
}

// Age is how old the view is; 0 without one.
func (p *Picture) Age(now time.Time) time.Duration {
	if p.View == nil {
		return 0
	}
	return max(0, now.Sub(p.FetchedAt))
}

// Old reports whether there is a view that is beyond the warning age.
func (p *Picture) Old(now time.Time) bool {
	return p.View != nil && p.WarnAge > 0 && p.Age(now) >= p.WarnAge
}

// Usable reports whether there is a view that is not beyond the hard limit.
func (p *Picture) Usable(now time.Time) bool {
	return p.View != nil && (p.HardLimit <= 0 || p.Source == Live || p.Age(now) < p.HardLimit)
}

// Ago prints a span for people: the two largest units of it.
func Ago(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%d d %d h", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
}
