package datagramtest

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/tenure"
	"github.com/holdfast/holdfast/internal/tenure/datagram"
)

// Carrier is what a datagram.Link and a Port have in common.
type Carrier interface {
	SetPeers(peers map[int][]netip.AddrPort)
	Queue(to, network int, m *tenure.Message)
	Poke()
	Serve(ctx context.Context, h datagram.Handler) error
	Realtime() bool
	Close() error
}

var (
	_ Carrier = (*datagram.Link)(nil)
	_ Carrier = (*Port)(nil)
)

// Node is one node for the contract: its end, its address on each of two networks, and its clock.
type Node struct {
	Carrier
	Addresses []netip.AddrPort
	Now       func() time.Time
}

// Heard is a message that a Player was given.
type Heard struct {
	Message       tenure.Message
	From, Network int
	Arrived       time.Time
	Turn          int // how many turns there had been
}

// Player is a Handler for tests: it notes what it hears, and does in its turns what the test wants.
type Player struct {
	Carrier
	LNN int

	mutex sync.Mutex
	heard []Heard
	turns []time.Time
	wants []func(now time.Time)
	wake  time.Time
	news  chan struct{}
}

// NewPlayer returns one for a node.
func NewPlayer(lnn int, c Carrier) *Player {
	return &Player{Carrier: c, LNN: lnn, news: make(chan struct{}, 1)}
}

// Received notes a message.
func (p *Player) Received(m *tenure.Message, from, network int, arrived time.Time) {
	p.mutex.Lock()
	p.heard = append(p.heard, Heard{*m, from, network, arrived, len(p.turns)})
	p.mutex.Unlock()
	p.tell()
}

// Turn does what the test wants.
func (p *Player) Turn(now time.Time) time.Time {
	p.mutex.Lock()
	wants := p.wants
	p.wants = nil
	p.mutex.Unlock()
	for _, want := range wants {
		want(now)
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.turns = append(p.turns, now)
	p.tell()
	if p.wake.Before(now) {
		p.wake = time.Time{}
	}
	return p.wake
}

func (p *Player) tell() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// Do does something in a turn, and returns after that turn.
func (p *Player) Do(t *testing.T, want func(now time.Time)) {
	t.Helper()
	done := p.Start(want)
	p.Until(t, "a turn", func([]Heard, []time.Time) bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
}

// Start does something in the next turn, and returns at once; the channel is closed when it has been done.
func (p *Player) Start(want func(now time.Time)) (done <-chan struct{}) {
	finished := make(chan struct{})
	p.mutex.Lock()
	p.wants = append(p.wants, func(now time.Time) { want(now); close(finished) })
	p.mutex.Unlock()
	p.Poke()
	return finished
}

// WakeAt is what its turns return until then.
func (p *Player) WakeAt(t *testing.T, wake func(now time.Time) time.Time) (at time.Time) {
	t.Helper()
	p.Do(t, func(now time.Time) {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		at = wake(now)
		p.wake = at
	})
	return at
}

// Until waits until something is so; the test fails if that takes too long.
func (p *Player) Until(t *testing.T, what string, so func([]Heard, []time.Time) bool) {
	t.Helper()
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	for {
		p.mutex.Lock()
		is := so(p.heard, p.turns)
		p.mutex.Unlock()
		if is {
			return
		}
		select {
		case <-p.news:
		case <-late.C:
			t.Fatalf("node %d: no %s; it heard %+v", p.LNN, what, p.Heard())
		}
	}
}

// Heard is what it was given so far.
func (p *Player) Heard() []Heard {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return append([]Heard(nil), p.heard...)
}

// Hears waits until so many messages have come, and returns them.
func (p *Player) Hears(t *testing.T, count int) []Heard {
	t.Helper()
	p.Until(t, "message", func(heard []Heard, _ []time.Time) bool { return len(heard) >= count })
	return p.Heard()
}

// Play serves until the test ends or the end is closed.
func (p *Player) Play(t *testing.T) {
	served := make(chan error, 1)
	go func() { served <- p.Serve(context.Background(), p) }()
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// A scene is one case of the contract; open gives it a node, which has not been served yet.
type scene func(t *testing.T, open func(lnn int) Node)

// Contract checks that what carries messages behaves as datagram.Link says. In runs one case, for example in a bubble of its own.
func Contract(t *testing.T, in func(t *testing.T, run func(t *testing.T, open func(lnn int) Node))) {
	for name, s := range map[string]scene{
		"a message arrives as it was": arrives, "over every network": everyNetwork, "only peers are heard": onlyPeers, "what has no way is dropped": dropped,
		"it wakes in time": wakes, "a poke makes a turn": pokes, "all that has arrived comes before the turn": before, "the end": ends,
	} {
		t.Run(name, func(t *testing.T) { in(t, s) })
	}
}

// cast opens nodes 1 to count that know each other, and plays them.
func cast(t *testing.T, open func(lnn int) Node, count int) []*Player {
	t.Helper()
	nodes, peers, players := []Node{}, map[int][]netip.AddrPort{}, []*Player{}
	for lnn := 1; lnn <= count; lnn++ {
		nodes = append(nodes, open(lnn))
		peers[lnn] = nodes[lnn-1].Addresses
	}
	for i, n := range nodes {
		n.SetPeers(peers)
		players = append(players, NewPlayer(i+1, n.Carrier))
		players[i].Play(t)
	}
	return players
}

// heartbeat is a message with every field set.
func heartbeat(number uint64) *tenure.Message {
	return &tenure.Message{Kind: tenure.Heartbeat, Lapsed: true, Reason: tenure.DeniedHeard, Subject: 1, Incarnation: 1<<63 + 7, Number: number,
		Span: 300 * time.Millisecond, Interval: 100 * time.Millisecond, Life: 1<<64 - 1, Version: 12}
}

func arrives(t *testing.T, open func(lnn int) Node) {
	nodes := cast(t, open, 2)
	a, b := nodes[0], nodes[1]
	m := heartbeat(1)
	var sent time.Time
	a.Do(t, func(now time.Time) { sent = now; a.Queue(2, 1, m); m.Number = 99 }) // it is copied
	first := b.Hears(t, 1)[0]
	if first.Message != *heartbeat(1) || first.From != 1 || first.Network != 1 || first.Arrived.Before(sent) {
		t.Errorf("heard %+v, sent at %s", first, sent)
	}
	b.Until(t, "turn after it", func(_ []Heard, turns []time.Time) bool {
		return len(turns) > first.Turn && !turns[first.Turn].Before(first.Arrived)
	})
	b.Do(t, func(time.Time) { b.Queue(1, 0, heartbeat(2)) })
	if back := a.Hears(t, 1)[0]; back.Message.Number != 2 || back.From != 2 || back.Network != 0 {
		t.Errorf("heard %+v", back)
	}
}

func everyNetwork(t *testing.T, open func(lnn int) Node) {
	nodes := cast(t, open, 2)
	nodes[0].Do(t, func(time.Time) { nodes[0].Queue(2, datagram.EveryNetwork, heartbeat(1)) })
	by := map[int]int{}
	for _, heard := range nodes[1].Hears(t, 2) {
		by[heard.Network]++
	}
	if by[0] != 1 || by[1] != 1 {
		t.Errorf("it came by %v", by)
	}
}

// onlyPeers: what node 1 says reaches node 2 before what node 3 says, for node 3 speaks when it has heard node 1.
func onlyPeers(t *testing.T, open func(lnn int) Node) {
	nodes := cast(t, open, 3)
	a, b, c := nodes[0], nodes[1], nodes[2]
	for _, n := range []*Player{a, c} { // so that they have met
		n.Do(t, func(time.Time) { n.Queue(2, 0, heartbeat(0)) })
	}
	b.Hears(t, 2)
	b.SetPeers(map[int][]netip.AddrPort{3: {}})
	a.Do(t, func(time.Time) { a.Queue(2, 0, heartbeat(1)); a.Queue(3, 0, heartbeat(1)) })
	c.Hears(t, 1)
	c.Do(t, func(time.Time) { c.Queue(2, 0, heartbeat(2)) })
	if heard := b.Hears(t, 3); len(heard) != 3 || heard[2].From != 3 {
		t.Errorf("heard %+v, also from who is no peer", heard)
	}
}

func dropped(t *testing.T, open func(lnn int) Node) {
	nodes := cast(t, open, 2)
	a, b := nodes[0], nodes[1]
	bad := heartbeat(1)
	bad.Kind = 0
	a.Do(t, func(time.Time) {
		a.Queue(2, 0, bad)
		a.Queue(2, 7, heartbeat(2))
		a.Queue(9, 0, heartbeat(3))
		a.Queue(1, 0, heartbeat(4))
		a.Queue(2, 0, heartbeat(5))
	})
	if heard := b.Hears(t, 1); len(heard) != 1 || heard[0].Message.Number != 5 {
		t.Errorf("heard %+v", heard)
	}
}

func wakes(t *testing.T, open func(lnn int) Node) {
	a := cast(t, open, 1)[0]
	for _, after := range []time.Duration{3 * time.Millisecond, 0, 7 * time.Millisecond} {
		seen := 0
		wake := a.WakeAt(t, func(now time.Time) time.Time { return now.Add(after) })
		a.Until(t, "turn at the time it asked for", func(_ []Heard, turns []time.Time) bool {
			seen = len(turns)
			return !turns[seen-1].Before(wake)
		})
	}
}

func pokes(t *testing.T, open func(lnn int) Node) {
	a := cast(t, open, 1)[0]
	var during, after int
	count := func() (n int) {
		a.mutex.Lock()
		defer a.mutex.Unlock()
		return len(a.turns)
	}
	a.Do(t, func(time.Time) {
		for range 100 {
			a.Poke()
		}
		during = count()
	})
	a.Do(t, func(time.Time) { after = count() })
	if after-during > 3 {
		t.Errorf("100 pokes made %d turns", after-during)
	}
	a.Until(t, "turn for a poke during a turn", func(_ []Heard, turns []time.Time) bool { return len(turns) > during+1 })
}

// before: node 2 is held up in a turn while node 1 says ten things.
func before(t *testing.T, open func(lnn int) Node) {
	nodes := cast(t, open, 2)
	a, b := nodes[0], nodes[1]
	a.Do(t, func(time.Time) { a.Queue(2, 0, heartbeat(0)) })
	b.Hears(t, 1)
	entered, free := make(chan struct{}), make(chan struct{})
	held := b.Start(func(time.Time) { close(entered); <-free })
	<-entered
	a.Do(t, func(time.Time) {
		for i := range 10 {
			a.Queue(2, i%2, heartbeat(uint64(i+1)))
		}
	})
	a.Do(t, func(time.Time) {}) // by now they have been sent
	close(free)
	<-held
	for _, heard := range b.Hears(t, 11)[2:] {
		if first := b.Heard()[1]; heard.Turn != first.Turn {
			t.Errorf("%d was heard after turn %d, and %d after turn %d", first.Message.Number, first.Turn, heard.Message.Number, heard.Turn)
		}
	}
}

func ends(t *testing.T, open func(lnn int) Node) {
	nodes := cast(t, open, 2)
	a, b := nodes[0], nodes[1]
	a.Do(t, func(time.Time) { a.Queue(2, 0, heartbeat(0)) })
	b.Hears(t, 1)
	if err := a.Serve(t.Context(), a); err == nil {
		t.Error("it is served twice")
	}
	third := open(3)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := third.Serve(over, NewPlayer(3, third)); err != nil {
		t.Errorf("a context that is over gives %v", err)
	}
	if err := third.Close(); err != nil {
		t.Error(err)
	}
	third.Poke()
	third.SetPeers(nil)
	if err := third.Serve(t.Context(), NewPlayer(3, third)); err == nil {
		t.Error("it is served after its end")
	}
	// What the last turn queued is sent, whatever ends it.
	closed := make(chan error)
	a.Do(t, func(time.Time) {
		a.Queue(2, 1, heartbeat(1))
		go func() { closed <- a.Close() }()
	})
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if last := b.Hears(t, 2)[1]; last.Message.Number != 1 {
		t.Errorf("heard %+v", last)
	}
	if err := a.Close(); err != nil {
		t.Errorf("the second end: %v", err)
	}
}
