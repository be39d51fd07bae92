package agent

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
)

// A change returns when it is in effect: what it moves has left the one node and is on the other's interface, at that moment.
func TestAChangeReturnsWhenItIsInEffect(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		asked := func(lnn int) nodeService { return nodeService{c.nodes[lnn].agent} }
		done := func(what string, result *holdfastv1.ChangeResult, err error) {
			t.Helper()
			if err != nil || len(result.Faults) > 0 || len(result.PendingNodes) > 0 {
				t.Fatalf("%s: %v %v", what, result, err)
			}
			c.check()
		}
		addr := c.onKernel(1)[slices.IndexFunc(c.onKernel(1), func(a netip.Addr) bool { return a.As4()[3] >= 100 })]
		result, err := asked(4).PinAddress(t.Context(), &holdfastv1.PinAddressRequest{Address: addr.String(), Member: "2:eth0"})
		done("pin", result, err)
		if !slices.Contains(c.onKernel(2), addr) || slices.Contains(c.onKernel(1), addr) {
			t.Errorf("after the pin of %s node 1 has %v and node 2 has %v", addr, c.onKernel(1), c.onKernel(2))
		}
		c.evenly("3/3/3/3 as soon as it returned", 3, 3, 3, 3)

		result, err = asked(3).DrainNode(t.Context(), &holdfastv1.DrainNodeRequest{Node: "node1"})
		done("drain", result, err)
		c.evenly("0/4/4/4 after a drain", 0, 4, 4, 4)

		result, err = asked(3).UndrainNode(t.Context(), &holdfastv1.UndrainNodeRequest{Node: "node1"})
		done("undrain", result, err)

		edit := &holdfastv1.Edit{Setting: "sc-service-addrs", Op: holdfastv1.Edit_add, Value: "10.0.0.7"}
		result, err = asked(2).Modify(t.Context(), &holdfastv1.ModifyRequest{ObjectKind: holdfastv1.ModifyRequest_subnet, Id: "groupnet0.subnet0", Edits: []*holdfastv1.Edit{edit}})
		done("another service address", result, err)
		fresh, holders := netip.MustParseAddr("10.0.0.7"), 0
		for lnn := range c.nodes {
			if slices.Contains(c.onKernel(lnn), fresh) {
				holders++
			}
		}
		if holders != 1 {
			t.Errorf("%d nodes have the new service address", holders)
		}
	})
}

// Where a change cannot come into effect, the wait ends in time and says what is missing where.
func TestAChangeThatIsNotInEffectInTimeSaysWhatIsMissing(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		for _, n := range c.nodes {
			n.link.Hold(netip.MustParseAddr("10.0.0.7"), net.HardwareAddr{2, 0, 0, 0, 0, 9})
		}
		began := time.Now()
		edit := &holdfastv1.Edit{Setting: "sc-service-addrs", Op: holdfastv1.Edit_add, Value: "10.0.0.7"}
		result, err := nodeService{c.nodes[2].agent}.Modify(t.Context(), &holdfastv1.ModifyRequest{
			ObjectKind: holdfastv1.ModifyRequest_subnet, Id: "groupnet0.subnet0", Edits: []*holdfastv1.Edit{edit},
			Options: &holdfastv1.ChangeOptions{WaitMs: 2000}})
		if err != nil || len(result.PendingNodes) != 1 || !strings.Contains(result.PendingNodes[0].Why, "10.0.0.7") {
			t.Errorf("a service address of a stranger: %v %v", result, err)
		}
		if took := time.Since(began); took < 2*time.Second || took > 4*time.Second {
			t.Errorf("it waited %s", took)
		}
	})
}

// evenly is the spread of the pool addresses on the kernels at this moment.
func (c *testCluster) evenly(what string, counts ...int) {
	c.t.Helper()
	for i, want := range counts {
		if have := c.pool(i + 1); have != want {
			c.t.Errorf("%s: node %d has %d pool addresses, want %d", what, i+1, have, want)
		}
	}
}
