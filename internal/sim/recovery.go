package sim

import (
	"fmt"
	"time"
)

// disturbance is what was disturbed in a history, from the least that has to be made good to the most.
type disturbance int

const (
	ofHeartbeats disturbance = iota // messages were lost or late, and what else makes nodes unfit or late but stops nothing
	ofLinks                         // whole links were cut, and with them ways to the store
	ofAll                           // processes, machines or the store
)

func (d disturbance) String() string {
	switch d {
	case ofHeartbeats:
		return "where heartbeats at most were disturbed"
	case ofLinks:
		return "where links at most were cut"
	}
	return "where processes, machines or the store were disturbed"
}

// disturbs is what a kind of fault disturbs.
func (k FaultKind) disturbs() disturbance {
	switch k {
	case Loss, Late, Span, ClockStep, Carrier, Check, SlowKernel, Drain, Rebalance, ShrinkPool, LeavePool, SpreadServices:
		return ofHeartbeats
	case Deaf, Mute, Cut, Partition, Switch:
		return ofLinks
	}
	return ofAll
}

// Within what every address has a holder once the faults have stopped. A node that has lapsed goes on as soon as an acknowledgement comes, or
// gives its incarnation up after the resume limit; then it draws the next, reports, is answered and takes what it is next for, each of which
// takes a span or less, or a way to the store and back. A cut takes the store's leader with it, which is elected anew. A machine starts, its
// agent waits for the first copy of the store, its checks, and those who have not been heard yet (settleLimit).
const (
	recoverySpans = 5
	recoverySteps = 3 * time.Second
	recoveryStore = 5 * time.Second
	recoveryMost  = 30 * time.Second
)

// holderBound is how long after the faults every node works and every address has a holder, with spans of at most so long.
func holderBound(d disturbance, span time.Duration) time.Duration {
	bound := max(resumeLimit, 10*span) + recoverySpans*span + recoverySteps
	switch d {
	case ofHeartbeats:
		return min(bound, recoveryMost)
	case ofLinks:
		return min(bound+recoveryStore, recoveryMost)
	}
	return recoveryMost
}

// disturb notes what a fault disturbs.
func (s *simulation) disturb(d disturbance) {
	s.worst = max(s.worst, d)
}

// bound is the bound for what was disturbed in this history, and why it is that.
func (s *simulation) bound() (bound time.Duration, why string) {
	span := s.longest * time.Duration(s.Multiplier)
	bound = holderBound(s.worst, span)
	return bound, fmt.Sprintf("%s is the most %s, with spans of up to %s", bound, s.worst, span)
}
