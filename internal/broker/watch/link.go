package watch

import (
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
)

// Link is a fleet that is linked, and how it is watched. Zero values mean the defaults.
type Link struct {
	Fleet   string // its name here
	Address string // whom to ask, as operators know it; for texts only
	Central string // key of the central manager; empty: that of the first answer counts from then on

	Mode      fleet.Mode
	Poll      time.Duration // from one poll to the next; default 10 s, the beat of managed hosts
	Timeout   time.Duration // within which a poll comes back; default 3 s
	Misses    int           // failed polls in a row until the central manager is down; default 3
	Probe     time.Duration // from one probe of a gateway to the next; default 5 s
	WarnAge   time.Duration // from which on a view is old; default 10 min
	HardLimit time.Duration // from which on a view is not used; default 0, none
	Keep      time.Duration // from one writing to disk to the next, when nothing else makes it due; default 1 min
}

func (l Link) withDefaults() Link {
	for _, d := range []struct {
		value     *time.Duration
		byDefault time.Duration
	}{
		{&l.Poll, 10 * time.Second}, {&l.Timeout, 3 * time.Second}, {&l.Probe, 5 * time.Second},
		{&l.WarnAge, 10 * time.Minute}, {&l.Keep, time.Minute},
	} {
		if *d.value <= 0 {
			*d.value = d.byDefault
		}
	}
	if l.Misses <= 0 {
		l.Misses = 3
	}
	l.HardLimit = max(0, l.HardLimit)
	return l
}

// ProbeTimeout is within which a probe comes back.
const ProbeTimeout = time.Second

// refusedMisses is how many polls in a row are refused until the central manager is down.
const refusedMisses = 2

// silentAfter is for how long a gateway's reports may stay the same, besides one poll: three beats.
const silentAfter = 30 * time.Second

// MaxProbes bounds how many probes are under way at once. Gateways beyond it wait for their turn.
const MaxProbes = 64

// lost is how many times its timeout a poll or a probe may take before it is given up: whoever does it keeps to the timeout, so by then
// its result will not come.
const lost = 3
