package sim

import (
	"net/netip"
	"time"

	"github.com/holdfast/holdfast/internal/address"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/guard"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// process is one life of an agent: everything that is gone with it.
type process struct {
	*node

	// The wire and the right (internal/agent/tenancy.go).
	peer      *tenure.Peer
	box       tenure.Outbox
	inbox     []tenure.Received // what came while it stood still, in the socket
	wake      time.Time
	standing  tenure.Standing
	lapsedAt  time.Time
	silencing int // ends of the right whose silence has not come yet
	deadline  int64
	timing    tenure.Timing

	reporting
	looking
	applying
	handingOver
	outstanding []func() // what waits for the process to go on
}

// maxOutstanding bounds what waits for a process that stands still; timers have one entry each, so that it is never reached.
const maxOutstanding = 1 << 14

func newProcess(n *node) *process {
	p := &process{node: n}
	p.replica, p.turns = newReplica(), steering.Turns{}
	p.desired = map[int]steering.Holding{}
	p.promises, p.releases = steering.NewPromises(), map[netip.Addr]steering.Release{}
	p.readiness, p.toldReady = steering.NewReadiness(), steering.ToldReady{}
	p.writer = writer{pending: map[string]int64{}, resting: map[string]time.Time{}}
	p.knownDown = make([]time.Duration, n.s.Nodes+1)
	p.timing = tenure.Timing{Interval: n.kept.Settings.HeartbeatInterval, Multiplier: n.kept.Settings.HeartbeatMultiplier}
	p.peer = tenure.NewPeer(n.lnn, n.chance.next()|1, p.timing, n.time())
	return p
}

// begin is the start of an agent (internal/agent/assemble.go): what moves goes off the interfaces before it speaks to anyone.
func (p *process) begin() {
	p.setDeadline(0, 0)
	p.later(p.chance.between(time.Millisecond, 5*time.Millisecond), func() {
		for a, address := range p.s.addresses {
			if !isStatic(address) {
				p.off(a)
			}
		}
		p.meetGuard()
		p.configure(p.kept)
		p.later(p.chance.between(time.Millisecond, 50*time.Millisecond), func() {
			p.subscribe()
		})
		p.later(address.RenewInterval, p.renew)
	})
}

// when has the process do something now, or when it goes on; not at all when this life is over.
func (p *process) when(do func()) {
	switch {
	case p.node.process != p || p.unpowered > 0:
	case p.still():
		if len(p.outstanding) < maxOutstanding {
			p.outstanding = append(p.outstanding, do)
		}
	default:
		do()
	}
}

// later has the process do something after a while, or somewhat later than that.
func (p *process) later(d time.Duration, do func()) {
	p.s.after(d+p.lag(), func() { p.when(do) })
}

// lag is how late the process is this time.
func (p *process) lag() time.Duration {
	if p.slow == 0 {
		return 0
	}
	return p.chance.between(0, time.Duration(p.slow)*time.Millisecond)
}

// catchUp does what has waited.
func (p *process) catchUp() {
	waiting := p.outstanding
	p.outstanding = nil
	for _, do := range waiting {
		p.when(do)
	}
}

// leave is an orderly stop (internal/agent/assemble.go: Agent.leave, and the end of Agent.serve).
func (p *process) leave() {
	p.s.say("%s the agent is asked to stop", p)
	p.leaving = true
	p.changed(ofNodes)
	p.note()
	p.awaitMoves(p.time().Add(leaveLimit))
}

// How long a stopping agent waits for what it holds to move away, and for the store to take note.
const (
	leaveLimit      = 5 * time.Second
	leaveLook       = 10 * time.Millisecond
	noteOutageLimit = 500 * time.Millisecond
)

func (p *process) awaitMoves(limit time.Time) {
	if p.time().Before(limit) && p.view != nil && p.holdsMoving() && p.othersFit() {
		p.later(leaveLook, func() { p.awaitMoves(limit) })
		return
	}
	since := p.wallTime()
	p.s.store.commit(p, noteOutageLimit, nil, []operation{{key: outageKey(p.lnn), value: outageRecord{since}}}, func(int64, error) { p.close() })
}

// close takes everything off, gives the right up, and says so.
func (p *process) close() {
	p.closing = true
	p.silence("the agent stops")
	p.tell(func(f *guard.Facts) { *f = guard.Facts{Agent: guard.AgentGoodbye, Silenced: f.Silenced} })
	p.later(p.chance.between(time.Millisecond, 10*time.Millisecond), func() {
		p.inform(&tenure.Resigned{Reason: "the agent stops"})
		end := func(int64, error) {
			p.s.say("%s the agent has stopped", p)
			p.node.process = nil
			p.s.store.handOver(p.lnn)
			p.startAfter()
		}
		incarnation, begun := p.peer.Incarnation()
		if !begun {
			end(0, nil)
			return
		}
		over := p.member
		over.Incarnation, over.Over = incarnation, true
		over.Observers, _ = p.peer.OnRecord()
		p.putReport(over, end)
	})
}

// startAfter starts the agent again when no fault keeps it away.
func (n *node) startAfter() {
	n.s.after(n.chance.between(50*time.Millisecond, 300*time.Millisecond), n.start)
}

// holdsMoving reports whether the records that the loop saw last name this node as the owner of something that moves.
func (p *process) holdsMoving() bool {
	incarnation := p.incarnation()
	owns := func(st tenure.Statement) bool { return st.Owner.LNN == p.lnn && st.Owner.Incarnation == incarnation }
	for id, record := range p.view.Pools {
		if pool, _, _, ok := p.view.Config.Pool(id); ok && pool.AllocMethod == cluster.AllocStatic {
			continue
		}
		for _, st := range record {
			if owns(st) {
				return true
			}
		}
	}
	for _, st := range p.view.Services {
		if owns(st) {
			return true
		}
	}
	return false
}

func (p *process) othersFit() bool {
	for lnn, other := range p.view.Nodes {
		if lnn != p.lnn && other.Present && other.Ready && !other.Draining && !other.Leaving {
			return true
		}
	}
	return false
}
