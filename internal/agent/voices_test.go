package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
)

// twoNodes is a cluster of two nodes, and what else is given.
func twoNodes(more string) string {
	return `
cluster: {name: test}
nodes:
  - {name: node1, lnn: 1, interfaces: [eth0], addresses: [10.0.0.11]}
  - {name: node2, lnn: 2, interfaces: [eth0], addresses: [10.0.0.12]}
` + more + `
groupnets:
  - name: groupnet0
    subnets:
      - name: subnet0
        cidr: 10.0.0.0/24
        sc-service-name: ssip.test
        sc-service-addrs: [10.0.0.4-10.0.0.5]
        pools:
          - {name: pool0, ranges: [10.0.0.100-10.0.0.111], ifaces: ["1:eth0", "2:eth0"], alloc-method: dynamic, sc-dns-zone: cluster.test}
`
}

const aWitness = "  - {name: witness, lnn: 3, witness: true, addresses: [10.0.0.13]}"

// Two nodes and a witness survive the death of any one of them, and the witness holds nothing at any time.
func TestTwoNodesAndAWitness(t *testing.T) {
	for dead := 1; dead <= 3; dead++ {
		t.Run(fmt.Sprintf("node %d dies", dead), func(t *testing.T) {
			inClusterOf(t, twoNodes(aWitness), []int{6, 6, 0}, func(t *testing.T, c *testCluster) {
				before := c.snapshot()
				c.kill(dead)
				died := time.Now()
				want := [][]int{{0, 12, 0}, {12, 0, 0}, {6, 6, 0}}[dead-1]
				c.eventually("the others have everything", func() bool { return c.spreadIs(want...) })
				if gap := time.Since(died); gap > spanOf(c)+50*time.Millisecond {
					t.Errorf("it took %s; the span is %s", gap, spanOf(c))
				}
				c.pass(10 * time.Second)
				if !c.spreadIs(want...) || len(c.onKernel(3)) != 0 {
					t.Errorf("ten seconds later it is otherwise\n%s", c.story())
				}
				if dead == 3 && fmt.Sprint(c.snapshot()) != fmt.Sprint(before) {
					t.Errorf("the witness died, and addresses moved: %v, before %v", c.snapshot(), before)
				}
				c.start(dead)
				c.eventually("all is as before", func() bool { return c.spreadIs(6, 6, 0) })
				if held := c.onKernel(3); len(held) != 0 {
					t.Errorf("the witness holds %v", held)
				}
			})
		})
	}
}

// problems are the codes of what a node says is wrong.
func (c *testCluster) problems(lnn int) []string {
	var codes []string
	for _, p := range c.nodes[lnn].agent.board.List() {
		codes = append(codes, p.Kind.Code)
	}
	return codes
}

// With two voices the first node holds by itself, and the second nothing, whoever of them dies. An operator's word that the first is
// dead gives the second everything; and a witness makes it a cluster.
func TestTwoVoices(t *testing.T) {
	inClusterOf(t, twoNodes(""), []int{12, 0}, func(t *testing.T, c *testCluster) {
		if held := c.onKernel(2); len(held) != 0 {
			t.Errorf("the second of two voices holds %v", held)
		}
		for lnn := 1; lnn <= 2; lnn++ {
			if !slices.Contains(c.problems(lnn), "cluster.two-voices") {
				t.Errorf("node %d has the problems %v", lnn, c.problems(lnn))
			}
		}
		c.kill(2)
		c.pass(5 * time.Second)
		if !c.spreadIs(12, 0) {
			t.Errorf("the second died, and the first holds %v", c.onKernel(1))
		}
		c.start(2)
		c.eventually("the second is back", c.everybodyServes)
		c.kill(1)
		c.pass(5 * time.Second)
		if !c.spreadIs(0, 0) {
			t.Errorf("the first died, and the second holds %v by nobody's word", c.onKernel(2))
		}
		if _, err := c.declareDead(2, &holdfastv1.DeclareDeadRequest{Nodes: []string{"1"}, Reason: power}); err != nil {
			t.Fatal(err)
		}
		c.eventually("the second has everything", func() bool { return c.spreadIs(0, 12) })
		c.start(1)
		c.eventually("the first has everything again", func() bool { return c.spreadIs(12, 0) })
	})
}

// A witness that joins makes three voices of two, and the second node gets its part.
func TestAWitnessJoinsTwoVoices(t *testing.T) {
	inClusterOf(t, twoNodes(aWitness), []int{6, 6, 0}, func(t *testing.T, c *testCluster) {
		c.kill(3)
		c.applyText(twoNodes(""))
		c.eventually("the second has let go", func() bool { return c.spreadIs(12, 0, 0) })
		c.applyText(twoNodes(aWitness))
		c.start(3)
		c.eventually("the second has its part", func() bool { return c.spreadIs(6, 6, 0) })
		if slices.Contains(c.problems(1), "cluster.two-voices") {
			t.Error("with three voices there is still the problem of two")
		}
		if state, why := nodeState(c.nodes[1].agent.view.Load().world, c.nodes[1].agent.view.Load().world.Nodes[2]); state != "up" || strings.Contains(why, "voices") {
			t.Errorf("node 2 is %s: %s", state, why)
		}
	})
}
