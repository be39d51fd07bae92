package address

import (
	"net"
	"net/netip"
	"slices"
	"time"
)

// contests are the foreign claims to held addresses and when they are answered (public report 1: the winner must not
// keep quiet). It is a value without a clock. It is bounded by what the node holds: others are never entered.
type contests map[netip.Addr]contest

// contest is what is known about the claims to one address.
type contest struct {
	mac      net.HardwareAddr // of the last claimant
	claims   int              // since the contest began
	last     time.Time        // of the last claim
	answered time.Time        // when it was answered last; zero: never
	owed     bool             // a claim came after the last answer
	due      time.Time        // when the owed answer is to be given
}

// heard enters a claim. It is answered at the time that next returns: at once, but not within AnswerInterval of the
// last answer, so that two holders who contradict each other do not flood the link. It reports whether that time is new.
func (c contests) heard(a netip.Addr, mac net.HardwareAddr, now time.Time) bool {
	k := c[a]
	owed := k.owed
	if !owed {
		k.due = now
		if next := k.answered.Add(AnswerInterval); !k.answered.IsZero() && next.After(now) {
			k.due = next
		}
	}
	k.mac, k.last, k.owed = mac, now, true
	k.claims++
	c[a] = k
	return !owed
}

// due returns the addresses for which an answer is owed now, sorted, and counts them as answered.
func (c contests) due(now time.Time) []netip.Addr {
	var list []netip.Addr
	for a, k := range c {
		if k.owed && !now.Before(k.due) {
			k.owed, k.answered = false, now
			c[a] = k
			list = append(list, a)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}

// over returns the addresses that nobody has claimed for ConflictQuiet, and forgets them.
func (c contests) over(now time.Time) []netip.Addr {
	var list []netip.Addr
	for a, k := range c {
		if !k.owed && now.Sub(k.last) >= ConflictQuiet {
			list = append(list, a)
			delete(c, a)
		}
	}
	return list
}

// next returns when due or over has something to return next; false when there is no contest.
func (c contests) next() (time.Time, bool) {
	var earliest time.Time
	for _, k := range c {
		at := k.last.Add(ConflictQuiet)
		if k.owed {
			at = k.due
		}
		if earliest.IsZero() || at.Before(earliest) {
			earliest = at
		}
	}
	return earliest, len(c) > 0
}
