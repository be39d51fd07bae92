package sim

import (
	"fmt"
	"math"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/guard"
	"github.com/holdfast/holdfast/internal/tenure"
)

// node is one machine: what is left when its agent's process is gone.
type node struct {
	s       *simulation
	lnn     int
	name    string
	chance  *random // the lateness of what happens on it
	clock   clock
	stepped int // milliseconds that its wall clock is set ahead

	kernel    kernel
	guard     sentry
	process   *process // nil: none runs
	lives     int
	kept      *cluster.Config // the configuration in its directory
	unpowered int             // faults that keep it without power
	stopped   int             // faults that keep the agent from being started
	suspended int
	frozen    int
	since     time.Duration      // when it was suspended
	packets   []tenure.Received  // that wait in the machine while it stands still
	slow      int                // milliseconds that the agent may be late by
	latest    int                // the most that was
	sluggish  int                // milliseconds that its kernel may be late by
	noCarrier int                // faults of its interface
	failing   int                // faults of its check
	stale     int                // faults of its watch
	silent    int                // faults that keep the answers to its writes away
	counted   int64              // until when it had the right, as the agent last counted: nanoseconds of its clock, or forever
	named     tenure.Incarnation // under which it had it
	ended     time.Duration      // when it gave it up, if it did
	stood     time.Duration      // for how long the machine has stood still since it had it
	wentOn    time.Duration      // when the process went on last
}

// forever is the deadline of a right that does not run out.
const forever = int64(math.MaxInt64)

func (n *node) String() string { return n.name }

func newNode(s *simulation, lnn int) *node {
	n := &node{
		s: s, lnn: lnn, name: fmt.Sprintf("node%d", lnn), chance: newRandom(s.Seed, 100+uint64(lnn)),
		kernel: newKernel(len(s.addresses)), kept: s.config,
	}
	n.clock = clock{ahead: time.Duration(1+n.chance.below(90*24*3600)) * time.Second, parts: int64(n.chance.below(2001) - 1000)}
	n.guard.facts.Agent = guard.AgentNone
	return n
}

// time is what the machine's clock shows.
func (n *node) time() time.Time { return n.clock.at(n.s.now) }

// wallTime is what its wall clock shows.
func (n *node) wallTime() time.Time {
	return epoch.Add(n.s.now + time.Duration(n.stepped)*time.Millisecond)
}

// right reports whether the machine has the right to hold at this moment, by the last count of its agent, dead or alive.
func (n *node) right() bool {
	return n.unpowered == 0 && n.counted != 0 && (n.counted == forever || bootNanoseconds(n.time()) < n.counted)
}

// endOfRight is when the right ended that is not there, or now if it is.
func (n *node) endOfRight() time.Duration {
	switch {
	case n.right():
		return n.s.now
	case n.counted > 0:
		return n.clock.when(epoch.Add(time.Duration(n.counted)))
	}
	return n.ended
}

// still reports whether the agent's process stands still.
func (n *node) still() bool { return n.frozen > 0 || n.suspended > 0 }

// works reports whether the agent's process runs.
func (n *node) works() bool { return n.process != nil && !n.still() && n.unpowered == 0 }

// maxPackets bounds what waits in a machine that stands still.
const maxPackets = 32

// arrive brings a message to the machine: to the process, or to where it waits for it.
func (n *node) arrive(r *tenure.Received) {
	switch {
	case n.unpowered > 0 || n.process == nil:
	case n.suspended > 0:
		if len(n.packets) < maxPackets {
			n.packets = append(n.packets, keep(r))
		}
	default:
		n.process.hear(r)
	}
}

// start begins a life of the agent.
func (n *node) start() {
	if n.process != nil || n.unpowered > 0 || n.stopped > 0 {
		return
	}
	n.lives++
	n.s.say("%s the agent starts", n)
	n.process = newProcess(n)
	n.process.begin()
}

// kill ends the process, and nothing else.
func (n *node) kill() {
	if n.process == nil {
		return
	}
	n.s.say("%s the agent dies", n)
	n.process, n.frozen = nil, 0
	n.agentLost()
}

// powerOff ends everything on the machine.
func (n *node) powerOff() {
	n.s.say("%s loses its power", n)
	if n.s.broken == BreakStill {
		n.suspended, n.kernel.filtered = 0, false
	}
	for a := range n.kernel.until {
		n.off(a) // before anything else: a machine that stands still or filters has not answered until now
	}
	n.process, n.packets, n.frozen, n.suspended = nil, nil, 0, 0
	n.guard.facts, n.guard.unread = guard.Facts{Agent: guard.AgentNone}, nil
	n.kernel.filtered = false
	n.setDeadline(0, 0)
}

// setDeadline notes until when the node has the right, as its agent counts.
func (n *node) setDeadline(deadline int64, incarnation tenure.Incarnation) {
	had := n.right()
	if deadline == 0 {
		n.ended = n.endOfRight()
	}
	n.counted, n.named = deadline, incarnation
	if !had && n.right() {
		n.gainedRight()
	}
}

// freeze stops the process; what comes for it waits.
func (n *node) freeze() {
	if n.process == nil {
		return
	}
	n.s.say("%s the agent stands still", n)
	n.frozen++
}

// thaw lets it go on.
func (n *node) thaw() {
	if n.frozen == 0 {
		return // what stood still has died meanwhile
	}
	if n.frozen--; n.frozen == 0 {
		n.s.say("%s the agent goes on", n)
		n.goOn()
	}
}

func (n *node) suspend() {
	if n.unpowered > 0 {
		return
	}
	if n.suspended++; n.suspended > 1 {
		return
	}
	n.s.say("%s the machine stands still", n)
	n.since, n.guard.trusty = n.s.now, false
}

// resume lets the machine go on: its kernel with what is left of the lifetimes, then the processes in some order.
func (n *node) resume() {
	if n.suspended == 0 {
		return
	}
	if n.suspended--; n.suspended > 0 {
		return
	}
	n.s.say("%s the machine goes on", n)
	n.resumeKernel(n.s.now - n.since)
	n.stood += n.s.now - n.since
	packets := n.packets
	n.packets = nil
	for a := range n.s.addresses {
		if n.visible(a) {
			n.seen(a)
		}
	}
	n.s.after(n.chance.between(0, time.Millisecond), n.thawGuard)
	for i := range packets {
		n.arrive(&packets[i])
	}
	n.goOn()
}

// goOn has the threads of the process take up what has waited for them, in some order.
func (n *node) goOn() {
	p := n.process
	if p == nil || n.still() {
		return
	}
	n.wentOn = n.s.now
	first, second := p.readWire, p.catchUp
	if n.chance.chance(500) {
		first, second = second, first
	}
	n.s.after(n.chance.between(0, time.Millisecond), first)
	n.s.after(n.chance.between(time.Millisecond, 2*time.Millisecond), second)
}

// filter switches the guard's filter.
func (n *node) filter(on bool) {
	if n.kernel.filtered == on {
		return
	}
	n.kernel.filtered = on
	for a := range n.s.addresses {
		switch {
		case !n.kernel.has(a):
		case on:
			n.unseen(a)
		default:
			n.seen(a)
		}
	}
}
