package sim

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

// epoch is when every history begins, by a wall clock that was never set.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// simulation is one history in progress.
type simulation struct {
	Scenario
	calendar calendar
	now      time.Duration
	chance   *random // of the network
	broken   Break
	trace    func(line string) // nil: nobody wants to know
	steps    uint64

	everyLook bool // no look of a loop is left out

	config    *cluster.Config // as the scenario begins
	addresses []netip.Addr    // every address that moves, sorted; elsewhere they go by their number here
	number    map[netip.Addr]int
	network   network
	gateway   gateway
	carried   []*letter // that have arrived, to be used again
	store     *store
	nodes     []*node // by LNN less one

	over      []tenure.Incarnation // by LNN: the latest that anybody has found over
	edits     edited
	ordered   []func() operation // what the operator wants of the store
	lasting   []*lasting
	faults    int             // that last at the moment
	disturbed time.Duration   // when a fault began or ended last
	worst     disturbance     // what was disturbed so far
	longest   time.Duration   // the longest interval that heartbeats had so far
	calm      bool            // no fault comes any more
	gaps      []time.Duration // by address: since when a planned move leaves it with nobody; -1: it does not
}

// breach is what ends a history.
type breach struct {
	kind FailureKind
	what string
}

// fail ends the history with what is wrong, unless it is what no-witness costs.
func (s *simulation) fail(kind FailureKind, format string, args ...any) {
	if s.excused(kind) {
		return
	}
	panic(breach{kind, fmt.Sprintf(format, args...)})
}

// say writes a line of the timeline, if there is one. Callers that have to work for their arguments ask for s.trace first.
func (s *simulation) say(format string, args ...any) {
	if s.trace != nil {
		s.trace(fmt.Sprintf("%11.6f  %s", s.now.Seconds(), fmt.Sprintf(format, args...)))
	}
}

// after has something happen a while later.
func (s *simulation) after(d time.Duration, do func()) { s.calendar.enter(s.now+max(d, 0), act(do)) }

// at has something happen at a moment.
func (s *simulation) at(at time.Duration, do func()) { s.calendar.enter(max(at, s.now), act(do)) }

// node is a node by its number.
func (s *simulation) node(lnn int) *node { return s.nodes[lnn-1] }

// play goes on until a moment.
func (s *simulation) play(until time.Duration) {
	for {
		next, ok := s.calendar.next(until)
		if !ok {
			break
		}
		s.now = next.at
		s.steps++
		next.what.happen()
	}
	s.now = max(s.now, until)
}

// setUp makes a cluster in which every node is about to start for the first time.
func setUp(scenario Scenario, broken Break, trace func(string)) *simulation {
	s := &simulation{Scenario: scenario, broken: broken, trace: trace, chance: newRandom(scenario.Seed, 1), config: configOf(scenario)}
	s.addresses = movingOf(s.config)
	s.number = make(map[netip.Addr]int, len(s.addresses))
	for i, a := range s.addresses {
		s.number[a] = i
		s.gaps = append(s.gaps, -1)
	}
	s.longest = scenario.Interval
	s.over = make([]tenure.Incarnation, scenario.Nodes+1)
	s.store = newStore(s)
	for lnn := 1; lnn <= scenario.Nodes; lnn++ {
		s.nodes = append(s.nodes, newNode(s, lnn))
	}
	s.store.found(s.config)
	for _, n := range s.nodes {
		s.after(n.chance.between(0, 200*time.Millisecond), n.start)
		s.after(n.chance.between(0, namesEvery), n.ask)
	}
	return s
}
