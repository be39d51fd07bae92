package sim

import (
	"time"

	"github.com/holdfast/holdfast/internal/tenure"
)

// gateway is what two nodes without a witness ask. It is outside of the cluster, on the first network: number 0 among the ends of links.
type gateway struct {
	mute [MaxNodes + 1]int // by node: faults that keep it from being answered

	apart bool          // nothing but the link between the two fails
	heard time.Duration // until when they may hold the same after that
}

// answers reports whether a node that asks is answered.
func (s *simulation) answers(lnn int) bool {
	return s.gateway.mute[lnn] == 0 && s.node(lnn).noCarrier == 0 && s.network.passes(0, lnn, 0) && s.network.passes(0, 0, lnn)
}

// askGateway mirrors internal/agent/gateways.go: the answer comes to a goroutine of its own.
func (p *process) askGateway() {
	s := p.s
	if !s.answers(p.lnn) || !s.calm && p.chance.chance(s.LossPM) {
		return
	}
	s.after(p.lag()+p.chance.between(s.Delay/2, 2*s.Delay), func() {
		p.when(func() {
			p.step(&tenure.Grounded{Arrived: p.time()})
			p.turn()
		})
	})
}

// muteGateway is the fault in which the gateway does not answer.
func (s *simulation) muteGateway(f Fault) (end func()) {
	change := func(by int) {
		for _, n := range s.on(f) {
			s.gateway.mute[n.lnn] += by
		}
		s.lookApart()
	}
	change(1)
	return func() { change(-1) }
}

// lookApart notes whether just the link between two nodes without a witness fails, in some way, while the gateway answers both. A link that
// loses much, or on which messages take longer than a span, is as good as cut.
func (s *simulation) lookApart() {
	if !s.NoWitness || len(s.nodes) != 2 {
		return
	}
	g := &s.gateway
	link := !s.connected(1, 2)
	for from := 1; from <= 2; from++ {
		link = link || s.network.loss[from][3-from] > 0 || s.network.late[from][3-from] > 0
	}
	apart := link && s.answers(1) && s.answers(2)
	if g.apart && !apart {
		// Until they have heard each other, refused each other, and let go, however late a process is.
		g.heard = s.now + 3*s.longest*time.Duration(s.Multiplier) + 500*time.Millisecond
	}
	g.apart = apart
}

// lossy is how much of all messages, in a thousand, must be lost all the time that a whole span of heartbeats may be.
const lossy = 50

// excused reports whether something wrong is what no-witness costs: two hold the same while only the link between them is cut, or so much is lost
// that it is as good as cut at times.
func (s *simulation) excused(kind FailureKind) bool {
	if !s.NoWitness || len(s.nodes) != 2 {
		return false
	}
	switch kind {
	case TwoHolders, RightOfOver, WithoutRight, GivenByForce:
		return s.gateway.apart || s.now < s.gateway.heard || s.LossPM >= lossy && !s.calm
	}
	return false
}
