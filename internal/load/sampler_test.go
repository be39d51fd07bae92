package load

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast/holdfast/internal/problem"
)

var (
	start    = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	one, two = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	six      = netip.MustParseAddr("fd00::1")
	ports    = []uint16{443, 2049}
	near     = cmpopts.EquateApprox(1e-9, 0)
	byValue  = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
)

// node is a fake kernel. It refuses questions that a Sampler has no business asking, and fails where told to.
type node struct {
	t           *testing.T
	now         time.Time
	established map[netip.AddrPort]int
	links       []Link
	busy, idle  uint64
	fail        map[string]error // by what is read
	board       problem.Board
}

func newNode(t *testing.T) *node {
	return &node{t: t, now: start, established: map[netip.AddrPort]int{}, fail: map[string]error{},
		links: []Link{{Name: "ext-1", Index: 2, BitsPerSecond: 8000}}}
}

func (n *node) sampler() *Sampler {
	return NewSampler(Options{
		LNN: 3, Now: func() time.Time { return n.now }, Board: &n.board,
		Established: func(ports ...uint16) (map[netip.AddrPort]int, error) {
			if len(ports) == 0 {
				n.t.Error("connections of every port asked for: that is unbounded")
			}
			return n.established, n.fail["connections"]
		},
		Links: func() ([]Link, error) { return n.links, n.fail["interfaces"] },
		Processor: func() ([]byte, error) {
			return fmt.Appendf(nil, "cpu %d 0 0 %d 0 0 0 0\n", n.busy, n.idle), n.fail["processor"]
		},
	})
}

// pass lets a second go by with a quarter of it busy, and bytes received and sent on the first link.
func (n *node) pass(received, sent uint64) {
	n.now = n.now.Add(time.Second)
	n.busy, n.idle = n.busy+25, n.idle+75
	n.links[0].Received += received
	n.links[0].Sent += sent
}

func sample(t *testing.T, s *Sampler, addresses ...netip.Addr) Sample {
	t.Helper()
	got, err := s.Sample(addresses, ports)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestRatesAreKnownAfterTwoReadings(t *testing.T) {
	n := newNode(t)
	s := n.sampler()
	n.established[netip.AddrPortFrom(one, 2049)] = 7
	first := sample(t, s, one)
	want := Sample{LNN: 3, Taken: start, Connections: map[netip.Addr]int{one: 7}}
	if diff := cmp.Diff(want, first, byValue); diff != "" {
		t.Errorf("first sample (-want +got):\n%s", diff)
	}
	n.pass(500, 250)
	second := sample(t, s, one)
	want = Sample{LNN: 3, Taken: start.Add(time.Second), Rated: true, CPU: 0.25, Connections: map[netip.Addr]int{one: 7},
		Interfaces: map[string]Rate{"ext-1": {BytesPerSecond: 500, LinkBytesPerSecond: 1000}}}
	if diff := cmp.Diff(want, second, byValue, near); diff != "" {
		t.Errorf("second sample (-want +got):\n%s", diff)
	}
}

func TestConnectionsOfAskedAddressesAndPortsOnly(t *testing.T) {
	n := newNode(t)
	for address, count := range map[string]int{
		"10.0.0.1:443": 1, "10.0.0.1:2049": 10, "10.0.0.1:22": 100, // ssh is no client of ours
		"10.0.0.9:443": 1000, "[fd00::1]:443": 5,
	} {
		n.established[netip.MustParseAddrPort(address)] = count
	}
	got := sample(t, n.sampler(), one, two, six).Connections
	if diff := cmp.Diff(map[netip.Addr]int{one: 11, two: 0, six: 5}, got, byValue); diff != "" {
		t.Errorf("connections (-want +got):\n%s", diff)
	}
}

func TestInterfacesThatHaveNoRate(t *testing.T) {
	for name, change := range map[string]func(n *node){
		"gone":                  func(n *node) { n.links = nil },
		"made anew":             func(n *node) { n.links[0].Index++ },
		"counter started again": func(n *node) { n.links[0].Sent = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.links[0].Sent = 100
			s := n.sampler()
			sample(t, s)
			n.pass(10, 10)
			change(n)
			if got := sample(t, s); !got.Rated || len(got.Interfaces) != 0 {
				t.Errorf("%+v; want a rated sample without a rate for ext-1", got)
			}
		})
	}
	t.Run("appeared just now", func(t *testing.T) {
		n := newNode(t)
		s := n.sampler()
		sample(t, s)
		n.pass(0, 0)
		n.links = append(n.links, Link{Name: "ext-2", Index: 3})
		got := sample(t, s)
		if _, has := got.Interfaces["ext-2"]; has || len(got.Interfaces) != 1 {
			t.Errorf("%+v; want a rate for ext-1 only", got.Interfaces)
		}
	})
}

func TestUnknownSpeedIsAssumedAndSaid(t *testing.T) {
	n := newNode(t)
	n.links[0].BitsPerSecond = 0
	s := n.sampler()
	sample(t, s)
	n.pass(125_000_000, 0) // 1 Gbit/s
	if got := sample(t, s).Interfaces["ext-1"]; got.LinkBytesPerSecond != AssumedBitsPerSecond/8 {
		t.Errorf("%+v; want the assumed speed", got)
	}
	wantProblems(t, &n.board, "load.link-speed-unknown ext-1")
	n.pass(0, 0)
	n.links = nil
	sample(t, s)
	wantProblems(t, &n.board)
}

func TestWhatCannotBeMeasured(t *testing.T) {
	for _, what := range []string{"connections", "interfaces", "processor"} {
		t.Run(what, func(t *testing.T) {
			n := newNode(t)
			s := n.sampler()
			sample(t, s, one)
			n.pass(100, 0)
			n.fail[what] = errors.New("out of order")
			if got, err := s.Sample([]netip.Addr{one}, ports); err == nil || !strings.Contains(err.Error(), "out of order") {
				t.Errorf("%+v, %v; want no sample and the cause", got, err)
			}
			wantProblems(t, &n.board, "load.unmeasurable "+what)
			n.pass(100, 0)
			delete(n.fail, what)
			if got := sample(t, s, one).Interfaces["ext-1"].BytesPerSecond; got != 100 {
				t.Errorf("%v bytes a second over both seconds, want 100", got)
			}
			wantProblems(t, &n.board)
		})
	}
}

func TestTwoReadingsAtOnce(t *testing.T) {
	n := newNode(t)
	s := n.sampler()
	sample(t, s)
	n.now = n.now.Add(time.Millisecond)
	if got := sample(t, s); got.Rated {
		t.Errorf("rated over a millisecond: %+v", got)
	}
	n.pass(1001, 0)
	if got := sample(t, s).Interfaces["ext-1"].BytesPerSecond; math.Round(got) != 1000 {
		t.Errorf("%v bytes a second since the first reading, want 1000", got)
	}
	n.now = n.now.Add(-time.Hour)
	if got := sample(t, s); got.Rated {
		t.Errorf("rated over a negative time: %+v", got)
	}
	n.pass(7, 0)
	if got := sample(t, s).Interfaces["ext-1"].BytesPerSecond; got != 7 {
		t.Errorf("%v bytes a second after the clock was set back, want 7", got)
	}
}

func TestBoundsOfASample(t *testing.T) {
	n := newNode(t)
	n.links = nil
	for i := range MaxInterfaces + 10 {
		n.links = append(n.links, Link{Name: fmt.Sprintf("port%03d", i), Index: i + 2, BitsPerSecond: 1})
	}
	s := n.sampler()
	sample(t, s)
	n.pass(0, 0)
	got := sample(t, s).Interfaces
	if _, has := got["port000"]; !has || len(got) != MaxInterfaces {
		t.Errorf("%d interfaces, want the first %d by name", len(got), MaxInterfaces)
	}
	s.SetInterfaces([]string{"port070", "absent"})
	n.pass(0, 0)
	sample(t, s)
	n.pass(0, 0)
	got = sample(t, s).Interfaces
	if _, has := got["port070"]; !has || len(got) != 1 {
		t.Errorf("%v, want port070 only", got)
	}
	if _, err := s.Sample(make([]netip.Addr, MaxAddresses+1), ports); err == nil {
		t.Error("more addresses than the bound were accepted")
	}
}

func wantProblems(t *testing.T, board *problem.Board, want ...string) {
	t.Helper()
	var got []string
	for _, active := range board.List() {
		got = append(got, active.Kind.Code+" "+active.Subject)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
