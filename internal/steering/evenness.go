package steering

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
)

// Evenness says how far a dynamic pool is from the most even spread over its fit members, and what that waits for. The zero
// Evenness is that of an even pool.
type Evenness struct {
	Moves    int           // how many addresses a rebalance would move; 0: the pool is as even as it can be
	May      bool          // it moves them now
	Reason   string        // why it does, or what it waits for
	Wait     time.Duration // how long until time alone lets it; 0: only an event does
	Operator bool          // that event is an operator's word
}

// EvennessOf is how even a pool is while nothing must move, for explanations: it also tells of nodes in hold-down and of a return
// window, which a rebalance by an operator would not wait for.
func EvennessOf(w *World, id cluster.PoolID, now time.Time) Evenness {
	p, _, _ := ProposePool(w, id, false, now)
	if p.Evenness.Moves > 0 || len(p.Moves) > 0 {
		return p.Evenness
	}
	asked, _, _ := ProposePool(w, id, true, now)
	evenness := Evenness{Moves: len(asked.Moves)}
	if evenness.Moves == 0 {
		return Evenness{}
	}
	evenness.Reason = "nobody was fit a moment ago: what those who returned do not have as their share waits for the others"
	w = w.ForReading()
	site, _ := w.poolSite(id)
	evenness.Wait = w.returning(site, w.candidates(site, nil, now), now).wait
	for _, lnn := range asked.Trusted {
		if left := w.HeldDown(lnn, now); evenness.Wait == 0 || left > evenness.Wait {
			evenness.Reason, evenness.Wait = w.nodeName(lnn)+" came back lately and is in its hold-down", left
		}
	}
	return evenness
}

// evenOut works out what a rebalance would move, and whether the policy lets it happen now.
func evenOut(w *World, pool *cluster.Pool, d *desk, request placement.Request, asked bool, now time.Time) (placement.Result, Evenness) {
	request.Rebalance = true
	result := d.Allocate(request)
	evenness := Evenness{Moves: len(result.Moves)}
	if evenness.Moves == 0 {
		return result, evenness
	}
	if pool.RebalancePolicy == cluster.RebalanceIdle && !asked {
		request.Movable = w.Idle
		if request.Movable == nil {
			request.Movable = map[netip.Addr]bool{}
		}
		if result = d.Allocate(request); len(result.Moves) == 0 {
			evenness.Reason = "the pool's rebalance policy is idle: an address moves when it has no connections"
			return result, evenness
		}
	}
	permission := w.mayGive(pool, request.Pool, result.Moves, asked, now)
	evenness.May, evenness.Reason, evenness.Wait, evenness.Operator = permission.May, permission.Reason, permission.Wait, permission.Operator
	return result, evenness
}

// mayGive asks for every member that would be given something, and gives the answer that stands most in the way: all return
// together, so that no address moves twice.
func (w *World) mayGive(pool *cluster.Pool, id cluster.PoolID, moves []placement.Move, asked bool, now time.Time) placement.Permission {
	permissions := map[cluster.Member]placement.Permission{}
	worst := placement.Permission{}
	for _, move := range moves { // in the order of addresses, so that of equal answers all nodes give the same
		if _, judged := permissions[move.To]; judged {
			continue
		}
		permission := placement.MayRebalance(w.recovery(pool, id, move.To, asked, now), now)
		if len(permissions) == 0 || moreInTheWay(permission, worst) {
			worst = permission
		}
		permissions[move.To] = permission
	}
	return worst
}

// moreInTheWay reports whether it takes more to change the first answer: an operator more than any other event, that more than
// time, and a long time more than a short one.
func moreInTheWay(a, b placement.Permission) bool {
	rank := func(p placement.Permission) int {
		switch {
		case p.May:
			return 0
		case p.Wait > 0:
			return 1
		case !p.Operator:
			return 2
		}
		return 3
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Wait, b.Wait)) > 0
}

// recovery is what is known of one member's return. A member whose fault or failing check ended lately is waited with as if it
// had a hold-down: the others of a common cause are about to follow.
func (w *World) recovery(pool *cluster.Pool, id cluster.PoolID, m cluster.Member, asked bool, now time.Time) placement.Recovery {
	node := w.node(m.LNN)
	r := placement.Recovery{
		Policy: pool.RebalancePolicy, Delay: pool.RebalanceDelay, Asked: asked, IdleAddresses: w.Idle,
		FitSince: node.FitSince, Outage: node.Outage,
	}
	if !node.Trusted {
		r.HoldDown = node.HoldDown
	}
	mend := w.mended(id, m)
	if later := mend.At.Sub(node.FitSince); !mend.At.IsZero() && later >= 0 {
		r.HoldDown = max(r.HoldDown-later, ReturnWindow)
		r.FitSince = mend.At
		if later > 0 {
			r.Outage = mend.Lasted
		}
	}
	return r
}
