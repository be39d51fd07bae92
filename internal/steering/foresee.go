package steering

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
	"github.com/holdfast/holdfast/internal/tenure"
)

// foreseenRounds bounds how far a plan looks ahead. A round is one proposal put into effect or one wait; what must move takes
// one, evening out another, and each node in hold-down one of each.
const foreseenRounds = 64

// Foresight is what will become of a pool if nothing else happens.
type Foresight struct {
	Moves     []placement.Move // in their order; an address may move more than once
	Decisions []placement.Decision
	Record    tenure.Record // when all of it is done
	Unsettled bool          // more may follow: it did not come to rest within the bound
}

// Foresee plays the decisions on a pool to their end: what is proposed now, what is proposed when that is done, and what is
// proposed when a wait is over, until nothing changes any more. The same decisions make it happen.
func Foresee(w *World, id cluster.PoolID, asked bool, now time.Time) Foresight {
	ahead := *w
	ahead.Pools, ahead.Nodes = maps.Clone(w.Pools), maps.Clone(w.Nodes)
	f := Foresight{Record: w.Pools[id], Unsettled: true}
	at := now
	for range foreseenRounds {
		p, wait, ok := ProposePool(&ahead, id, asked, at)
		switch {
		case ok:
			for _, move := range p.Moves {
				if at.After(now) {
					move.Reason = fmt.Sprintf("in %s: %s", at.Sub(now).Round(100*time.Millisecond), move.Reason)
				}
				f.Moves = append(f.Moves, move)
			}
			f.Decisions = append(f.Decisions, p.Decisions...)
			f.Record = completed(&ahead, p.Record, at)
			ahead.Pools[id] = f.Record
			ahead.trust(p.Trusted)
		case wait > 0:
			at = at.Add(wait)
		default:
			f.Unsettled = false
			return f
		}
		asked = false
	}
	return f
}

// ForeseeDown is Foresee for nodes that die now, all at once.
func ForeseeDown(w *World, id cluster.PoolID, down []int, now time.Time) Foresight {
	return Foresee(without(w, down, now), id, false, now)
}

// without is the world in which nodes have just died.
func without(w *World, down []int, now time.Time) *World {
	ahead := *w
	ahead.Nodes = maps.Clone(w.Nodes)
	for _, lnn := range down {
		node := ahead.Nodes[lnn]
		node.Present, node.Over, node.AbsentSince = false, max(node.Over, node.Incarnation), now
		ahead.Nodes[lnn] = node
	}
	return &ahead
}

// completed is a record after every move under way is done.
func completed(w *World, record tenure.Record, now time.Time) tenure.Record {
	after := maps.Clone(record)
	for address, st := range record {
		st = acknowledged(st)
		if st.State() == tenure.Moving && w.Nodes[st.To.LNN].Present && !w.Over(st.To) {
			st, _ = w.step(st, tenure.Change{Action: tenure.Complete, By: st.Owner, Now: now})
		}
		after[address] = st
	}
	return after
}

// acknowledged is a statement after its former next, if it has one, has acknowledged it.
func acknowledged(st tenure.Statement) tenure.Statement {
	st.Former = tenure.Claim{}
	return st
}

// trust ends the hold-down of nodes.
func (w *World) trust(lnns []int) {
	for lnn, node := range w.Nodes {
		if slices.Contains(lnns, lnn) {
			node.Trusted = true
			w.Nodes[lnn] = node
		}
	}
}
