package steering

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

// model is a whole cluster without time, network or kernel: what the store says, who lives, and what each node has on its
// interfaces. Every node decides by steering; the model only carries out.
type model struct {
	t        fataler
	config   *cluster.Config
	nodes    map[int]*modelNode
	pools    map[cluster.PoolID]tenure.Record
	services map[ServiceKey]tenure.Statement
	now      time.Time
	moves    []string // changes of owner, as a story
	idle     map[netip.Addr]bool

	// slow says whether a node's interfaces lag behind at this turn: it then decides by what they really have.
	slow func() bool
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

type modelNode struct {
	Node
	running     bool
	held        map[netip.Addr]bool
	faultySince time.Time
}

var poolID = cluster.PoolID{Groupnet: "groupnet0", Subnet: "subnet0", Pool: "pool0"}

func newModel(t fataler, nodes, addresses int, more string) *model {
	var b strings.Builder
	b.WriteString("cluster: {name: model}\nnodes:\n")
	var ifaces []string
	for lnn := 1; lnn <= nodes; lnn++ {
		fmt.Fprintf(&b, "  - {name: node%d, lnn: %d, interfaces: [eth0], addresses: [10.0.0.%d]}\n", lnn, lnn, 10+lnn)
		ifaces = append(ifaces, fmt.Sprintf("%q", fmt.Sprintf("%d:eth0", lnn)))
	}
	fmt.Fprintf(&b, `groupnets:
  - name: groupnet0
    subnets:
      - name: subnet0
        cidr: 10.0.0.0/24
        sc-service-name: ssip.model
        sc-service-addrs: [10.0.0.4-10.0.0.6]
        pools:
          - {name: pool0, ranges: [10.0.0.100-10.0.0.%d], ifaces: [%s], alloc-method: dynamic, sc-dns-zone: cluster.model%s}
`, 99+addresses, strings.Join(ifaces, ", "), more)
	config, err := cluster.Parse("model", []byte(b.String()))
	if err != nil {
		t.Fatalf("%v", err)
	}
	m := &model{t: t, config: config, nodes: map[int]*modelNode{}, pools: map[cluster.PoolID]tenure.Record{}, services: map[ServiceKey]tenure.Statement{},
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	for lnn := 1; lnn <= nodes; lnn++ {
		m.nodes[lnn] = &modelNode{Node: Node{LNN: lnn, Name: fmt.Sprintf("node%d", lnn)}, held: map[netip.Addr]bool{}}
		m.start(lnn)
	}
	return m
}

// start brings a node up under its next incarnation. A starting agent drops what it finds on itself.
func (m *model) start(lnn int) {
	n := m.nodes[lnn]
	n.running, n.Present, n.Ready, n.Left, n.Trusted = true, true, true, false, false
	n.Incarnation++
	n.Over = n.Incarnation - 1
	n.FitSince = m.now
	clear(n.held)
}

// kill ends a node, and a majority of its observers confirms it. What is on its interfaces is gone for the clients.
func (m *model) kill(lnn int) {
	n := m.nodes[lnn]
	n.running, n.Present = false, false
	n.Over = n.Incarnation
	n.AbsentSince = m.now
	clear(n.held)
}

// lapse ends a node's right while its machine and agent go on: it lets go, and comes back under a new incarnation.
func (m *model) lapse(lnn int) {
	m.kill(lnn)
	m.start(lnn)
}

func (m *model) world(self int) *World {
	w := &World{Config: m.config, Self: self, Nodes: map[int]Node{}, Pools: map[cluster.PoolID]tenure.Record{}, Services: maps.Clone(m.services), Idle: m.idle}
	for lnn, n := range m.nodes {
		w.Nodes[lnn] = n.Node
	}
	for id, record := range m.pools {
		w.Pools[id] = maps.Clone(record)
	}
	return w
}

// turn lets one node look and do one thing: put on its interfaces what it should have, and write at most one record.
func (m *model) turn(lnn int) (changed bool) {
	n := m.nodes[lnn]
	if !n.running {
		return false
	}
	w := m.world(lnn)
	want := map[netip.Addr]bool{}
	for _, h := range Desired(w, n.Incarnation, true) {
		want[h.Address] = true
	}
	if !maps.Equal(want, n.held) && (m.slow == nil || !m.slow()) {
		n.held = want
		m.check()
		return true
	}
	for _, letting := range LetGo(w, n.Incarnation, OnInterfaces{Held: n.held}, m.now) {
		m.write(letting.Pool, letting.Record)
		return true
	}
	if p, _, ok := ProposePool(w, poolID, false, m.now); ok {
		for _, absent := range p.Dead {
			if m.nodes[absent].Present {
				m.t.Fatalf("a takeover from node %d although it is there", absent)
			}
		}
		m.write(p.Pool, p.Record)
		return true
	}
	for _, p := range ProposeServices(w, n.Incarnation, n.held, m.now) {
		if p.After == 0 {
			m.writeService(p)
			return true
		}
	}
	return false
}

func (m *model) writeService(p ServiceProposal) {
	m.tell(p.Key.Address, m.services[p.Key], p.Statement)
	if p.Statement == (tenure.Statement{}) {
		delete(m.services, p.Key)
	} else {
		m.services[p.Key] = p.Statement
	}
	m.check()
}

// patient lets the node that waits least for a free service address try for it, once nobody has anything to do at once.
func (m *model) patient() bool {
	var best ServiceProposal
	for _, lnn := range slices.Sorted(maps.Keys(m.nodes)) {
		n := m.nodes[lnn]
		if !n.running {
			continue
		}
		for _, p := range ProposeServices(m.world(lnn), n.Incarnation, n.held, m.now) {
			if best.After == 0 || p.After < best.After {
				best = p
			}
		}
	}
	if best.After == 0 {
		return false
	}
	m.writeService(best)
	return true
}

func (m *model) write(id cluster.PoolID, record tenure.Record) {
	for _, addr := range slices.SortedFunc(maps.Keys(record), netip.Addr.Compare) {
		m.tell(addr, m.pools[id][addr], record[addr])
	}
	m.pools[id] = record
	m.check()
}

// ask is an operator's rebalance of the pool, and what follows from it; it returns how many addresses it moves.
func (m *model) ask() int {
	m.t.Helper()
	p, _, ok := ProposePool(m.world(1), poolID, true, m.now)
	if !ok {
		return 0
	}
	for _, lnn := range p.Trusted {
		m.nodes[lnn].Trusted = true
	}
	m.write(p.Pool, p.Record)
	m.settle()
	return len(p.Moves)
}

// tell notes a change of owner, and that no living owner lost an address without letting go.
func (m *model) tell(addr netip.Addr, before, after tenure.Statement) {
	if before.Owner == after.Owner {
		return
	}
	if old := m.nodes[before.Owner.LNN]; old != nil && old.running && old.Incarnation == before.Owner.Incarnation && old.held[addr] {
		m.t.Fatalf("%s was given to %s while %s had it on its interface", addr, after.Owner, before.Owner)
	}
	if after.Reason == "" && !after.Owner.IsZero() {
		m.t.Fatalf("%s changed hands without a reason", addr)
	}
	m.moves = append(m.moves, fmt.Sprintf("%s %s -> %s: %s", addr, before.Owner.Member(), after.Owner.Member(), after.Reason))
}

// check is the invariant: no address is on two nodes.
func (m *model) check() {
	m.t.Helper()
	where := map[netip.Addr]int{}
	for lnn, n := range m.nodes {
		for addr := range n.held {
			if other, taken := where[addr]; taken {
				m.t.Fatalf("%s is on node %d and on node %d", addr, other, lnn)
			}
			where[addr] = lnn
		}
	}
}

// settle lets the nodes act in turn until nothing changes, and returns how many turns changed something.
func (m *model) settle() int {
	turns := 0
	for range 10_000 {
		changed := false
		for _, lnn := range slices.Sorted(maps.Keys(m.nodes)) {
			for m.turn(lnn) {
				changed = true
				turns++
				if turns > 5_000 {
					m.t.Fatalf("the cluster does not come to rest; the last moves:\n%s", strings.Join(m.moves[max(len(m.moves)-20, 0):], "\n"))
				}
			}
		}
		if !changed && !m.patient() {
			return turns
		}
	}
	return turns
}

// spread is how many pool addresses each running node has on its interfaces.
func (m *model) spread() map[int]int {
	counts := map[int]int{}
	for lnn, n := range m.nodes {
		if !n.running {
			continue
		}
		counts[lnn] = 0
		for addr := range n.held {
			if addr.As4()[3] >= 100 {
				counts[lnn]++
			}
		}
	}
	return counts
}

func (m *model) serviceSpread() map[int]int {
	counts := map[int]int{}
	for _, st := range m.services {
		counts[st.Owner.LNN]++
	}
	return counts
}
