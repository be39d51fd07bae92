package watch

import (
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
)

// Event is what can happen: Answered, Failed, Probed, Launched, Restored, Tick.
type Event interface{ event() }

// Answered is a view that the central manager has given.
type Answered struct{ View *fleet.View }

// Failed is a poll that gave no view.
type Failed struct{ Failure fleet.Failure }

// Probed is what a probe of a gateway came to.
type Probed struct {
	Gateway  string
	Reached  bool
	Evidence string // what was tried and what came
}

// Launched is a session that was given to a gateway. Chosen counts it against the gateway at the moment of the choice; Reached and
// Missed say, then or later, whether the gateway took it.
type Launched struct {
	Gateway  string
	Outcome  Outcome
	Evidence string
}

// Outcome is how far a launch is.
type Outcome uint8

// The outcomes.
const (
	Chosen  Outcome = iota // it was answered to whoever asked
	Reached                // the gateway took it
	Missed                 // the gateway did not answer
)

// Restored is a view from disk, with its age.
type Restored struct {
	View    *fleet.View
	Age     time.Duration
	AtLeast bool // it may be older
}

// Tick is time that has passed.
type Tick struct{}

func (Answered) event() {}
func (Failed) event()   {}
func (Probed) event()   {}
func (Launched) event() {}
func (Restored) event() {}
func (Tick) event()     {}

// Actions are what is to be done after a step, and what is to be told.
type Actions struct {
	Poll  bool             // ask the central manager now; Answered or Failed says what came of it
	Probe []*fleet.Gateway // dial these now; Probed says what came of each
	Keep  bool             // write the view to disk
	Next  time.Time        // when to step with a Tick if nothing else happens
	Told  string           // what changed, in one line; empty: nothing that an operator would want to know
}
