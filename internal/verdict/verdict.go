// Package verdict turns evidence into Up, Full, Down or Unknown, and says why.
//
// Its pure half is the Machine: results of one check go in through Step, a Verdict comes out. It guarantees that
//
//   - the very first result decides at once, so that a start is quick;
//   - 'fall' bad results in a row always lead to Down, whatever the damping says (unhealthy must leave);
//   - coming back takes 'rise' good results in a row, spread over at least the hold-down, and the hold-down doubles
//     with each flap and halves with each quiet period (better may return, later);
//   - without evidence for the staleness period the verdict is Unknown, never a silently old Up.
//
// A Machine reads no clock and is not safe for concurrent use. Its shell is the Runner: one goroutine for each target,
// at most MaxTargets, which runs the checks of package probe and steps one Machine for each. The Runner is safe for
// concurrent use.
//
// The package does not know about suspension or draining, does not decide what a verdict means for an address or an
// answer, and never speaks about another node: every node checks itself.
package verdict

import (
	"fmt"
	"time"
)

// State is what is known about one thing.
type State uint8

// The states. The zero State is Unknown. Full is alive but to be given nothing new; no check of this package yields
// it, session gateways do.
const (
	Unknown State = iota
	Up
	Full
	Down
)

var stateNames = [...]string{Unknown: "unknown", Up: "up", Full: "full", Down: "down"}

// String is the lower-case name of s, as status and metrics show it.
func (s State) String() string {
	if int(s) >= len(stateNames) {
		return fmt.Sprintf("state %d", uint8(s))
	}
	return stateNames[s]
}

// Verdict is what is known about one target, since when, and why. The zero Verdict is Unknown without any evidence.
type Verdict struct {
	State    State
	Since    time.Time // when State was entered; zero while nothing has ever happened
	Evidence string    // the last result: what was asked, where, and what came back
	Reason   string    // why State was entered, or why it stays although the last result says otherwise
	At       time.Time // when Evidence came; zero: there never was any
	Flaps    int       // ways from Up to Down that are not yet forgiven

	Passed    bool          // whether the last result was good
	HoldDown  time.Duration // how long the target must have been good before it returns, when nothing else keeps it back; otherwise zero
	HeldUntil time.Time     // when that is over if it stays good; zero without a hold-down
}

// Pending reports whether the target has never had a result. A pending verdict says nothing against its target.
func (v Verdict) Pending() bool { return v.At.IsZero() }

// rank orders states by how much they weigh in All.
var rank = [...]int{Up: 0, Full: 1, Unknown: 2, Down: 3}

// All is the verdict on something that has to pass every one of several checks: any Down wins, then any Unknown, then
// any Full. Of several verdicts of the same state the first counts. With no verdicts the result is Up, because nothing
// was asked for.
func All(verdicts ...Verdict) Verdict {
	worst := Verdict{State: Up, Reason: "no checks are configured"}
	for i, v := range verdicts {
		if i == 0 || rank[v.State] > rank[worst.State] {
			worst = v
		}
	}
	return worst
}
