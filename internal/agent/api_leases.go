package agent

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/tenure"
)

// Every node knows its own leases alone, and they change with every heartbeat: they are asked for when somebody wants to see them.
const (
	toldWithin = time.Second // for the answers of all nodes
	toldAtOnce = 32          // nodes that are asked at the same time
)

// insideAsker asks another node what it alone knows.
type insideAsker interface {
	Leases(ctx context.Context, lnn int) (*holdfastv1.NodeLeases, error)
	Failover(ctx context.Context, lnn int, id string) ([]*holdfastv1.Event, error)
}

// Leases says who acknowledges whom. It waits for the others as long as they take, a second at the most.
func (s nodeService) Leases(ctx context.Context, _ *holdfastv1.LeasesRequest) (*holdfastv1.LeasesResponse, error) {
	v, err := s.seen()
	if err != nil {
		return nil, err
	}
	said, unanswered := askOthers(ctx, s, v, s.edges.inside.Leases)
	out := &holdfastv1.LeasesResponse{Node: s.self.Name, Lnn: int32(s.self.LNN), At: stamp(time.Now()), Nodes: []*holdfastv1.NodeLeases{s.ownLeases()}, Unanswered: unanswered}
	for _, lnn := range slices.Sorted(maps.Keys(said)) {
		out.Nodes = append(out.Nodes, said[lnn])
	}
	out.Sights = sights(out.Nodes)
	return out, nil
}

// ownLeases is what this node alone knows.
func (a *Agent) ownLeases() *holdfastv1.NodeLeases {
	names := leasesNames{node: a.calledNode}
	if v := a.view.Load(); v != nil {
		names.networks = networkNames(v.world.Config, a.self)
	}
	return a.tenancy.Leases().message(a.self, names)
}

// calledNode is what a node is called, as far as this one knows.
func (a *Agent) calledNode(lnn int) string {
	if v := a.view.Load(); v != nil {
		return nameOf(v.world, lnn)
	}
	return "node " + strconv.Itoa(lnn)
}

// askOthers asks all other nodes of the configuration the same, many at once, and says which did not answer.
func askOthers[Answer any](ctx context.Context, s nodeService, v *view, ask func(context.Context, int) (Answer, error)) (map[int]Answer, []*holdfastv1.Unanswered) {
	ctx, cancel := context.WithTimeout(ctx, toldWithin)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	turns := make(chan struct{}, toldAtOnce)
	said, unanswered := map[int]Answer{}, []*holdfastv1.Unanswered{}
	for _, node := range v.world.Config.Nodes {
		if node.LNN == s.self.LNN {
			continue
		}
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			answer, err := ask(ctx, node.LNN)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				unanswered = append(unanswered, &holdfastv1.Unanswered{Node: node.Name, Lnn: int32(node.LNN), Why: whySilent(v, node.LNN, toldWithin, err)})
				return
			}
			said[node.LNN] = answer
		})
	}
	wg.Wait()
	slices.SortFunc(unanswered, func(a, b *holdfastv1.Unanswered) int { return cmp.Compare(a.Lnn, b.Lnn) })
	return said, unanswered
}

// sights puts together what nodes say of their leases and what their observers say of them, by LNN. Of a node that said nothing its
// observers are those that say that they are.
func sights(nodes []*holdfastv1.NodeLeases) []*holdfastv1.Sight {
	said := map[int32]*holdfastv1.NodeLeases{}
	for _, n := range nodes {
		said[n.Lnn] = n
	}
	all := map[[2]int32]*holdfastv1.Sight{}
	sight := func(lnn int32, node string, observer int32, name string) *holdfastv1.Sight {
		key := [2]int32{lnn, observer}
		if all[key] == nil {
			all[key] = &holdfastv1.Sight{Node: node, Lnn: lnn, Observer: name, ObserverLnn: observer,
				NodeAnswered: said[lnn] != nil, ObserverAnswered: said[observer] != nil}
		}
		return all[key]
	}
	for _, n := range nodes {
		for _, l := range n.Leases {
			left := l.LeftMs
			one := sight(n.Lnn, n.Node, l.Lnn, l.Observer)
			one.LeaseLeftMs = &left
			if l.Lnn == tenure.Ground {
				one.ObserverAnswered, one.HeardMsAgo = true, soonest(l.Acknowledged)
			}
		}
	}
	for _, n := range nodes {
		for _, w := range n.Watched {
			one, known := all[[2]int32{w.Lnn, n.Lnn}]
			if !known && w.Observes && said[w.Lnn] == nil {
				one = sight(w.Lnn, w.Node, n.Lnn, n.Node)
			}
			if one != nil {
				one.HeardMsAgo = soonest(w.Heard)
			}
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *holdfastv1.Sight) int {
		return cmp.Or(cmp.Compare(a.Lnn, b.Lnn), cmp.Compare(a.ObserverLnn, b.ObserverLnn))
	})
}

// soonest is the shortest time since something came over any network; nil: nothing ever did.
func soonest(heard []*holdfastv1.NetworkHeard) *int64 {
	var least *int64
	for _, h := range heard {
		if least == nil || h.MsAgo < *least {
			least = &h.MsAgo
		}
	}
	return least
}

// Leases asks a node what it knows of its right to hold and of others.
func (p *peers) Leases(ctx context.Context, lnn int) (*holdfastv1.NodeLeases, error) {
	client, err := p.of(lnn)
	if err != nil {
		return nil, err
	}
	answer, err := client.Leases(ctx, &holdfastv1.PeerLeasesRequest{})
	if err != nil {
		return nil, err
	}
	if answer.Leases == nil || answer.Leases.Lnn != int32(lnn) {
		return nil, errors.New("it answered for another node")
	}
	return answer.Leases, nil
}

// Leases tells another node what this one knows of its right to hold and of others.
func (s peerService) Leases(ctx context.Context, _ *holdfastv1.PeerLeasesRequest) (*holdfastv1.PeerLeasesResponse, error) {
	if _, err := s.caller(ctx); err != nil {
		return nil, err
	}
	return &holdfastv1.PeerLeasesResponse{Leases: s.ownLeases()}, nil
}
