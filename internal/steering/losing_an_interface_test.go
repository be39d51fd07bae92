package steering

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/internal/cluster"
)

// withTwoInterfaces is a model whose nodes have two interfaces in the pool each.
func withTwoInterfaces(t *testing.T, nodes, addresses int) *model {
	m := newModel(t, nodes, addresses, "")
	pool, _, _, _ := m.config.Pool(poolID)
	for i := range m.config.Nodes {
		m.config.Nodes[i].Interfaces = []string{"eth0", "eth1"}
		pool.Interfaces = append(pool.Interfaces, cluster.Member{LNN: m.config.Nodes[i].LNN, Interface: "eth1"})
	}
	for _, fault := range m.config.Validate() {
		if !fault.Warning {
			t.Fatal(fault)
		}
	}
	return m
}

func (m *model) onInterface(lnn int, name string) (pool, service int) {
	for _, h := range Desired(m.world(lnn), m.nodes[lnn].Incarnation, true) {
		if h.Interface == name && h.Kind == Service {
			service++
		} else if h.Interface == name {
			pool++
		}
	}
	return pool, service
}

// A node with two interfaces in a pool can lose one: its other one carries on, and the service addresses of the node go to the
// others, or stay on the node where there is no other.
func TestANodeThatLosesOneOfTwoInterfacesGoesOnWithTheOther(t *testing.T) {
	for _, nodes := range []int{1, 3} { // of two voices one hosts nothing
		m := withTwoInterfaces(t, nodes, 12)
		m.settle()
		for _, name := range []string{"eth0", "eth1"} {
			if pool, _ := m.onInterface(1, name); pool != 12/nodes/2 {
				t.Errorf("%d nodes: %d addresses on 1:%s at first", nodes, pool, name)
			}
		}
		m.nodes[1].Faults = map[string]string{"eth0": "no carrier"}
		m.settle()
		if pool, service := m.onInterface(1, "eth0"); pool != 0 || service != 0 {
			t.Errorf("%d nodes: %d addresses and %d service addresses on an interface without carrier", nodes, pool, service)
		}
		if pool, _ := m.onInterface(1, "eth1"); pool == 0 {
			t.Errorf("%d nodes: nothing on the interface that is left", nodes)
		}
		held := 0
		for lnn := range m.nodes {
			_, one := m.onInterface(lnn, "eth0")
			_, two := m.onInterface(lnn, "eth1")
			held += one + two
		}
		if held != 3 {
			t.Errorf("%d nodes: %d of 3 service addresses are held", nodes, held)
		}
		if at := m.world(1).serviceInterface(poolID.SubnetID(), 1); at.Interface != "eth1" {
			t.Errorf("node 1 would host service addresses on %s", at)
		}
		if !slices.ContainsFunc(m.moves, func(s string) bool { return strings.Contains(s, "no carrier") }) {
			t.Errorf("no move says why: %q", m.moves)
		}
	}
}
