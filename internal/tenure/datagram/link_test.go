package datagram_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/linux/boottime"
	"github.com/holdfast/holdfast/internal/tenure"
	"github.com/holdfast/holdfast/internal/tenure/datagram"
	"github.com/holdfast/holdfast/internal/tenure/datagram/datagramtest"
)

var (
	four = netip.MustParseAddrPort("127.0.0.1:0")
	six  = netip.MustParseAddrPort("[::1]:0")
)

// node is a link with what a test looks at it by.
type node struct {
	*datagram.Link
	*datagramtest.Player
	registry *prometheus.Registry
}

func options(lnn int, local ...netip.AddrPort) datagram.Options {
	return datagram.Options{Self: lnn, Key: [32]byte{7}, Local: local, Registerer: prometheus.NewRegistry()}
}

func open(t *testing.T, o datagram.Options) *datagram.Link {
	t.Helper()
	l, err := datagram.Open(o)
	if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) {
		t.Skipf("this machine has no such loopback address: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// play opens a link that is served until the test ends.
func play(t *testing.T, o datagram.Options, peers map[int][]netip.AddrPort) *node {
	t.Helper()
	l := open(t, o)
	l.SetPeers(peers)
	n := &node{Link: l, Player: datagramtest.NewPlayer(o.Self, l), registry: o.Registerer.(*prometheus.Registry)}
	n.Player.Play(t)
	return n
}

// says queues a message with a number in a turn of its own.
func (n *node) says(t *testing.T, to, network int, number uint64) {
	t.Helper()
	n.Do(t, func(time.Time) {
		n.Queue(to, network, &tenure.Message{Kind: tenure.Heartbeat, Subject: n.LNN, Incarnation: 1, Number: number})
	})
}

// hears checks all that it has heard so far, by the numbers, after the last has come.
func (n *node) hears(t *testing.T, want ...uint64) {
	t.Helper()
	var got []uint64
	for _, h := range n.Hears(t, len(want)) {
		got = append(got, h.Message.Number)
	}
	if len(got) != len(want) {
		t.Fatalf("node %d heard %v, want %v", n.LNN, got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("node %d heard %v, want %v", n.LNN, got, want)
		}
	}
}

// shows is what a metric stands at; label is the value of its label, or empty.
func (n *node) shows(t *testing.T, name, label string) float64 {
	t.Helper()
	families, err := n.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "holdfast_datagram_"+name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("there is no metric %s with %q", name, label)
	return 0
}

// counts waits, turn by turn, until a metric stands at a number.
func (n *node) counts(t *testing.T, name, label string, want float64) {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); n.shows(t, name, label) != want; {
		if time.Now().After(limit) {
			t.Fatalf("node %d: %s %s is %v, want %v", n.LNN, name, label, n.shows(t, name, label), want)
		}
		n.Do(t, func(time.Time) {})
	}
}

// pair is two nodes that have heard each other on the networks of the given addresses; the first numbers they heard are 100 and 101.
func pair(t *testing.T, local ...netip.AddrPort) (a, b *node) {
	t.Helper()
	a = play(t, options(1, local...), nil)
	b = play(t, options(2, local...), map[int][]netip.AddrPort{1: a.Local()})
	a.SetPeers(map[int][]netip.AddrPort{2: b.Local()})
	a.says(t, 2, 0, 100)
	b.hears(t, 100)
	b.says(t, 1, 0, 101)
	a.hears(t, 101)
	return a, b
}

func TestContract(t *testing.T) {
	for name, addresses := range map[string][]netip.AddrPort{"IPv4": {four, four}, "IPv6": {six, six}, "both": {four, six}} {
		t.Run(name, func(t *testing.T) {
			datagramtest.Contract(t, func(t *testing.T, run func(t *testing.T, open func(lnn int) datagramtest.Node)) {
				run(t, func(lnn int) datagramtest.Node {
					l := open(t, options(lnn, addresses...))
					return datagramtest.Node{Carrier: l, Addresses: l.Local(), Now: boottime.Now}
				})
			})
		})
	}
}

// A message arrives though the other side has just been opened, or opened anew: a hello and a second sending make up for it at once. The
// other side is heard by a node that it did not know of before.
func TestRestartOfEitherSideLosesNothing(t *testing.T) {
	a, b := pair(t, four)
	addressOfB := b.Local()[0]
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	again := play(t, options(2, addressOfB), map[int][]netip.AddrPort{1: a.Local()})
	a.says(t, 2, 0, 1)
	again.hears(t, 1)
	again.says(t, 1, 0, 2)
	a.hears(t, 101, 2)
	again.says(t, 1, 0, 3)
	a.hears(t, 101, 2, 3)
	a.counts(t, "resent_total", "", 2) // one for each life of the other
	again.counts(t, "hellos_total", "said", 1)

	// And one that speaks first after its start.
	addressOfA := a.Local()[0]
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	first := play(t, options(1, addressOfA), map[int][]netip.AddrPort{2: again.Local()})
	first.says(t, 2, 0, 4)
	again.hears(t, 1, 4)
	first.says(t, 2, 0, 5)
	again.hears(t, 1, 4, 5)
}

// Two nodes that start at the same moment say hello to each other, and hello to no hello.
func TestHellosDoNotAnswerHellos(t *testing.T) {
	a, b := pair(t, four)
	for i := range uint64(20) {
		a.says(t, 2, 0, i)
		b.says(t, 1, 0, i)
	}
	a.Hears(t, 21)
	b.Hears(t, 21)
	for _, n := range []*node{a, b} {
		n.counts(t, "hellos_total", "said", 1)
		n.counts(t, "hellos_total", "believed", 1)
		n.counts(t, "hellos_total", "stale", 0)
		n.counts(t, "refused_total", "wrong_session", 1)
		n.counts(t, "sent_total", "", 23) // 21 messages, one of them twice, and a hello
	}
}

// A message that waits has the time at which it came, not that at which it is read. The test tries again where the threads of this
// machine were held up just between two looks at the clocks, which counts as a clock that was set.
func TestArrivalIsTheKernelsTime(t *testing.T) {
	a, b := pair(t, four)
	for try := range 5 {
		entered, free := make(chan struct{}), make(chan struct{})
		held := b.Start(func(time.Time) { close(entered); <-free })
		<-entered
		a.says(t, 2, 0, 1)
		a.Do(t, func(time.Time) {}) // by now it has been sent, and over the loopback it has arrived
		sent := boottime.Now()
		for boottime.Now().Sub(sent) < 2*time.Millisecond { // node 2 is late to read it
		}
		close(free)
		<-held
		if arrived := b.Hears(t, try+2)[try+1].Arrived; !arrived.After(sent.Add(time.Millisecond)) {
			return
		}
	}
	t.Errorf("messages arrive when they are read; %v times because a clock was set", b.shows(t, "untimed_total", "clock_set"))
}

// The wall clock is set while messages wait: they are taken to have arrived when they are read, never earlier.
func TestArrivalWhenTheClockIsSet(t *testing.T) {
	var ahead time.Duration
	a := play(t, options(1, four), nil)
	o := options(2, four)
	l := open(t, o)
	l.SetWallClock(func() time.Time { return time.Now().Add(ahead) })
	l.SetPeers(map[int][]netip.AddrPort{1: a.Local()})
	b := &node{Link: l, Player: datagramtest.NewPlayer(2, l), registry: o.Registerer.(*prometheus.Registry)}
	b.Player.Play(t)
	a.SetPeers(map[int][]netip.AddrPort{2: b.Local()})
	a.says(t, 2, 0, 1)
	b.hears(t, 1)
	var late time.Time
	entered, free := make(chan struct{}), make(chan struct{})
	held := b.Start(func(time.Time) {
		close(entered)
		<-free
		ahead, late = time.Hour, boottime.Now() // the times that the kernel has put down come out an hour too early
	})
	<-entered
	a.says(t, 2, 0, 2)
	a.Do(t, func(time.Time) {})
	close(free)
	<-held
	if arrived := b.Hears(t, 2)[1].Arrived; arrived.Before(late) {
		t.Errorf("it arrived at %s, before it was read at %s", arrived, late)
	}
	b.counts(t, "untimed_total", "clock_set", 1)
}

func TestOptionsThatCannotBe(t *testing.T) {
	for want, o := range map[string]datagram.Options{
		"from 1 to 65535":   options(0, four),
		"at most 8":         options(1, make([]netip.AddrPort, 9)...),
		"no address":        options(1, netip.AddrPort{}),
		"does not have the": options(1, netip.MustParseAddrPort("192.0.2.1:0")),
		"random bytes":      {Self: 1, Local: []netip.AddrPort{four}, Random: strings.NewReader("few")},
	} {
		if l, err := datagram.Open(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, %v; want %s", o.Local, l, err, want)
		}
	}
}

// An address of the other family, and a network that this node is not on, are no way.
func TestPeersThatCannotBeReached(t *testing.T) {
	a := play(t, options(1, netip.AddrPort{}, four), nil)
	b := play(t, options(2, four, four), map[int][]netip.AddrPort{1: a.Local()})
	a.SetPeers(map[int][]netip.AddrPort{2: b.Local(), 3: {four, netip.MustParseAddrPort("[::1]:9")}, 4: {}, 70000: {four, four}})
	a.counts(t, "peers", "", 3)
	a.says(t, 3, datagram.EveryNetwork, 1)
	a.says(t, 2, 0, 2)
	a.says(t, 4, 1, 3)
	a.counts(t, "unsent_total", "no_address", 3)
	a.says(t, 2, datagram.EveryNetwork, 4)
	b.hears(t, 4)
	b.says(t, 1, datagram.EveryNetwork, 5)
	a.hears(t, 5)
}

func TestRealtime(t *testing.T) {
	o := options(1, four)
	o.Realtime = true
	l := open(t, o)
	if l.Realtime() {
		t.Error("it runs in real time before it is served")
	}
	n := &node{Link: l, Player: datagramtest.NewPlayer(1, l), registry: o.Registerer.(*prometheus.Registry)}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- l.Serve(ctx, n.Player) }()
	var policy uint32
	var failed error
	n.Do(t, func(time.Time) {
		attributes, err := unix.SchedGetAttr(0, 0)
		if failed = err; err == nil {
			policy = attributes.Policy
		}
	})
	realtime := l.Realtime()
	if failed != nil || realtime != (policy == unix.SCHED_RR) || n.shows(t, "realtime", "") == 1 != realtime {
		t.Errorf("it says %v, and the kernel says %d, %v", realtime, policy, failed)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if l.Realtime() {
		t.Error("it runs in real time after its end")
	}
	if !realtime {
		t.Skip("real-time scheduling is not permitted here; that it goes on without has been seen")
	}
}
