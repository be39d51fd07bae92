package guard

import "fmt"

// AgentState is what the guard knows of the agent.
type AgentState string

// The states of an agent.
const (
	AgentNone    AgentState = "none"    // none has come yet, or the last one's end has been dealt with
	AgentAlive   AgentState = "alive"   // connected
	AgentDead    AgentState = "dead"    // its process or its connection ended without a goodbye
	AgentGoodbye AgentState = "goodbye" // it took everything off, and said so
)

// Facts are everything that the decision looks at. Times are readings of CLOCK_BOOTTIME in nanoseconds.
type Facts struct {
	Agent    AgentState
	Handed   bool  // the agent has handed over a right that was not over at that time, and the end of it has not been dealt with
	Deadline int64 // when the right runs out, as the agent last said; Forever: never; 0: it has none
	Silenced bool  // the node is silent
}

// Forever is the deadline of a right that does not run out.
const Forever = int64(1<<63 - 1)

// Verb is what the guard does.
type Verb string

// The verbs.
const (
	Stay    Verb = "stay"    // leave everything as it is
	Silence Verb = "silence" // silence the node, and take every moving address off
	Lift    Verb = "lift"    // end the silence: the right is there
)

// Action is what to do, why, and when to look again.
type Action struct {
	Verb   Verb
	Reason string // of Silence: for the log and the agent
	Next   int64  // the deadline to wake up at; 0: only when something happens
}

// Decide says what the guard does at a time. It is pure.
//
// The node is silenced when a right that was handed over has run out, and when the agent died while it had one. An agent that never
// had one holds nothing: a starting agent drops what it finds. Nothing is ever silenced for want of an agent: one that works without
// its guard is behind its own deadline and the kernel's lifetimes. A silence ends only with a right that lies in the future.
func Decide(f Facts, now int64) Action {
	right := f.Agent == AgentAlive && f.Deadline > now
	switch {
	case right && f.Silenced:
		return Action{Verb: Lift, Next: wakeAt(f.Deadline)}
	case right:
		return Action{Verb: Stay, Next: wakeAt(f.Deadline)}
	case !f.Handed:
		return Action{Verb: Stay}
	case f.Agent == AgentDead:
		return Action{Verb: Silence, Reason: "the agent died"}
	case f.Agent == AgentAlive && f.Deadline == 0:
		return Action{Verb: Silence, Reason: "the agent says that the right to hold is gone"}
	case f.Agent == AgentAlive:
		return Action{Verb: Silence, Reason: fmt.Sprintf("the right to hold ran out and the agent has not renewed it (%.1f ms ago)", float64(now-f.Deadline)/1e6)}
	}
	return Action{Verb: Stay}
}

func wakeAt(deadline int64) int64 {
	if deadline == Forever {
		return 0
	}
	return deadline
}
