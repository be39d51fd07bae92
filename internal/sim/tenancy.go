package sim

import (
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

// This file mirrors internal/agent/tenancy.go: a node in the protocol that says who may hold.

var dueNow = &tenure.Due{}

// configure says who the nodes are, and how the heartbeats go.
func (p *process) configure(config *cluster.Config) {
	voices := make([]tenure.Voice, 0, len(config.Nodes))
	for _, node := range config.Nodes {
		voter := !p.s.External && slices.ContainsFunc(config.Voters(), func(n cluster.Node) bool { return n.LNN == node.LNN })
		voices = append(voices, tenure.Voice{LNN: node.LNN, Rack: node.Rack, Voter: voter})
	}
	p.timing = tenure.Timing{Interval: config.Settings.HeartbeatInterval, Multiplier: config.Settings.HeartbeatMultiplier}
	p.inform(&tenure.Configured{Timing: p.timing, Voices: voices, NoWitness: config.NoWitness()})
}

// recorded takes in another node's report from the store.
func (p *process) recorded(lnn int, m memberRecord) {
	if m.Over {
		p.inform(&tenure.Told{LNN: lnn, Over: m.Incarnation, By: "its report says so", Declared: m.Declared})
		return
	}
	p.inform(&tenure.Recorded{LNN: lnn, Incarnation: m.Incarnation, Observers: m.Observers, Span: m.Span})
}

// maxInbox bounds a socket: what is more is lost.
const maxInbox = 2048

// hear takes a message off the wire, at the kernel's time of its arrival.
func (p *process) hear(received *tenure.Received) {
	received.Arrived = p.time()
	if p.frozen > 0 || p.slow > 0 || len(p.inbox) > 0 {
		if len(p.inbox) < maxInbox {
			p.inbox = append(p.inbox, keep(received))
		}
		if p.frozen == 0 && len(p.inbox) == 1 {
			p.s.after(p.lag(), p.readWire)
		}
		return
	}
	p.receive(received)
	p.turn()
}

// readWire reads what is in the socket, as a batch.
func (p *process) readWire() {
	if p.node.process != p || p.still() || p.unpowered > 0 {
		return
	}
	inbox := p.inbox
	p.inbox = nil
	for i := range inbox {
		p.receive(&inbox[i])
	}
	p.turn()
}

// receive passes a message in.
func (p *process) receive(r *tenure.Received) { p.step(r) }

// turn is the end of a batch of messages, or the time at which the peer wants to look again.
func (p *process) turn() {
	p.step(dueNow)
	p.wakeWire()
}

// wakeWire has the wire's thread look when the peer wants to.
func (p *process) wakeWire() {
	now := p.time()
	wake := p.peer.Wake(now)
	if !p.wake.IsZero() && !wake.Before(p.wake) {
		return
	}
	p.wake = wake
	at := max(p.clock.when(wake), p.s.now) + p.chance.between(time.Microsecond, 150*time.Microsecond) + p.lag()
	p.s.at(at, func() {
		if p.node.process != p || !p.wake.Equal(wake) {
			return
		}
		p.wake = time.Time{}
		if p.still() {
			return // readWire turns when it goes on
		}
		p.readWire()
	})
}

// step passes an event through the peer and acts on what comes of it.
func (p *process) step(event tenure.Event) {
	now := p.time()
	before := p.standing
	p.standing = p.peer.Step(event, now, &p.box)
	incarnation, _ := p.peer.Incarnation()
	if !p.standing.MayHold || !before.MayHold || p.standing.Until != before.Until {
		p.changeDeadline(p.standing, incarnation)
	}
	if p.box.Probe {
		p.box.Probe = false
		p.askGateway()
	}
	news := len(p.box.Findings) > 0
	for _, f := range p.box.Findings {
		p.s.say("%s finds node%d over up to incarnation %d: %s", p, f.LNN, f.Over, f.How)
		p.learnedDown(f.LNN)
		p.s.found(f)
	}
	p.box.Findings = p.box.Findings[:0]
	switch {
	case !p.standing.Lapsed:
		p.lapsedAt = time.Time{}
	case p.lapsedAt.IsZero():
		p.lapsedAt = now
	}
	if before.MayHold != p.standing.MayHold && p.s.trace != nil {
		p.s.say("%s may hold under incarnation %d: %t %s", p, incarnation, p.standing.MayHold, p.standing.Reason)
	}
	if before.MayHold && !p.standing.MayHold {
		reason := p.standing.Reason
		p.silencing++
		p.later(p.chance.between(50*time.Microsecond, 500*time.Microsecond), func() {
			p.silencing--
			p.silence(reason)
			if needs, _ := p.needsIncarnation(p.time()); needs {
				p.stir() // it may have waited for this
			}
		})
	}
	if news || before.MayHold != p.standing.MayHold || before.Lapsed != p.standing.Lapsed {
		p.note()
		p.stir()
	}
	p.flush()
}

// inform passes an event in that does not come by the wire.
func (p *process) inform(event tenure.Event) {
	p.step(event)
	p.wakeWire()
}

// flush sends what is to be sent.
func (p *process) flush() {
	for i := range p.box.Messages {
		p.s.send(p.lnn, &p.box.Messages[i], p.lag())
	}
	p.box.Messages = p.box.Messages[:0]
}

// changeDeadline is where the deadline changes: what is permitted here is what the guard knows.
func (p *process) changeDeadline(standing tenure.Standing, incarnation tenure.Incarnation) {
	deadline := int64(0)
	switch {
	case !standing.MayHold:
	case standing.Until.IsZero():
		deadline = forever
	default:
		deadline = bootNanoseconds(standing.Until)
	}
	if deadline == p.deadline {
		return
	}
	p.deadline = deadline
	p.setDeadline(deadline, incarnation)
	p.handOver(deadline)
}

// permitted reports whether the right is there at this moment.
func (p *process) permitted() bool { return bootNanoseconds(p.time()) < p.deadline }

// incarnation is the present one that records may name; 0 while there is none.
func (p *process) incarnation() tenure.Incarnation {
	if incarnation, begun := p.peer.Incarnation(); begun {
		return incarnation
	}
	return 0
}
