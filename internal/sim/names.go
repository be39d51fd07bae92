package sim

import (
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

const (
	// namesEvery is how often somebody asks each node for the names, besides the moments at which it has learned that another is down.
	namesEvery = 200 * time.Millisecond
	// namesGrace is how long after such a moment a process that is not late may still answer by what it knew before: until its next look,
	// which it begins at once.
	namesGrace = 3 * time.Millisecond
)

// ask looks at what a node would answer, now and again and again.
func (n *node) ask() {
	n.s.after(namesEvery, n.ask)
	n.answer()
}

// answer looks at what a node would answer: never an address whose owner it knows down, but for the moment in which it has just learned it.
func (n *node) answer() {
	p := n.process
	if p == nil || p.still() || p.view == nil || !n.answersNames() {
		return
	}
	grace := n.namesGrace()
	w, now := p.view, n.time()
	for _, id := range w.Config.Pools() {
		for _, m := range w.Config.Members(id) {
			over := p.peer.Over(m.LNN)
			if over == 0 || n.s.now-max(p.knownDown[m.LNN], n.wentOn) < grace {
				continue
			}
			held, down := givable(w, id, m, over)
			if down && steering.NotGiven(w, id, m, held, now) == "" {
				n.s.fail(NameOfTheDead, "%s answers with addresses of node%d in %s, of which it knows that incarnations up to %d are over", n, m.LNN, id.Pool, over)
			}
		}
	}
}

// namesGrace is the grace of a node, whose process may have been late at any time.
func (n *node) namesGrace() time.Duration {
	return namesGrace + time.Duration(n.latest)*time.Millisecond
}

// learnedDown is a process that has just learned that a node is down: it is asked as soon as it must not answer with it any more.
func (p *process) learnedDown(lnn int) {
	p.knownDown[lnn] = p.s.now
	p.s.after(p.namesGrace(), p.node.answer)
}

// answersNames reports whether the node has a service address, on which it is asked.
func (n *node) answersNames() bool {
	for key, e := range n.process.replica.services {
		if e.record.Owner.LNN == n.lnn && n.visible(n.s.number[key.Address]) {
			return true
		}
	}
	return false
}

// givable is how many addresses of a pool a member would be given out with, and whether one of them belongs to an incarnation that is over
// (internal/steering/given.go). What always is that node's own, belongs to the incarnation that reports.
func givable(w *steering.World, id cluster.PoolID, m cluster.Member, over tenure.Incarnation) (held int, down bool) {
	for _, st := range w.Pools[id] {
		if st.Owner.Member() != m || st.State() != tenure.Held || w.Over(st.Owner) {
			continue
		}
		held++
		named := st.Owner.Incarnation
		if st.Fixed {
			named = w.Nodes[m.LNN].Incarnation
		}
		down = down || named <= over
	}
	return held, down
}
