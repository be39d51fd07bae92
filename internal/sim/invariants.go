package sim

import (
	"cmp"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

// Bounds that the invariants know.
const (
	// guardBound is how long after the end of the right a machine with a guard that works may still answer for an address.
	guardBound = time.Millisecond
	// kernelBound is the same for one without: the lifetime, of which the last renewal was just before the end.
	kernelBound = lifetime + 10*time.Millisecond
	// moveBudget is how long a planned move may leave an address with nobody, while nothing is wrong.
	moveBudget = 500 * time.Millisecond
)

// FailureKind is what rule a failure breaks.
type FailureKind string

// The kinds of failures. Programs read them (--output json).
const (
	TwoHolders    FailureKind = "two-holders"    // two machines hold one address and have the right to
	KeptTooLong   FailureKind = "kept-too-long"  // a machine answered for an address for too long after its right had ended
	RightOfOver   FailureKind = "right-of-over"  // a node has the right under an incarnation that has been found over
	WithoutRight  FailureKind = "without-right"  // a process acts as the holder of an address without the right to
	MoveTooLong   FailureKind = "move-too-long"  // a planned move left an address with nobody for too long
	NoReason      FailureKind = "no-reason"      // an address moves without a reason on record
	GivenByForce  FailureKind = "given-by-force" // an address is given to another while its owner holds it by right
	NameOfTheDead FailureKind = "name-of-a-dead" // a name is answered with an address whose owner is known to be down
	NoHolder      FailureKind = "no-holder"      // the faults have ended, and an address has no holder or a node does not work
	Unplayable    FailureKind = "unplayable"     // the scenario itself
)

// seen is the moment from which a machine answers for an address. At most one that does has the right to.
func (n *node) seen(a int) {
	address := n.s.addresses[a]
	static := isStatic(address)
	if n.s.trace != nil {
		n.s.say("%s answers for %s", n, address)
	}
	if !static && !n.right() {
		return
	}
	n.s.gaps[a] = -1
	for _, other := range n.s.nodes {
		if other != n && other.visible(a) && (static || other.right()) {
			n.s.fail(TwoHolders, "%s and %s both hold %s and have the right to (incarnations %d and %d)", n, other, address, n.named, other.named)
		}
	}
	n.speaks(a, "answers for")
}

// unseen is the moment at which it does not any more. Without the right it may have answered for a bounded time only.
func (n *node) unseen(a int) {
	address := n.s.addresses[a]
	if n.s.trace != nil {
		n.s.say("%s answers no longer for %s", n, address)
	}
	if isStatic(address) || n.right() {
		return
	}
	bound, ended := kernelBound, n.endOfRight()
	if n.guard.trusty && n.guard.since <= ended {
		bound = guardBound
	}
	if late := n.s.now - ended - n.stood; late > bound {
		n.s.fail(KeptTooLong, "%s answered for %s for another %s after its right to hold had ended; at most %s", n, address, late, bound)
	}
}

// gainedRight is the moment at which a machine has the right again that it had not.
func (n *node) gainedRight() {
	n.stood = 0
	if over := n.s.over[n.lnn]; n.named <= over {
		n.s.fail(RightOfOver, "%s has the right to hold under incarnation %d although incarnations up to %d have been found over", n, n.named, over)
	}
	for a, address := range n.s.addresses {
		if !isStatic(address) && n.visible(a) {
			n.seen(a)
		}
	}
}

// found takes in that somebody has found incarnations of a node over: it has no right to hold under any of them.
func (s *simulation) found(f tenure.Finding) {
	if s.excused(RightOfOver) {
		return // who found it may die before they hear each other again, and nobody knows of it then
	}
	s.over[f.LNN] = max(s.over[f.LNN], f.Over)
	if n := s.node(f.LNN); n.right() && n.named <= f.Over {
		s.fail(RightOfOver, "%s has the right to hold under incarnation %d, which has been found over: %s", n, n.named, f.How)
	}
}

// speaks is a process that acts as the holder of an address.
func (n *node) speaks(a int, how string) {
	if isStatic(n.s.addresses[a]) {
		return
	}
	if over := n.s.over[n.lnn]; !n.right() || n.named <= over {
		n.s.fail(WithoutRight, "%s %s %s without the right to hold it (incarnation %d; up to %d over)", n, how, n.s.addresses[a], n.named, over)
	}
}

// renewing is a process that renews the lifetime of an address.
func (n *node) renewing(a int) { n.speaks(a, "renews") }

// announce is a process that tells the link that it has an address. Others that think so, too, contradict if they may.
func (p *process) announce(a int) {
	p.speaks(a, "announces")
	for _, n := range p.s.nodes {
		other := n.process
		if other == nil || other == p || !n.kernel.has(a) {
			continue
		}
		other.later(p.chance.between(time.Millisecond, 2*time.Millisecond), func() {
			if _, wanted := other.desired[a]; wanted && other.permitted() && other.kernel.has(a) {
				other.speaks(a, "answers a claim to")
			}
		})
	}
}

// releasing is a process that takes an address off. When that is for a planned move, and nothing is wrong, somebody has it again soon.
func (p *process) releasing(a int) {
	s := p.s
	if !s.calm || s.now-s.disturbed < 2*time.Second || isStatic(s.addresses[a]) || !p.right() || !p.moves(a) {
		return
	}
	began := s.now
	s.gaps[a] = began
	s.after(moveBudget, func() {
		if s.gaps[a] == began && s.disturbed < began {
			s.fail(MoveTooLong, "%s has had no holder for %s after %s let go of it for a planned move", s.addresses[a], moveBudget, p)
		}
	})
}

// moves reports whether the records that the loop saw last ask this node to give an address to another, which has the right to hold: one that
// has lapsed takes it when the right is back, and that is no planned move in a cluster in which nothing is wrong.
func (p *process) moves(a int) bool {
	away := func(st tenure.Statement) bool {
		ready := p.s.broken == BreakTarget || !st.To.IsZero() && p.s.node(st.To.LNN).right()
		return st.Owner.LNN == p.lnn && !st.To.IsZero() && st.To.LNN != p.lnn && ready
	}
	address := p.s.addresses[a]
	for _, entry := range p.replica.pools {
		if away(entry.record[address]) {
			return true
		}
	}
	for key, entry := range p.replica.services {
		if key.Address == address && away(entry.record) {
			return true
		}
	}
	return false
}

// written looks at a change before the store takes it: no move without a reason, and nobody loses what it holds without letting go.
func (s *simulation) written(o operation) {
	switch {
	case strings.HasPrefix(o.key, keyPool):
		before, _ := s.store.entries[o.key].value.(tenure.Record)
		after, _ := o.value.(tenure.Record)
		for _, address := range s.addresses {
			if before[address] != after[address] {
				s.changes(address.String(), s.number[address], before[address], after[address])
			}
		}
	case strings.HasPrefix(o.key, keyService):
		before, _ := s.store.entries[o.key].value.(tenure.Statement)
		after, _ := o.value.(tenure.Statement)
		address := serviceKeyIn(o.key).Address
		s.changes(address.String(), s.number[address], before, after)
	}
}

// changes is one statement that is about to be replaced.
func (s *simulation) changes(address string, a int, before, after tenure.Statement) {
	if s.trace != nil {
		s.say("record, by %s: %s belongs to %s, next %s, former %s, moves to %s: %s", cmp.Or(s.store.writer, "an operator"), address, after.Owner, after.Next, after.Former, after.To, after.Reason)
	}
	if moved := before.Owner != after.Owner || after.To != before.To && !after.To.IsZero(); moved && after.Reason == "" && after != (tenure.Statement{}) {
		s.fail(NoReason, "%s moves from %s to %s (%s) without a reason on record", address, before.Owner, after.Owner, after.To)
	}
	if before.Owner == after.Owner || before.Owner.IsZero() || before.Fixed {
		return
	}
	owner := s.node(before.Owner.LNN)
	if owner.visible(a) && owner.right() && owner.named == before.Owner.Incarnation {
		s.fail(GivenByForce, "%s is given to %s while %s holds it and has the right to", address, after.Owner, before.Owner)
	}
}

// missing are the addresses that nobody holds with the right to, although they are configured.
func (s *simulation) missing() []string {
	configured := map[string]bool{}
	config, _ := s.store.entries[keyConfig].value.(*cluster.Config)
	for _, address := range movingOf(config) {
		configured[address.String()] = true
	}
	var without []string
	for a, address := range s.addresses {
		held := !configured[address.String()]
		for _, n := range s.nodes {
			held = held || n.visible(a) && (isStatic(address) || n.right())
		}
		if !held {
			without = append(without, address.String())
		}
	}
	return without
}
