package agent

import (
	"context"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// releaseTimeout bounds one message to a new owner; one that does not arrive costs the move the time that the store takes.
const releaseTimeout = 500 * time.Millisecond

// maxReleased is how many addresses one message may name.
const maxReleased = 4096

// releaser tells other nodes of addresses that they may take, or that this one could.
type releaser interface {
	Released(ctx context.Context, lnn int, r *holdfastv1.ReleasedRequest) error
	Ready(ctx context.Context, lnn int, r *holdfastv1.ReadyRequest) error
}

// lastWords are what other nodes have said of addresses, the last of each. It is safe for concurrent use.
type lastWords[Word any] struct {
	mu  sync.Mutex
	all map[netip.Addr]Word
}

func (w *lastWords[Word]) add(addr netip.Addr, word Word) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[netip.Addr]Word{}
	}
	w.all[addr] = word
}

// releases are what other nodes have said that they let go of in favour of this one. The loop forgets what the records have gone beyond.
type releases struct{ lastWords[steering.Release] }

// current are those that the records have not gone beyond.
func (r *releases) current(w *steering.World) map[netip.Addr]steering.Release {
	r.mu.Lock()
	defer r.mu.Unlock()
	steering.Outdated(w, r.all)
	return maps.Clone(r.all)
}

// handed tells the new owners of addresses that have just left this node's interfaces. What it returns is closed when all have been
// told, or cannot be.
func (a *Agent) handed(w wish, released []netip.Addr) (told <-chan struct{}) {
	requests := map[int]*holdfastv1.ReleasedRequest{}
	for _, addr := range released {
		st, handing := w.handing[addr]
		if !handing {
			continue
		}
		request := requests[st.To.LNN]
		if request == nil {
			request = &holdfastv1.ReleasedRequest{Incarnation: &holdfastv1.Incarnation{Start: uint64(st.Owner.Incarnation)}}
			requests[st.To.LNN] = request
		}
		if len(request.Addresses) < maxReleased {
			request.Addresses = append(request.Addresses, &holdfastv1.ReleasedAddress{Address: addr.String(), Interface: st.Owner.Interface, Epoch: st.Epoch})
		}
	}
	if len(requests) > 0 {
		a.haste.begin() // nobody has them
	}
	var under sync.WaitGroup
	for lnn, request := range requests {
		under.Add(1)
		a.wg.Go(func() {
			defer under.Done()
			ctx, cancel := context.WithTimeout(a.ctx, releaseTimeout)
			defer cancel()
			if err := a.edges.releases.Released(ctx, lnn, request); err != nil {
				a.log.Debug("a new owner was not told; it learns from the record", "node", lnn, "error", err)
			}
		})
	}
	done := make(chan struct{})
	if len(requests) == 0 {
		close(done)
		return done
	}
	a.wg.Go(func() {
		under.Wait()
		close(done)
	})
	return done
}

// Released tells another node that it may take addresses.
func (p *peers) Released(ctx context.Context, lnn int, r *holdfastv1.ReleasedRequest) error {
	client, err := p.of(lnn)
	if err != nil {
		return err
	}
	_, err = client.Released(ctx, r)
	return err
}

// Released takes in that another node has let go of addresses in favour of this one.
func (s peerService) Released(ctx context.Context, r *holdfastv1.ReleasedRequest) (*holdfastv1.ReleasedResponse, error) {
	node, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	return &holdfastv1.ReleasedResponse{}, s.takeReleases(node.LNN, r)
}

// takeReleases notes what a node says that it has let go of.
func (a *Agent) takeReleases(from int, r *holdfastv1.ReleasedRequest) error {
	a.haste.begin()
	return takeWords(a, r.Addresses, func(addr netip.Addr, released *holdfastv1.ReleasedAddress) {
		owner := tenure.Claim{LNN: from, Interface: released.Interface, Incarnation: tenure.Incarnation(r.Incarnation.GetStart())}
		a.releases.add(addr, steering.Release{Owner: owner, Epoch: released.Epoch})
	})
}

// takeWords takes in what another node says about addresses, and has the loop look. Only those of the cluster are kept, so that what is
// kept is bounded.
func takeWords[T interface{ GetAddress() string }](a *Agent, words []T, keep func(netip.Addr, T)) error {
	v := a.view.Load()
	if v == nil {
		return errNoView
	}
	if len(words) > maxReleased {
		return api.Invalid("%d addresses at once are too many; at most %d", len(words), maxReleased)
	}
	moving := movingAddresses(v.world.Config)
	for _, word := range words {
		addr, err := netip.ParseAddr(word.GetAddress())
		if err != nil {
			return api.Invalid("%q is not an address", word.GetAddress())
		}
		if moving[addr] {
			keep(addr, word)
		}
	}
	a.loop.note()
	return nil
}

// changing reports whether this node has a change of the record of a pool or of a service address under way, whose outcome it does not
// know.
func (l *loop) changing(id cluster.PoolID, service steering.ServiceKey) bool {
	key := poolKey(id)
	if service != (steering.ServiceKey{}) {
		key = serviceKey(service)
	}
	return l.writer.Busy(key, l.replica.revision)
}
