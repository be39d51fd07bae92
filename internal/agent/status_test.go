package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/linux/link/linktest"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/verdict"
	"github.com/holdfast/holdfast/internal/verdict/probe"
)

// runner makes a node's checks with results that the test sets.
func (c *testCluster) runner(lnn int) func(verdict.Options) *verdict.Runner {
	return func(o verdict.Options) *verdict.Runner {
		o.Probe = func(target verdict.Target) (probe.Probe, error) {
			_, name, _ := strings.Cut(target.ID, "/")
			return testProbe{c, fmt.Sprintf("%d/%s", lnn, name)}, nil
		}
		return verdict.NewRunner(o)
	}
}

type testProbe struct {
	c   *testCluster
	key string
}

func (p testProbe) Try(ctx context.Context) (string, error) {
	p.c.net.Lock()
	err, mute := p.c.sick[p.key], p.c.mute[p.key]
	p.c.net.Unlock()
	if mute {
		<-ctx.Done()
		return "", ctx.Err()
	}
	return "asked " + p.key, err
}

// checkSays makes a node's check fail, or pass again.
func (c *testCluster) checkSays(key string, err error) {
	c.net.Lock()
	defer c.net.Unlock()
	if c.sick == nil {
		c.sick = map[string]error{}
	}
	c.sick[key] = err
}

func (c *testCluster) ask(lnn int) nodeService { return nodeService{c.nodes[lnn].agent} }

// modify changes the configuration through node 1.
func (c *testCluster) modify(kind holdfastv1.ModifyRequest_ObjectKind, verb holdfastv1.ModifyRequest_Verb, id string, settings ...string) *holdfastv1.ChangeResult {
	c.t.Helper()
	r := &holdfastv1.ModifyRequest{ObjectKind: kind, Verb: verb, Id: id}
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		r.Edits = append(r.Edits, &holdfastv1.Edit{Setting: name, Value: value})
	}
	result, err := c.ask(1).Modify(c.t.Context(), r)
	if err != nil || len(result.Faults)+len(result.PendingNodes) > 0 {
		c.t.Fatalf("changing %s: %v %v", id, result, err)
	}
	return result
}

// node is what a node's status says of another.
func (c *testCluster) node(asked, lnn int) *holdfastv1.NodeStatus {
	c.t.Helper()
	v := c.nodes[asked].agent.view.Load()
	if v == nil {
		return &holdfastv1.NodeStatus{Lnn: int32(lnn)}
	}
	return c.ask(asked).nodeStatus(v, lnn)
}

// poolState is what a node says of a pool, and poolNode what it says of one of its nodes.
func (c *testCluster) poolState(asked int, id string) *holdfastv1.PoolState {
	c.t.Helper()
	answer, err := c.ask(asked).PoolStatus(c.t.Context(), &holdfastv1.PoolStatusRequest{Pool: id})
	if err != nil || len(answer.Pools) != 1 {
		c.t.Fatalf("%v %v", answer, err)
	}
	return answer.Pools[0]
}

func (c *testCluster) poolNode(asked int, id string, lnn int) *holdfastv1.PoolNode {
	c.t.Helper()
	for _, n := range c.poolState(asked, id).Nodes {
		if n.Lnn == int32(lnn) {
			return n
		}
	}
	c.t.Fatalf("node %d is not in %s", lnn, id)
	return nil
}

const pool0 = "groupnet0.subnet0.pool0"

// near reports whether something began within two seconds of a moment.
func near(n interface{ AsTime() time.Time }, at time.Time) bool {
	return n.AsTime().Sub(at).Abs() < 2*time.Second
}

// SINCE is when the present state began, not when the node did; also for an agent that was not there at that time.
func TestStatusSaysSinceWhenTheStateIs(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		up := time.Now()
		c.pass(30 * time.Second)
		broken := linktest.Ethernet(2, "eth0")
		broken.Carrier = false
		c.nodes[2].kernel.SetInterface(broken)
		lost := time.Now()
		c.kill(4)
		c.eventually("both are noticed", func() bool {
			return c.node(1, 2).State == holdfastv1.NodeStatus_unfit && c.node(1, 4).State == holdfastv1.NodeStatus_down
		})
		c.pass(20 * time.Second)
		c.kill(1)
		c.start(1)
		restarted := time.Now()
		c.eventually("node 1 knows again", func() bool {
			v := c.nodes[1].agent.view.Load()
			return v != nil && v.ready && c.node(1, 1).State == holdfastv1.NodeStatus_up && c.node(1, 4).State == holdfastv1.NodeStatus_down
		})
		for _, asked := range []int{1, 3} {
			for lnn, want := range map[int]time.Time{1: restarted, 2: lost, 3: up, 4: lost} {
				n := c.node(asked, lnn)
				if lnn == 1 && n.Since.AsTime().Before(restarted) || lnn != 1 && !near(n.Since, want) {
					t.Errorf("node %d says that node %d is %s since %s, want %s", asked, lnn, n.State, n.Since.AsTime().Format(time.StampMilli), want.Format(time.StampMilli))
				}
			}
		}
		if out := c.poolNode(3, pool0, 2); out.In || !near(out.Since, lost) {
			t.Errorf("in the pool: %v", out)
		}
	})
}

// A node that never was anything has no time, and no answer has a time before the agents started.
func TestNoTimeIsNotAVeryLongTime(t *testing.T) {
	if !wall(time.Time{}, time.Now()).IsZero() {
		t.Error("no time became one")
	}
	inCluster(t, func(t *testing.T, c *testCluster) {
		began := time.Now().Add(-time.Hour)
		c.kill(4)
		c.start(4)
		for range 300 { // while it registers, starts and becomes ready
			c.pass(20 * time.Millisecond)
			for lnn := 1; lnn <= 4; lnn++ {
				if n := c.poolNode(2, pool0, lnn); n.Since != nil && n.Since.AsTime().Before(began) {
					t.Fatalf("node %d: since %v", lnn, n.Since.AsTime())
				}
			}
		}
	})
}

// Everybody's checks are listed wherever one asks; a node whose check of one pool fails is left out of that pool and no other, and while
// it is held down it says so.
func TestChecksOfEveryMember(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.modify(holdfastv1.ModifyRequest_pool, holdfastv1.ModifyRequest_create, "subnet0.pool1", "ranges=10.0.0.120-10.0.0.123", "ifaces=1:eth0,2:eth0,3:eth0,4:eth0", "alloc-method=dynamic", "sc-dns-zone=other.test")
		c.modify(holdfastv1.ModifyRequest_check, holdfastv1.ModifyRequest_create, pool0+".web", "kind=tcp", "port=80", "interval-ms=1000", "timeout-ms=500")
		c.eventually("the checks have run", func() bool {
			for _, n := range c.poolState(2, pool0).Nodes {
				if len(n.Checks) != 1 || n.Checks[0].Verdict != "up" || n.Checks[0].Evidence != fmt.Sprintf("asked %d/web", n.Lnn) {
					return false
				}
			}
			return true
		})
		c.checkSays("3/web", errors.New("nobody listens"))
		c.eventually("it is out", func() bool { return !c.poolNode(1, pool0, 3).In && len(c.poolNode(1, pool0, 3).Addresses) == 0 })
		if n := c.poolNode(1, pool0, 3); n.Why != "check web fails: nobody listens" || n.Checks[0].Verdict != "down" {
			t.Errorf("in the pool of the check: %v", n)
		}
		if n := c.poolNode(1, "subnet0.pool1", 3); !n.In {
			t.Errorf("in another pool: %v", n)
		}
		if n := c.node(1, 3); n.State != holdfastv1.NodeStatus_up || !strings.Contains(n.Why, "left out for "+pool0+": check web fails") {
			t.Errorf("as a node: %v", n)
		}
		c.checkSays("3/web", nil)
		c.eventually("it is held down", func() bool { return strings.Contains(c.poolNode(1, pool0, 3).Why, "held down") })
		n := c.poolNode(1, pool0, 3)
		if !strings.HasPrefix(n.Why, "check web passes again; held down for 5s after failing once, until ") || strings.Contains(n.Why, "asked 3/web") {
			t.Errorf("held down: %q", n.Why)
		}
		if check := n.Checks[0]; check.Verdict != "down" || check.HeldUntil == nil || !strings.Contains(check.Reason, "held down for 5s") {
			t.Errorf("the check of the held down node: %v", check)
		}
		c.eventually("it is back", func() bool { return c.poolNode(1, pool0, 3).In })

		c.checkSays("2/web", errors.New("nobody listens"))
		c.kill(3)
		c.eventually("it is down", func() bool { return c.node(1, 3).State == holdfastv1.NodeStatus_down })
		c.pass(2 * time.Second) // nobody counts on it any more: without that, the cut would take the right to hold from nodes 1 and 4
		c.sever(1, 4, true)
		for lnn, want := range map[int]string{3: "node3 is down", 4: "node4 does not answer within 1s"} {
			if n := c.poolNode(1, pool0, lnn); len(n.Checks) != 1 || n.Checks[0].Verdict != "unknown" || !strings.Contains(n.Checks[0].Reason, want) {
				t.Errorf("node %d, which cannot be asked: %v", lnn, n.Checks)
			}
		}
	})
}

// A node that came back and is held down is named, with the time until when.
func TestPoolStatusSaysWhoIsHeldDown(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.kill(2)
		c.eventually("taken over", func() bool { return c.spreadIs(4, 0, 4, 4) })
		c.start(2)
		c.eventually("it is up", func() bool { return c.node(1, 2).State == holdfastv1.NodeStatus_up })
		state, n := c.poolState(1, pool0), c.poolNode(1, pool0, 2)
		until := n.HeldUntil.AsTime()
		if n.HeldUntil == nil || !until.After(time.Now()) {
			t.Fatalf("%v", n)
		}
		said := "and is held down for " + steering.HoldDownBase.String() + ": it is given no address before " + until.UTC().Format("15:04:05 UTC")
		if !strings.Contains(n.Why, said) || !strings.Contains(state.RebalanceNote, "node2: it came back after ") || !strings.Contains(state.RebalanceNote, said) {
			t.Errorf("the node: %q, the pool: %q, want %q", n.Why, state.RebalanceNote, said)
		}
		if why := c.node(1, 2).Why; !strings.Contains(why, said) {
			t.Errorf("the status: %q", why)
		}
		c.eventually("it is over", func() bool { return c.spreadIs(3, 3, 3, 3) })
		if n := c.poolNode(1, pool0, 2); n.HeldUntil != nil || n.Why != "up, fit and holding addresses" {
			t.Errorf("afterwards: %v", n)
		}
	})
}

// An agent that has started says what it waits for.
func TestAStartingNodeSaysWhatItWaitsFor(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.modify(holdfastv1.ModifyRequest_check, holdfastv1.ModifyRequest_create, pool0+".web", "kind=tcp", "port=80", "interval-ms=5000", "timeout-ms=4000")
		c.kill(2)
		c.eventually("taken over", func() bool { return c.spreadIs(4, 0, 4, 4) })
		c.net.Lock()
		c.mute = map[string]bool{"2/web": true}
		c.net.Unlock()
		c.start(2)
		want := "waits for the first result of the check " + pool0 + "/web"
		c.eventually("the others say it", func() bool { return strings.Contains(c.node(1, 2).Why, want) })
		if why := c.poolNode(1, pool0, 2).Why; !strings.Contains(why, want) {
			t.Errorf("the pool: %q", why)
		}
		if why := c.nodes[2].agent.loop.serving(c.nodes[2].agent.view.Load()); !strings.Contains(why, want) {
			t.Errorf("it says of itself: %q", why)
		}
	})
}

// A static address of a node that is down has not been taken over by nobody: it never moves.
func TestAStaticAddressOfADeadNode(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.modify(holdfastv1.ModifyRequest_pool, holdfastv1.ModifyRequest_create, "subnet0.fixed", "ranges=10.0.0.60-10.0.0.63", "ifaces=1:eth0,2:eth0,3:eth0,4:eth0", "sc-dns-zone=fixed.test")
		c.kill(3)
		c.eventually("it is down", func() bool { return c.node(1, 3).State == holdfastv1.NodeStatus_down })
		want := "node3 is not up: a static address never moves, and is not given while its node is down"
		n := c.poolNode(1, "subnet0.fixed", 3)
		if n.In || len(n.Addresses) != 1 || n.Addresses[0].Address != "10.0.0.62" || n.Addresses[0].In || n.Addresses[0].Why != want {
			t.Errorf("in the pool: %v", n)
		}
		if state := c.poolState(1, "subnet0.fixed"); len(state.Unassigned) > 0 {
			t.Errorf("with nobody: %v", state.Unassigned)
		}
		list, err := c.ask(1).ListInterfaces(t.Context(), &holdfastv1.ListInterfacesRequest{Within: "subnet0.fixed"})
		if err != nil || len(list.Addresses) != 4 || list.Addresses[2].Why != want {
			t.Errorf("in the list: %v %v", list, err)
		}
		for _, p := range c.nodes[1].agent.board.List() {
			if p.Kind == problemOrphaned && p.Subject == "groupnet0.subnet0.fixed" {
				t.Errorf("a problem: %s", p.Detail)
			}
		}
	})
}

// What the record says of a pin goes with the pin.
func TestUnpinTakesTheReasonAway(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		why := func() string {
			list, err := c.ask(1).ListInterfaces(t.Context(), &holdfastv1.ListInterfacesRequest{Within: pool0})
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range list.Addresses {
				if a.Address == "10.0.0.100" {
					return fmt.Sprintf("%v %s", a.Pinned, a.Why)
				}
			}
			return ""
		}
		from := c.snapshot()
		to := from[netip.MustParseAddr("10.0.0.100")]%4 + 1
		if _, err := c.ask(1).PinAddress(t.Context(), &holdfastv1.PinAddressRequest{Address: "10.0.0.100", Member: fmt.Sprintf("%d:eth0", to)}); err != nil {
			t.Fatal(err)
		}
		if got := why(); !strings.HasPrefix(got, "true pinned to ") {
			t.Fatalf("pinned: %s", got)
		}
		if _, err := c.ask(1).UnpinAddress(t.Context(), &holdfastv1.UnpinAddressRequest{Address: "10.0.0.100"}); err != nil {
			t.Fatal(err)
		}
		if got := why(); strings.Contains(got, "pinned to") || strings.HasPrefix(got, "true") {
			t.Errorf("after unpin: %s", got)
		}
		explained, err := c.ask(1).Explain(t.Context(), &holdfastv1.ExplainRequest{Subject: "10.0.0.100"})
		if err != nil || strings.Contains(explained.Text, "because pinned to") {
			t.Errorf("explained after unpin: %v %v", explained, err)
		}
	})
}

// A node that was stopped and started is withheld like one that died: sc-auto-unsuspend-delay is about coming back.
func TestAutoUnsuspendDelayAfterAnOrderlyStop(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.modify(holdfastv1.ModifyRequest_pool, holdfastv1.ModifyRequest_modify, pool0, "sc-auto-unsuspend-delay=40")
		c.nodes[3].stop()
		<-c.nodes[3].ended
		c.eventually("handed over", func() bool { return c.spreadIs(4, 4, 0, 4) })
		c.pass(3 * time.Second)
		c.nodes[3].kernel = linktest.New(linktest.Ethernet(2, "eth0"))
		c.start(3)
		ready := time.Time{}
		c.eventually("it holds its share again", func() bool {
			if ready.IsZero() && c.node(1, 3).State == holdfastv1.NodeStatus_up {
				ready = time.Now()
			}
			return c.spreadIs(3, 3, 3, 3)
		})
		if n := c.poolNode(1, pool0, 3); n.In || !strings.Contains(n.Why, "sc-auto-unsuspend-delay") {
			t.Errorf("it is given out at once: %v", n)
		}
		c.eventually("it is given out", func() bool { return c.poolNode(1, pool0, 3).In })
		if waited := time.Since(ready); waited < 39*time.Second || waited > 42*time.Second {
			t.Errorf("in virtual time it was withheld for %s", waited)
		}
	})
}

// Whoever sets what has no effect is told, by the command too.
func TestModifyWarnsOfWhatHasNoEffect(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		for _, id := range []string{"110", "111"} { // each time that it is set
			result := c.modify(holdfastv1.ModifyRequest_subnet, holdfastv1.ModifyRequest_modify, "groupnet0.subnet0", "vlan-id="+id)
			if len(result.Warnings) != 1 || !strings.HasPrefix(result.Warnings[0].Message, "has no effect yet") {
				t.Errorf("%s: %v", id, result.Warnings)
			}
		}
		if result := c.modify(holdfastv1.ModifyRequest_node, holdfastv1.ModifyRequest_modify, "node1", "rack=left"); len(result.Warnings) > 0 {
			t.Errorf("of a rack, by which observers are chosen: %v", result.Warnings)
		}
		if result := c.modify(holdfastv1.ModifyRequest_pool, holdfastv1.ModifyRequest_modify, pool0, "sc-ttl=5"); len(result.Warnings) > 0 {
			t.Errorf("of something else: %v", result.Warnings)
		}
	})
}

func TestListWithin(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		for within, want := range map[string]int{"": 15, "groupnet0": 15, "subnet0": 15, "groupnet0.subnet0": 15, "subnet0.pool0": 12, pool0: 12, "subnet9": -1, "groupnet0.subnet9": -1, "pool0": -1} {
			list, err := c.ask(1).ListInterfaces(t.Context(), &holdfastv1.ListInterfacesRequest{Within: within})
			switch {
			case want < 0 && (err == nil || !strings.Contains(api.Text(err), within)):
				t.Errorf("%s: %v", within, err)
			case want >= 0 && (err != nil || len(list.Addresses) != want):
				t.Errorf("%s: %d addresses, %v", within, len(list.GetAddresses()), err)
			}
		}
	})
}
