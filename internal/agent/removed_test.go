package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
)

// A node that is cut off knows that it has lapsed, and says so of itself wherever it is asked.
func TestALapsedNodeSaysThatItHasLapsed(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.isolate(3, true)
		c.eventually("node 3 has lapsed", func() bool { return len(c.onKernel(3)) == 0 })
		c.pass(time.Second)
		if n := c.node(3, 3); n.State != holdfastv1.NodeStatus_unfit || !strings.Contains(n.Why, "may not hold") {
			t.Errorf("of itself: %v", n)
		}
		list, err := c.ask(3).ListInterfaces(t.Context(), &holdfastv1.ListInterfacesRequest{Node: "node3"})
		if err != nil || len(list.Addresses) == 0 {
			t.Fatal(list, err)
		}
		for _, a := range list.Addresses {
			if a.State == holdfastv1.InterfaceAddress_held {
				t.Errorf("it says that it holds %v", a)
			}
		}
		explained, err := c.ask(3).Explain(t.Context(), &holdfastv1.ExplainRequest{Subject: "node3"})
		if err != nil || !strings.Contains(explained.Text, "It may not hold moving addresses: ") || strings.Contains(explained.Text, "It may hold") {
			t.Errorf("explained: %v %v", explained, err)
		}
	})
}

// A node that is taken out of the configuration while its agent runs gives up what it has; once it is not heard any more, nothing of
// it stays: no problem, and no wish that it be drained when it is added again.
func TestNothingStaysOfANodeThatIsTakenOut(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.drain(3, true)
		c.eventually("node 3 drains", func() bool { return c.node(1, 3).State == holdfastv1.NodeStatus_draining })
		subjects := func() (of []string) {
			for _, active := range c.nodes[1].agent.board.List() {
				if strings.Contains(active.Subject, "3") && strings.HasPrefix(active.Kind.Code, "node.") {
					of = append(of, active.Kind.Code+" "+active.Subject)
				}
			}
			return of
		}
		if got := subjects(); len(got) != 1 || got[0] != "node.draining node3" {
			t.Errorf("problems of a node that drains: %q", got)
		}
		result, err := c.ask(1).Modify(t.Context(), &holdfastv1.ModifyRequest{ObjectKind: holdfastv1.ModifyRequest_pool, Id: pool0,
			Edits: []*holdfastv1.Edit{{Setting: "ifaces", Op: holdfastv1.Edit_remove, Value: "3:eth0"}}})
		if err != nil || len(result.Faults) > 0 {
			t.Fatal(result, err)
		}
		result, err = c.ask(1).Modify(t.Context(), &holdfastv1.ModifyRequest{ObjectKind: holdfastv1.ModifyRequest_node, Verb: holdfastv1.ModifyRequest_delete, Id: "node3"})
		if err != nil || len(result.Faults) > 0 {
			t.Fatal(result, err)
		}
		c.eventually("it holds nothing", func() bool { return len(c.onKernel(3)) == 0 })
		c.kill(3)
		c.eventually("nothing is said of it", func() bool { return len(subjects()) == 0 })
		if _, drains, err := c.store.Connect().Get(t.Context(), drainKey(3)); drains || err != nil {
			t.Errorf("the wish to drain it outlives it: %v", err)
		}
	})
}
