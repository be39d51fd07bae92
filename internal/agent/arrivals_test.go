package agent

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/linux/arrival"
	"github.com/holdfast/holdfast/internal/steering"
)

// testArrivals is what comes in for the addresses that a node listens for: from a client that sends 3 ms after it is listened for, except
// to the silent ones.
type testArrivals struct {
	mu     sync.Mutex
	asked  []netip.Addr
	now    int // listened for at this moment
	silent netip.Addr
}

func (f *testArrivals) FirstPackets(ctx context.Context, iface string, addresses []netip.Addr, heard func(arrival.First)) error {
	f.mu.Lock()
	f.asked = append(f.asked, addresses...)
	f.now += len(addresses)
	silent := f.silent
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.now -= len(addresses)
		f.mu.Unlock()
	}()
	wait(ctx, 3*time.Millisecond)
	for _, a := range addresses {
		if a != silent && iface == "eth0" {
			heard(arrival.First{Address: a, From: netip.MustParseAddr("10.0.0.50"), At: time.Now()})
		}
	}
	if slices.Contains(addresses, silent) {
		<-ctx.Done()
	}
	return nil
}

func (f *testArrivals) state() (asked []netip.Addr, now int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked), f.now
}

// The last stage of a failover is in what explains it, for every address that a client used; and nobody listens before a failover, nor
// for long after it.
func TestFirstPacketOfAClient(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		for lnn := range c.nodes {
			if asked, _ := c.nodes[lnn].packets.state(); len(asked) > 0 {
				t.Errorf("node %d listens for %v before anything failed over", lnn, asked)
			}
		}
		had := c.onKernel(4)
		id := failoverID(4, c.nodes[1].agent.view.Load().world.Nodes[4].Incarnation)
		for _, lnn := range []int{1, 2, 3} {
			c.nodes[lnn].packets.silent = had[0]
		}
		answer := c.lastDies(id)
		for _, a := range answer.Failover.Addresses {
			silent := a.Address == had[0].String()
			if (a.FirstPacket == nil) != silent || (a.FirstPacketMs == nil) != silent || !silent && (a.FirstFrom != "10.0.0.50" || *a.FirstPacketMs <= *a.TotalMs) {
				t.Errorf("%v", a)
			}
		}
		if !strings.Contains(answer.Text, "first packet of a client, 10.0.0.50") {
			t.Error(answer.Text)
		}
		c.pass(arrivalLimit)
		var all []netip.Addr
		for _, lnn := range []int{1, 2, 3} {
			asked, now := c.nodes[lnn].packets.state()
			if now > 0 {
				t.Errorf("node %d still listens", lnn)
			}
			all = append(all, asked...)
		}
		slices.SortFunc(all, netip.Addr.Compare)
		slices.SortFunc(had, netip.Addr.Compare)
		if !slices.Equal(all, had) {
			t.Errorf("listened for %v, and %v moved", all, had)
		}
	})
}

// However many addresses come at once, and however often the taking is tried, so many are listened for.
func TestArrivalsAreBounded(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		n := c.nodes[1]
		a := newArrivals(n.agent)
		w := wish{causes: map[netip.Addr]string{}}
		for addr := netip.MustParseAddr("10.1.0.0"); len(w.holdings) < 3*maxArrivals; addr = addr.Next() {
			w.holdings = append(w.holdings, steering.Holding{Address: addr, Interface: "eth0"})
			w.causes[addr] = "2.17"
		}
		n.packets.silent = w.holdings[0].Address
		for range 3 {
			a.coming(t.Context(), w, map[netip.Addr]bool{w.holdings[1].Address: true})
		}
		c.pass(time.Second)
		asked, _ := n.packets.state()
		if len(asked) != maxArrivals || slices.Contains(asked, w.holdings[1].Address) {
			t.Errorf("%d were listened for, want %d without the one that was there", len(asked), maxArrivals)
		}
		c.pass(arrivalLimit)
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.under) > 0 {
			t.Errorf("%d are still remembered", len(a.under))
		}
	})
}
