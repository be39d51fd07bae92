package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/tenure"
)

// This file mirrors internal/agent/api_declare.go and internal/agent/declared.go: an operator turns machines off for good, and says so to a
// node that is to go on.

const (
	declareAgain  = 300 * time.Millisecond // when an operator who was refused tries again
	declaredAgain = 500 * time.Millisecond
)

// declaration is the word that a node is dead up to an incarnation.
type declaration struct {
	lnn  int
	over tenure.Incarnation
}

// declareDead has the operator declare those machines of a fault dead that have no power, until he is heard or gives up.
func (s *simulation) declareDead(f Fault) (end func()) {
	given := false
	var try func()
	try = func() {
		if !given && !s.declare(f) {
			s.after(declareAgain, try)
		}
	}
	try()
	return func() { given = true }
}

// declare asks the first node that works, and reports whether it took the word.
func (s *simulation) declare(f Fault) (taken bool) {
	dead := slices.DeleteFunc(slices.Clone(s.on(f)), func(n *node) bool { return n.unpowered == 0 })
	asked := slices.IndexFunc(s.nodes, func(n *node) bool { return n.works() && n.process.view != nil })
	if len(dead) == 0 || asked < 0 {
		return false
	}
	var answer []*process // of the others, who can be reached
	for _, n := range s.nodes {
		if n.works() && n.process.view != nil && (n.lnn == asked+1 || s.connected(asked+1, n.lnn)) {
			answer = append(answer, n.process)
		}
	}
	var words []declaration
	for _, n := range dead {
		word := declaration{lnn: n.lnn}
		for _, p := range answer {
			if p.peer.Sounds(n.lnn, p.time()) {
				return false // it is heard: refused
			}
			word.over = max(word.over, p.peer.Latest(n.lnn))
		}
		words = append(words, word)
	}
	for i, p := range answer {
		way := time.Duration(0)
		if i > 0 {
			way = 2 * s.store.way() // asked, and then told
		}
		s.after(way, func() { p.when(func() { p.declared(words) }) })
	}
	return true
}

// declared takes an operator's word.
func (p *process) declared(words []declaration) {
	for _, word := range words {
		p.s.say("%s is told that node%d is dead up to incarnation %d", p, word.lnn, word.over)
		p.changed(ofNodes)
		p.inform(&tenure.Told{LNN: word.lnn, Over: word.over, By: "an operator declared it dead", Declared: true})
		if !p.lapsedAt.IsZero() {
			p.lapsedAt = p.time().Add(-p.resumeWithin())
		}
		p.writeDeclared(word)
	}
	p.stir()
	p.note()
}

// writeDeclared writes a word into the store, however long that does not answer, unless another node has, or the node has come back.
func (p *process) writeDeclared(word declaration) {
	again := func(err error) {
		if err != nil {
			p.later(declaredAgain, func() { p.writeDeclared(word) })
		}
	}
	key := memberKey(word.lnn)
	p.s.store.get(p, writeTimeout, key, func(e entry, err error) {
		record, _ := e.value.(memberRecord)
		if err != nil || record.Incarnation > word.over || record.Incarnation == word.over && record.Over && record.Declared {
			again(err)
			return
		}
		if record.Name == "" {
			record.Name = p.s.node(word.lnn).name
		}
		record.Incarnation, record.Over, record.Declared = word.over, true, true
		p.s.store.commit(p, writeTimeout, []condition{{key, e.revision}}, []operation{{key, record}}, func(_ int64, err error) {
			if errors.Is(err, errConflict) {
				err = errSilent // somebody has changed it: look again
			}
			again(err)
		})
	})
}
