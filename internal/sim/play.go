package sim

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Result is what became of a history.
type Result struct {
	Scenario Scenario
	Failure  string        // what was wrong; empty: nothing
	Kind     FailureKind   // what rule that breaks
	At       time.Duration // when, or how long the history was
	Steps    uint64        // how many things happened in it
	Settled  time.Duration // how long after the last fault every address had a holder
}

// Options say how a history is played.
type Options struct {
	Break Break
	Story string            // what Many plays: this directed scenario for each seed; empty: what Generate makes of it
	Trace func(line string) // takes each line of the timeline; nil: none is written

	everyLook bool // no look is left out, whatever is known to come of it
}

// How a history goes after the last fault.
const (
	lookForHolders = 100 * time.Millisecond
	restFor        = 1500 * time.Millisecond // for so long every node works and every address has a holder before a cluster is said to be at rest
	calmBeforeMove = 1500 * time.Millisecond // and then so long before a planned move begins
	calmMove       = 3 * time.Second         // for the planned moves at the end
)

// Play plays one scenario to its end, or to the first thing that is wrong.
func Play(scenario Scenario, o Options) (result Result) {
	result.Scenario = scenario
	if err := scenario.check(); err != nil {
		result.Failure, result.Kind = err.Error(), Unplayable
		return result
	}
	s := setUp(scenario, o.Break, o.Trace)
	s.everyLook = o.everyLook
	defer func() {
		result.At, result.Steps = s.now, s.steps
		switch found := recover().(type) {
		case nil:
		case breach:
			result.Failure, result.Kind = found.what, found.kind
			s.say("!!! %s", found.what)
		default:
			panic(found)
		}
	}()
	if o.Trace != nil {
		for line := range strings.Lines(scenario.String()) {
			o.Trace(strings.TrimRight(line, "\n"))
		}
	}
	for _, f := range scenario.Faults {
		s.at(min(f.At, scenario.Storm), func() { s.begin(f) })
	}
	s.play(scenario.Storm)
	s.settle()
	result.Settled = s.awaitHolders()
	s.planned()
	return result
}

// awaitHolders plays on until every node works and every address has a holder, and it stays so for a while. It returns how long it was
// until then.
func (s *simulation) awaitHolders() time.Duration {
	began, rest := s.now, s.now
	for {
		without := s.missing()
		switch {
		case len(without) > 0 || !s.work():
			rest = s.now + lookForHolders
		case s.now-rest >= restFor:
			return rest - began
		}
		if bound, why := s.bound(); s.now-began >= bound+restFor {
			s.fail(NoHolder, "%s after the last fault nobody holds %s; %s", s.now-began, cmp.Or(strings.Join(without, ", "), "something every now and then, or a node does not work"), why)
		}
		s.play(s.now + lookForHolders)
	}
}

// work reports whether every node has the right to hold and is ready.
func (s *simulation) work() bool {
	for _, n := range s.nodes {
		if n.process == nil || n.process.leaving || !n.process.wasReady || !n.right() {
			return false
		}
	}
	return true
}

// planned plays what operators do to a cluster that works: each address keeps a holder but for the budget of a move.
func (s *simulation) planned() {
	s.play(s.now + calmBeforeMove)
	if without := s.missing(); len(without) > 0 { // perhaps one is on its way
		s.play(s.now + moveBudget)
	}
	if without := s.missing(); len(without) > 0 {
		s.fail(NoHolder, "nobody holds %s any more although nothing is wrong", strings.Join(without, ", "))
	}
	lnn := 1 + s.chance.below(s.Nodes)
	acts := []Fault{{Kind: Drain, Node: lnn, Lasts: calmMove / 2}, {Kind: Rebalance, Node: 1 + lnn%s.Nodes}, {Kind: Stop, Node: lnn, Lasts: time.Second}}
	act := acts[s.chance.below(len(acts))]
	if s.Nodes == 1 {
		return // there is nobody to move to
	}
	s.worst = ofHeartbeats // nothing of before is left to be made good
	s.begin(act)
	s.play(s.now + calmMove)
	if s.awaitHolders(); s.trace != nil {
		s.say("=== the end: %s", s.summary())
	}
}

// summary says who holds how many.
func (s *simulation) summary() string {
	var parts []string
	for _, n := range s.nodes {
		holds := 0
		for a := range s.addresses {
			if n.visible(a) {
				holds++
			}
		}
		parts = append(parts, fmt.Sprintf("%s holds %d", n, holds))
	}
	return strings.Join(parts, ", ")
}
