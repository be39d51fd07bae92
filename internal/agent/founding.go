package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/identity"
)

// A node that starts for the first time either founds the store together with the other hosts of it, or joins one that is there.
// Taking the second for the first would make two stores, and so two nodes for one address. So it founds only when every other
// host says that it is as new and names the same hosts, and nobody says that there is a store.

// How a node that starts for the first time asks the others.
const (
	foundingAsk   = time.Second // one round of questions
	foundingPause = 250 * time.Millisecond
)

// rosterAnswer is what another node says of the store.
type rosterAnswer struct {
	belongs bool     // there is a store, and it belongs to it
	hosts   []string // of its own configuration
	roster  rosterRecord
}

// foundingDecision is what a node does at its first start.
type foundingDecision struct {
	join  bool // there is a store, or others will found it: connect
	found bool // start this node's member as one of the first
	waits string
	// roster has the members to connect to; empty when only the configuration says who they are.
	roster rosterRecord
}

// decideFounding is the decision, from the hosts' peer addresses as this node's configuration has them and what the other nodes
// said, by their peer addresses.
func decideFounding(self string, hosts []string, names map[string]string, answers map[string]rosterAnswer) foundingDecision {
	for _, peer := range slices.Sorted(maps.Keys(answers)) {
		if answer := answers[peer]; answer.belongs && len(answer.roster.Members) > 0 {
			return foundingDecision{join: true, roster: answer.roster}
		}
	}
	for _, answer := range answers {
		if answer.belongs {
			return foundingDecision{join: true}
		}
	}
	if !slices.Contains(hosts, self) {
		return foundingDecision{join: true}
	}
	var silent, different []string
	for _, host := range hosts {
		answer, answered := answers[host]
		switch {
		case host == self:
		case !answered:
			silent = append(silent, names[host])
		case !slices.Equal(slices.Sorted(slices.Values(answer.hosts)), slices.Sorted(slices.Values(hosts))):
			different = append(different, names[host])
		}
	}
	switch {
	case len(different) > 0:
		return foundingDecision{waits: fmt.Sprintf("the configuration of %s names other hosts of the store than this node's: give both the same cluster.yaml", strings.Join(different, ", "))}
	case len(silent) > 0:
		return foundingDecision{waits: fmt.Sprintf("a new store is founded by all its hosts together, and the agent of %s does not answer yet", strings.Join(silent, ", "))}
	}
	return foundingDecision{found: true}
}

// rosterAsker asks other nodes what they know of the store.
type rosterAsker interface {
	Roster(ctx context.Context, lnn int) (rosterAnswer, error)
}

// askFounding asks all other nodes until it is clear whether to found or to join.
func (s *seat) askFounding(ctx context.Context, config *cluster.Config, others rosterAsker) (foundingDecision, error) {
	names := map[string]string{}
	for _, node := range config.Nodes {
		if len(node.Addresses) > 0 {
			names[peerAddress(node)] = node.Name
		}
	}
	for {
		decision := decideFounding(peerAddress(s.self), hostPeers(config), names, askRosters(ctx, config, s.self.LNN, others))
		if decision.join || decision.found {
			s.setWaits("")
			return decision, nil
		}
		if s.setWaits(decision.waits) {
			s.log.Info("waiting for the other hosts of the store", "why", decision.waits)
		}
		if wait(ctx, foundingPause); ctx.Err() != nil {
			return decision, ctx.Err()
		}
	}
}

// askRosters asks all at once and waits for one round.
func askRosters(ctx context.Context, config *cluster.Config, self int, others rosterAsker) map[string]rosterAnswer {
	ctx, cancel := context.WithTimeout(ctx, foundingAsk)
	defer cancel()
	answers := map[string]rosterAnswer{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, node := range config.Nodes {
		if node.LNN == self || len(node.Addresses) == 0 {
			continue
		}
		group.Go(func() {
			answer, err := others.Roster(ctx, node.LNN)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers[peerAddress(node)] = answer
		})
	}
	group.Wait()
	return answers
}

// Roster asks a node what it knows of the store.
func (p *peers) Roster(ctx context.Context, lnn int) (rosterAnswer, error) {
	client, err := p.of(lnn)
	if err != nil {
		return rosterAnswer{}, err
	}
	answer, err := client.Roster(ctx, &holdfastv1.RosterRequest{})
	if err != nil {
		return rosterAnswer{}, err
	}
	return rosterAnswer{belongs: answer.Belongs, hosts: answer.Hosts, roster: rosterFromMessages(answer.Members)}, nil
}

// Roster answers a node that starts. It may not be in the configuration yet, or this node may have none from the store; the
// certificate of the cluster is enough.
func (s peerService) Roster(ctx context.Context, _ *holdfastv1.RosterRequest) (*holdfastv1.RosterResponse, error) {
	state, ok := api.PeerState(ctx)
	if !ok {
		return nil, api.Forbidden("only nodes with a certificate of this cluster may ask this")
	}
	if _, err := identity.PeerName(state); err != nil {
		return nil, api.Forbidden("the caller's certificate names no node: %v", err)
	}
	return s.seat.tell(), nil
}
