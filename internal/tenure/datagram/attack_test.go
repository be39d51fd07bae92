package datagram_test

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"
)

// postman carries what one node sends to another, as the test tells it to: an attacker on the way.
type postman struct {
	conn *net.UDPConn
	to   netip.AddrPort
}

func hire(t *testing.T, to netip.AddrPort) *postman {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(four))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &postman{conn, to}
}

func (p *postman) address() []netip.AddrPort {
	return []netip.AddrPort{p.conn.LocalAddr().(*net.UDPAddr).AddrPort()}
}

// takes is the next datagram that was sent.
func (p *postman) takes(t *testing.T) []byte {
	t.Helper()
	if err := p.conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2000)
	n, _, err := p.conn.ReadFromUDPAddrPort(b)
	if err != nil {
		t.Fatalf("nothing was sent: %v", err)
	}
	return b[:n]
}

func (p *postman) delivers(t *testing.T, b []byte) {
	t.Helper()
	if _, err := p.conn.WriteToUDPAddrPort(b, p.to); err != nil {
		t.Fatal(err)
	}
}

// street is node 1, whose datagrams to node 2 go by a postman, and node 2, whose datagrams to node 1 go by another.
type street struct {
	a, b    *node
	to, fro *postman
}

// meet opens the street. The first message of node 1 has been sent, answered by a hello, and heard with the second sending.
func meet(t *testing.T) *street {
	t.Helper()
	s := &street{a: play(t, options(1, four), nil), b: play(t, options(2, four), nil)}
	s.to, s.fro = hire(t, s.b.Local()[0]), hire(t, s.a.Local()[0])
	s.a.SetPeers(map[int][]netip.AddrPort{2: s.to.address()})
	s.b.SetPeers(map[int][]netip.AddrPort{1: s.fro.address()})
	s.a.says(t, 2, 0, 100)
	s.takesUp(t)
	s.b.hears(t, 100)
	return s
}

// takesUp carries a message that will be refused, the hello, and the message again.
func (s *street) takesUp(t *testing.T) {
	t.Helper()
	s.to.delivers(t, s.to.takes(t))
	s.fro.delivers(t, s.fro.takes(t))
	s.to.delivers(t, s.to.takes(t))
}

// sends has node 1 send a message, and takes it.
func (s *street) sends(t *testing.T, number uint64) []byte {
	t.Helper()
	s.a.says(t, 2, 0, number)
	return s.to.takes(t)
}

func TestReplay(t *testing.T) {
	s := meet(t)
	first := s.sends(t, 1)
	for range 3 {
		s.to.delivers(t, first)
	}
	s.b.counts(t, "refused_total", "replay", 2)
	s.b.hears(t, 100, 1)
}

func TestDatagramsThatOvertakeAreHeardOnce(t *testing.T) {
	s := meet(t)
	var sent [][]byte
	for i := range uint64(5) {
		sent = append(sent, s.sends(t, i))
	}
	for _, i := range []int{4, 2, 0, 3, 1, 4, 0} {
		s.to.delivers(t, sent[i])
	}
	s.b.counts(t, "refused_total", "replay", 2)
	s.b.hears(t, 100, 4, 2, 0, 3, 1)
}

// What was said to a node before it started again is refused, and so is what a node said before it started again itself; whether it was
// heard then or held back.
func TestReplayAfterARestart(t *testing.T) {
	t.Run("of the receiver", func(t *testing.T) {
		s := meet(t)
		heard, heldBack := s.sends(t, 1), s.sends(t, 2)
		s.to.delivers(t, heard)
		s.b.hears(t, 100, 1)
		if err := s.b.Close(); err != nil {
			t.Fatal(err)
		}
		s.b = play(t, options(2, s.to.to), map[int][]netip.AddrPort{1: s.fro.address()})
		for _, old := range [][]byte{heard, heldBack} {
			s.to.delivers(t, old)
			s.fro.takes(t) // the hello in answer, which is lost
		}
		s.b.counts(t, "refused_total", "wrong_session", 2)
		s.a.says(t, 2, 0, 3)
		s.takesUp(t)
		s.b.hears(t, 3)
		s.to.delivers(t, heard)
		s.to.delivers(t, heldBack)
		s.b.counts(t, "refused_total", "wrong_session", 5)
		s.b.hears(t, 3)
	})
	t.Run("of the sender", func(t *testing.T) {
		s := meet(t)
		heard, heldBack := s.sends(t, 1), s.sends(t, 2)
		s.to.delivers(t, heard)
		s.b.hears(t, 100, 1)
		if err := s.a.Close(); err != nil {
			t.Fatal(err)
		}
		s.a = play(t, options(1, s.fro.to), map[int][]netip.AddrPort{2: s.to.address()})
		s.a.says(t, 2, 0, 3)
		s.takesUp(t)
		s.b.hears(t, 100, 1, 3)
		s.to.delivers(t, heard)
		s.to.delivers(t, heldBack)
		s.b.counts(t, "refused_total", "wrong_session", 4)
		s.to.delivers(t, s.sends(t, 4))
		s.b.hears(t, 100, 1, 3, 4)
	})
}

// A hello that is repeated, or was said to an earlier life, changes nothing.
func TestReplayOfHellos(t *testing.T) {
	s := meet(t)
	if err := s.b.Close(); err != nil {
		t.Fatal(err)
	}
	s.b = play(t, options(2, s.to.to), map[int][]netip.AddrPort{1: s.fro.address()})
	s.to.delivers(t, s.sends(t, 1))
	hello := s.fro.takes(t)
	s.fro.delivers(t, hello)
	s.to.delivers(t, s.to.takes(t))
	s.b.hears(t, 1)
	s.fro.delivers(t, hello)
	s.a.counts(t, "hellos_total", "stale", 1)
	if err := s.a.Close(); err != nil {
		t.Fatal(err)
	}
	s.a = play(t, options(1, s.fro.to), map[int][]netip.AddrPort{2: s.to.address()})
	for i := range uint64(5) { // so that the number that it answers is in use again
		s.sends(t, 10+i)
	}
	s.fro.delivers(t, hello)
	s.a.counts(t, "hellos_total", "stale", 1)
	s.a.says(t, 2, 0, 2)
	s.takesUp(t)
	s.b.hears(t, 1, 2)
}

func TestWhatIsNotTaken(t *testing.T) {
	s := meet(t)
	good := s.sends(t, 1)
	change := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[at] = to
		return b
	}
	for _, c := range []struct {
		what, reason string
		datagram     []byte
	}{
		{"nothing", "malformed", nil},
		{"its first half", "malformed", good[:len(good)/2]},
		{"more than it", "malformed", append(bytes.Clone(good), 0)},
		{"much more than it", "malformed", make([]byte, 1400)},
		{"another version", "malformed", change(0, 2)},
		{"what is neither message nor hello", "malformed", change(1, 3)},
		{"one of a node that nobody knows", "unknown_sender", change(3, 9)},
		{"one of this node itself, thrown back", "unknown_sender", change(3, 2)},
		{"one for another node", "for_another_node", change(21, 9)},
		{"one with a changed session", "bad_seal", change(5, good[5]^1)},
		{"one with a changed content", "bad_seal", change(50, good[50]^1)},
		{"one with a changed seal", "bad_seal", change(len(good)-1, good[len(good)-1]^1)},
	} {
		before := s.b.shows(t, "refused_total", c.reason)
		s.to.delivers(t, c.datagram)
		s.b.counts(t, "refused_total", c.reason, before+1)
	}
	s.to.delivers(t, good)
	s.b.hears(t, 100, 1)
}

// A node of another cluster, with another key, is not heard and gets no answer.
func TestAnotherKey(t *testing.T) {
	s := meet(t)
	o := options(1, four)
	o.Key[0]++
	foreign := play(t, o, map[int][]netip.AddrPort{2: {s.to.to}})
	foreign.says(t, 2, 0, 1)
	s.b.counts(t, "refused_total", "bad_seal", 1)
	s.b.counts(t, "hellos_total", "said", 1)
	s.to.delivers(t, s.sends(t, 2))
	s.b.hears(t, 100, 2)
}

// A flood of what deserves a hello is answered by a few, and hinders nobody else.
func TestHellosAreFew(t *testing.T) {
	s := meet(t)
	old := s.sends(t, 1)
	if err := s.b.Close(); err != nil {
		t.Fatal(err)
	}
	s.b = play(t, options(2, s.to.to), map[int][]netip.AddrPort{1: s.fro.address()})
	third := play(t, options(3, four), map[int][]netip.AddrPort{2: {s.to.to}})
	s.b.SetPeers(map[int][]netip.AddrPort{1: s.fro.address(), 3: third.Local()})
	held, free := make(chan struct{}), make(chan struct{})
	done := s.b.Start(func(time.Time) { close(held); <-free }) // so that they come at once
	<-held
	for range 50 {
		s.to.delivers(t, old)
	}
	close(free)
	<-done
	s.b.counts(t, "refused_total", "wrong_session", 50)
	if said := s.b.shows(t, "hellos_total", "said"); said < 1 || said+s.b.shows(t, "hellos_total", "held_back") != 50 || said > 25 {
		t.Errorf("%v hellos were said", said)
	}
	third.says(t, 2, 0, 7)
	s.b.hears(t, 7)
}
