package sim

import (
	"time"

	"github.com/holdfast/holdfast/internal/guard"
)

// sentry is the guard of one machine: guard.Decide, and what internal/guard has around it.
type sentry struct {
	away   int // it does not run; nobody starts it
	frozen int
	facts  guard.Facts
	unread []func() // what was said to it while it stood still
	wake   int64    // the deadline for which the calendar has its next look; 0: it has none
	trusty bool     // it has the agent's deadline, and has not stood still since
	since  time.Duration
}

// bootNanoseconds is a time of the node's clock as the agent and the guard name it to each other.
func bootNanoseconds(t time.Time) int64 { return t.Sub(epoch).Nanoseconds() }

// tell passes something to the guard, over a socket that keeps what it cannot read yet.
func (n *node) tell(do func(*guard.Facts)) {
	g := &n.guard
	switch {
	case n.s.Unguarded || g.away > 0:
	case g.frozen > 0 || n.suspended > 0:
		if len(g.unread) < 1<<12 {
			g.unread = append(g.unread, func() { do(&g.facts) })
		}
	default:
		do(&g.facts)
		n.keepGuard()
	}
}

// handOver tells the guard the deadline, as the agent does with every change of it.
func (n *node) handOver(deadline int64) {
	g := &n.guard
	if g.away == 0 && g.frozen == 0 && n.suspended == 0 && deadline > 0 && g.facts.Agent == guard.AgentAlive && g.facts.Handed && !g.facts.Silenced && g.wake != 0 && deadline >= g.wake {
		g.facts.Deadline = deadline // the look that is in the calendar sees it
		return
	}
	n.tell(func(f *guard.Facts) {
		if f.Deadline = deadline; deadline > 0 {
			f.Agent, f.Handed = guard.AgentAlive, true
		}
	})
}

// keepGuard lets the guard look at what it knows and act.
func (n *node) keepGuard() {
	g := &n.guard
	if n.s.Unguarded || g.away > 0 || g.frozen > 0 || n.suspended > 0 || n.unpowered > 0 {
		return
	}
	for range 3 {
		action := guard.Decide(g.facts, bootNanoseconds(n.time()))
		switch action.Verb {
		case guard.Silence:
			if n.s.broken == BreakGuard {
				return
			}
			n.s.say("%s the guard silences the node: %s", n, action.Reason)
			g.facts.Silenced, g.facts.Handed = true, false
			n.filter(true)
			n.s.after(n.chance.between(100*time.Microsecond, 2*time.Millisecond), n.cleanByGuard)
			continue
		case guard.Lift:
			n.s.say("%s the guard lifts the silence", n)
			g.facts.Silenced = false
			n.filter(false)
			continue
		case guard.Stay:
		}
		if action.Next != 0 {
			n.wakeGuard(action.Next)
		}
		return
	}
}

func (n *node) wakeGuard(deadline int64) {
	if n.guard.wake != 0 && n.guard.wake <= deadline {
		return
	}
	n.guard.wake = deadline
	late := n.chance.between(0, 200*time.Microsecond)
	n.s.at(n.clock.when(epoch.Add(time.Duration(deadline)))+late, func() {
		if n.guard.wake == deadline {
			n.guard.wake = 0
			n.keepGuard()
		}
	})
}

// cleanByGuard takes every moving address off.
func (n *node) cleanByGuard() {
	if n.guard.away > 0 || !n.guard.facts.Silenced || n.unpowered > 0 {
		return
	}
	changed := false
	for a := range n.s.addresses {
		if n.kernel.has(a) && !isStatic(n.s.addresses[a]) {
			n.off(a)
			changed = true
		}
	}
	if changed {
		n.kernelChanged()
	}
}

// loseGuard ends the guard's process. Its filter goes with it.
func (n *node) loseGuard() {
	n.guard.away++
	n.guard.trusty = false
	n.guard.facts, n.guard.unread = guard.Facts{Agent: guard.AgentNone}, nil
	n.filter(false)
}

// findGuard starts the guard again; the agent's line to it comes up within a second.
func (n *node) findGuard() {
	if n.guard.away--; n.guard.away > 0 {
		return
	}
	n.s.after(n.chance.between(0, time.Second), n.meetGuard)
}

// meetGuard has an agent that runs say hello, and its deadline.
func (n *node) meetGuard() {
	p := n.process
	if p == nil || n.guard.away > 0 {
		return
	}
	p.when(func() {
		n.tell(func(f *guard.Facts) { f.Agent, f.Deadline = guard.AgentAlive, 0 })
		if p.deadline != 0 {
			n.handOver(p.deadline)
		}
		n.guard.trusty, n.guard.since = n.guard.frozen == 0 && !n.s.Unguarded, n.s.now
	})
}

// agentLost tells the guard's process that the agent's has ended.
func (n *node) agentLost() {
	n.tell(func(f *guard.Facts) {
		if f.Agent == guard.AgentAlive {
			f.Agent = guard.AgentDead
		}
	})
}

// thawGuard lets the guard go on: it reads what was said to it before it judges.
func (n *node) thawGuard() {
	if n.guard.away > 0 || n.guard.frozen > 0 || n.suspended > 0 || n.unpowered > 0 {
		return
	}
	unread := n.guard.unread
	n.guard.unread = nil
	for _, take := range unread {
		take()
	}
	n.keepGuard()
}
