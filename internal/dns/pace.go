package dns

import "time"

// How long answers are collected before the other holders of service addresses are told. A few questions in a row are told one by one, so
// that the next one may go to any holder. At hundreds a second each word costs every holder more than the answers that it is about, and tells
// less: each holder gives every node its turn by itself, so all together are as even whenever they hear of each other.
const (
	shareDelay  = 2 * time.Millisecond
	shareSteady = 20 * time.Millisecond // when shareBurst words have gone at the pace above
	shareBurst  = 50                    // one of which comes back in each shareSteady
)

// sharePace is the pace of one holder's words. The zero value has all of its burst.
type sharePace struct {
	spent int
	since time.Time // up to when what came back has been counted
}

// next is how long to collect answers of which the first was given now.
func (p *sharePace) next(now time.Time) time.Duration {
	if back := int(now.Sub(p.since) / shareSteady); p.since.IsZero() || back >= p.spent {
		p.spent, p.since = 0, now
	} else {
		p.spent, p.since = p.spent-back, p.since.Add(time.Duration(back)*shareSteady)
	}
	if p.spent == shareBurst {
		p.since = p.since.Add(shareSteady) // what comes back meanwhile is spent on this one
		return shareSteady
	}
	p.spent++
	return shareDelay
}
