package datagram

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/linux/boottime"
	"github.com/holdfast/holdfast/internal/tenure"
)

// beating is a whole node of the benchmark: its peer behind its link.
type beating struct {
	link *Link
	mu   sync.Mutex
	peer *tenure.Peer
	box  tenure.Outbox
	in   tenure.Received
	cpu  func(time.Duration) // told what its thread has used so far; nil: nobody asks
}

func (n *beating) Received(m *tenure.Message, from, network int, arrived time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.in = tenure.Received{Message: m, From: from, Network: network, Arrived: arrived}
	n.peer.Step(&n.in, arrived, &n.box)
	n.flush()
}

func (n *beating) Turn(now time.Time) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.peer.Step(&tenure.Due{}, now, &n.box)
	n.flush()
	if n.cpu != nil {
		var used unix.Rusage
		if unix.Getrusage(unix.RUSAGE_THREAD, &used) == nil {
			n.cpu(time.Duration(used.Utime.Nano() + used.Stime.Nano()))
		}
	}
	return n.peer.Wake(now)
}

func (n *beating) flush() {
	for i := range n.box.Messages {
		n.link.Queue(n.box.Messages[i].To, n.box.Messages[i].Network, &n.box.Messages[i].Message)
	}
	n.box.Reset()
}

// BenchmarkShareOfAProcessor is what the thread of one node's heartbeats uses of a processor in clusters of several sizes: it sends to
// its observers and observes as many others, sixteen at the most. An iteration is one interval of 100 ms.
func BenchmarkShareOfAProcessor(b *testing.B) {
	for _, size := range []int{8, 64, 256} {
		b.Run(fmt.Sprintf("nodes=%d", size), func(b *testing.B) { benchmarkShare(b, size) })
	}
}

func benchmarkShare(b *testing.B, size int) {
	timing := tenure.Timing{Interval: 100 * time.Millisecond, Multiplier: 3}
	var voices []tenure.Voice
	for lnn := 1; lnn <= size; lnn++ {
		voices = append(voices, tenure.Voice{LNN: lnn})
	}
	observers := tenure.ChooseObservers(1, voices, nil)
	nodes := map[int]*beating{}
	peers := map[int][]netip.AddrPort{}
	open := func(lnn int, voices []tenure.Voice, enters bool) {
		link, err := Open(Options{Self: lnn, Local: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, Realtime: true})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { link.Close() })
		n := &beating{link: link, peer: tenure.NewPeer(lnn, uint64(lnn), timing, boottime.Now())}
		n.peer.Step(&tenure.Configured{Timing: timing, Voices: voices}, boottime.Now(), &n.box)
		if enters {
			n.peer.Step(&tenure.Entered{Incarnation: 1}, boottime.Now(), &n.box)
		}
		nodes[lnn], peers[lnn] = n, link.Local()
	}
	open(1, voices, true)
	for _, lnn := range observers { // they acknowledge
		open(lnn, voices, false)
	}
	for i := range observers { // and as many are acknowledged
		lnn := size + 1 + i
		open(lnn, []tenure.Voice{{LNN: 1}, {LNN: lnn}}, true)
	}
	var used time.Duration
	var mu sync.Mutex
	nodes[1].cpu = func(d time.Duration) { mu.Lock(); used = d; mu.Unlock() }
	ctx, stop := context.WithCancel(b.Context())
	var serving sync.WaitGroup
	for _, n := range nodes {
		n.link.SetPeers(peers)
		serving.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with what it used
			_ = n.link.Serve(ctx, n)
		})
	}
	time.Sleep(10 * timing.Interval) // sessions are met, and observers have listened
	mu.Lock()
	before, began := used, time.Now()
	mu.Unlock()
	for b.Loop() {
		time.Sleep(timing.Interval)
	}
	mu.Lock()
	share := float64(used-before) / float64(time.Since(began))
	mu.Unlock()
	nodes[1].mu.Lock()
	standing := nodes[1].peer.Standing(boottime.Now())
	nodes[1].mu.Unlock()
	if !standing.MayHold {
		b.Fatalf("it may not hold: %s", standing.Reason)
	}
	stop()
	serving.Wait()
	b.ReportMetric(100*share, "%cpu")
}
