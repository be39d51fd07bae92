package address

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/linux/neigh"
	"github.com/holdfast/holdfast/internal/linux/sockdiag"
	"github.com/holdfast/holdfast/internal/linux/tickle"
)

// stage is a client and two nodes in network namespaces of their own, all on one link.
type stage struct {
	*site  // for its ways to run ip(8)
	client *link.Kernel
	nodes  map[string]*stageNode
}

// stageNode is one node: what it holds, what it tells its successor, and whom it wakes.
type stageNode struct {
	t *testing.T
	*Reconciler
	kernel  *link.Kernel
	tracker *Tracker
	tickler *Tickler
	outbox  Outbox
}

func newStage(t *testing.T) *stage {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("ip(8) is not installed")
	}
	s := &stage{site: &site{t: t}, client: newKernel(t), nodes: map[string]*stageNode{}}
	s.in(s.client, func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0o644) })
	s.ip(s.client, "link add br0 type bridge mcast_snooping 0")
	s.ip(s.client, "link set br0 up")
	// A Linux client believes the first announcement of a second (arp(7), locktime); here moves follow each other faster.
	s.in(s.client, func() error { return os.WriteFile("/proc/sys/net/ipv4/neigh/br0/locktime", []byte("0"), 0o644) })
	s.ip(s.client, "address add 10.0.0.50/24 dev br0")
	s.ip(s.client, "address add fd00::50/64 dev br0 nodad")
	for i, name := range []string{"a", "b"} {
		s.nodes[name] = s.node(name, i+1)
	}
	return s
}

func (s *stage) node(name string, number int) *stageNode {
	n := &stageNode{t: s.t, kernel: newKernel(s.t)}
	var place *os.File
	s.in(n.kernel, func() (err error) {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0o644); err != nil {
			return err
		}
		place, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	defer place.Close()
	s.ip(s.client, fmt.Sprintf("link add to-%s type veth peer name ext0", name))
	s.ip(s.client, fmt.Sprintf("link set ext0 netns /proc/%d/fd/%d", os.Getpid(), place.Fd()))
	s.ip(s.client, fmt.Sprintf("link set to-%s master br0 up", name))
	s.ip(n.kernel, "link set ext0 up")
	s.ip(n.kernel, fmt.Sprintf("address add 10.0.0.%d/24 dev ext0", number))
	s.ip(n.kernel, fmt.Sprintf("address add fd00::%d/64 dev ext0 nodad", number))
	announcer, err := neigh.Open(n.kernel.In)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(announcer.Close)
	n.Reconciler = New(Options{Kernel: n.kernel, Announcer: announcer})
	n.tracker = NewTracker(TrackerOptions{Established: n.each, Destroy: n.destroy})
	n.tickler = NewTickler(TicklerOptions{Sender: &tickle.Sender{In: n.kernel.In}, Established: n.each})
	go n.tickler.Run(s.t.Context())
	go func() { _ = n.Run(s.t.Context()) }()
	return n
}

func (n *stageNode) each(visit func(Connection)) error {
	return n.kernel.In(func() error {
		return sockdiag.EachServed(func(c sockdiag.Connection) { visit(Connection(c)) })
	})
}

func (n *stageNode) destroy(on func(netip.Addr) bool) (list []Connection, err error) {
	err = n.kernel.In(func() error {
		ended, err := sockdiag.Destroy(on)
		for _, c := range ended {
			list = append(list, Connection(c))
		}
		return err
	})
	return list, err
}

// serve listens on every address of the node and keeps what it accepts, as a server does.
func (s *stage) serve(n *stageNode) {
	s.t.Helper()
	for network, at := range map[string]string{"tcp4": "0.0.0.0:2049", "tcp6": "[::]:2049"} {
		var listener net.Listener
		s.in(n.kernel, func() (err error) { listener, err = net.Listen(network, at); return err })
		s.t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				s.t.Cleanup(func() { _ = c.Close() })
			}
		}()
	}
}

// dial connects the client, once that works.
func (s *stage) dial(a netip.Addr) net.Conn {
	s.t.Helper()
	var conn net.Conn
	s.until("the client reaches "+a.String(), func() bool {
		return s.client.In(func() (err error) {
			conn, err = (&net.Dialer{Timeout: time.Second}).Dial("tcp", netip.AddrPortFrom(a, 2049).String())
			return err
		}) == nil
	})
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// tell brings the connections of one node to its successor.
func (s *stage) tell(owner, successor *stageNode, owned ...netip.Addr) {
	s.t.Helper()
	tracked, err := owner.tracker.Look(func(a netip.Addr) bool {
		for _, o := range owned {
			if a == o {
				return true
			}
		}
		return false
	}, func(netip.Addr) bool { return false })
	if err != nil {
		s.t.Fatal(err)
	}
	for {
		push, any := owner.outbox.Next(tracked)
		if !any {
			return
		}
		owner.outbox.Answered(!successor.tickler.Receive(ownerSeven, push))
	}
}

// takes puts the addresses on a node.
func (n *stageNode) takes(planned bool, list []Holding) {
	n.t.Helper()
	result := n.Set(n.t.Context(), holdings(list...))
	if result.Failed != nil {
		n.t.Fatal(result.Failed)
	}
	n.tickler.Taken(result.Taken, func(netip.Addr) bool { return planned })
}

// leaves takes all addresses off a node by a planned move, and returns those that were reset, and those that came meanwhile.
func (n *stageNode) leaves(addresses ...netip.Addr) (reset, late []Connection) {
	reset = n.tracker.Reset(addresses)
	n.Set(n.t.Context(), Desired{})
	n.tickler.Here(func(netip.Addr) bool { return false })
	return reset, n.tracker.Reset(addresses)
}

// wantReset waits, without sending anything, until the client learns that its connection is gone.
func (s *stage) wantReset(what string, conn net.Conn, since time.Time) {
	s.t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	_, err := conn.Read(make([]byte, 1))
	if !errors.Is(err, syscall.ECONNRESET) {
		s.t.Fatalf("%s: the idle client reads %v, want a reset", what, err)
	}
	s.t.Logf("%s: the idle client was reset after %v", what, time.Since(since).Round(100*time.Microsecond))
}

var both = []netip.Addr{addr("10.0.0.7"), addr("fd00::7")}

func bothSevensList() []Holding {
	return []Holding{moving("10.0.0.7", "ext0"), moving("fd00::7", "ext0")}
}

// Public report 7 on real kernels (https://github.com/bigstack-oss/cubecos/issues/1101): the owner's link is cut, another node takes
// its addresses, and idle clients are reset without sending anything. The dead node's sockets are still there.
func TestReport7IdleClientIsResetOnTheKernel(t *testing.T) {
	s := newStage(t)
	a, b := s.nodes["a"], s.nodes["b"]
	s.serve(a)
	s.serve(b)
	a.takes(false, bothSevensList())
	var idle []net.Conn
	for _, at := range both {
		idle = append(idle, s.dial(at))
	}
	s.until("the server has accepted", func() bool { s.tell(a, b, both...); return b.tickler.tables.Len() == 2 })
	s.ip(s.client, "link set to-a down")
	taken := time.Now()
	b.takes(false, bothSevensList())
	for i, at := range both {
		s.wantReset(at.String(), idle[i], taken)
		dialled := time.Now()
		s.dial(at) // and the new owner serves
		s.t.Logf("%v: connected anew within %v", at, time.Since(dialled).Round(100*time.Microsecond))
	}
	if n := a.served(t, both...); n != 2 {
		t.Errorf("the dead node has %d connections, want its two: nothing told it", n)
	}
}

// served counts a node's connections to addresses.
func (n *stageNode) served(t *testing.T, addresses ...netip.Addr) (count int) {
	t.Helper()
	if err := n.each(func(c Connection) {
		for _, a := range addresses {
			if c.Local.Addr() == a {
				count++
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	return count
}

// A planned move resets the clients before the address goes, nobody has to be woken, and they reconnect at the new owner.
func TestPlannedMoveOnTheKernel(t *testing.T) {
	s := newStage(t)
	a, b := s.nodes["a"], s.nodes["b"]
	s.serve(a)
	s.serve(b)
	a.takes(false, bothSevensList())
	idle := []net.Conn{s.dial(both[0]), s.dial(both[1])}
	stays := s.dial(addr("10.0.0.1"))
	began := time.Now()
	reset, late := a.leaves(both...)
	if len(reset) != 2 || len(late) != 0 {
		t.Errorf("reset were %v, and %v came late", reset, late)
	}
	b.takes(true, bothSevensList())
	for i, at := range both {
		s.wantReset(at.String(), idle[i], began)
		s.dial(at)
	}
	t.Logf("all were back at the new owner after %v", time.Since(began).Round(100*time.Microsecond))
	if n := a.served(t, both...); n != 0 {
		t.Errorf("%d connections are left on the old owner", n)
	}
	if n := a.served(t, addr("10.0.0.1")); n != 1 {
		t.Errorf("%d connections to the node's own address, want one", n)
	}
	_ = stays.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := stays.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection to an address that stayed reads %v", err)
	}
}

// Public report 8 (ctdb(7), section on killing connections, and the rationale of the resource agent portblock): an address goes to
// another node and returns to the first one within seconds, under a busy client. The client must be reset, and nothing may go on
// between it and what is left of its old connection.
func TestReport8NoACKStormAfterTheReturn(t *testing.T) {
	s := newStage(t)
	a, b := s.nodes["a"], s.nodes["b"]
	s.serve(a)
	s.serve(b)
	seven := both[:1]
	a.takes(false, bothSevensList()[:1])
	busy := s.dial(seven[0])
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := busy.Write([]byte("a request")); err != nil {
				ended <- err
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	s.until("the client is being served", func() bool { return s.segments() > 20 })
	a.leaves(seven...)
	b.takes(true, bothSevensList()[:1])
	second := s.dial(seven[0]) // at the other node
	b.leaves(seven...)
	a.takes(true, bothSevensList()[:1])
	s.wantReset("the connection at the other node", second, time.Now())
	if err := <-ended; !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the busy client ended with %v, want a reset", err)
	}
	third := s.dial(seven[0])
	s.until("the server has accepted", func() bool { return a.served(t, seven...) == 1 })
	before := s.segments()
	_ = third.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	if _, err := third.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the new connection at the first node reads %v", err)
	}
	if after := s.segments(); after-before > 20 {
		t.Errorf("%d segments in half a second of silence: old ends answer each other", after-before)
	}
}

// segments is how many TCP segments the client has sent and got.
func (s *stage) segments() (n int) {
	s.t.Helper()
	s.in(s.client, func() error {
		data, err := os.ReadFile("/proc/thread-self/net/snmp")
		var names []string
		for _, line := range strings.Split(string(data), "\n") {
			fields := strings.Fields(line)
			switch {
			case len(fields) == 0 || fields[0] != "Tcp:":
			case names == nil:
				names = fields
			default:
				for i, name := range names {
					if count := 0; name == "InSegs" || name == "OutSegs" {
						_, _ = fmt.Sscan(fields[i], &count)
						n += count
					}
				}
			}
		}
		return err
	})
	return n
}
