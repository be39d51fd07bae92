package agent

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/broker"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/identity"
	"github.com/holdfast/holdfast/internal/linux/boottime"
	"github.com/holdfast/holdfast/internal/problem"
)

// Rules that are set on one node reach the brokers of the others over the port for other nodes, with the certificates of the cluster and
// without its store. A node that is not in the configuration is refused.
func TestRulesReachTheOtherNodes(t *testing.T) {
	dir := t.TempDir()
	authority := filepath.Join(dir, "authority")
	if err := identity.Init(authority, "test"); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	ports := map[string]string{}
	config := &cluster.Config{Nodes: []cluster.Node{
		{Name: "node1", LNN: 1, Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}, {Name: "node2", LNN: 2, Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}},
	}}
	agents := map[string]*Agent{}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	for _, node := range append(config.Nodes, cluster.Node{Name: "stranger", LNN: 3, Addresses: config.Nodes[0].Addresses}) {
		if err := identity.Issue(authority, filepath.Join(dir, node.Name), node.Name, node.Addresses, nil); err != nil {
			t.Fatal(err)
		}
		id, err := identity.Load(filepath.Join(dir, node.Name))
		if err != nil {
			t.Fatal(err)
		}
		a := &Agent{
			options: Options{Dir: t.TempDir()}, log: slog.New(slog.DiscardHandler), now: boottime.Now, board: &problem.Board{}, registry: prometheus.NewRegistry(),
			events: newEventLog(), self: node, identity: id, begun: config,
		}
		a.peers = &peers{self: node, connect: func(other cluster.Node) (*api.PeerClient, error) {
			return api.NewPeerClient("127.0.0.1:7700", id.ClientTLS(other.Name), func(ctx context.Context, network, _ string) (net.Conn, error) {
				mu.Lock()
				defer mu.Unlock()
				return (&net.Dialer{}).DialContext(ctx, network, ports[other.Name])
			})
		}}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		ports[node.Name] = listener.Addr().String()
		mu.Unlock()
		server, err := api.NewPeerServer(api.PeerOptions{Listener: listener, TLS: id.ServerTLS(), Peer: peerService{a}, Logger: a.log})
		if err != nil {
			t.Fatal(err)
		}
		a.peers.SetNodes(config.Nodes)
		a.broker = &brokerRoom{Agent: a}
		group.Go(func() { a.broker.run(ctx) })
		group.Go(func() { _ = server.Serve(ctx) })
		defer a.peers.Close()
		agents[node.Name] = a
	}
	one, two := brokerService{brokerRoom: agents["node1"].broker}, brokerService{brokerRoom: agents["node2"].broker}
	eventually(t, "all brokers run", func() bool {
		return one.opened.Load() != nil && two.opened.Load() != nil && agents["stranger"].broker.opened.Load() != nil
	})
	policy := func(name string) *holdfastv1.PutRuleRequest {
		return &holdfastv1.PutRuleRequest{Policy: &holdfastv1.PolicyRule{Name: name, Fleet: "east"}}
	}
	if _, err := one.PutRule(ctx, policy("p1")); err != nil {
		t.Fatal(err)
	}
	if _, err := two.PutRule(ctx, policy("p2")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both have both rules", func() bool {
		r1, err1 := one.Rules(ctx, &holdfastv1.RulesRequest{})
		r2, err2 := two.Rules(ctx, &holdfastv1.RulesRequest{})
		return err1 == nil && err2 == nil && len(r1.Rules) == 2 && r1.Digest == r2.Digest
	})
	if part, err := (brokerPeers{agents["stranger"]}).Rules(ctx, "node1", broker.Ask{}); err == nil {
		t.Errorf("a stranger is answered: %+v", part)
	}
}

// eventually waits until something is so; nothing waits for the time to pass.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !so() {
		if wait(ctx, 5*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("it does not come to be that %s", what)
		}
	}
}
