package agent

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/identity"
	"github.com/holdfast/holdfast/internal/tenure"
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

// Acknowledge asks a node to acknowledge this one for a span.
func (p *peers) Acknowledge(ctx context.Context, lnn int, incarnation tenure.Incarnation, span time.Duration) (tenure.Answer, error) {
	client, err := p.of(lnn)
	if err != nil {
		return tenure.Answer{}, err
	}
	answer, err := client.Acknowledge(ctx, &holdfastv1.AcknowledgeRequest{
		Node: p.self.Name, Incarnation: &holdfastv1.Incarnation{Start: uint64(incarnation)}, SpanMs: span.Milliseconds(),
	})
	if err != nil {
		return tenure.Answer{}, err
	}
	return tenure.Answer{Yes: answer.Granted, Reason: answer.Reason, Final: answer.Final}, nil
}

// Confirm asks a node whether it has given up an incarnation of another.
func (p *peers) Confirm(ctx context.Context, observer, lnn int, incarnation tenure.Incarnation) (tenure.Answer, error) {
	client, err := p.of(observer)
	if err != nil {
		return tenure.Answer{}, err
	}
	answer, err := client.Confirm(ctx, &holdfastv1.ConfirmRequest{
		Lnn: int32(lnn), Incarnation: &holdfastv1.Incarnation{Start: uint64(incarnation)},
	})
	if err != nil {
		return tenure.Answer{}, err
	}
	return tenure.Answer{Yes: answer.Confirmed, Reason: answer.Reason}, nil
}

// Alive asks a node itself whether it is of an incarnation and may hold.
func (p *peers) Alive(ctx context.Context, lnn int, incarnation tenure.Incarnation) (bool, error) {
	client, err := p.of(lnn)
	if err != nil {
		return false, err
	}
	answer, err := client.Alive(ctx, &holdfastv1.AliveRequest{Incarnation: &holdfastv1.Incarnation{Start: uint64(incarnation)}})
	if err != nil {
		return false, err
	}
	return answer.Holds, nil
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

// caller is the configured node that calls.
func (s peerService) caller(ctx context.Context) (cluster.Node, error) {
	state, ok := api.PeerState(ctx)
	if !ok {
		return cluster.Node{}, api.Forbidden("only nodes with a certificate of this cluster may ask this")
	}
	name, err := identity.PeerName(state)
	if err != nil {
		return cluster.Node{}, api.Forbidden("the caller's certificate names no node: %v", err)
	}
	if view := s.view.Load(); view != nil {
		if node, ok := view.world.Config.NodeNamed(name); ok {
			return node, nil
		}
	}
	return cluster.Node{}, api.Forbidden("node %q is not in the configuration that this node has", name)
}

func (s peerService) Acknowledge(ctx context.Context, r *holdfastv1.AcknowledgeRequest) (*holdfastv1.AcknowledgeResponse, error) {
	node, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	if r.Node != node.Name {
		return nil, api.Forbidden("%s cannot ask for %s", node.Name, r.Node)
	}
	answer := s.tower.Acknowledge(node.LNN, tenure.Incarnation(r.Incarnation.GetStart()), time.Duration(r.SpanMs)*time.Millisecond)
	return &holdfastv1.AcknowledgeResponse{Granted: answer.Yes, SpanMs: r.SpanMs, Reason: answer.Reason, Final: answer.Final}, nil
}

func (s peerService) Confirm(ctx context.Context, r *holdfastv1.ConfirmRequest) (*holdfastv1.ConfirmResponse, error) {
	node, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	lnn := int(r.Lnn)
	if lnn < 1 || lnn == s.self.LNN || lnn == node.LNN {
		return nil, api.Invalid("%d is not the number of a third node", lnn)
	}
	answer := s.tower.Confirm(ctx, lnn, tenure.Incarnation(r.Incarnation.GetStart()))
	return &holdfastv1.ConfirmResponse{Confirmed: answer.Yes, Reason: answer.Reason}, nil
}

// Alive says whether this node may hold under an incarnation.
func (s peerService) Alive(ctx context.Context, r *holdfastv1.AliveRequest) (*holdfastv1.AliveResponse, error) {
	if _, err := s.caller(ctx); err != nil {
		return nil, err
	}
	return &holdfastv1.AliveResponse{Holds: s.tenancy.HoldsUnder(tenure.Incarnation(r.Incarnation.GetStart()))}, nil
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
