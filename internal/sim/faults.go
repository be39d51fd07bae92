package sim

import (
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

// lasting is a fault that has begun and not ended.
type lasting struct {
	end func()
}

// operated are the kinds that are no faults: an operator does something to a cluster that must go on working.
var operated = map[FaultKind]bool{Drain: true, Rebalance: true, SpreadServices: true, LeavePool: true, ShrinkPool: true, Stop: true, DeclareDead: true}

// begin has a fault begin, and end if it ends by itself.
func (s *simulation) begin(f Fault) {
	s.say("--- %s", f)
	s.disturb(f.Kind.disturbs())
	disturbs := !operated[f.Kind]
	if disturbs {
		s.disturbed = s.now
	}
	end := s.cause(f)
	if end == nil {
		return
	}
	if disturbs {
		s.faults++
	}
	l := &lasting{}
	l.end = func() {
		l.end = nil
		if s.trace != nil {
			s.say("--- end of %s", f)
		}
		if end(); disturbs {
			s.faults--
			s.disturbed = s.now
		}
	}
	s.lasting = append(s.lasting, l)
	s.after(f.Lasts, func() {
		if l.end != nil {
			l.end()
		}
	})
}

// settle ends every fault that lasts.
func (s *simulation) settle() {
	s.say("=== all faults end")
	s.calm, s.disturbed = true, s.now
	for _, l := range s.lasting {
		if l.end != nil {
			l.end()
		}
	}
	s.lasting = nil
	for _, n := range s.nodes {
		if n.process == nil {
			n.startAfter()
		}
	}
}

// cause is the beginning of a fault; it returns its end, or nil if it has none.
func (s *simulation) cause(f Fault) (end func()) {
	for _, of := range []func(Fault) (func(), bool){s.processFault, s.machineFault, s.networkFault, s.storeFault, s.operatorAct} {
		if end, is := of(f); is {
			return end
		}
	}
	panic("sim: unknown kind of fault " + string(f.Kind))
}

// on is the nodes that a fault is on.
func (s *simulation) on(f Fault) []*node {
	if f.Node == 0 {
		return s.nodes
	}
	return []*node{s.node(f.Node)}
}

// counted adds to a number on each node for as long as the fault lasts.
func (s *simulation) counted(f Fault, number func(*node) *int, by int, then func(*node)) func() {
	change := func(by int) {
		for _, n := range s.on(f) {
			*number(n) += by
			if then != nil {
				then(n)
			}
		}
	}
	change(by)
	return func() { change(-by) }
}

// each does something to each node, and something else at the end.
func (s *simulation) each(f Fault, begin, end func(*node)) func() {
	for _, n := range s.on(f) {
		begin(n)
	}
	return func() {
		for _, n := range s.on(f) {
			end(n)
		}
	}
}

func (s *simulation) processFault(f Fault) (end func(), is bool) {
	restart := func(n *node) {
		if n.stopped--; n.stopped == 0 {
			n.startAfter()
		}
	}
	switch f.Kind {
	case Kill:
		return s.each(f, func(n *node) { n.stopped++; n.kill() }, restart), true
	case Stop:
		return s.each(f, func(n *node) {
			n.stopped++
			if p := n.process; p != nil && !p.leaving {
				p.when(p.leave)
			}
		}, restart), true
	case Freeze:
		return s.each(f, (*node).freeze, (*node).thaw), true
	case Slow:
		return s.counted(f, func(n *node) *int { return &n.slow }, f.Amount, func(n *node) { n.latest = max(n.latest, n.slow) }), true
	case GuardKill:
		return s.each(f, (*node).loseGuard, (*node).findGuard), true
	case GuardFreeze:
		return s.each(f, func(n *node) { n.guard.frozen++; n.guard.trusty = false }, func(n *node) { n.guard.frozen--; n.thawGuard() }), true
	}
	return nil, false
}

func (s *simulation) machineFault(f Fault) (end func(), is bool) {
	lose := func(n *node) {
		if n.unpowered == 0 {
			n.powerOff()
		}
		n.unpowered++
	}
	restore := func(n *node) {
		if n.unpowered--; n.unpowered == 0 {
			n.startAfter()
			n.s.after(n.chance.between(0, 50*time.Millisecond), n.meetGuard)
		}
	}
	switch f.Kind {
	case Power:
		return s.each(f, lose, restore), true
	case PowerLeader:
		f.Node = s.leaderOrOwner()
		return s.each(f, lose, restore), true
	case Suspend:
		return s.each(f, (*node).suspend, (*node).resume), true
	case ClockStep:
		return s.counted(f, func(n *node) *int { return &n.stepped }, f.Amount, nil), true
	case SlowKernel:
		return s.counted(f, func(n *node) *int { return &n.sluggish }, f.Amount, nil), true
	case Carrier:
		return s.counted(f, func(n *node) *int { return &n.noCarrier }, 1, func(n *node) { n.noteFitness(); s.lookApart() }), true
	case Check:
		return s.counted(f, func(n *node) *int { return &n.failing }, 1, (*node).noteFitness), true
	}
	return nil, false
}

// leaderOrOwner is the node whose member leads the store, else the first that holds something.
func (s *simulation) leaderOrOwner() int {
	if s.store.leader > 0 {
		return s.store.leader
	}
	for _, n := range s.nodes {
		for a := range s.addresses {
			if n.visible(a) && n.right() {
				return n.lnn
			}
		}
	}
	return 1
}

// noteFitness wakes the loop: its interfaces or its checks have changed.
func (n *node) noteFitness() {
	if n.process != nil {
		n.process.when(n.process.note)
	}
}

func (s *simulation) networkFault(f Fault) (end func(), is bool) {
	switch f.Kind {
	case Deaf, Mute, Cut, Partition, Switch:
		s.cutOff(f, 1)
		s.lookApart()
		return func() { s.cutOff(f, -1); s.lookApart() }, true
	case Gateway:
		return s.muteGateway(f), true
	case Loss:
		return s.ways(f, &s.network.loss), true
	case Late:
		return s.ways(f, &s.network.late), true
	}
	return nil, false
}

// ways adds to a number of each way from the node of a fault to the other, for as long as it lasts.
func (s *simulation) ways(f Fault, number *[MaxNodes + 1][MaxNodes + 1]int) func() {
	change := func(by int) {
		for from := 1; from <= s.Nodes; from++ {
			for to := 1; to <= s.Nodes; to++ {
				if (f.Node == 0 || from == f.Node) && (f.Other == 0 || to == f.Other) {
					number[from][to] += by
				}
			}
		}
	}
	change(f.Amount)
	s.lookApart()
	return func() { change(-f.Amount); s.lookApart() }
}

// cutOff cuts links, or mends them.
func (s *simulation) cutOff(f Fault, by int) {
	for k := range s.Networks {
		if f.Kind == Switch {
			if f.Other == 0 || f.Other == k+1 {
				s.network.dead[k] += by
			}
			continue
		}
		for a := range s.Nodes + 1 {
			for b := range s.Nodes + 1 {
				if a != b && s.cuts(f, a, b) {
					s.network.cut[k][a][b] += by
				}
			}
		}
	}
}

// cuts reports whether a fault cuts the way from one node to another; 0 is what is outside of the cluster.
func (s *simulation) cuts(f Fault, from, to int) bool {
	ends := func(node, other int) bool { return node == f.Node && (f.Other == 0 || other == f.Other) }
	switch f.Kind {
	case Deaf:
		return ends(to, from)
	case Mute:
		return ends(from, to)
	case Cut:
		return ends(to, from) || ends(from, to)
	case Partition:
		return f.Amount>>from&1 != f.Amount>>to&1
	}
	return false
}

func (s *simulation) storeFault(f Fault) (end func(), is bool) {
	st := s.store
	switch f.Kind {
	case StoreAway:
		st.away++
		return func() { st.away-- }, true
	case StoreLeader:
		st.headless++
		return func() { st.headless-- }, true
	case SlowDisk:
		st.slow += f.Amount
		return func() { st.slow -= f.Amount }, true
	case Stale:
		return s.counted(f, func(n *node) *int { return &n.stale }, 1, nil), true
	case Unanswered:
		return s.counted(f, func(n *node) *int { return &n.silent }, 1, nil), true
	}
	return nil, false
}

func (s *simulation) operatorAct(f Fault) (end func(), is bool) {
	switch f.Kind {
	case Drain:
		for _, n := range s.on(f) {
			s.byOperator(func() operation { return operation{drainKey(n.lnn), drainRecord{}} })
		}
		return func() {
			for _, n := range s.on(f) {
				s.byOperator(func() operation { return operation{key: drainKey(n.lnn)} })
			}
		}, true
	case Span:
		s.edits.interval = time.Duration(f.Amount) * time.Millisecond
		s.longest = max(s.longest, s.edits.interval)
		s.reconfigure()
		return nil, true // it stays
	case ShrinkPool:
		s.edits.lacking += f.Amount
		s.reconfigure()
		return func() { s.edits.lacking -= f.Amount; s.reconfigure() }, true
	case LeavePool:
		s.edits.left[f.Node]++
		s.reconfigure()
		return func() { s.edits.left[f.Node]--; s.reconfigure() }, true
	case DeclareDead:
		return s.declareDead(f), true
	case Rebalance, SpreadServices:
		for _, n := range s.on(f) {
			if p := n.process; p != nil && f.Kind == Rebalance {
				p.when(p.rebalance)
			} else if p != nil {
				p.when(p.spreadServices)
			}
		}
		return nil, true
	}
	return nil, false
}

// byOperator changes the store when it takes changes again, in the order in which the operator wanted them.
func (s *simulation) byOperator(do func() operation) {
	s.ordered = append(s.ordered, do)
	if len(s.ordered) == 1 {
		s.carryOutOrders()
	}
}

func (s *simulation) carryOutOrders() {
	if !s.store.writes() {
		s.after(100*time.Millisecond, s.carryOutOrders)
		return
	}
	for len(s.ordered) > 0 {
		o := s.ordered[0]()
		s.ordered = s.ordered[1:]
		if before, same := s.store.entries[keyConfig].value.(*cluster.Config); o.key == keyConfig && same && len(cluster.Diff(before, o.value.(*cluster.Config))) == 0 {
			continue
		}
		if _, err := s.store.do(nil, []operation{o}); err != nil {
			panic("sim: a change without a condition is refused")
		}
	}
}

// reconfigure puts the configuration as it is edited by then into the store.
func (s *simulation) reconfigure() {
	s.byOperator(func() operation { return operation{keyConfig, s.edits.apply(s.config)} })
}
