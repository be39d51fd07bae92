package agent

import (
	"context"
	"net/netip"
	"time"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// readyWords are what other nodes have said that they could take, until the loop looks.
type readyWords struct{ lastWords[readyWord] }

type readyWord struct {
	from int
	move steering.Release
}

// pass hands over what has come since the last time.
func (r *readyWords) pass(to steering.Readiness) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for addr, word := range r.all {
		to.Hear(word.from, addr, word.move)
	}
	clear(r.all)
}

// awaitReady puts into the world which moves away from this node wait for their targets, and looks again when that ends.
func (l *loop) awaitReady(w *steering.World, now time.Time) {
	l.readyWords.pass(l.readiness)
	if left := l.readiness.Bind(w, now, l.changing); left > 0 {
		l.wakeIn(left)
	}
}

// tellReady tells the owners of addresses that move to this node that it could take them now, again and again until they have let go.
func (l *loop) tellReady(w *steering.World, incarnation tenure.Incarnation, mayHold bool, now time.Time) {
	due, again := l.toldReady.Due(steering.Ready(w, incarnation, mayHold), w, now)
	if again > 0 {
		l.wakeIn(again)
	}
	requests := map[int]*holdfastv1.ReadyRequest{}
	for addr, move := range due {
		request := requests[move.Owner.LNN]
		if request == nil {
			request = &holdfastv1.ReadyRequest{}
			requests[move.Owner.LNN] = request
		}
		if len(request.Addresses) < maxReleased { // the others are told with those that are told again
			request.Addresses = append(request.Addresses, &holdfastv1.ReadyAddress{
				Address: addr.String(), Incarnation: &holdfastv1.Incarnation{Start: uint64(move.Owner.Incarnation)}, Interface: move.Owner.Interface, Epoch: move.Epoch,
			})
		}
	}
	if len(requests) > 0 {
		l.haste.begin() // they let go in a moment
	}
	for lnn, request := range requests {
		l.sendReady(lnn, request)
	}
}

// sendReady sends one message; what does not arrive is told again.
func (l *loop) sendReady(lnn int, request *holdfastv1.ReadyRequest) {
	l.wg.Go(func() {
		ctx, cancel := context.WithTimeout(l.ctx, releaseTimeout)
		defer cancel()
		if err := l.edges.releases.Ready(ctx, lnn, request); err != nil {
			l.log.Debug("an owner was not told that this node could take what moves to it", "node", lnn, "error", err)
		}
	})
}

// Ready tells another node, the owner of addresses that move to this one, that this one could take them.
func (p *peers) Ready(ctx context.Context, lnn int, r *holdfastv1.ReadyRequest) error {
	client, err := p.of(lnn)
	if err != nil {
		return err
	}
	_, err = client.Ready(ctx, r)
	return err
}

// Ready takes in that another node could take addresses that move to it from this one.
func (s peerService) Ready(ctx context.Context, r *holdfastv1.ReadyRequest) (*holdfastv1.ReadyResponse, error) {
	node, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	return &holdfastv1.ReadyResponse{}, s.takeReady(node.LNN, r)
}

// takeReady notes what a node says that it could take.
func (a *Agent) takeReady(from int, r *holdfastv1.ReadyRequest) error {
	a.haste.begin()
	return takeWords(a, r.Addresses, func(addr netip.Addr, ready *holdfastv1.ReadyAddress) {
		owner := tenure.Claim{LNN: a.self.LNN, Interface: ready.Interface, Incarnation: tenure.Incarnation(ready.Incarnation.GetStart())}
		a.readyWords.add(addr, readyWord{from, steering.Release{Owner: owner, Epoch: ready.Epoch}})
	})
}
