package agent

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"connectrpc.com/connect"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/identity"
)

// peers are the other nodes as this one calls them. It is safe for concurrent use.
type peers struct {
	self    cluster.Node
	connect func(cluster.Node) (*api.PeerClient, error)
	mu      sync.Mutex
	clients map[int]*peer
}

func newPeers(id *identity.Identity, self cluster.Node) *peers {
	return &peers{self: self, connect: func(node cluster.Node) (*api.PeerClient, error) {
		return api.NewPeerClient(netip.AddrPortFrom(node.Addresses[0], PeerPort).String(), id.ClientTLS(node.Name), nil)
	}}
}

type peer struct {
	client *api.PeerClient
	node   cluster.Node
}

// SetNodes says who the nodes are. A client whose node kept its name and address is kept.
func (p *peers) SetNodes(nodes []cluster.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.clients
	p.clients = map[int]*peer{}
	for _, node := range nodes {
		if node.LNN == p.self.LNN || len(node.Addresses) == 0 {
			continue
		}
		if kept, ok := old[node.LNN]; ok && kept.node.Name == node.Name && kept.node.Addresses[0] == node.Addresses[0] {
			p.clients[node.LNN] = kept
			delete(old, node.LNN)
			continue
		}
		client, err := p.connect(node)
		if err != nil {
			continue
		}
		p.clients[node.LNN] = &peer{client, node}
	}
	for _, gone := range old {
		gone.client.Close()
	}
}

// Close closes the connections.
func (p *peers) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, peer := range p.clients {
		peer.client.Close()
	}
	p.clients = nil
}

// of returns the client for a node.
func (p *peers) of(lnn int) (*api.PeerClient, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if peer, ok := p.clients[lnn]; ok {
		return peer.client, nil
	}
	return nil, fmt.Errorf("node %d has no address of a cluster network in the configuration", lnn)
}

// all are the numbers of the other nodes.
func (p *peers) all() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	lnns := make([]int, 0, len(p.clients))
	for lnn := range p.clients {
		lnns = append(lnns, lnn)
	}
	return lnns
}

// numbers are the other nodes by name.
func (p *peers) numbers() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	numbers := make(map[string]int, len(p.clients))
	for lnn, peer := range p.clients {
		numbers[peer.node.Name] = lnn
	}
	return numbers
}

// Hook runs one phase of the hooks on another node.
func (p *peers) Hook(ctx context.Context, lnn int, phase cluster.HookPhase, addr netip.Addr, from, to cluster.Member) (string, error) {
	client, err := p.of(lnn)
	if err != nil {
		return "", err
	}
	answer, err := client.Hook(ctx, &holdfastv1.HookRequest{Phase: string(phase), Address: addr.String(), From: from.String(), To: to.String()})
	if err != nil {
		return "", err
	}
	if !answer.Ok {
		return answer.Output, fmt.Errorf("%s", answer.Reason)
	}
	return answer.Output, nil
}

// peerService answers the other nodes. The caller's name comes from its certificate.
type peerService struct{ *Agent }

// errReplaced is what an agent says that has just been replaced: what it is told would be lost.
var errReplaced = api.Unavailable("this agent has just been replaced by another, which answers in a moment")

// caller is the configured node that calls.
func (s peerService) caller(ctx context.Context) (cluster.Node, error) {
	if s.wasReplaced.Load() {
		return cluster.Node{}, errReplaced
	}
	if view := s.view.Load(); view != nil {
		return callerIn(ctx, view.world.Config)
	}
	return callerIn(ctx, &cluster.Config{})
}

// callerIn is the node of a configuration that calls.
func callerIn(ctx context.Context, config *cluster.Config) (cluster.Node, error) {
	state, ok := api.PeerState(ctx)
	if !ok {
		return cluster.Node{}, api.Forbidden("only nodes with a certificate of this cluster may ask this")
	}
	name, err := identity.PeerName(state)
	if err != nil {
		return cluster.Node{}, api.Forbidden("the caller's certificate names no node: %v", err)
	}
	if node, ok := config.NodeNamed(name); ok {
		return node, nil
	}
	return cluster.Node{}, api.Forbidden("node %q is not in the configuration that this node has", name)
}

func (s peerService) Hook(ctx context.Context, r *holdfastv1.HookRequest) (*holdfastv1.HookResponse, error) {
	if _, err := s.caller(ctx); err != nil {
		return nil, err
	}
	addr, err := netip.ParseAddr(r.Address)
	if err != nil {
		return nil, api.Invalid("%q is not an address", r.Address)
	}
	if cluster.HookPhase(r.Phase) != cluster.HookPrepare {
		return nil, api.Invalid("only the phase prepare runs at the wish of another node, not %q", r.Phase)
	}
	from, _ := cluster.ParseMember(r.From)
	to, _ := cluster.ParseMember(r.To)
	return s.hooks.answer(ctx, cluster.HookPrepare, addr, moveEnds{from, to}), nil
}

var errNoView = connect.NewError(connect.CodeUnavailable, fmt.Errorf("this agent has not read the configuration from the store yet; try again in a moment"))
