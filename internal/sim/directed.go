package sim

import (
	"slices"
	"time"
)

// story is a directed scenario: what goes wrong is given, when exactly and on how many nodes is left to chance.
type story struct {
	name string
	make func(s Scenario, r *random) Scenario
}

// directed are the stories.
var directed = []story{
	{"restart just after a confirmation", restartAfterConfirmation},
	{"a stall that ends with one late heartbeat", lateHeartbeat},
	{"a span changed while running", changedSpan},
	{"a flapping switch", flappingSwitch},
	{"rolling restarts", rollingRestarts},
	{"4 of 9 nodes at once", fourOfNine},
	{"the store's leader dies with the owner", leaderDies},
	{"a partition that heals after a lapse", healingPartition},
	{"all nodes power-cycled", allPowerCycled},
	{"the owner and its successor die", successorDies},
	{"the owner dies while its successor is replaced", successorReplaced},
	{"a move that is called off", calledOff},
	{"heartbeats that are lost on some ways", lostHeartbeats},
	{"a majority that is declared dead", declaredDead},
}

// alone are those of two nodes without a witness. A seed does not pick them by chance.
var alone = []story{
	{"one of two dies", oneOfTwoDies},
	{"one of two is cut off", oneOfTwoIsCutOff},
	{"two are cut from each other", twoAreCut},
	{"two hear each other again", twoHearAgain},
}

// Stories are the names of the directed scenarios.
func Stories() []string {
	var names []string
	for _, d := range slices.Concat(directed, alone) {
		names = append(names, d.name)
	}
	return names
}

// Directed is a story by its name with the particulars of a seed.
func Directed(name string, seed uint64) (Scenario, bool) {
	for _, d := range slices.Concat(directed, alone) {
		if d.name == name {
			base := Generate(seed)
			base.Faults = nil
			return d.make(base, newRandom(seed, 3)), true
		}
	}
	return Scenario{}, false
}

// two is a scenario of two nodes without a witness, on one network that loses little.
func (s Scenario) two(r *random) Scenario {
	s = s.withoutWitness(r)
	s.Nodes, s.Networks, s.Faults = 2, 1, nil
	if s.LossPM >= lossy {
		s.LossPM = 0
	}
	return s
}

// oneOfTwoDies: the gateway answers all the time.
func oneOfTwoDies(s Scenario, r *random) Scenario {
	s = s.two(r)
	at, lnn := calmBefore+r.between(0, time.Second), 1+r.below(2)
	return s.told("one of two dies", 2, 3*time.Second,
		Fault{At: at, Kind: pick(r, Power, Kill, Freeze, Suspend, Stop), Node: lnn, Lasts: r.between(100*time.Millisecond, 6*time.Second)},
		Fault{At: at + r.between(0, time.Second), Kind: Gateway, Node: lnn, Lasts: r.between(0, time.Second)})
}

// oneOfTwoIsCutOff: from the other, the store and the gateway. Nobody holds what another does.
func oneOfTwoIsCutOff(s Scenario, r *random) Scenario {
	s = s.two(r)
	at, span := calmBefore+r.between(0, time.Second), s.Interval*time.Duration(s.Multiplier)
	var faults []Fault
	for range 1 + r.below(4) {
		lasts := r.between(span/2, 3*span)
		faults = append(faults, Fault{At: at, Kind: pick(r, Cut, Switch), Node: 1 + r.below(2), Lasts: lasts})
		if last := &faults[len(faults)-1]; last.Kind == Switch {
			last.Node = 0
		}
		at += lasts + r.between(0, 5*time.Second)
	}
	return s.told("one of two is cut off", 2, 3*time.Second, faults...)
}

// twoAreCut: only the link between them, while the one or the other fails, too.
func twoAreCut(s Scenario, r *random) Scenario {
	s = s.two(r)
	at := calmBefore + r.between(0, time.Second)
	lasts := r.between(time.Second, 6*time.Second)
	return s.told("two are cut from each other", 2, 3*time.Second,
		Fault{At: at, Kind: pick(r, Cut, Cut, Deaf, Mute), Node: 1, Other: 2, Lasts: lasts},
		Fault{At: at + r.between(0, lasts), Kind: pick(r, Kill, Power, Freeze, Gateway, Stale), Node: 1 + r.below(2), Lasts: r.between(50*time.Millisecond, 3*time.Second)})
}

// twoHearAgain: the link between them is cut and mended, again and again.
func twoHearAgain(s Scenario, r *random) Scenario {
	s = s.two(r)
	at, span := calmBefore, s.Interval*time.Duration(s.Multiplier)
	var faults []Fault
	for range 2 + r.below(4) {
		lasts := r.between(span/2, 4*span)
		faults = append(faults, Fault{At: at, Kind: Cut, Node: 1, Other: 2, Lasts: lasts})
		at += lasts + r.between(span, 5*time.Second)
	}
	return s.told("two hear each other again", 2, 3*time.Second, faults...)
}

const calmBefore = 4 * time.Second // all nodes have started by then, and every address has a holder

// told is a scenario as a story with some faults, whose storm ends a while after the last.
func (s Scenario) told(name string, atLeast int, after time.Duration, faults ...Fault) Scenario {
	s.Story, s.Nodes, s.Faults = name, max(s.Nodes, atLeast), faults
	s = s.inOrder()
	if len(s.Faults) > 0 {
		s.Storm = s.Faults[len(s.Faults)-1].At + after
	}
	return s
}

// restartAfterConfirmation: an observer dies when it has just given its word, and is back before the promise behind it is over.
func restartAfterConfirmation(s Scenario, r *random) Scenario {
	span := s.Interval * time.Duration(s.Multiplier)
	at := calmBefore + r.between(0, time.Second)
	said := at + span + r.between(0, 2*s.Interval)
	return s.told("restart just after a confirmation", 3, 3*time.Second,
		Fault{At: at, Kind: Cut, Node: 1, Lasts: span + r.between(0, 3*s.Interval)},
		Fault{At: said, Kind: Kill, Node: 2, Lasts: r.between(time.Millisecond, span)},
		Fault{At: said + r.between(0, s.Interval), Kind: Kill, Node: 3, Lasts: r.between(time.Millisecond, span)})
}

// lateHeartbeat: what a node sends comes late; one heartbeat of before arrives when its count is as good as over.
func lateHeartbeat(s Scenario, r *random) Scenario {
	span := s.Interval * time.Duration(s.Multiplier)
	at := calmBefore + r.between(0, time.Second)
	late := int((span + s.Interval) / time.Millisecond)
	return s.told("a stall that ends with one late heartbeat", 3, 3*time.Second,
		Fault{At: at, Kind: Late, Node: 1, Amount: late, Lasts: r.between(s.Interval/2, 2*s.Interval)},
		Fault{At: at + r.between(0, s.Interval), Kind: pick(r, Freeze, Suspend, Mute), Node: 1, Lasts: r.between(span, 3*span)},
		Fault{At: at + r.between(0, span), Kind: pick(r, Freeze, Suspend), Node: 2, Lasts: r.between(span/2, 2*span)})
}

// changedSpan: the heartbeats are set to others, and back, while nodes die and links are cut.
func changedSpan(s Scenario, r *random) Scenario {
	at := calmBefore
	var faults []Fault
	for range 4 {
		at += r.between(100*time.Millisecond, 1200*time.Millisecond)
		faults = append(faults, Fault{At: at, Kind: Span, Amount: s.anyInterval(r)})
		kind := pick(r, Kill, Cut, Freeze, Stale, StoreAway, Power)
		faults = append(faults, Fault{At: at + r.between(0, 500*time.Millisecond), Kind: kind, Node: 1 + r.below(max(s.Nodes, 3)), Lasts: r.between(50*time.Millisecond, time.Second)})
	}
	return s.told("a span changed while running", 3, 3*time.Second, faults...)
}

// flappingSwitch: nobody hears anybody, again and again, for about as long as a lease lasts.
func flappingSwitch(s Scenario, r *random) Scenario {
	span := s.Interval * time.Duration(s.Multiplier)
	at := calmBefore
	var faults []Fault
	for range 4 + r.below(6) {
		faults = append(faults, Fault{At: at, Kind: Switch, Lasts: r.between(span/2, 3*span)})
		at += r.between(span, 5*span)
	}
	return s.told("a flapping switch", 2, 2*time.Second, faults...)
}

// rollingRestarts: one node after the other is stopped in an orderly way and started again, sometimes before the one before is ready.
func rollingRestarts(s Scenario, r *random) Scenario {
	s.Nodes = max(s.Nodes, 3)
	at := calmBefore
	var faults []Fault
	for lnn := 1; lnn <= s.Nodes; lnn++ {
		faults = append(faults, Fault{At: at, Kind: Stop, Node: lnn, Lasts: r.between(100*time.Millisecond, 800*time.Millisecond)})
		at += r.between(300*time.Millisecond, 3*time.Second)
	}
	return s.told("rolling restarts", 3, 3*time.Second, faults...)
}

// fourOfNine: four nodes of nine die within a moment.
func fourOfNine(s Scenario, r *random) Scenario {
	s.Nodes = 9
	s.Interval = max(s.Interval, 50*time.Millisecond)
	at := calmBefore + r.between(0, time.Second)
	first := r.below(9)
	var faults []Fault
	for i := range 4 {
		faults = append(faults, Fault{At: at + r.between(0, s.Interval), Kind: pick(r, Power, Power, Kill, Cut), Node: 1 + (first+2*i)%9, Lasts: 4 * time.Second})
	}
	return s.told("4 of 9 nodes at once", 9, 4*time.Second, faults...)
}

// leaderDies: the machine that leads the store dies, and another holder with it or soon after.
func leaderDies(s Scenario, r *random) Scenario {
	s.External = false
	at := calmBefore + r.between(0, time.Second)
	return s.told("the store's leader dies with the owner", 4, 4*time.Second,
		Fault{At: at, Kind: PowerLeader, Lasts: 4 * time.Second},
		Fault{At: at + r.between(0, 600*time.Millisecond), Kind: pick(r, Kill, Freeze, Cut, ClockStep), Node: 1 + r.below(4), Lasts: r.between(100*time.Millisecond, 4*time.Second)})
}

// healingPartition: a part of the cluster is cut off until its nodes have lapsed, and comes back about when they are found down.
func healingPartition(s Scenario, r *random) Scenario {
	span := s.Interval * time.Duration(s.Multiplier)
	at := calmBefore + r.between(0, time.Second)
	s.Nodes = max(s.Nodes, 3)
	return s.told("a partition that heals after a lapse", 3, 4*time.Second,
		Fault{At: at, Kind: Partition, Amount: r.below(1 << (s.Nodes + 1)), Lasts: span + r.between(-s.Interval, 3*s.Interval)},
		Fault{At: at + span + r.between(0, span), Kind: pick(r, Deaf, Mute), Node: 1 + r.below(s.Nodes), Lasts: r.between(s.Interval, 2*span)})
}

// allPowerCycled: every machine loses its power, and gets it back at about the same time.
func allPowerCycled(s Scenario, r *random) Scenario {
	at := calmBefore + r.between(0, time.Second)
	s.Nodes = max(s.Nodes, 3)
	var faults []Fault
	for lnn := 1; lnn <= s.Nodes; lnn++ {
		faults = append(faults, Fault{At: at + r.between(0, 20*time.Millisecond), Kind: Power, Node: lnn, Lasts: 500*time.Millisecond + r.between(0, time.Second)})
	}
	return s.told("all nodes power-cycled", 3, 4*time.Second, faults...)
}

// successorDies: two die one after the other, faster than the record follows.
func successorDies(s Scenario, r *random) Scenario {
	at := calmBefore + r.between(0, time.Second)
	span := s.Interval * time.Duration(s.Multiplier)
	second := at + r.between(0, 2*span)
	return s.told("the owner and its successor die", 5, 4*time.Second,
		Fault{At: at, Kind: pick(r, Kill, Power, Freeze), Node: 1, Lasts: 3 * time.Second},
		Fault{At: second, Kind: pick(r, Kill, Power, Cut), Node: 2, Lasts: 3 * time.Second},
		Fault{At: at + r.between(-span, span), Kind: pick(r, StoreLeader, SlowDisk, Stale), Node: 3, Amount: 400, Lasts: 2 * time.Second})
}

// successorReplaced: who is next changes just when the owner dies, and who was next before has not read that.
func successorReplaced(s Scenario, r *random) Scenario {
	s.Nodes = max(s.Nodes, 4)
	at := calmBefore + r.between(0, time.Second)
	owner := 1 + r.below(s.Nodes)
	next := 1 + (owner+r.below(s.Nodes-1))%s.Nodes
	faults := []Fault{
		{At: at - r.between(0, 100*time.Millisecond), Kind: pick(r, Stale, Stale, Stale, Slow, Unanswered), Node: next, Amount: 50, Lasts: r.between(500*time.Millisecond, 3*time.Second)},
		{At: at, Kind: pick(r, Drain, Drain, LeavePool, Stop, Carrier), Node: next, Lasts: r.between(time.Second, 3*time.Second)},
		{At: at + r.between(0, 400*time.Millisecond), Kind: pick(r, Kill, Power, Freeze, Cut), Node: owner, Lasts: r.between(300*time.Millisecond, 3*time.Second)},
	}
	if r.chance(300) {
		faults = append(faults, Fault{At: at + r.between(0, 600*time.Millisecond), Kind: pick(r, Kill, Freeze, Stale), Node: 1 + r.below(s.Nodes), Lasts: r.between(300*time.Millisecond, 2*time.Second)})
	}
	return s.told("the owner dies while its successor is replaced", 4, 3*time.Second, faults...)
}

// calledOff: addresses are asked to one node and another, and the reason is gone, or the target unfit, before they have moved.
func calledOff(s Scenario, r *random) Scenario {
	s.Nodes = max(s.Nodes, 3)
	at := calmBefore
	var faults []Fault
	for range 3 + r.below(4) {
		node := 1 + r.below(s.Nodes)
		at += r.between(20*time.Millisecond, 700*time.Millisecond)
		faults = append(faults,
			Fault{At: at, Kind: pick(r, Drain, Drain, LeavePool, Check, Carrier), Node: node, Lasts: r.between(10*time.Millisecond, 300*time.Millisecond)},
			Fault{At: at + r.between(0, 300*time.Millisecond), Kind: pick(r, Check, Carrier, Drain, Kill, Stale, Cut, SlowKernel), Node: 1 + r.below(s.Nodes), Amount: 40, Lasts: r.between(50*time.Millisecond, time.Second)})
	}
	return s.told("a move that is called off", 3, 3*time.Second, faults...)
}

// lostHeartbeats: on some ways nearly everything is lost or late, and nothing else is wrong, so that all is well again soon after.
func lostHeartbeats(s Scenario, r *random) Scenario {
	s.Nodes = max(s.Nodes, 3)
	span := s.Interval * time.Duration(s.Multiplier)
	at := calmBefore
	var faults []Fault
	for range 2 + r.below(6) {
		at += r.between(0, 2*span)
		faults = append(faults, Fault{
			At: at, Kind: Loss, Node: pick(r, 0, 1+r.below(s.Nodes)), Other: pick(r, 0, 1+r.below(s.Nodes), 1+r.below(s.Nodes)), Amount: pick(r, 300, 800, 1000), Lasts: r.between(span/2, 6*span),
		})
		if r.chance(400) {
			faults = append(faults, Fault{At: at + r.between(0, span), Kind: Late, Node: 1 + r.below(s.Nodes), Amount: int(span / time.Millisecond), Lasts: r.between(span/2, 3*span)})
		}
	}
	return s.told("heartbeats that are lost on some ways", 3, time.Second, faults...)
}

// declaredDead: a majority loses its power for good, or so an operator thinks, who says so; then some of it comes back.
func declaredDead(s Scenario, r *random) Scenario {
	s.Nodes = max(s.Nodes, 3)
	s.External = r.chance(700) // otherwise the store is gone with the majority, and the word is on record only later
	span := s.Interval * time.Duration(s.Multiplier)
	at := calmBefore + r.between(0, time.Second)
	first, dead := r.below(s.Nodes), s.Nodes/2+1
	if r.chance(300) {
		dead = s.Nodes - 1
	}
	var faults []Fault
	for i := range dead {
		faults = append(faults, Fault{At: at + r.between(0, span), Kind: Power, Node: 1 + (first+i)%s.Nodes, Lasts: r.between(span, 6*time.Second)})
	}
	said := at + r.between(span, 3*span)
	faults = append(faults, Fault{At: said, Kind: DeclareDead, Node: pick(r, 0, 0, 1+first), Lasts: 3 * time.Second})
	if r.chance(500) {
		faults = append(faults, Fault{At: said + r.between(0, time.Second), Kind: pick(r, Kill, Freeze, Stale, Unanswered, Cut), Node: 1 + r.below(s.Nodes), Lasts: r.between(50*time.Millisecond, 2*time.Second)})
	}
	return s.told("a majority that is declared dead", 3, 3*time.Second, faults...)
}
