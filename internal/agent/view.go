package agent

import (
	"strconv"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// view is what the loop saw when it came round last. It is immutable: the API answers from it without asking the loop.
type view struct {
	world            *steering.World
	configRevision   int64
	storeRevision    int64
	members          map[int]memberEntry
	poolRevisions    map[cluster.PoolID]int64
	serviceRevisions map[steering.ServiceKey]int64
	roster           rosterRecord
	rosterRevision   int64
	ready            bool
	waiting          string // for what, while it is not ready
	since            sinceTimes
	standing         tenure.Standing
	incarnation      tenure.Incarnation
	applied          applied
	generation       uint64
	at               time.Time
}

// publish makes what the loop saw available to the API.
func (l *loop) publish(w *steering.World, standing tenure.Standing, incarnation tenure.Incarnation, last applied, now time.Time) {
	poolRevisions := make(map[cluster.PoolID]int64, len(l.replica.pools))
	for id, entry := range l.replica.pools {
		poolRevisions[id] = entry.revision
	}
	serviceRevisions := make(map[steering.ServiceKey]int64, len(l.replica.services))
	for key, entry := range l.replica.services {
		serviceRevisions[key] = entry.revision
	}
	l.view.Store(&view{
		poolRevisions: poolRevisions, serviceRevisions: serviceRevisions, ready: l.ready(), waiting: l.waiting(), since: l.since.snapshot(),
		roster: l.replica.roster, rosterRevision: l.replica.rosterRevision,
		world: w, configRevision: l.replica.configRevision, storeRevision: l.replica.revision, members: l.replica.sharedMembers(),
		standing: standing, incarnation: incarnation, applied: last, generation: l.generation, at: now,
	})
	l.board.Is(incarnation > 0 && !standing.MayHold, problemLapsed, l.self.Name, standing.Reason, now)
	silent := l.tenancy.StoreSilentFor()
	l.board.Is(silent > storeSilence, problemNoStore, l.self.Name, "no answer for "+silent.Round(time.Second).String(), now)
	l.observeGateways(now)
	for key, why := range l.replica.foreign {
		l.board.Set(problemForeign, key, why, now)
	}
	for addr, why := range last.failed {
		l.board.Set(problemUntaken, addr.String(), why, now)
	}
	for _, active := range l.board.List() {
		if active.Kind == problemUntaken && !failedNow(last, active.Subject) {
			l.board.Clear(problemUntaken, active.Subject)
		}
		if _, still := l.replica.foreign[active.Subject]; active.Kind == problemForeign && !still {
			l.board.Clear(problemForeign, active.Subject)
		}
	}
}

func failedNow(last applied, subject string) bool {
	for addr := range last.failed {
		if addr.String() == subject {
			return true
		}
	}
	return false
}

// holdsMoving reports whether the records name this node as the owner of an address that moves.
func (v *view) holdsMoving() bool {
	for id, record := range v.world.Pools {
		if pool, _, _, ok := v.world.Config.Pool(id); ok && pool.AllocMethod == cluster.AllocStatic {
			continue
		}
		for _, st := range record {
			if st.Owner.LNN == v.world.Self && st.Owner.Incarnation == v.incarnation {
				return true
			}
		}
	}
	for _, st := range v.world.Services {
		if st.Owner.LNN == v.world.Self && st.Owner.Incarnation == v.incarnation {
			return true
		}
	}
	return false
}

// owned is how many moving addresses the records give to a node.
func (v *view) owned(lnn int) int {
	n := 0
	for id, record := range v.world.Pools {
		if pool, _, _, ok := v.world.Config.Pool(id); ok && pool.AllocMethod == cluster.AllocStatic {
			continue
		}
		for _, st := range record {
			if st.Owner.LNN == lnn && !v.world.Over(st.Owner) {
				n++
			}
		}
	}
	return n
}

// othersFitBut reports whether another node than the given one could take over.
func (v *view) othersFitBut(lnn int) bool {
	for other, node := range v.world.Nodes {
		if other != lnn && node.Present && node.Ready && !node.Draining && !node.Leaving {
			return true
		}
	}
	return false
}

// nameOf is a node's name in the configuration, or its number.
func nameOf(w *steering.World, lnn int) string {
	if lnn == 0 {
		return ""
	}
	if node, ok := w.Config.Node(lnn); ok {
		return node.Name
	}
	if node := w.Nodes[lnn]; node.Name != "" {
		return node.Name // one that a configuration which is only looked at no longer has
	}
	return "node " + strconv.Itoa(lnn)
}
