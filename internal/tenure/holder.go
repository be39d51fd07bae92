package tenure

import (
	"fmt"
	"slices"
	"time"
)

// Incarnation numbers the lives of one node; a later one proves every earlier one over. Zero is no incarnation.
type Incarnation uint64

// Need is how many of n observers suffice to hold: half of them, rounded up.
func Need(n int) int { return n - n/2 }

// Majority is how many of n observers are needed to declare an incarnation over: more than half.
func Majority(n int) int { return n/2 + 1 }

// driftPerMille is what a clock's rate may be wrong by; the holder gives it away on every acknowledgement.
const driftPerMille = 1

// Holder is one node's own right to hold moving addresses under one incarnation.
// The zero value holds nothing; NewHolder makes one.
type Holder struct {
	incarnation Incarnation
	margin      time.Duration
	observers   []int // LNNs of the others, sorted
	lease       time.Time
	grants      map[int]time.Time
	lapsed      bool
	lapsedWhy   string
}

// NewHolder makes the right of one incarnation. The margin is taken off every acknowledgement: the lateness of timers
// and the time that silencing takes. With no observers at all (a cluster of one) the holder holds without leases.
func NewHolder(incarnation Incarnation, observers []int, margin time.Duration) *Holder {
	h := &Holder{incarnation: incarnation, margin: margin, grants: map[int]time.Time{}}
	h.observers = slices.Sorted(slices.Values(observers))
	return h
}

// Incarnation is the life that this right belongs to.
func (h *Holder) Incarnation() Incarnation { return h.incarnation }

// HolderEvent is one thing that a Holder learns.
type HolderEvent interface{ holderEvent() }

// LeaseRenewed says that the store acknowledged a renewal that was sent at Sent and lasts TTL.
type LeaseRenewed struct {
	Sent time.Time
	TTL  time.Duration
}

// Granted says that an observer acknowledged a request that was sent at Sent, for Span.
type Granted struct {
	Observer int
	Sent     time.Time
	Span     time.Duration
}

// Refused says that an observer knows this incarnation to be over, or has promised so.
type Refused struct {
	Observer int
	Reason   string
}

// ObserversChanged says that the set of the other nodes is now this. Grants of those that left no longer count.
type ObserversChanged struct{ Observers []int }

// Resigned says that the node gives its right up: its agent stops.
type Resigned struct{ Reason string }

// Tick says that time has passed.
type Tick struct{}

func (LeaseRenewed) holderEvent()     {}
func (Granted) holderEvent()          {}
func (Refused) holderEvent()          {}
func (ObserversChanged) holderEvent() {}
func (Resigned) holderEvent()         {}
func (Tick) holderEvent()             {}

// Standing is a Holder's answer at one moment.
type Standing struct {
	MayHold bool
	Until   time.Time // when the right runs out unless something is renewed; zero: never (a cluster of one) or already lapsed
	Reason  string
}

// Step is the one door in. What had run out before now is judged first: an acknowledgement extends only a right that
// was still there when it arrived.
func (h *Holder) Step(event HolderEvent, now time.Time) Standing {
	h.judge(now)
	if h.lapsed {
		return Standing{Reason: h.lapsedWhy}
	}
	switch e := event.(type) {
	case LeaseRenewed:
		h.lease = later(h.lease, h.counted(e.Sent, e.TTL))
	case Granted:
		if slices.Contains(h.observers, e.Observer) {
			h.grants[e.Observer] = later(h.grants[e.Observer], h.counted(e.Sent, e.Span))
		}
	case Refused:
		delete(h.grants, e.Observer)
	case ObserversChanged:
		h.observers = slices.Sorted(slices.Values(e.Observers))
		for lnn := range h.grants {
			if !slices.Contains(h.observers, lnn) {
				delete(h.grants, lnn)
			}
		}
	case Resigned:
		h.lapsed, h.lapsedWhy = true, e.Reason
	case Tick:
	default:
		panic(fmt.Sprintf("tenure: unknown holder event %T", event))
	}
	return h.standing(now)
}

// judge marks the right as lapsed when it has run out.
func (h *Holder) judge(now time.Time) {
	if h.lapsed || len(h.observers) == 0 || h.neverHeld() {
		return
	}
	if until, _ := h.until(); !until.After(now) {
		h.lapsed = true
		h.lapsedWhy = fmt.Sprintf("incarnation %d lapsed: neither the store's lease nor %d of %d other nodes acknowledged it in time",
			h.incarnation, Need(len(h.observers)), len(h.observers))
	}
}

// neverHeld is true before the first acknowledgement: there is nothing to lapse from.
func (h *Holder) neverHeld() bool { return h.lease.IsZero() && len(h.grants) == 0 }

// standing says what the holder may do at now.
func (h *Holder) standing(now time.Time) Standing {
	if h.lapsed {
		return Standing{Reason: h.lapsedWhy}
	}
	if len(h.observers) == 0 {
		return Standing{MayHold: true, Reason: "the only node of the cluster holds without leases"}
	}
	if h.neverHeld() {
		return Standing{Reason: "not acknowledged yet"}
	}
	h.judge(now)
	if h.lapsed {
		return Standing{Reason: h.lapsedWhy}
	}
	until, reason := h.until()
	return Standing{MayHold: true, Until: until, Reason: reason}
}

// until is when the right runs out: the lease's end or the end of the grant that makes up the number, whichever is later.
func (h *Holder) until() (time.Time, string) {
	need := Need(len(h.observers))
	ends := make([]time.Time, 0, len(h.grants))
	for _, end := range h.grants {
		ends = append(ends, end)
	}
	slices.SortFunc(ends, func(a, b time.Time) int { return b.Compare(a) })
	if len(ends) >= need && ends[need-1].After(h.lease) {
		return ends[need-1], fmt.Sprintf("acknowledged by %d of %d other nodes while the store does not answer", need, len(h.observers))
	}
	return h.lease, "the store's lease"
}

// counted is the end of an acknowledgement as the holder counts it: from the sending, less drift and margin.
func (h *Holder) counted(sent time.Time, span time.Duration) time.Time {
	return sent.Add(span - span*driftPerMille/1000 - h.margin)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
