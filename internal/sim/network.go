package sim

import (
	"time"

	"github.com/holdfast/holdfast/internal/tenure"
)

// maxNetworks is over how many networks nodes reach each other in a scenario.
const maxNetworks = 2

// network is what lies between the nodes. Each way of each link breaks for itself; what breaks it twice must mend twice.
type network struct {
	cut  [maxNetworks][MaxNodes + 1][MaxNodes + 1]int // by network, from and to
	dead [maxNetworks]int                             // the switch
	loss [MaxNodes + 1][MaxNodes + 1]int              // by from and to: in a thousand
	late [MaxNodes + 1][MaxNodes + 1]int              // by from and to: milliseconds that a message may take longer
}

// passes reports whether a network carries something one way.
func (n *network) passes(network, from, to int) bool {
	return from == to || n.dead[network] == 0 && n.cut[network][from][to] == 0
}

// connected reports whether two nodes have a connection over some network.
func (s *simulation) connected(a, b int) bool {
	for k := range s.Networks {
		if s.network.passes(k, a, b) && s.network.passes(k, b, a) {
			return true
		}
	}
	return false
}

// send puts a message on every network that it is meant for.
func (s *simulation) send(from int, o *tenure.Outgoing, late time.Duration) {
	m := &o.Message
	if s.broken == BreakLease && m.Kind == tenure.Heartbeat {
		m.Span -= m.Interval
	}
	for k := range s.Networks {
		if o.Network != tenure.AllNetworks && o.Network != k {
			continue
		}
		copies := 1
		if !s.calm && s.chance.chance(15) {
			copies = 2
		}
		for range copies {
			s.carry(k, from, o.To, m, late)
		}
	}
}

// carry takes one copy of a message to where it goes, or does not.
func (s *simulation) carry(network, from, to int, m *tenure.Message, late time.Duration) {
	loss := s.network.loss[from][to]
	if !s.calm {
		loss += s.LossPM
	}
	if !s.network.passes(network, from, to) || s.chance.chance(loss) {
		return
	}
	way := late + s.chance.between(s.Delay/4, s.Delay)
	if longer := s.network.late[from][to]; longer > 0 {
		way += s.chance.between(0, time.Duration(longer)*time.Millisecond)
	}
	if !s.calm && s.chance.chance(3) {
		way += s.chance.between(0, 300*time.Millisecond)
	}
	l := s.letter()
	l.received, l.to = tenure.Received{Message: &l.message, From: from, Network: network}, to
	l.message = *m
	s.calendar.enter(s.now+max(way, 0), l)
}

// letter is one copy of a message on its way. It is used again, so whoever keeps what came with it makes a copy.
type letter struct {
	s        *simulation
	message  tenure.Message
	received tenure.Received
	to       int
}

// letter is one to be filled in.
func (s *simulation) letter() *letter {
	last := len(s.carried) - 1
	if last < 0 {
		return &letter{s: s}
	}
	l := s.carried[last]
	s.carried = s.carried[:last]
	return l
}

// happen is the arrival of a letter.
func (l *letter) happen() {
	if l.s.network.passes(l.received.Network, l.received.From, l.to) {
		l.s.node(l.to).arrive(&l.received)
	}
	l.s.carried = append(l.s.carried, l)
}

// keep is what came with a letter, for good.
func keep(r *tenure.Received) tenure.Received {
	message, received := *r.Message, *r
	received.Message = &message
	return received
}
