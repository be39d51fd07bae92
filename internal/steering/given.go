package steering

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

// GivenMember is what the answers of a pool may say of one of its members.
type GivenMember struct {
	Member    cluster.Member
	Addresses []netip.Addr // that it holds and that are not on their way elsewhere, sorted
	Why       string       // why it is left out; empty when it is given
}

// GivenMembers are those of a pool, in order.
func GivenMembers(w *World, id cluster.PoolID, now time.Time) []GivenMember {
	w = w.ForReading()
	site, exists := w.poolSite(id)
	if !exists {
		return nil
	}
	recorded := w.recordedIn(id)
	by, counts := make([]int32, len(recorded)), make([]int32, len(site.members))
	for i, address := range recorded {
		by[i] = -1
		member := w.GivenOf(site.record[address])
		if at, is := slices.BinarySearchFunc(site.members, member, cluster.Member.Compare); is && !member.IsZero() {
			by[i] = int32(at)
			counts[at]++
		}
	}
	given, all, from := make([]GivenMember, len(site.members)), make([]netip.Addr, len(recorded)), 0
	for i, m := range site.members {
		holding := int(counts[i])
		given[i] = GivenMember{Member: m, Addresses: all[from : from : from+holding], Why: w.notGiven(site, m, holding, now)}
		from += holding
	}
	for i, address := range recorded {
		if by[i] >= 0 {
			to := &given[by[i]]
			to.Addresses = append(to.Addresses, address)
		}
	}
	return given
}

// Withheld reports whether a node of a pool is kept out of its answers for a while since it came back: then they depend on the time.
func Withheld(w *World, id cluster.PoolID, now time.Time) bool {
	w = w.ForReading()
	site, exists := w.poolSite(id)
	if !exists || site.pool.AutoUnsuspendDelay == 0 {
		return false
	}
	return slices.ContainsFunc(site.members, func(m cluster.Member) bool { return w.withheld(site.pool, m.LNN, now) > 0 })
}

// GivenOf is the member with which an address may be given: who holds it now, unless it is on its way elsewhere; zero if nobody. That of
// an owner that is over is its next's, which takes it without waiting for the record.
func (w *World) GivenOf(st tenure.Statement) cluster.Member {
	holder := w.Holder(st)
	if holder.IsZero() || st.State() != tenure.Held && holder == st.Owner {
		return cluster.Member{}
	}
	return holder.Member()
}

// NotGiven says why a member of a pool is left out of the answers; empty when it may be given. Holding is how many addresses
// of the pool it holds now.
func NotGiven(w *World, id cluster.PoolID, m cluster.Member, holding int, now time.Time) string {
	site, exists := w.poolSite(id)
	if !exists {
		return "the pool is no longer configured"
	}
	return w.notGiven(site, m, holding, now)
}

func (w *World) notGiven(site poolSite, m cluster.Member, holding int, now time.Time) string {
	if why := w.unfitFor(site.id, site.static, m); why != "" {
		return why
	}
	if _, suspended := slices.BinarySearch(site.pool.SuspendedNodes, m.LNN); suspended {
		return "an operator suspended it in this pool"
	}
	if holding == 0 {
		return "it holds no address of this pool"
	}
	if left := w.withheld(site.pool, m.LNN, now); left > 0 && w.anotherGiven(site, m.LNN, now) {
		return fmt.Sprintf("it came back and is withheld for another %s (sc-auto-unsuspend-delay)", left.Round(time.Second))
	}
	return ""
}

// withheld is how long a node that was away must still wait before the pool's name is answered with it.
func (w *World) withheld(pool *cluster.Pool, lnn int, now time.Time) time.Duration {
	if pool.AutoUnsuspendDelay == 0 {
		return 0
	}
	node := w.node(lnn)
	if node.Outage == 0 {
		return 0
	}
	return max(node.FitSince.Add(pool.AutoUnsuspendDelay).Sub(now), 0)
}

// anotherGiven reports whether another node than one that is withheld can be given. The delay spares a node that is warming up; it must not
// take the name away, as it would when all nodes were started anew.
func (w *World) anotherGiven(site poolSite, but int, now time.Time) bool {
	for _, st := range site.record {
		m := st.Owner.Member()
		if m.LNN == but || st.State() != tenure.Held || w.Over(st.Owner) || w.withheld(site.pool, m.LNN, now) > 0 || w.unfitFor(site.id, site.static, m) != "" {
			continue
		}
		if _, suspended := slices.BinarySearch(site.pool.SuspendedNodes, m.LNN); !suspended {
			return true
		}
	}
	return false
}
