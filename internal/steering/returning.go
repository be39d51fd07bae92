package steering

import (
	"net/netip"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
)

// ReturnWindow is how long nodes that failed together are waited for, from the return of the first one on. When a common cause is
// mended, checks come back within their intervals and the hold-down of the verdict (5 s after a first failure, less for who was
// quiet longer) of each other.
const ReturnWindow = 10 * time.Second

// returning is a pool of which nobody was fit and somebody is again, while others may be about to follow.
//
// While nobody is fit, addresses stay where they are. The first that is fit again must not be given all of them only to give
// most of them back: during the return window it is given its even share at the most, and what the others have beyond that stays
// with them. When the window is over, whoever is not fit loses what it has to those who are, as ever.
type returning struct {
	kept   map[netip.Addr]bool // stay with their unfit owner
	spread map[netip.Addr]bool // leave it, to whoever has least of those who returned
	wait   time.Duration       // until the window is over
}

// returning finds out whether a pool returns from a common cause, and what of it stays for now.
func (w *World) returning(site poolSite, candidates []placement.Candidate, now time.Time) returning {
	failing := map[cluster.Member]bool{}
	othersThanHeldDown := slices.ContainsFunc(candidates, func(c placement.Candidate) bool { return c.Fit && !c.HoldDown })
	weights, back := 0, returning{}
	var takers []placement.Candidate
	for _, c := range candidates {
		switch {
		case c.Fit:
			since := w.backSince(site.id, c.Member)
			left := since.Add(ReturnWindow).Sub(now)
			if since.IsZero() || left <= 0 {
				return returning{} // somebody is fit who did not just return
			}
			back.wait = soonest(back.wait, left)
			if !c.HoldDown || !othersThanHeldDown {
				takers = append(takers, c)
			}
		case w.failing(site.id, c.Member):
			failing[c.Member] = true
		default:
			continue
		}
		weights += max(c.Weight, 1)
	}
	if len(takers) == 0 || len(failing) == 0 {
		return returning{}
	}
	back.divide(w, site, candidates, weights, takers, failing)
	return back
}

// divide says which addresses of failing owners stay and which leave: as many as those who returned lack of their even share, and
// from no owner more than it has above its own.
func (back *returning) divide(w *World, site poolSite, candidates []placement.Candidate, weights int, takers []placement.Candidate, failing map[cluster.Member]bool) {
	held, share := map[cluster.Member]int{}, map[cluster.Member]int{}
	for _, address := range site.addresses {
		held[w.effectiveOwner(site.record[address])]++
	}
	for _, c := range candidates {
		share[c.Member] = (len(site.addresses)*max(c.Weight, 1) + weights - 1) / weights
	}
	room := 0
	for _, c := range takers {
		room += max(share[c.Member]-held[c.Member], 0)
	}
	back.kept, back.spread = map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for _, address := range slices.Backward(site.addresses) {
		owner := w.effectiveOwner(site.record[address])
		if !failing[owner] {
			continue
		}
		if room > 0 && held[owner] > share[owner] {
			back.spread[address] = true
			held[owner]--
			room--
		} else {
			back.kept[address] = true
		}
	}
}

// failing reports whether a node is up and wants to hold, but a check or a fault of the interface stands in the way.
func (w *World) failing(id cluster.PoolID, m cluster.Member) bool {
	node := w.node(m.LNN)
	wants := node.Present && node.Ready && !node.Leaving && !node.Draining && !node.Witness
	return wants && (node.Faults[m.Interface] != "" || node.PoolFaults[id] != "")
}

// mended is the last fault of a member in a pool that is over: of its interface or of the pool's checks.
func (w *World) mended(id cluster.PoolID, m cluster.Member) Mend {
	node := w.node(m.LNN)
	mend := node.MendedPools[id]
	if of := node.Mended[m.Interface]; of.At.After(mend.At) {
		mend = of
	}
	return mend
}

// backSince is when a member returned last: from a fault, or with its node from an outage. Zero if it never was away.
func (w *World) backSince(id cluster.PoolID, m cluster.Member) time.Time {
	node, since := w.node(m.LNN), w.mended(id, m).At
	if (node.Outage > 0 || node.HoldDown > 0) && node.FitSince.After(since) {
		since = node.FitSince
	}
	return since
}

// Kept says which addresses of a pool stay with an owner that is not fit for now, and why.
func Kept(w *World, id cluster.PoolID, now time.Time) (kept map[netip.Addr]bool, why string) {
	w = w.ForReading()
	site, exists := w.poolSite(id)
	if !exists || site.static {
		return nil, ""
	}
	back := w.returning(site, w.candidates(site, nil, now), now)
	return back.kept, "its owner is not fit, and nobody was fit a moment ago: those who are again have their share, and the rest waits for the others for another " +
		back.wait.Round(100*time.Millisecond).String()
}
