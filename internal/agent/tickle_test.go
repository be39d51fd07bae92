package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast/holdfast/internal/address"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/linux/tickle"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// testSockets are a node's connections, and the tickles that left it. They survive the agent, as a kernel's do.
type testSockets struct {
	here        func(netip.Addr) bool // on this node's interface, by its kernel's word
	mu          sync.Mutex
	connections map[address.Connection]bool
	reset       []string // that were destroyed, and whether the far end could hear of it
	sent        []address.Connection
}

func newTestSockets(here func(netip.Addr) bool) *testSockets {
	return &testSockets{here: here, connections: map[address.Connection]bool{}}
}

func (s *testSockets) open(c address.Connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connections[c] = true
}

func (s *testSockets) has(c address.Connection) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connections[c]
}

func (s *testSockets) each(visit func(address.Connection)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.connections {
		visit(c)
	}
	return nil
}

func (s *testSockets) destroy(on func(netip.Addr) bool) (ended []address.Connection, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.connections {
		if on(c.Local.Addr()) {
			heard := "unheard"
			if s.here(c.Local.Addr()) {
				heard = "heard"
			}
			s.reset = append(s.reset, fmt.Sprintf("%v %s", c.Remote, heard))
			ended = append(ended, c)
			delete(s.connections, c)
		}
	}
	return ended, nil
}

// Send is tickle.Sender.Send: the kernel refuses what does not come from an address of its own.
func (s *testSockets) Send(connections []tickle.Connection) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := make([]error, len(connections))
	for i, c := range connections {
		if s.here(c.Local.Addr()) {
			s.sent = append(s.sent, c)
		} else {
			errs[i] = tickle.ErrNotHere
		}
	}
	return errs
}

// story is what was reset and how often whom a tickle was sent to.
func (s *testSockets) story() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := map[string]int{}
	for _, c := range s.sent {
		sent[c.Remote.String()]++
	}
	list := slices.Clone(s.reset)
	for remote, n := range sent {
		list = append(list, fmt.Sprintf("%s woken %d", remote, n))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func (a asker) Connections(_ context.Context, lnn int, request *holdfastv1.ConnectionsRequest) (lost bool, err error) {
	agent, err := a.reach(lnn)
	if err != nil {
		return false, err
	}
	self, _ := a.c.config.Node(a.from)
	answer, err := agent.clients.receive(self, request)
	return answer.GetLost(), err
}

// client is a connection to the first pool address of a node.
func (c *testCluster) client(lnn int, port uint16) address.Connection {
	for _, addr := range c.onKernel(lnn) {
		if addr.As4()[3] >= 100 {
			return address.Connection{Local: netip.AddrPortFrom(addr, 2049), Remote: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.200"), port)}
		}
	}
	c.t.Fatalf("node %d holds no pool address", lnn)
	return address.Connection{}
}

// Public report 7 (https://github.com/bigstack-oss/cubecos/issues/1101, https://github.com/nfs-ganesha/nfs-ganesha/issues/756): an address
// moved, no reset reached its clients, and they hung for hours. Here the owner dies; the new one wakes each client four times, and
// nobody else does.
func TestReport7IdleClientsOfADeadNodeAreWoken(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		idle, gone, other := c.client(2, 700), c.client(2, 701), c.client(3, 702)
		for _, connection := range []address.Connection{idle, gone} {
			c.nodes[2].sockets.open(connection)
		}
		c.nodes[3].sockets.open(other)
		c.pass(followEvery + 50*time.Millisecond)
		c.nodes[2].sockets.mu.Lock()
		delete(c.nodes[2].sockets.connections, gone) // it ended by itself before the node died
		c.nodes[2].sockets.mu.Unlock()
		c.pass(followEvery + 50*time.Millisecond)
		c.kill(2)
		c.eventually("4, 4, 4 on the survivors", func() bool { return c.spreadIs(4, 0, 4, 4) })
		c.pass(5 * time.Second)
		owner := c.snapshot()[idle.Local.Addr()]
		for lnn, n := range c.nodes {
			want := ""
			if lnn == owner {
				want = "10.0.0.200:700 woken 4"
			}
			if got := n.sockets.story(); lnn != 2 && got != want {
				t.Errorf("node %d: %q, want %q\n%s", lnn, got, want, c.story())
			}
		}
	})
}

// toldTo records what successors are told.
type toldTo struct {
	mu   sync.Mutex
	told []string
}

func (r *toldTo) Connections(_ context.Context, lnn int, request *holdfastv1.ConnectionsRequest) (lost bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	push, err := pushOf(request)
	r.told = append(r.told, fmt.Sprintf("%d: full %v, %d came, %d went", lnn, push.Full, len(push.Opened), len(push.Closed)))
	return false, err
}

// Who is told what: each successor everything at first, then what changed; one that began a new life has forgotten what it was told
// and is told again although nothing changed; one that is no successor any more, that its table is void.
func TestWhoIsToldWhat(t *testing.T) {
	record := &toldTo{}
	a := &Agent{self: cluster.Node{LNN: 1}, now: time.Now, edges: edges{pushes: record}}
	c := &clients{Agent: a, wake: make(chan struct{}, 1), late: map[address.Connection]time.Time{}}
	connection := address.Connection{Local: netip.MustParseAddrPort("10.0.0.7:2049"), Remote: netip.MustParseAddrPort("10.0.0.9:700")}
	tracked := map[address.Connection]bool{connection: true}
	claim := func(lnn int) tenure.Claim { return tenure.Claim{LNN: lnn, Interface: "eth0", Incarnation: 7} }
	held := tenure.Statement{Owner: claim(1), Next: claim(2)}
	moving := tenure.Statement{Owner: claim(1), Next: claim(2), To: claim(3)}
	elsewhere := tenure.Statement{Owner: claim(3), Next: claim(2)}
	for _, step := range []struct {
		what    string
		st      tenure.Statement
		of2     tenure.Incarnation
		present bool
		tracked map[address.Connection]bool
		late    bool
		want    string
	}{
		{"at first", held, 3, true, tracked, false, "[2: full true, 1 came, 0 went]"},
		{"when nothing changed", held, 3, true, tracked, false, "[]"},
		{"when the successor began a new life", held, 4, true, tracked, false, "[2: full true, 1 came, 0 went]"},
		{"when it is away", held, 4, false, tracked, false, "[]"},
		{"when it is back", held, 4, true, tracked, false, "[2: full true, 1 came, 0 went]"},
		{"when a move begins", moving, 4, true, tracked, false, "[3: full true, 1 came, 0 went]"},
		{"when the client was reset", moving, 4, true, nil, false, "[2: full false, 0 came, 1 went 3: full false, 0 came, 1 went]"},
		{"when one came too late to be reset", elsewhere, 4, true, nil, true, "[3: full false, 1 came, 0 went]"},
	} {
		if step.late {
			c.late[connection] = c.now().Add(time.Minute)
		}
		v := &view{incarnation: 7, world: &steering.World{Self: 1, Nodes: map[int]steering.Node{
			2: {LNN: 2, Present: step.present, Incarnation: step.of2}, 3: {LNN: 3, Present: true, Incarnation: 1},
		}}}
		c.tracked = step.tracked
		c.tell(t.Context(), v, map[netip.Addr]tenure.Statement{connection.Local.Addr(): step.st})
		a.wg.Wait()
		slices.Sort(record.told)
		if got := fmt.Sprint(record.told); got != step.want {
			t.Errorf("%s: %s, want %s", step.what, got, step.want)
		}
		record.told = nil
	}
}

// A planned move resets the clients while the address is still there, so that they hear of it; nobody has to be woken.
func TestPlannedMoveResetsItsClients(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		leaves, stays := c.client(3, 700), c.client(1, 701)
		c.nodes[3].sockets.open(leaves)
		c.nodes[1].sockets.open(stays)
		c.pass(followEvery + 50*time.Millisecond)
		c.nodes[3].stop()
		c.eventually("4 each on the others", func() bool { return c.spreadIs(4, 4, 0, 4) })
		c.pass(5 * time.Second)
		for lnn, n := range c.nodes {
			want := ""
			if lnn == 3 {
				want = "10.0.0.200:700 heard"
			}
			if got := n.sockets.story(); got != want {
				t.Errorf("node %d: %q, want %q", lnn, got, want)
			}
		}
		if !c.nodes[1].sockets.has(stays) {
			t.Error("a connection to an address that stays was reset")
		}
	})
}

// Public report 8 (ctdb(7), and the rationale of the resource agent portblock): an address moves back to its first node, where the
// sockets of its old clients still are; they and the clients' new connections answer each other without end. A node that lapses
// resets nothing, since it may get the address back; but once another has it, what is left of its connections is destroyed, long
// before the address returns.
func TestReport8NoSocketOutlivesTheLossOfItsAddress(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		connection := c.client(2, 700)
		c.nodes[2].sockets.open(connection)
		c.pass(followEvery + 50*time.Millisecond)
		c.isolate(2, true)
		c.eventually("node 2 has lapsed", func() bool { return len(c.onKernel(2)) == 0 })
		if !c.nodes[2].sockets.has(connection) {
			t.Error("the lapse destroyed a socket")
		}
		c.eventually("4, 4, 4 on the others", func() bool { return c.spreadIs(4, 0, 4, 4) })
		c.pass(time.Second)
		if !c.nodes[2].sockets.has(connection) {
			t.Error("a node that is cut off, and knows of no new owner, destroyed a socket")
		}
		owner := c.snapshot()[connection.Local.Addr()]
		c.isolate(2, false)
		c.eventually("the old socket is gone", func() bool {
			if c.nodes[2].sockets.has(connection) && c.snapshot()[connection.Local.Addr()] == 2 {
				t.Fatal("the address is back, and the old socket is still there")
			}
			return !c.nodes[2].sockets.has(connection)
		})
		c.pass(5 * time.Second)
		if got := c.nodes[2].sockets.story(); got != "10.0.0.200:700 unheard" {
			t.Errorf("node 2: %q", got)
		}
		if got := c.nodes[owner].sockets.story(); got != "10.0.0.200:700 woken 4" {
			t.Errorf("node %d, which took the address: %q", owner, got)
		}
	})
}

// A message from another node that is no list of connections changes nothing and is refused.
func TestConnectionsThatAreNone(t *testing.T) {
	four := func(last byte) []byte { return []byte{10, 0, 0, last} }
	long := make([]*holdfastv1.ClientConnection, address.MaxPush+1)
	for i := range long {
		long[i] = &holdfastv1.ClientConnection{LocalPort: 1, Remote: four(9), RemotePort: 1}
	}
	for name, table := range map[string]*holdfastv1.ClientConnections{
		"no address":          {Address: "nonsense"},
		"no client":           {Address: "10.0.0.7", Opened: []*holdfastv1.ClientConnection{{LocalPort: 1, RemotePort: 1}}},
		"half a client":       {Address: "10.0.0.7", Closed: []*holdfastv1.ClientConnection{{LocalPort: 1, Remote: []byte{10}, RemotePort: 1}}},
		"a port beyond ports": {Address: "10.0.0.7", Opened: []*holdfastv1.ClientConnection{{LocalPort: 1 << 16, Remote: four(9), RemotePort: 1}}},
		"two families":        {Address: "fd00::7", Opened: []*holdfastv1.ClientConnection{{LocalPort: 1, Remote: four(9), RemotePort: 1}}},
		"a group":             {Address: "10.0.0.7", Opened: []*holdfastv1.ClientConnection{{LocalPort: 1, Remote: []byte{224, 0, 0, 1}, RemotePort: 1}}},
		"too many":            {Address: "10.0.0.7", Opened: long},
	} {
		if push, err := pushOf(&holdfastv1.ConnectionsRequest{Addresses: []*holdfastv1.ClientConnections{table}}); err == nil {
			t.Errorf("%s was accepted as %+v", name, push)
		}
	}
	all := address.Push{
		Sequence: 3, Full: true,
		Opened: []address.Connection{{Local: netip.MustParseAddrPort("10.0.0.7:1"), Remote: netip.MustParseAddrPort("10.0.0.9:2")}},
		Closed: []address.Connection{{Local: netip.MustParseAddrPort("[fd00::7]:1"), Remote: netip.MustParseAddrPort("[fd00::9]:65535")}},
	}
	back, err := pushOf(connectionsRequest(7, all))
	if err != nil || fmt.Sprint(back) != fmt.Sprint(all) {
		t.Errorf("%+v came back as %+v, %v", all, back, err)
	}
}

// FuzzPushOf: whatever another node sends, what is taken in are connections between two hosts, within the bound.
func FuzzPushOf(f *testing.F) {
	for _, remote := range [][]byte{{10, 0, 0, 9}, {0xfd, 15: 9}, {10}} {
		seed, err := proto.Marshal(&holdfastv1.ConnectionsRequest{Sequence: 3, Addresses: []*holdfastv1.ClientConnections{{
			Address: "10.0.0.7",
			Opened:  []*holdfastv1.ClientConnection{{LocalPort: 2049, Remote: remote, RemotePort: 700}},
			Closed:  []*holdfastv1.ClientConnection{{LocalPort: 1 << 20, Remote: remote, RemotePort: 700}},
		}}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var request holdfastv1.ConnectionsRequest
		if proto.Unmarshal(data, &request) != nil {
			return
		}
		push, err := pushOf(&request)
		if err != nil {
			return
		}
		all := slices.Concat(push.Opened, push.Closed)
		if len(all) > address.MaxPush {
			t.Errorf("%d connections were accepted", len(all))
		}
		for _, c := range all {
			if !tickle.Fit(c) {
				t.Errorf("%+v was accepted", c)
			}
		}
	})
}
