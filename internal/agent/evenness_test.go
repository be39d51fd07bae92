package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/problem"
)

// pool0With puts settings of the pool into effect, such as its rebalance policy.
func (c *testCluster) pool0With(settings string) {
	c.t.Helper()
	c.apply("sc-dns-zone: cluster.test}", "sc-dns-zone: cluster.test, "+settings+"}")
	c.eventually("the new configuration is in effect", func() bool {
		for _, n := range c.nodes {
			v := n.agent.view.Load()
			if pool, _, _, _ := v.world.Config.Pool(v.world.Config.Pools()[0]); pool.RebalancePolicy == "auto" && len(pool.Checks) == 0 {
				return false
			}
		}
		return c.everybodyServes()
	})
}

var errRefused = errors.New("connection refused")

// problem is what a node's board says of pool0 under a code; empty when it is not there.
func (c *testCluster) problem(lnn int, kind *problem.Kind) string {
	for _, active := range c.nodes[lnn].agent.board.List() {
		if active.Kind == kind && active.Subject == "groupnet0.subnet0.pool0" {
			return active.Detail
		}
	}
	return ""
}

func (c *testCluster) rebalance(lnn int) *holdfastv1.ChangeResult {
	c.t.Helper()
	result, err := nodeService{c.nodes[lnn].agent}.RebalancePool(c.t.Context(), &holdfastv1.RebalancePoolRequest{All: true})
	if err != nil || len(result.PendingNodes) > 0 {
		c.t.Fatalf("rebalance: %v %v", result, err)
	}
	return result
}

// flap ends a node and starts it again until its hold-down lasts some seconds.
func (c *testCluster) flap(lnn int) {
	c.t.Helper()
	for range 3 {
		c.kill(lnn)
		c.eventually("the others have taken over", func() bool {
			return c.pool(1)+c.pool(2)+c.pool(3)+c.pool(4) == len(c.config.Addresses(c.config.Pools()[0]))
		})
		c.start(lnn)
		c.eventually("it is back", func() bool {
			v := c.nodes[2].agent.view.Load()
			return v.world.Nodes[lnn].Present && v.world.Nodes[lnn].Ready
		})
	}
	v := c.nodes[2].agent.view.Load()
	if left := v.world.HeldDown(lnn, time.Now()); left < 2*time.Second {
		c.t.Fatalf("node %d is held down for another %s, want some seconds", lnn, left)
	}
}

// An operator who rebalances while a node is in its hold-down trusts it. What is planned from then on counts with it: a drain that
// follows at once leaves the even spread of the sizing examples.
func TestADrainAfterAnAskedRebalanceIsEven(t *testing.T) {
	for addresses, want := range map[int][]int{12: {0, 4, 4, 4}, 4: {0, 1, 1, 2}} {
		t.Run(fmt.Sprint(addresses), func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *testCluster) {
				c.apply("10.0.0.100-10.0.0.111", fmt.Sprintf("10.0.0.100-10.0.0.%d", 99+addresses), "sc-dns-zone: cluster.test}", "sc-dns-zone: cluster.test, rebalance-policy: manual}")
				c.eventually("an even start", func() bool { n := addresses / 4; return c.spreadIs(n, n, n, n) && c.everybodyServes() })
				c.flap(1)
				if moves := c.rebalance(3).Moves; len(moves) != addresses/4 {
					t.Errorf("the rebalance moved %v", moves)
				}
				result, err := nodeService{c.nodes[3].agent}.DrainNode(t.Context(), &holdfastv1.DrainNodeRequest{Node: "node4"})
				if err != nil || len(result.PendingNodes) > 0 {
					t.Fatalf("drain: %v %v", result, err)
				}
				got := []int{c.pool(1), c.pool(2), c.pool(3), c.pool(4)}
				if drained := got[3]; drained != 0 {
					t.Errorf("the drained node has %d", drained)
				}
				if slices.Sort(got); !slices.Equal(got, want) {
					t.Errorf("after the drain the nodes hold %v, want %v\n%s", got, want, c.story())
				}
			})
		})
	}
}

// Where the policy leaves it to an operator, every node says so, with what to do, until it is done.
func TestAnUnevenPoolIsAProblemUntilAnOperatorActs(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.pool0With("rebalance-policy: manual")
		c.kill(1)
		c.eventually("taken over", func() bool { return c.spreadIs(0, 4, 4, 4) })
		if said := c.problem(2, problemUneven); said != "" {
			t.Errorf("without the dead node the pool is even, but: %s", said)
		}
		c.start(1)
		for lnn := range c.nodes {
			c.eventually("the problem is known", func() bool { return c.problem(lnn, problemUneven) != "" })
			if said := c.problem(lnn, problemUneven); !strings.Contains(said, "would move 3 addresses (node2 has 4, node3 has 4, node4 has 4, node1 has 0): the pool's rebalance policy is manual") {
				t.Errorf("node %d says: %s", lnn, said)
			}
		}
		c.pass(time.Minute)
		if !c.spreadIs(0, 4, 4, 4) {
			t.Errorf("something moved although nobody asked\n%s", c.story())
		}
		explained := c.explain(3, "groupnet0.subnet0.pool0")
		if text := explained.Text; !strings.Contains(text, "an operator decides") || !strings.Contains(text, "rebalance-ips groupnet0.subnet0.pool0") {
			t.Errorf("explain says nothing of it:\n%s", text)
		}
		c.rebalance(3)
		for lnn := range c.nodes {
			c.eventually("the problem is over", func() bool { return c.problem(lnn, problemUneven) == "" })
		}
	})
}

// A cause that all nodes share lets their checks fail one after the other. The last one has everything, and that is said; when
// nobody is fit nothing moves, and that is said too; as they return, each address goes home in one move.
func TestACheckThatFailsEverywhere(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.pool0With("checks: [{name: nfs, kind: tcp, port: 2049}]")
		for _, lnn := range []int{1, 2, 3} {
			c.checkSays(fmt.Sprintf("%d/nfs", lnn), errRefused)
			c.eventually("it has lost its addresses", func() bool { return c.pool(lnn) == 0 })
		}
		c.eventually("the last one has all", func() bool { return c.spreadIs(0, 0, 0, 12) })
		if said := c.problem(1, problemNoSuccessor); !strings.Contains(said, "only node4 is fit; node1: check nfs fails: connection refused") {
			t.Errorf("of the last fit node it is said: %q", said)
		}
		before := c.snapshot()
		c.checkSays("4/nfs", errRefused)
		c.eventually("nobody is fit", func() bool { return c.problem(1, problemNobodyFit) != "" })
		c.pass(time.Minute)
		for addr, lnn := range c.snapshot() {
			if addr.As4()[3] >= 100 && before[addr] != lnn {
				t.Errorf("%s went from node %d to node %d although nobody is fit", addr, before[addr], lnn)
			}
		}
		from := c.eventCount("address.moving")
		for lnn := 1; lnn <= 4; lnn++ {
			c.checkSays(fmt.Sprintf("%d/nfs", lnn), nil)
			c.pass(700 * time.Millisecond)
		}
		c.eventually("all are home", func() bool { return c.spreadIs(3, 3, 3, 3) && c.everybodyServes() })
		c.pass(time.Minute)
		if moves := c.eventCount("address.moving") - from; moves != 9 || !c.spreadIs(3, 3, 3, 3) {
			t.Errorf("%d moves brought 9 addresses home\n%s", moves, c.story())
		}
		if said := c.problem(1, problemNobodyFit) + c.problem(1, problemNoSuccessor); said != "" {
			t.Errorf("all is well, but it is said: %s", said)
		}
	})
}

// eventCount is how many events of a kind node 1 has told.
func (c *testCluster) eventCount(kind string) int {
	events, _ := c.nodes[1].agent.events.after(0)
	n := 0
	for _, e := range events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// What a dry run shows is what then happens, with what follows from it: a pin takes an address to a node, and evening out takes
// another one away from it.
func TestADryRunShowsWhatThenHappens(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		asked := nodeService{c.nodes[2].agent}
		addr := c.onPool(1)[0]
		request := &holdfastv1.PinAddressRequest{Address: addr.String(), Member: "3:eth0", Options: &holdfastv1.ChangeOptions{DryRun: true}}
		planned, err := asked.PinAddress(t.Context(), request)
		if err != nil || len(planned.Moves) != 2 {
			t.Fatalf("the dry run shows %v %v, want the pin and what evens it out", planned, err)
		}
		before := c.snapshot()
		request.Options = nil
		if result, err := asked.PinAddress(t.Context(), request); err != nil || len(result.PendingNodes) > 0 {
			t.Fatalf("%v %v", result, err)
		}
		want := map[string]string{}
		for _, move := range planned.Moves {
			want[move.Address] = move.ToNode
		}
		for moved, lnn := range c.snapshot() {
			if before[moved] != lnn && want[moved.String()] != fmt.Sprintf("node%d", lnn) {
				t.Errorf("%s moved to node %d; planned was %q", moved, lnn, want[moved.String()])
			}
			delete(want, moved.String())
		}
		if len(want) > 0 || !c.spreadIs(3, 3, 3, 3) {
			t.Errorf("planned and not done: %v\n%s", want, c.story())
		}
		down, err := asked.PlanDown(t.Context(), &holdfastv1.PlanDownRequest{Nodes: []string{"node3"}})
		service := slices.DeleteFunc(c.onKernel(3), func(a netip.Addr) bool { return a.As4()[3] >= 100 })
		if err != nil || len(down.Moves) != 3+len(service) || down.Pools[0].Nodes[2].AddressesAfter != 0 || down.Pools[0].Nodes[0].AddressesAfter != 4 {
			t.Errorf("the plan for the death of node 3: %v %v", down, err)
		}
		all, err := asked.PlanDown(t.Context(), &holdfastv1.PlanDownRequest{Nodes: []string{"1", "2", "3", "4"}})
		if err != nil || len(all.Unassigned) != 12+3 {
			t.Errorf("with everybody gone: %v %v", all, err)
		}
	})
}
