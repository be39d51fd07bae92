package tenure

import (
	"fmt"
	"time"
)

// Observer is what one node has promised about the others: to whom it granted a span, and whom it has given up.
// Its memory is bounded by the number of nodes (256). The zero value is not usable; NewObserver makes one.
type Observer struct {
	silentUntil time.Time // a start forgets promises: nothing is granted or confirmed before this
	granted     map[int]promise
	over        map[int]Incarnation
}

type promise struct {
	incarnation Incarnation
	until       time.Time
}

// NewObserver makes the observer of a node that starts now. For one longest span it neither grants nor confirms, since it
// may have granted before it died.
func NewObserver(now time.Time, longestSpan time.Duration) *Observer {
	return &Observer{silentUntil: now.Add(longestSpan), granted: map[int]promise{}, over: map[int]Incarnation{}}
}

// Answer is what an Observer says to a request.
type Answer struct {
	Yes    bool
	Reason string // why not, when not
	Final  bool   // the incarnation is over for good; asking again is useless
}

// Grant answers a node that asks to be acknowledged for a span, received at now.
// The promise is counted from now, so it lasts at least as long as the asker counts it.
func (o *Observer) Grant(lnn int, incarnation Incarnation, span time.Duration, now time.Time) Answer {
	if over := o.over[lnn]; incarnation <= over {
		return Answer{Reason: fmt.Sprintf("incarnation %d of node %d is over", incarnation, lnn), Final: true}
	}
	if now.Before(o.silentUntil) {
		return Answer{Reason: "this node has just started and listens first"}
	}
	if held := o.granted[lnn]; incarnation < held.incarnation {
		return Answer{Reason: fmt.Sprintf("node %d has gone on to incarnation %d", lnn, held.incarnation), Final: true}
	}
	end := now.Add(span + span*driftPerMille/1000)
	if held := o.granted[lnn]; held.incarnation == incarnation {
		end = later(held.until, end)
	}
	o.granted[lnn] = promise{incarnation, end}
	return Answer{Yes: true}
}

// Confirm answers whether this observer has stopped acknowledging an incarnation. A yes is a promise never to grant it again.
//
// Before it is asked for a first yes, the node itself should have been asked whether it holds: the store can end a lease before its
// time, and its holder does not know that yet.
func (o *Observer) Confirm(lnn int, incarnation Incarnation, now time.Time) Answer {
	answer := o.WouldConfirm(lnn, incarnation, now)
	if answer.Yes {
		o.over[lnn] = max(o.over[lnn], incarnation)
	}
	return answer
}

// WouldConfirm is what Confirm would answer, without promising anything.
func (o *Observer) WouldConfirm(lnn int, incarnation Incarnation, now time.Time) Answer {
	if incarnation <= o.over[lnn] {
		return Answer{Yes: true}
	}
	if now.Before(o.silentUntil) {
		return Answer{Reason: "this node has just started and listens first"}
	}
	if held := o.granted[lnn]; held.incarnation <= incarnation && held.until.After(now) {
		return Answer{Reason: fmt.Sprintf("node %d is acknowledged by this node for another %s", lnn, held.until.Sub(now).Round(time.Millisecond))}
	}
	return Answer{Yes: true}
}

// Learn takes in proof that every incarnation up to this one is over: a later one was seen, or somebody found it Down.
func (o *Observer) Learn(lnn int, over Incarnation) {
	if over > o.over[lnn] {
		o.over[lnn] = over
	}
}

// Over is the latest incarnation of a node that this observer knows to be over or has given up.
func (o *Observer) Over(lnn int) Incarnation { return o.over[lnn] }

// Inquiry collects the confirmations for one incarnation whose lease is gone.
type Inquiry struct {
	LNN         int
	Incarnation Incarnation
	observers   int
	confirmed   map[int]bool
}

// NewInquiry starts to ask whether an incarnation is over. Observers is the number of nodes other than the one asked about.
func NewInquiry(lnn int, incarnation Incarnation, observers int) *Inquiry {
	return &Inquiry{LNN: lnn, Incarnation: incarnation, observers: observers, confirmed: map[int]bool{}}
}

// Confirmed takes in one observer's confirmation and reports whether the incarnation is Down.
func (q *Inquiry) Confirmed(observer int) bool {
	if observer == q.LNN {
		panic(fmt.Sprintf("tenure: node %d cannot confirm its own death", observer))
	}
	q.confirmed[observer] = true
	return q.Down()
}

// Down reports whether a majority has confirmed.
func (q *Inquiry) Down() bool { return len(q.confirmed) >= Majority(q.observers) }
