package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/bubble"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/dns"
	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/linux/link/linktest"
	"github.com/holdfast/holdfast/internal/linux/neigh/neightest"
	"github.com/holdfast/holdfast/internal/load"
	"github.com/holdfast/holdfast/internal/placement"
	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/store"
	"github.com/holdfast/holdfast/internal/store/storetest"
	"github.com/holdfast/holdfast/internal/tenure/datagram/datagramtest"
)

// testCluster is whole agents in one synctest bubble: their loops, tenancies, observers and reconcilers are the real ones; the
// store, the kernels, the links and the network between the nodes are in memory.
type testCluster struct {
	t      *testing.T
	store  *storetest.Fake
	id     store.ClusterID
	config *cluster.Config
	nodes  map[int]*testNode
	beats  *datagramtest.Network
	net    sync.Mutex
	cut    map[[2]int]bool // pairs that cannot reach each other

	site siteDNS // the site's DNS servers

	grounds testGrounds

	sick map[string]error // "LNN/CHECK": what that node's check says; nil: it passes
	mute map[string]bool  // those that never answer in time
}

// sever cuts or mends the way between two nodes, for both directions.
func (c *testCluster) sever(a, b int, on bool) {
	c.net.Lock()
	defer c.net.Unlock()
	c.cut[[2]int{a, b}], c.cut[[2]int{b, a}] = on, on
	turn := c.beats.Heal
	if on {
		turn = c.beats.Cut
	}
	turn(a, b)
	turn(b, a)
}

func (c *testCluster) severed(a, b int) bool {
	c.net.Lock()
	defer c.net.Unlock()
	return c.cut[[2]int{a, b}]
}

type testNode struct {
	lnn     int
	dir     string
	agent   *Agent
	store   *storetest.Store
	kernel  *linktest.Fake
	link    *neightest.Fake
	names   *fakeNames
	sockets *testSockets
	packets testArrivals
	power   context.CancelFunc // ends everything of it at once
	ended   chan struct{}
	stop    context.CancelFunc // asks it to stop in an orderly way
}

const testConfig = `
cluster: {name: test}
nodes:
  - {name: node1, lnn: 1, interfaces: [eth0], addresses: [10.0.0.11]}
  - {name: node2, lnn: 2, interfaces: [eth0], addresses: [10.0.0.12]}
  - {name: node3, lnn: 3, interfaces: [eth0], addresses: [10.0.0.13]}
  - {name: node4, lnn: 4, interfaces: [eth0], addresses: [10.0.0.14]}
groupnets:
  - name: groupnet0
    subnets:
      - name: subnet0
        cidr: 10.0.0.0/24
        sc-service-name: ssip.test
        sc-service-addrs: [10.0.0.4-10.0.0.6]
        pools:
          - {name: pool0, ranges: [10.0.0.100-10.0.0.111], ifaces: ["1:eth0", "2:eth0", "3:eth0", "4:eth0"],
             alloc-method: dynamic, sc-dns-zone: cluster.test}
`

// inCluster runs a test in a bubble with a cluster of four that serves.
func inCluster(t *testing.T, test func(t *testing.T, c *testCluster)) {
	inClusterOf(t, testConfig, []int{3, 3, 3, 3}, test)
}

// inClusterOf is inCluster with another configuration, under which the nodes have so many of the pool's addresses at first.
func inClusterOf(t *testing.T, yaml string, spread []int, test func(t *testing.T, c *testCluster)) {
	bubble.Test(t, func(t *testing.T) {
		config, err := cluster.Parse("test", []byte(yaml))
		if err != nil {
			t.Fatal(err)
		}
		c := &testCluster{t: t, store: storetest.New(nil), config: config, nodes: map[int]*testNode{}, cut: map[[2]int]bool{}, beats: datagramtest.NewNetwork(1)}
		c.beats.Delay(func(p datagramtest.Packet) time.Duration {
			return 100*time.Microsecond + time.Duration(p.Random.IntN(100))*time.Microsecond
		})
		founder := c.store.Connect()
		if c.id, err = store.Found(t.Context(), founder, "test"); err != nil {
			t.Fatal(err)
		}
		for lnn := 1; lnn <= len(spread); lnn++ {
			c.nodes[lnn] = &testNode{lnn: lnn, dir: t.TempDir(), kernel: linktest.New(linktest.Ethernet(2, "eth0")), link: neightest.New()}
			c.nodes[lnn].sockets = c.socketsOf(lnn)
			c.nodes[lnn].link.SetInterface("eth0", linktest.Ethernet(2, "eth0").MAC)
			c.start(lnn)
		}
		defer func() {
			for _, n := range c.nodes {
				c.kill(n.lnn)
			}
		}()
		c.eventually("the cluster serves", func() bool { return c.spreadIs(spread...) && c.everybodyServes() })
		test(t, c)
	})
}

// start powers a node on: its kernel has no moving address, its agent starts.
func (c *testCluster) start(lnn int) {
	n := c.nodes[lnn]
	config := c.config
	node, _ := config.Node(lnn)
	ctx, power := context.WithCancel(context.Background())
	asked, stop := context.WithCancel(ctx)
	n.names = &fakeNames{}
	a := &Agent{
		options: Options{Dir: n.dir, Version: "test"}, ctx: ctx, log: testLogger(c.t, lnn), now: time.Now, started: time.Now(),
		self: node, board: &problem.Board{}, registry: prometheus.NewRegistry(), events: newEventLog(), peers: &peers{self: node, connect: func(cluster.Node) (*api.PeerClient, error) { return nil, errCut }},
	}
	e := edges{
		kernel: n.kernel, announcer: n.link, wire: c.beats.Join(lnn, time.Now), held: asker{c, lnn}, checks: asker{c, lnn}, inside: asker{c, lnn}, runner: c.runner(lnn),
		names:   func(func(dns.Told)) names { return n.names },
		sockets: func(...uint16) (map[netip.AddrPort]int, error) { return nil, nil },
		links:   func() ([]load.Link, error) { return nil, nil },

		connections: n.sockets.each, destroy: n.sockets.destroy, tickles: n.sockets, arrivals: &n.packets, pushes: asker{c, lnn}, releases: asker{c, lnn}, declared: asker{c, lnn}, site: c.siteDNS, gateways: c.grounds.of(lnn),
	}
	if err := a.assemble(config, e); err != nil {
		c.t.Fatal(err)
	}
	ended := make(chan struct{})
	c.net.Lock() // other nodes may be asking it
	n.agent, n.store, n.power, n.stop, n.ended = a, c.store.Connect(), power, stop, ended
	c.net.Unlock()
	go func() {
		defer close(ended)
		defer a.edges.wire.Close()
		defer a.heartbeat()()
		defer power()
		a.useStore(store.Guard(n.store, c.id, a.board))
		if err := a.seed(asked, config); err != nil {
			return
		}
		a.rooms = newRooms(a, ctx)
		a.rooms.learn(a.store.Watch(ctx, "", 0))
		if err := a.serve(asked, ctx, power); err != nil {
			c.t.Errorf("node %d: %v", lnn, err)
		}
	}()
}

// kill is a power failure: nothing of the node runs on, and its kernel has nothing.
func (c *testCluster) kill(lnn int) {
	n := c.nodes[lnn]
	c.end(lnn)
	n.kernel = linktest.New(linktest.Ethernet(2, "eth0"))
	n.sockets = c.socketsOf(lnn)
}

// end ends a node's agent at once: it says nothing to anybody any more.
func (c *testCluster) end(lnn int) {
	n := c.nodes[lnn]
	n.store.Cut(true)
	for other := range c.nodes {
		c.beats.Cut(lnn, other)
	}
	n.power()
	<-n.ended
	for other := range c.nodes {
		if !c.severed(lnn, other) {
			c.beats.Heal(lnn, other)
		}
	}
}

func (c *testCluster) socketsOf(lnn int) *testSockets {
	kernel := c.nodes[lnn].kernel
	return newTestSockets(func(a netip.Addr) bool {
		addresses, _ := kernel.Addresses()
		return slices.ContainsFunc(addresses, func(there link.Address) bool { return there.Prefix.Addr() == a })
	})
}

// asker is the network between the nodes.
type asker struct {
	c    *testCluster
	from int
}

var errCut = api.Unavailable("no route to that node")

func (a asker) reach(to int) (*Agent, error) {
	a.c.net.Lock()
	agent, ended := a.c.nodes[to].agent, a.c.nodes[to].ended
	a.c.net.Unlock()
	select {
	case <-ended:
		return nil, errCut
	default:
	}
	if a.c.severed(a.from, to) {
		return nil, errCut
	}
	return agent, nil
}

func (a asker) Released(_ context.Context, lnn int, r *holdfastv1.ReleasedRequest) error {
	agent, err := a.reach(lnn)
	if err != nil {
		return err
	}
	return agent.takeReleases(a.from, r)
}

func (a asker) Ready(_ context.Context, lnn int, r *holdfastv1.ReadyRequest) error {
	agent, err := a.reach(lnn)
	if err != nil {
		return err
	}
	return agent.takeReady(a.from, r)
}

func (a asker) Held(_ context.Context, lnn int) interfaces {
	agent, err := a.reach(lnn)
	if err != nil {
		return interfaces{err: err}
	}
	last := agent.applier.Last()
	return interfaces{held: last.held, failed: last.failed}
}

func (a asker) Checks(_ context.Context, lnn int, pool string) ([]*holdfastv1.PoolCheck, error) {
	agent, err := a.reach(lnn)
	if err != nil {
		return nil, err
	}
	return agent.ownChecks(pool), nil
}

func (a asker) Leases(_ context.Context, lnn int) (*holdfastv1.NodeLeases, error) {
	agent, err := a.reach(lnn)
	if err != nil {
		return nil, err
	}
	return agent.ownLeases(), nil
}

func (a asker) Failover(_ context.Context, lnn int, id string) ([]*holdfastv1.Event, error) {
	agent, err := a.reach(lnn)
	if err != nil {
		return nil, err
	}
	return agent.ownFailover(id), nil
}

// fakeNames keeps the view that names would be answered from.
type fakeNames struct {
	seen    atomic.Pointer[dns.View]
	asked   atomic.Pointer[[]netip.Addr] // where it listens
	closing time.Duration                // how long it takes to close
}

func (f *fakeNames) SetView(v *dns.View) { f.seen.Store(v) }
func (f *fakeNames) Serve(_ context.Context, on []netip.Addr) error {
	f.asked.Store(&on)
	return nil
}
func (f *fakeNames) Merge(dns.Told) []dns.Standing                { return nil }
func (f *fakeNames) Rotation(cluster.PoolID) (dns.Rotation, bool) { return dns.Rotation{}, false }
func (f *fakeNames) Adopt(dns.Rotation, dns.Standing) bool        { return false }
func (f *fakeNames) Close()                                       { time.Sleep(f.closing) }
func (f *fakeNames) Explain(string, dnsmessage.Type) (placement.Decision, error) {
	return placement.Decision{}, nil
}

// onKernel is which moving addresses are on a node's interface, by its kernel's word.
func (c *testCluster) onKernel(lnn int) []netip.Addr {
	addresses, err := c.nodes[lnn].kernel.Addresses()
	if err != nil {
		c.t.Fatal(err)
	}
	var moving []netip.Addr
	for _, a := range addresses {
		moving = append(moving, a.Prefix.Addr())
	}
	return moving
}

// check is the invariant: no address on two kernels.
func (c *testCluster) check() {
	c.t.Helper()
	where := map[netip.Addr]int{}
	for lnn := range c.nodes {
		for _, addr := range c.onKernel(lnn) {
			if other, taken := where[addr]; taken {
				c.t.Fatalf("%s is on node %d and on node %d", addr, other, lnn)
			}
			where[addr] = lnn
		}
	}
}

// pass lets time pass in small steps, checking the invariant at each.
func (c *testCluster) pass(d time.Duration) {
	c.t.Helper()
	const small = 5 * time.Millisecond
	for ; d > 0; d -= small {
		time.Sleep(small) // virtual time
		synctest.Wait()
		c.store.Tick()
		c.check()
	}
}

// eventually lets time pass until a condition holds; a minute of virtual time without it fails the test.
func (c *testCluster) eventually(what string, holds func() bool) {
	c.t.Helper()
	for range 12_000 {
		if holds() {
			return
		}
		c.pass(5 * time.Millisecond)
	}
	c.t.Fatalf("a minute passed and not: %s\n%s", what, c.story())
}

// story is what the nodes say happened last.
func (c *testCluster) story() string {
	var b strings.Builder
	for _, lnn := range slices.Sorted(maps.Keys(c.nodes)) {
		fmt.Fprintf(&b, "node%d: holds %v, %s\n", lnn, c.onKernel(lnn), c.nodes[lnn].agent.tenancy.Standing().Reason)
		events, _ := c.nodes[lnn].agent.events.after(0)
		for _, e := range events[max(0, len(events)-12):] {
			fmt.Fprintf(&b, "  %s %s %s\n", e.At.Format("05.000"), e.Kind, e.Message)
		}
	}
	return b.String()
}

// pool is how many pool addresses a kernel has.
func (c *testCluster) pool(lnn int) int {
	n := 0
	for _, addr := range c.onKernel(lnn) {
		if addr.As4()[3] >= 100 {
			n++
		}
	}
	return n
}

func (c *testCluster) spreadIs(want ...int) bool {
	for i, n := range want {
		if c.pool(i+1) != n {
			return false
		}
	}
	return true
}

func (c *testCluster) everybodyServes() bool {
	for _, n := range c.nodes {
		v := n.agent.view.Load()
		if v == nil || n.agent.loop.serving(v) != "" {
			return false
		}
	}
	return true
}

// snapshot is which node has which address.
func (c *testCluster) snapshot() map[netip.Addr]int {
	all := map[netip.Addr]int{}
	for lnn := range c.nodes {
		for _, addr := range c.onKernel(lnn) {
			all[addr] = lnn
		}
	}
	return all
}

// isolate cuts a node off from the store and from all others.
func (c *testCluster) isolate(lnn int, on bool) {
	c.nodes[lnn].store.Cut(on)
	for other := range c.nodes {
		c.sever(lnn, other, on)
	}
}

func testLogger(t *testing.T, lnn int) *slog.Logger {
	if os.Getenv("HOLDFAST_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", lnn)
}

func spanOf(c *testCluster) time.Duration { return timingOf(c.config.Settings).Span() }

func TestDeathOfANode(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		before := c.snapshot()
		c.kill(2)
		died := time.Now()
		c.eventually("4, 4, 4 on the survivors", func() bool { return c.spreadIs(4, 0, 4, 4) })
		if gap := time.Since(died); gap > spanOf(c)+50*time.Millisecond {
			t.Errorf("in virtual time it took %s; the span is %s", gap, spanOf(c))
		}
		for addr, lnn := range c.snapshot() {
			if old := before[addr]; old != 2 && old != 0 && old != lnn {
				t.Errorf("%s went from node %d to node %d although node %d lives", addr, old, lnn, old)
			}
		}
		c.start(2)
		c.eventually("3 each after its return", func() bool { return c.spreadIs(3, 3, 3, 3) })
	})
}

func TestAnOrderlyStopHandsOverFirst(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		began := time.Now()
		c.nodes[3].stop()
		<-c.nodes[3].ended
		if took := time.Since(began); took > leaveLimit {
			t.Errorf("it took %s", took)
		}
		if left := c.onKernel(3); len(left) != 0 {
			t.Errorf("it left %v on its interface", left)
		}
		c.eventually("4 each on the others", func() bool { return c.spreadIs(4, 4, 0, 4) })
		if gap := time.Since(began); gap > 200*time.Millisecond {
			t.Errorf("handing over took %s: it waited for its heartbeats to be missed", gap)
		}
	})
}

func TestServiceAddressesAreSpreadAtStart(t *testing.T) {
	for range 20 {
		inCluster(t, func(t *testing.T, c *testCluster) {
			for lnn := range c.nodes {
				if n := len(c.onKernel(lnn)) - c.pool(lnn); n > 1 {
					t.Fatalf("node %d hosts %d of 3 service addresses although four nodes are ready\n%s", lnn, n, c.story())
				}
			}
		})
	}
}

// An isolated node lets go by itself before anybody takes, whatever it can no longer hear (reference report 4b: MetalLB #589,
// #598, kube-vip #996).
func TestReport4IsolatedOwnerLetsGoBeforeAnybodyTakes(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.isolate(4, true)
		c.eventually("it has let go", func() bool { return len(c.onKernel(4)) == 0 })
		if c.pool(1)+c.pool(2)+c.pool(3) != 9 {
			t.Error("somebody took before it had let go")
		}
		c.eventually("the others have all", func() bool { return c.spreadIs(4, 4, 4, 0) })
		c.pass(5 * time.Second)
		c.isolate(4, false)
		c.eventually("it takes part again", func() bool { return c.spreadIs(3, 3, 3, 3) })
	})
}

// An agent that is started where another one was killed drops what it finds before it speaks to anybody (report 4a).
func TestReport4StaleAddressesGoAtStart(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		n := c.nodes[1]
		c.end(1) // the agent dies, its kernel keeps the addresses for their lifetime
		stale := netip.MustParsePrefix("10.0.0.100/32")
		for _, err := range n.kernel.Apply([]link.Operation{{Verb: link.Add, Object: link.Address{Interface: "eth0", Prefix: stale, Valid: link.Forever, Preferred: link.Forever}}}) {
			if err != nil && !errors.Is(err, link.ErrExists) {
				t.Fatal(err)
			}
		}
		c.isolate(1, true) // it cannot even reach the store
		c.start(1)
		n.store.Cut(true)
		synctest.Wait()
		if left := c.onKernel(1); len(left) != 0 {
			t.Errorf("after its start it still has %v", left)
		}
	})
}

func TestALostStoreMovesNothing(t *testing.T) {
	for _, test := range []struct {
		name string
		lose func(*storetest.Fake, bool)
	}{
		{"no quorum", (*storetest.Fake).LoseQuorum},
		{"stalled", (*storetest.Fake).Stall},
	} {
		t.Run(test.name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *testCluster) {
				before := c.snapshot()
				test.lose(c.store, true)
				for range 60 {
					c.pass(500 * time.Millisecond)
					if now := c.snapshot(); !maps.Equal(now, before) {
						t.Fatalf("with the store away for a while, %v became %v\n%s", before, now, c.story())
					}
				}
				v := c.nodes[1].agent.view.Load()
				if why := c.nodes[1].agent.loop.serving(v); why != "the store does not answer" {
					t.Errorf("status says %q", why)
				}
				test.lose(c.store, false)
				c.pass(5 * time.Second)
				if now := c.snapshot(); !maps.Equal(now, before) {
					t.Errorf("when the store came back, %v became %v\n%s", before, now, c.story())
				}
				c.kill(1)
				c.eventually("a death is noticed again", func() bool { return c.spreadIs(0, 4, 4, 4) })
			})
		})
	}
}

func TestAStoreThatComesBackEmptyMovesNothing(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		before := c.snapshot()
		c.store.Wipe()
		c.pass(20 * time.Second)
		if now := c.snapshot(); !maps.Equal(now, before) {
			t.Fatalf("%v became %v\n%s", before, now, c.story())
		}
		found := false
		for _, p := range c.nodes[2].agent.board.List() {
			found = found || p.Kind.Code == "store.empty"
		}
		if !found {
			t.Error("nobody says that the store came back empty")
		}
	})
}

// With the store away, a node that is cut off from the others as well must still let go: they might get the store back.
func TestAnIsolatedNodeLetsGoWithoutTheStore(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.store.LoseQuorum(true)
		c.pass(2 * time.Second)
		c.isolate(2, true)
		c.eventually("it has let go", func() bool { return len(c.onKernel(2)) == 0 })
		if c.pool(1)+c.pool(3)+c.pool(4) != 9 {
			t.Error("the others lost or took something")
		}
		c.store.LoseQuorum(false)
		c.eventually("with the store back, the others take over", func() bool { return c.spreadIs(4, 0, 4, 4) })
	})
}

func TestAShortHiccupOfTheStoreMovesNothing(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		before := c.snapshot()
		for range 10 {
			c.store.LoseQuorum(true)
			c.pass(600 * time.Millisecond)
			c.store.LoseQuorum(false)
			c.pass(700 * time.Millisecond)
		}
		if now := c.snapshot(); !maps.Equal(now, before) {
			t.Errorf("%v became %v\n%s", before, now, c.story())
		}
	})
}

func TestCarrierLostMovesTheAddressesAndTheNodeSaysWhy(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		broken := linktest.Ethernet(2, "eth0")
		broken.Carrier = false
		c.nodes[2].kernel.SetInterface(broken)
		c.eventually("its addresses are elsewhere", func() bool { return c.spreadIs(4, 0, 4, 4) })
		v := c.nodes[1].agent.view.Load()
		if state, why := nodeState(v.world, v.world.Nodes[2]); state != "unfit" || !strings.Contains(why, "no carrier") {
			t.Errorf("node 2 is said to be %s: %s", state, why)
		}
		c.nodes[2].kernel.SetInterface(linktest.Ethernet(2, "eth0"))
		c.eventually("it is used again", func() bool { return c.spreadIs(3, 3, 3, 3) })
	})
}

func TestNamesLeaveOutADeadNodeBeforeItsAddressesAreTaken(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.kill(3)
		c.eventually("taken over", func() bool { return c.spreadIs(4, 4, 0, 4) })
		for lnn, n := range c.nodes {
			if lnn == 3 {
				continue
			}
			for _, node := range n.names.seen.Load().Zones[0].Pools[0].Nodes {
				if node.LNN == 3 && (node.Eligible || node.Why == "") {
					t.Errorf("node %d would name node 3: %+v", lnn, node)
				}
			}
		}
	})
}

func TestTheLastConfigurationIsKeptForTheNextStart(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		data, err := os.ReadFile(filepath.Join(c.nodes[1].dir, configFile))
		if err != nil {
			t.Fatal(err)
		}
		if config, err := cluster.Parse("kept", data); err != nil || len(cluster.Diff(config, c.config)) != 0 {
			t.Errorf("what is kept is not what is in effect: %v", err)
		}
	})
}
