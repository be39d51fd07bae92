package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/steering"
)

// Whatever the transport says, an operator reads one of a few things. Node 3 is up by what is known, node 4 is down.
func TestWhyANodeIsSilent(t *testing.T) {
	v := &view{world: &steering.World{Nodes: map[int]steering.Node{3: {Present: true}}}}
	ask := func(address string) error {
		client, err := api.NewPeerClient(address, &tls.Config{MinVersion: tls.VersionTLS13}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err = client.Leases(ctx, &holdfastv1.PeerLeasesRequest{})
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	frozen := ask(listener.Addr().String()) // the kernel accepts, and nobody speaks
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		conn, err := listener.Accept() // that of before
		if err == nil {
			conn.Close()
		}
		if conn, err = listener.Accept(); err == nil {
			conn.Close()
		}
	}()
	broken := ask(listener.Addr().String())
	<-lost
	listener.Close()
	killed := ask(listener.Addr().String())
	for _, c := range []struct {
		what string
		err  error
		up   string
		down string
	}{
		{"killed", killed, "refuses connections: its agent does not run", "refuses connections: its agent does not run"},
		{"frozen", frozen, "does not answer within 1s", "is down"},
		{"its connection broke", broken, "does not answer within 1s", "is down"},
		{"no way there", api.Unavailable("dial tcp: %w", fmt.Errorf("connect: %w", syscall.EHOSTUNREACH)), "does not answer within 1s", "is down"},
		{"its word", errors.New("node 3 has no address"), "answers that it cannot say: node 3 has no address", "is down"},
	} {
		if c.err == nil {
			t.Fatalf("%s: it answered", c.what)
		}
		if got := whySilent(v, 3, time.Second, c.err); got != c.up {
			t.Errorf("%s, up: %q, want %q (%v)", c.what, got, c.up, c.err)
		}
		if got := whySilent(v, 4, time.Second, c.err); got != c.down {
			t.Errorf("%s, down: %q, want %q", c.what, got, c.down)
		}
	}
}

// The lists of all commands say the same.
func TestOneWordingForASilentNode(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		id := failoverID(4, c.nodes[1].agent.view.Load().world.Nodes[4].Incarnation)
		c.kill(4)
		c.eventually("taken over", func() bool { return c.spreadIs(4, 4, 4, 0) })
		c.pass(time.Second)
		leases, err := c.ask(1).Leases(t.Context(), &holdfastv1.LeasesRequest{})
		if err != nil || len(leases.Unanswered) != 1 || leases.Unanswered[0].Why != "is down" {
			t.Errorf("status --leases: %v, %v", leases.GetUnanswered(), err)
		}
		failover, err := c.explainEvent(1, id)
		if err != nil || !strings.Contains(failover.Text, "\nnode4 is down\n") {
			t.Errorf("explain --event: %v\n%s", err, failover.GetText())
		}
	})
}
