package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/bubble"
	"github.com/holdfast/holdfast/internal/cluster"
)

// testGrounds is where the gateways of a test cluster are: they answer every node but those that are named.
type testGrounds struct {
	mu   sync.Mutex
	mute map[int]bool // by LNN: what it asks is not answered
}

func (g *testGrounds) silence(lnn int, on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mute == nil {
		g.mute = map[int]bool{}
	}
	g.mute[lnn] = on
}

func (g *testGrounds) of(lnn int) openAsker {
	return func(string, netip.Addr) (gatewayAsker, error) {
		return &testAsker{answers: func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return !g.mute[lnn]
		}, ways: make(chan struct{}, 16)}, nil
	}
}

// testAsker answers at once, if it does.
type testAsker struct {
	answers func() bool
	ways    chan struct{}
	broken  error
}

func (k *testAsker) Ask() error {
	if k.answers() {
		select {
		case k.ways <- struct{}{}:
		default:
		}
	}
	return k.broken
}

func (k *testAsker) Run(ctx context.Context, heard func()) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.ways:
			heard()
		}
	}
}

func (k *testAsker) Close() {}

// twoAlone is two nodes that ask the gateway.
func twoAlone() string {
	text := strings.Replace(twoNodes(""), "{name: test}", "{name: test, no-witness: true}", 1)
	return strings.Replace(text, "cidr: 10.0.0.0/24\n", "cidr: 10.0.0.0/24\n        gateway: 10.0.0.1\n", 1)
}

// part cuts a node off from the other, the store and the gateway, or not any more.
func (c *testCluster) part(lnn int, on bool) {
	c.sever(1, 2, on)
	c.grounds.silence(lnn, on)
	c.nodes[lnn].store.Cut(on)
}

// Of two nodes that ask the gateway either may die, and the other has everything, without anybody's help.
func TestTwoNodesWithoutAWitness(t *testing.T) {
	for dead := 1; dead <= 2; dead++ {
		t.Run(fmt.Sprintf("node %d dies", dead), func(t *testing.T) {
			inClusterOf(t, twoAlone(), []int{6, 6}, func(t *testing.T, c *testCluster) {
				want := []int{12, 12}
				want[dead-1] = 0
				c.kill(dead)
				died := time.Now()
				c.eventually("the other has everything", func() bool { return c.spreadIs(want...) })
				if gap := time.Since(died); gap > spanOf(c)+150*time.Millisecond {
					t.Errorf("it took %s; the span is %s, and the interval 100ms", gap, spanOf(c))
				}
				c.pass(10 * time.Second)
				if !c.spreadIs(want...) {
					t.Errorf("ten seconds later it is otherwise\n%s", c.story())
				}
				c.start(dead)
				c.eventually("all is as before", func() bool { return c.spreadIs(6, 6) })
			})
		})
	}
}

// A node that is cut off from all lets go, and takes part again afterwards.
func TestOneOfTwoIsCutOff(t *testing.T) {
	inClusterOf(t, twoAlone(), []int{6, 6}, func(t *testing.T, c *testCluster) {
		c.part(1, true)
		c.eventually("the other has everything", func() bool { return c.spreadIs(0, 12) })
		c.pass(5 * time.Second)
		c.part(1, false)
		c.eventually("all is as before", func() bool { return c.spreadIs(6, 6) })
	})
}

// While only the link between them is cut both hold the same addresses, which is what status says all the time. Afterwards each address is at
// one again.
func TestOnlyTheLinkBetweenTwoIsCut(t *testing.T) {
	inClusterOf(t, twoAlone(), []int{6, 6}, func(t *testing.T, c *testCluster) {
		for lnn := 1; lnn <= 2; lnn++ {
			if !slices.Contains(c.problems(lnn), "cluster.no-witness") || slices.Contains(c.problems(lnn), "cluster.two-voices") {
				t.Errorf("node %d has the problems %v", lnn, c.problems(lnn))
			}
		}
		c.sever(1, 2, true)
		c.nodes[2].store.Cut(true) // the first hosts it
		time.Sleep(10 * time.Second)
		for lnn := 1; lnn <= 2; lnn++ {
			if held := c.onKernel(lnn); len(held) != 14 {
				t.Errorf("node %d holds %v", lnn, held)
			}
		}
		c.sever(1, 2, false)
		c.nodes[2].store.Cut(false)
		time.Sleep(time.Second)
		c.eventually("all is as before", func() bool { return c.spreadIs(6, 6) })
	})
}

// A gateway that does not answer changes nothing while both live, but is a problem; who loses the other then lets go.
func TestTheGatewayOfTwoIsSilent(t *testing.T) {
	inClusterOf(t, twoAlone(), []int{6, 6}, func(t *testing.T, c *testCluster) {
		before := c.snapshot()
		c.grounds.silence(1, true)
		c.pass(6 * time.Second)
		if fmt.Sprint(before) != fmt.Sprint(c.snapshot()) {
			t.Errorf("addresses moved\n%s", c.story())
		}
		if got := c.problems(1); !slices.Contains(got, "cluster.gateway-silent") {
			t.Errorf("node 1 has the problems %v", got)
		}
		if got := c.problems(2); slices.Contains(got, "cluster.gateway-silent") {
			t.Errorf("node 2 has the problems %v", got)
		}
		leases := c.nodes[2].agent.ownLeases()
		if !slices.ContainsFunc(leases.Leases, func(l *holdfastv1.ObserverLease) bool { return l.Observer == gatewayName && len(l.Acknowledged) == 1 }) {
			t.Errorf("the leases of node 2 are %v", leases.Leases)
		}
		c.grounds.silence(1, false)
		c.pass(3 * time.Second)
		if got := c.problems(1); slices.Contains(got, "cluster.gateway-silent") {
			t.Errorf("the gateway answers, and node 1 has the problems %v", got)
		}
	})
}

// The node is told when every gateway has answered, on whichever interface, and not before; what fails is opened again.
func TestEveryGatewayIsAsked(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		config, err := cluster.Parse("test", []byte(strings.Replace(twoAlone(), "groupnets:", `groupnets:
  - name: other
    subnets:
      - name: subnet0
        cidr: 10.1.0.0/24
        gateway: 10.1.0.1
        pools:
          - {name: pool0, ranges: [10.1.0.100-10.1.0.111], ifaces: ["1:eth0", "2:eth0"], alloc-method: dynamic}`, 1)))
		if err != nil {
			t.Fatal(err)
		}
		answers := map[netip.Addr]bool{}
		opened, told := 0, 0
		broken := errors.New("the device is gone")
		g := newGateways(func(_ string, gateway netip.Addr) (gatewayAsker, error) {
			if opened++; opened == 1 {
				return nil, broken
			}
			k := &testAsker{answers: func() bool { return answers[gateway] }, ways: make(chan struct{}, 16)}
			if opened == 2 {
				k.broken = broken
			}
			return k, nil
		}, func() { told++ }, time.Now, slog.New(slog.DiscardHandler))
		g.configure(config, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go g.run(ctx)
		ask := func() {
			g.ask()
			synctest.Wait()
		}
		ask() // one could not be opened, the other fails
		first, second := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.1.0.1")
		answers[first] = true
		time.Sleep(askerAgain)
		ask()
		ask()
		if told != 0 || opened != 4 {
			t.Fatalf("with one answer of two the node was told %d times, and %d askers were opened", told, opened)
		}
		answers[second] = true
		ask()
		if told != 1 {
			t.Fatalf("with both answers the node was told %d times", told)
		}
		answers[first] = false
		for range 5 {
			time.Sleep(time.Second)
			ask()
		}
		if got := g.silent(); !slices.Equal(got, []netip.Addr{first}) || told != 1 {
			t.Errorf("silent are %v, and the node was told %d times", got, told)
		}
		if opened == 4 {
			t.Error("one that hears nothing is not opened again")
		}
	})
}

// While both reach the store in such a cut, the first goes on with everything, and the second does not begin again and again.
func TestOfTwoThatReachTheStoreTheFirstGoesOn(t *testing.T) {
	inClusterOf(t, twoAlone(), []int{6, 6}, func(t *testing.T, c *testCluster) {
		c.sever(1, 2, true)
		time.Sleep(5 * time.Second)
		before := c.nodes[1].agent.tenancy.Incarnation()
		for range 50 {
			time.Sleep(200 * time.Millisecond)
			if first, second := c.onKernel(1), c.onKernel(2); len(first) != 14 || len(second) != 0 {
				t.Fatalf("the first holds %v, and the second %v\n%s", first, second, c.story())
			}
		}
		if now := c.nodes[1].agent.tenancy.Incarnation(); now != before {
			t.Errorf("the first began incarnation %d after %d", now, before)
		}
		c.sever(1, 2, false)
		c.eventually("all is as before", func() bool { return c.spreadIs(6, 6) })
	})
}
