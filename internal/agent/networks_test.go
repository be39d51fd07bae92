package agent

import (
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/tenure"
	"github.com/holdfast/holdfast/internal/tenure/datagram/datagramtest"
)

// A network is looked at every half span: each look is how many of how many observers are heard over it, and whether it is cut then.
func TestWhenANetworkIsCut(t *testing.T) {
	type look struct {
		heard, of int
		cut       bool
	}
	repeat := func(n int, l look) []look { return slices.Repeat([]look{l}, n) }
	const span = 100 * time.Millisecond
	for _, example := range []struct {
		name  string
		looks []look
	}{
		{"all are heard", repeat(9, look{3, 3, false})},
		{"half of them suffice", repeat(9, look{2, 4, false})},
		{"fewer do not, after a span", []look{{3, 3, false}, {1, 3, false}, {1, 3, true}, {0, 3, true}}},
		{"a hiccup is none", []look{{3, 3, false}, {0, 3, false}, {3, 3, false}, {0, 3, false}, {3, 3, false}}},
		{"one observer alone proves nothing", []look{{1, 1, false}, {0, 1, false}, {0, 1, false}, {0, 1, false}}},
		{"nor do those that are not heard at all", []look{{3, 3, false}, {0, 0, false}, {0, 0, false}, {0, 0, false}}},
		{"never heard since the start", []look{{0, 3, false}, {0, 3, false}, {0, 3, true}}},
		{"well again after four spans", slices.Concat([]look{{3, 3, false}, {0, 3, false}, {0, 3, true}}, repeat(8, look{3, 3, true}), []look{{3, 3, false}})},
		{"not before four spans without a break", slices.Concat([]look{{3, 3, false}, {0, 3, false}, {0, 3, true}}, repeat(8, look{3, 3, true}), []look{{1, 3, true}},
			repeat(8, look{3, 3, true}), []look{{3, 3, false}})},
		{"what cannot be judged heals nothing", slices.Concat([]look{{3, 3, false}, {0, 3, false}, {0, 3, true}}, repeat(20, look{0, 0, true}))},
	} {
		var s networkState
		for i, l := range example.looks {
			if s = s.next(l.heard, l.of, span, time.Unix(1000, 0).Add(time.Duration(i)*span/2)); s.cut != l.cut {
				t.Errorf("%s: at look %d it is cut: %t", example.name, i, s.cut)
				break
			}
		}
	}
}

// A cut is this node's fault after a span in which fewer than half of the others said that theirs is cut, and stays so until it heals.
func TestWhoseFaultACutIs(t *testing.T) {
	const span = 100 * time.Millisecond
	began := time.Unix(1000, 0)
	for _, example := range []struct {
		name        string
		state       networkState
		after       time.Duration
		cut, others int
		fault       bool
	}{
		{"it is not cut", networkState{}, span, 0, 3, false},
		{"the others may not have said yet", networkState{cut: true, since: began}, span / 2, 0, 3, false},
		{"it is alone", networkState{cut: true, since: began}, span, 0, 3, true},
		{"few others are cut as well", networkState{cut: true, since: began}, span, 1, 3, true},
		{"half of the others are", networkState{cut: true, since: began}, span, 2, 4, false},
		{"all are", networkState{cut: true, since: began}, 10 * span, 3, 3, false},
		{"it was alone at first", networkState{cut: true, since: began, fault: true}, 10 * span, 3, 3, true},
		{"there are no others", networkState{cut: true, since: began}, span, 0, 0, false},
	} {
		if s := example.state.blame(example.cut, example.others, span, began.Add(example.after)); s.fault != example.fault {
			t.Errorf("%s: %+v", example.name, s)
		}
	}
}

func TestHeardOver(t *testing.T) {
	now := time.Unix(1000, 0)
	lease := func(observer int, ago ...time.Duration) tenure.Lease {
		l := tenure.Lease{Observer: observer}
		for i, d := range ago {
			l.Acknowledged[i] = now.Add(-d * time.Millisecond)
		}
		return l
	}
	leases := []tenure.Lease{lease(2, 10, 20), lease(3, 10, 300), lease(4, 400, 400), lease(5, 10, 10), lease(6)}
	networksOf := func(lnn int) int {
		if lnn == 5 {
			return 1
		}
		return 2
	}
	if heard, of := heardOver(1, leases, networksOf, 150*time.Millisecond, now); heard != 1 || of != 2 {
		t.Errorf("%d of %d are heard over the second; node 4 is dead, node 5 is not there, node 6 was never heard", heard, of)
	}
	if heard, of := heardOver(0, leases, networksOf, 150*time.Millisecond, now); heard != 3 || of != 3 {
		t.Errorf("%d of %d are heard over the first", heard, of)
	}
}

const twoNetworks = `
cluster: {name: test}
nodes:
  - {name: node1, lnn: 1, interfaces: [eth0], addresses: [10.9.0.11, 10.0.0.11]}
  - {name: node2, lnn: 2, interfaces: [eth0], addresses: [10.9.0.12, 10.0.0.12]}
  - {name: node3, lnn: 3, interfaces: [eth0], addresses: [10.9.0.13, 10.0.0.13]}
  - {name: node4, lnn: 4, interfaces: [eth0], addresses: [10.9.0.14, 10.0.0.14]}
`

func twoNetworksConfig() string {
	return regexp.MustCompile(`(?s)^.*groupnets:`).ReplaceAllLiteralString(testConfig, twoNetworks+"groupnets:")
}

func TestWhichInterfaceIsCut(t *testing.T) {
	config, err := cluster.Parse("test", []byte(twoNetworksConfig()))
	if err != nil {
		t.Fatal(err)
	}
	node, _ := config.Node(2)
	at := func(iface, prefix string) link.Address {
		return link.Address{Interface: iface, Prefix: netip.MustParsePrefix(prefix)}
	}
	for _, example := range []struct {
		name  string
		there []link.Address
		want  [][]string
	}{
		{"by the kernel", []link.Address{at("eth1", "10.9.0.12/24"), at("eth0", "10.0.0.12/24")}, [][]string{nil, {"eth0"}}},
		{"by the subnet", nil, [][]string{nil, {"eth0"}}},
		{"both on one", []link.Address{at("eth0", "10.9.0.12/24"), at("eth0", "10.0.0.12/24")}, [][]string{{"eth0"}, {"eth0"}}},
	} {
		if diff := cmp.Diff(example.want, carriers(node, config, example.there)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", example.name, diff)
		}
	}

	names := networkNames(config, node)
	cut, well, everywhere := networkState{cut: true, fault: true}, networkState{}, networkState{cut: true}
	for _, example := range []struct {
		name       string
		states     []networkState
		interfaces [][]string
		want       []string
	}{
		{"nothing is cut", []networkState{well, well}, [][]string{nil, {"eth0"}}, nil},
		{"the second is", []networkState{well, cut}, [][]string{nil, {"eth0"}}, []string{"eth0"}},
		{"the first is, which carries no addresses", []networkState{cut, well}, [][]string{nil, {"eth0"}}, nil},
		{"the second is, for the others too", []networkState{well, everywhere}, [][]string{nil, {"eth0"}}, nil},
		{"another network of the interface works", []networkState{well, cut}, [][]string{{"eth0"}, {"eth0"}}, nil},
	} {
		faults := cutInterfaces(example.states, names, example.interfaces)
		if got := slices.Sorted(maps.Keys(faults)); !slices.Equal(got, example.want) {
			t.Errorf("%s: %v", example.name, faults)
		}
		for _, why := range faults {
			if !strings.Contains(why, "10.0.0.0/24") {
				t.Errorf("%s: it does not name the network: %s", example.name, why)
			}
		}
	}
}

// The clients' network of node 2 is cut, with its carrier there and the cluster's network well: its addresses go elsewhere in planned
// moves, and return when it is mended.
func TestASilentCutOfTheClientsNetwork(t *testing.T) {
	inClusterOf(t, twoNetworksConfig(), []int{3, 3, 3, 3}, func(t *testing.T, c *testCluster) {
		c.pass(2 * time.Second)
		before := c.snapshot()
		c.beats.Drop(func(p datagramtest.Packet) bool { return p.Network == 1 && (p.From == 2 || p.To == 2) })
		began := time.Now()
		c.eventually("its addresses are elsewhere", func() bool { return c.spreadIs(4, 0, 4, 4) })
		if took := time.Since(began); took > 5*spanOf(c) {
			t.Errorf("it took %s, and a span is %s", took, spanOf(c))
		}
		for addr, lnn := range c.snapshot() {
			if old := before[addr]; old != 2 && old != lnn {
				t.Errorf("%s went from node %d to node %d, which hear each other", addr, old, lnn)
			}
		}
		v := c.nodes[1].agent.view.Load()
		if state, why := nodeState(v.world, v.world.Nodes[2]); state != "unfit" || !strings.Contains(why, "10.0.0.0/24") {
			t.Errorf("node 2 is said to be %s: %s", state, why)
		}
		if !c.nodes[2].agent.tenancy.Standing().MayHold {
			t.Error("it may not hold, although it is heard over the other network")
		}
		c.beats.Drop(nil)
		c.eventually("it is used again", func() bool { return c.spreadIs(3, 3, 3, 3) })
	})
}

// A cut of everybody's clients' network moves nothing: nowhere is it better.
func TestACutOfTheClientsNetworkForAllMovesNothing(t *testing.T) {
	inClusterOf(t, twoNetworksConfig(), []int{3, 3, 3, 3}, func(t *testing.T, c *testCluster) {
		c.pass(2 * time.Second)
		before := c.snapshot()
		c.beats.Drop(func(p datagramtest.Packet) bool { return p.Network == 1 })
		c.pass(10 * time.Second)
		if _, cut := c.nodes[3].agent.networks.get(); !slices.Equal(cut, []int{1}) {
			t.Errorf("node 3 says that %v are cut", cut)
		}
		if now := c.snapshot(); !maps.Equal(now, before) {
			t.Errorf("%v became %v\n%s", before, now, c.story())
		}
	})
}
