package datagram

import (
	"errors"
	"time"

	"github.com/holdfast/holdfast/internal/linux/udp"

	"net/netip"
)

// Memory is what a Link knows of its exchanges with the others. A Link of another process that goes on from it, with the same sockets,
// is the same session for them: no message has to be said again, and none that was taken is taken once more. Two processes must not
// go on from one Memory: they would use numbers twice.
type Memory struct {
	Session  [16]byte         `json:"session"`
	Peers    []ExchangeMemory `json:"peers"`
	Departed map[int]uint64   `json:"departed,omitempty"` // the last number that was used towards nodes that are no longer peers
	Networks []NetworkMemory  `json:"networks"`
}

// ExchangeMemory is where a Link stands with one other node.
type ExchangeMemory struct {
	LNN      int                     `json:"lnn"`
	Sent     uint64                  `json:"sent"`
	Pass     [16]byte                `json:"pass"`
	Answered uint64                  `json:"answered"`
	Session  [16]byte                `json:"session"`
	Given    [16]byte                `json:"given"`
	Offered  [16]byte                `json:"offered"`
	Newest   uint64                  `json:"newest"`
	Seen     [windowSize / 64]uint64 `json:"seen"`
}

// NetworkMemory is what is known of one socket.
type NetworkMemory struct {
	Local netip.AddrPort `json:"local"`
	Empty time.Time      `json:"-"`     // it was empty at some moment after this
	Named int64          `json:"empty"` // the same as Pause's caller names it to another process
	Lost  uint32         `json:"lost"`
}

// Pause has f called by the goroutine in Serve, between two turns: nothing waits to be sent, and nothing that was received has not been
// handled. Serve goes on if f returns true, and returns otherwise. It does not wait for f. A second call before f has begun is refused.
func (l *Link) Pause(f func(Memory) (goOn bool)) error {
	select {
	case l.pauses <- f:
		l.Poke()
		return nil
	default:
		return errors.New("pausing heartbeats: another pause is asked for already")
	}
}

// pause does what was asked for between two turns, and reports whether to go on.
func (l *Link) pause() bool {
	select {
	case f := <-l.pauses:
		return f(l.memory())
	default:
		return true
	}
}

func (l *Link) memory() Memory {
	m := Memory{Session: l.session, Departed: l.departed}
	for lnn, p := range l.peers {
		e := &p.exchange
		m.Peers = append(m.Peers, ExchangeMemory{
			LNN: lnn, Sent: e.sent, Pass: e.pass, Answered: e.answered, Session: e.session, Given: e.given, Offered: e.offered,
			Newest: e.window.newest, Seen: e.window.seen,
		})
	}
	for _, n := range l.networks {
		if n != nil {
			m.Networks = append(m.Networks, NetworkMemory{Local: n.socket.Local(), Empty: n.empty, Lost: n.lost})
		}
	}
	return m
}

// Resume goes on from what another process has exchanged. It must come before Serve; the peers themselves are those of SetPeers.
func (l *Link) Resume(m Memory) {
	l.session = m.Session
	for lnn, sent := range m.Departed {
		l.departed[lnn] = sent
	}
	for _, p := range m.Peers {
		l.peers[p.LNN] = &peer{lnn: p.LNN, exchange: exchange{
			sent: p.Sent, pass: p.Pass, answered: p.Answered, session: p.Session, given: p.Given, offered: p.Offered,
			window: window{newest: p.Newest, seen: p.Seen},
		}}
	}
	for _, had := range m.Networks {
		for _, n := range l.networks {
			if n != nil && n.socket.Local() == had.Local {
				n.empty, n.lost = had.Empty, had.Lost
			}
		}
	}
	l.applied = nil // the peers that were set are to be brought together with these
}

// Share returns descriptors of the sockets, to be handed to another process.
func (l *Link) Share() ([]int, error) {
	var list []int
	for _, n := range l.networks {
		if n == nil {
			continue
		}
		fd, err := n.socket.Share()
		if err != nil {
			return list, err
		}
		list = append(list, fd)
	}
	return list, nil
}

// adopt makes sockets of descriptors, by what they are bound to.
func adopt(fds []int) (map[netip.AddrPort]*udp.Socket, error) {
	had := map[netip.AddrPort]*udp.Socket{}
	var errs []error
	for _, fd := range fds {
		socket, err := udp.Adopt(fd)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		had[socket.Local()] = socket
	}
	if err := errors.Join(errs...); err != nil {
		for _, socket := range had {
			_ = socket.Close()
		}
		return nil, err
	}
	return had, nil
}
