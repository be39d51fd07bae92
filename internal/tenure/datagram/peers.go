package datagram

import (
	"net/netip"
	"time"

	"github.com/holdfast/holdfast/internal/linux/udp"
	"github.com/holdfast/holdfast/internal/tenure"
)

// directory is where the peers are. It does not change once it is made.
type directory struct {
	addresses map[int][MaxNetworks]udp.Destination
}

// peer is one other node. The goroutine in Serve owns it.
type peer struct {
	lnn       int
	addresses [MaxNetworks]udp.Destination
	exchange  exchange
	hellos    allowance

	// The last message that was queued to it, which is sent again when the other side says that it could not be taken.
	last        tenure.Message
	lastNetwork int
	lastQueued  time.Time // zero: there is none, or it has been sent again
}

// SetPeers says who the other nodes are: for each node number, its address on each network, by the network's number. The zero
// address, and one beyond the end of the list, means that it is not on that network; an address that this node cannot send to there
// counts as none, and is logged. This node's own number is left out. Nodes that were there before keep their place in the
// exchange; of a node that is no longer there, nothing is taken any more. It takes effect before the next message is taken or queued.
func (l *Link) SetPeers(peers map[int][]netip.AddrPort) {
	d := &directory{addresses: make(map[int][MaxNetworks]udp.Destination, len(peers))}
	for lnn, addresses := range peers {
		if lnn == l.self {
			continue
		}
		if lnn < 1 || lnn > MaxLNN {
			l.log.Error("a node with this number cannot take part in heartbeats", "node", lnn, "highest", MaxLNN)
			continue
		}
		var destinations [MaxNetworks]udp.Destination
		for i, a := range addresses[:min(len(addresses), MaxNetworks)] {
			if a == (netip.AddrPort{}) || l.networks[i] == nil {
				continue
			}
			destination, err := udp.To(a)
			if ours := l.networks[i].socket.Local(); err != nil || ours.Addr().Is4() != a.Addr().Is4() {
				l.log.Error("heartbeats cannot reach an address", "node", lnn, "network", i, "address", a, "from", ours, "error", err)
				continue
			}
			destinations[i] = destination
		}
		d.addresses[lnn] = destinations
	}
	l.wanted.Store(d)
	l.Poke()
}

// apply brings the peers to what was set last.
func (l *Link) apply() {
	d := l.wanted.Load()
	if d == l.applied {
		return
	}
	l.applied = d
	for lnn, p := range l.peers {
		if _, still := d.addresses[lnn]; !still {
			l.departed[lnn] = p.exchange.sent
			delete(l.peers, lnn)
		}
	}
	for lnn, addresses := range d.addresses {
		p := l.peers[lnn]
		if p == nil {
			p = &peer{lnn: lnn, exchange: resume(l.departed[lnn])}
			l.peers[lnn] = p
			delete(l.departed, lnn)
		}
		p.addresses = addresses
	}
	l.metrics.peers.Set(float64(len(l.peers)))
}
