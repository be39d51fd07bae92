package agent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// How a change waits until it is in effect.
const (
	defaultWait  = 10 * time.Second      // for every node that is up
	awaitStep    = 5 * time.Millisecond  // between two looks at what this node knows
	awaitAsk     = 20 * time.Millisecond // between two questions to the other nodes what they have on their interfaces
	awaitAnswers = time.Second           // for the answers of all of them
)

// effect is what has to be so before a change is in effect: every node that is up has the configuration, every address that the
// change moves has arrived in the records, and the nodes that the records name have it on their interfaces.
type effect struct {
	before   *view // what was before the change
	revision int64 // of the store, that the change made
	config   int64 // of the configuration, that every node must have; 0: it did not change
	also     func(now *view, lnn int) string
}

// await waits for an effect and names the nodes (or the addresses that are with nobody) that lack it when the time is over.
func (s nodeService) await(ctx context.Context, options *holdfastv1.ChangeOptions, e effect) []*holdfastv1.PendingNode {
	if options.GetNoWait() {
		return nil
	}
	limit := defaultWait
	if options.GetWaitMs() > 0 {
		limit = time.Duration(options.GetWaitMs()) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var looked *view
	var pending []*holdfastv1.PendingNode
	for {
		pause := awaitStep
		if v := s.view.Load(); v != looked {
			looked, pending = v, e.onRecord(v, s.now())
		}
		if len(pending) == 0 {
			missing := e.offInterfaces(looked, s.held(ctx, looked, e.owners(looked)))
			if len(missing) == 0 {
				return nil
			}
			pause = awaitAsk
			if ctx.Err() != nil {
				return missing
			}
		} else if ctx.Err() != nil {
			return pending
		}
		wait(ctx, pause)
	}
}

// onRecord says what is not yet so by what this node knows.
func (e effect) onRecord(v *view, now time.Time) []*holdfastv1.PendingNode {
	var pending []*holdfastv1.PendingNode
	lacks := func(name, why string) {
		pending = append(pending, &holdfastv1.PendingNode{Name: name, Why: why})
	}
	moving := movesDue(v, now)
	for _, lnn := range slices.Sorted(maps.Keys(v.members)) {
		name, at := nameOf(v.world, lnn), v.members[lnn].record.ConfigRevision
		switch {
		case lnn == v.world.Self && v.storeRevision < e.revision:
			lacks(name, "it has not read the change back from the store")
		case at < e.config:
			lacks(name, fmt.Sprintf("it is at revision %d of the configuration", at))
		case moving[lnn] > 0:
			lacks(name, fmt.Sprintf("%d addresses are still on their way to or from it", moving[lnn]))
		case e.also != nil:
			if why := e.also(v, lnn); why != "" {
				lacks(name, why)
			}
		}
	}
	for _, key := range v.world.FreeServices() {
		lacks(key.Address.String(), "no node has taken this service address yet")
	}
	return pending
}

// movesDue counts for each node the addresses that are on their way from it or that are about to set out to or from it.
func movesDue(v *view, now time.Time) map[int]int {
	due := map[int]int{}
	underway := func(st tenure.Statement) {
		if st.State() == tenure.Moving && !v.world.Over(st.Owner) {
			due[st.Owner.LNN]++
		}
	}
	for _, st := range v.world.Services {
		underway(st)
	}
	for id, record := range v.world.Pools {
		for _, st := range record {
			underway(st)
		}
		proposal, _, _ := steering.ProposePool(v.world, id, false, now)
		for _, move := range proposal.Moves {
			if !move.From.IsZero() && v.world.Nodes[move.From.LNN].Present {
				due[move.From.LNN]++
			} else {
				due[move.To.LNN]++
			}
		}
	}
	return due
}

// owners are the addresses whose owner is another than before the change, by the number of their node now.
func (e effect) owners(v *view) map[int][]netip.Addr {
	owners := map[int][]netip.Addr{}
	note := func(addr netip.Addr, before, after tenure.Statement) {
		if !after.Owner.IsZero() && before.Owner != after.Owner && v.world.Nodes[after.Owner.LNN].Present {
			owners[after.Owner.LNN] = append(owners[after.Owner.LNN], addr)
		}
	}
	for id, record := range v.world.Pools {
		for addr, st := range record {
			note(addr, e.before.world.Pools[id][addr], st)
		}
	}
	for key, st := range v.world.Services {
		note(key.Address, e.before.world.Services[key], st)
	}
	return owners
}

// interfaces is what one node says of its interfaces.
type interfaces struct {
	held   map[netip.Addr]bool
	failed map[netip.Addr]string
	err    error // it does not say
}

// heldAsker asks another node for what is on its interfaces.
type heldAsker interface {
	Held(ctx context.Context, lnn int) interfaces
}

// held asks every node that owns something for what is on its interfaces, all at once.
func (s nodeService) held(ctx context.Context, v *view, owners map[int][]netip.Addr) map[int]interfacesOf {
	ctx, cancel := context.WithTimeout(ctx, awaitAnswers)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	answers := map[int]interfacesOf{}
	for lnn, addresses := range owners {
		wg.Go(func() {
			var answer interfaces
			if lnn == v.world.Self {
				answer = interfaces{held: v.applied.held, failed: v.applied.failed}
			} else {
				answer = s.edges.held.Held(ctx, lnn)
			}
			mu.Lock()
			answers[lnn] = interfacesOf{addresses, answer}
			mu.Unlock()
		})
	}
	wg.Wait()
	return answers
}

// interfacesOf is what should be on a node's interfaces and what it says.
type interfacesOf struct {
	addresses []netip.Addr
	answer    interfaces
}

// offInterfaces says which nodes do not have what the records give them.
func (e effect) offInterfaces(v *view, nodes map[int]interfacesOf) []*holdfastv1.PendingNode {
	var pending []*holdfastv1.PendingNode
	for _, lnn := range slices.Sorted(maps.Keys(nodes)) {
		var missing []netip.Addr
		for _, addr := range nodes[lnn].addresses {
			if !nodes[lnn].answer.held[addr] {
				missing = append(missing, addr)
			}
		}
		if len(missing) > 0 {
			pending = append(pending, &holdfastv1.PendingNode{Name: nameOf(v.world, lnn), Why: whyMissing(v, lnn, missing, nodes[lnn].answer)})
		}
	}
	return pending
}

func whyMissing(v *view, lnn int, missing []netip.Addr, answer interfaces) string {
	slices.SortFunc(missing, netip.Addr.Compare)
	why := fmt.Sprintf("%s is not on its interface yet", missing[0])
	if more := len(missing) - 1; more > 0 {
		why = fmt.Sprintf("%s and %d more are not on its interfaces yet", missing[0], more)
	}
	if answer.err != nil {
		return fmt.Sprintf("%s, as far as is known; it %s", why, whySilent(v, lnn, awaitAnswers, answer.err))
	}
	for _, addr := range missing {
		if reason := answer.failed[addr]; reason != "" {
			return fmt.Sprintf("%s could not be taken: %s", addr, reason)
		}
	}
	return why
}

// Held asks a node what is on its interfaces.
func (p *peers) Held(ctx context.Context, lnn int) interfaces {
	client, err := p.of(lnn)
	if err != nil {
		return interfaces{err: err}
	}
	answer, err := client.Held(ctx, &holdfastv1.HeldRequest{})
	if err != nil {
		return interfaces{err: err}
	}
	said := interfaces{held: map[netip.Addr]bool{}, failed: map[netip.Addr]string{}}
	for _, text := range answer.Held {
		if addr, err := netip.ParseAddr(text); err == nil {
			said.held[addr] = true
		}
	}
	for text, why := range answer.Failed {
		if addr, err := netip.ParseAddr(text); err == nil {
			said.failed[addr] = why
		}
	}
	return said
}

// Held tells another node what is on this one's interfaces.
func (s peerService) Held(ctx context.Context, _ *holdfastv1.HeldRequest) (*holdfastv1.HeldResponse, error) {
	if _, err := s.caller(ctx); err != nil {
		return nil, err
	}
	last, response := s.applier.Last(), &holdfastv1.HeldResponse{Failed: map[string]string{}}
	for addr := range last.held {
		response.Held = append(response.Held, addr.String())
	}
	for addr, why := range last.failed {
		response.Failed[addr.String()] = why
	}
	return response, nil
}

// moved is a commit that an operator asked for, as an effect to wait for.
func moved(before *view, revision int64) effect { return effect{before: before, revision: revision} }

// configured is a change of the configuration as an effect to wait for.
func configured(before *view, revision int64) effect {
	return effect{before: before, revision: revision, config: revision}
}
