package datagram

import (
	"time"

	"github.com/holdfast/holdfast/internal/tenure"
)

const (
	// resendWithin is how old the last message to a node may be to be sent again: what is older has been followed by others, or
	// its time is over.
	resendWithin = time.Second

	// Hellos: so many at once to one node and to all together, and one more after each interval.
	hellosEach, helloEvery = 4, 10 * time.Millisecond
	hellosAll, anyHello    = 512, 250 * time.Microsecond
)

// Queue sends a message to a node when the present call of the Handler, or the turn that follows it, is over: together with all that was
// queued for the same network. It is for the Handler only, within its calls. With EveryNetwork it goes over each network that both
// nodes are on, and is handed over for each by which it arrives. The message is copied.
//
// What has no way is dropped and counted: a node that is not among the peers or not on the network, a message that cannot be encoded
// (which is logged), and what is more than 8192 datagrams in a turn.
func (l *Link) Queue(to, network int, m *tenure.Message) {
	l.apply()
	p := l.peers[to]
	if p == nil {
		l.metrics.unsent[unknownPeer].Inc()
		return
	}
	if err := Encode(&l.content, m); err != nil {
		l.metrics.unsent[unencodable].Inc()
		if l.mistakes.take(l.latest, 1, time.Second) {
			l.log.Error("a message about who is alive could not be sent; this is a mistake in Holdfast", "node", to, "kind", m.Kind, "error", err)
		}
		return
	}
	p.last, p.lastNetwork, p.lastQueued = *m, network, l.latest
	l.queueContent(p, network)
}

// queueContent queues l.content.
func (l *Link) queueContent(p *peer, network int) {
	if network != EveryNetwork {
		l.queueOn(p, network)
		return
	}
	ways := 0
	for i := range l.networks {
		if l.reaches(p, i) {
			ways++
			l.queueOn(p, i)
		}
	}
	if ways == 0 {
		l.metrics.unsent[noAddress].Inc()
	}
}

func (l *Link) queueOn(p *peer, network int) {
	if b := l.datagram(p, network, aMessage, p.exchange.pass, messageDatagram); b != nil {
		copy(b[headerSize:], l.content[:])
		seal(l.key, b) //nolint:gosec // G407: the nonce is the random session and a counter, which the header has put there
	}
}

func (l *Link) reaches(p *peer, network int) bool {
	return network >= 0 && network < MaxNetworks && l.networks[network] != nil && p.addresses[network].IsValid()
}

// datagram queues a datagram and returns its memory, with the header written; nil if it cannot be sent.
func (l *Link) datagram(p *peer, network int, what byte, pass token, length int) []byte {
	if !l.reaches(p, network) {
		l.metrics.unsent[noAddress].Inc()
		return nil
	}
	if l.queued >= maxQueued {
		l.metrics.unsent[queueFull].Inc()
		return nil
	}
	number, ok := p.exchange.next()
	if !ok {
		l.metrics.unsent[exhausted].Inc()
		return nil
	}
	if l.networks[network].sender.Full() {
		l.send(l.networks[network])
	}
	l.queued++
	b := l.networks[network].sender.Add(p.addresses[network], length)
	h := header{what: what, sender: l.self, session: l.session, receiver: p.lnn, number: number, pass: pass}
	h.write(b)
	return b
}

// flush sends what is queued.
func (l *Link) flush() {
	for _, n := range l.networks {
		if n != nil && n.sender.Waiting() > 0 {
			l.send(n)
		}
	}
	l.queued = 0
}

func (l *Link) send(n *network) {
	waiting := n.sender.Waiting()
	sent, _ := n.sender.Send(n.socket) // an interface that is down, a route that is missing: the silence itself will be noticed
	l.metrics.sent.Add(float64(sent))
	if sent < waiting {
		l.metrics.unsent[refusedByKernel].Add(float64(waiting - sent))
	}
}

// sayHello gives a node the pass for the session that sent h, on the network that h came by.
func (l *Link) sayHello(p *peer, network int, h *header) {
	if !p.hellos.take(l.latest, hellosEach, helloEvery) || !l.hellos.take(l.latest, hellosAll, anyHello) {
		l.metrics.hellos[helloLimited].Inc()
		return
	}
	pass, err := p.exchange.offer(h.session, l.draw)
	if err != nil {
		l.metrics.hellos[helloLimited].Inc()
		return
	}
	b := l.datagram(p, network, aHello, h.session, helloDatagram)
	if b == nil {
		return
	}
	content := hello{pass: pass, answered: h.number}
	content.write(b[headerSize:])
	seal(l.key, b) //nolint:gosec // G407: the nonce is the random session and a counter, which the header has put there
	l.metrics.hellos[helloSaid].Inc()
}

// heardHello takes the pass of a hello, and sends the last message to that node again: the one that the hello answers, or a later
// one, could not be taken there. It answers nothing else, so that no hello leads to another.
func (l *Link) heardHello(p *peer, h *header, content hello) {
	if h.pass != l.session {
		l.metrics.hellos[helloStale].Inc()
		return
	}
	newer, changed := p.exchange.believe(content)
	if !newer {
		l.metrics.hellos[helloStale].Inc()
		return
	}
	l.metrics.hellos[helloBelieved].Inc()
	if !changed || p.lastQueued.IsZero() || l.latest.Sub(p.lastQueued) > resendWithin {
		return
	}
	p.lastQueued = time.Time{}
	if Encode(&l.content, &p.last) == nil {
		l.queueContent(p, p.lastNetwork)
		l.metrics.resent.Inc()
	}
}
