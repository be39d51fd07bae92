package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/verdict"
)

// Every node checks itself, and its verdicts are asked for when somebody wants to see them: their evidence changes with every round,
// which is too often for the store.
const (
	checksAnswers  = time.Second // for the answers of all nodes
	checksAtOnce   = 32          // nodes that are asked at the same time
	evidenceLength = 300         // bytes of one result that are shown
)

// checkAsker asks another node how its own checks stand; pool is a dotted id, or empty for every pool.
type checkAsker interface {
	Checks(ctx context.Context, lnn int, pool string) ([]*holdfastv1.PoolCheck, error)
}

// checksOf is what one node says of its checks, or why it does not.
type checksOf struct {
	checks []*holdfastv1.PoolCheck
	err    error
}

// askChecks asks the members of pools for their checks, many at once. Nodes that are not up are not asked.
func (s nodeService) askChecks(ctx context.Context, v *view, pools []cluster.PoolID) map[int]checksOf {
	ctx, cancel := context.WithTimeout(ctx, checksAnswers)
	defer cancel()
	only, members := "", map[int]bool{}
	for _, id := range pools {
		if pool, _, _, ok := v.world.Config.Pool(id); ok && len(pool.Checks) > 0 {
			for _, m := range v.world.Config.Members(id) {
				members[m.LNN] = true
			}
		}
	}
	if len(pools) == 1 {
		only = pools[0].String()
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	turns := make(chan struct{}, checksAtOnce)
	answers := map[int]checksOf{}
	for lnn := range members {
		if _, present := v.members[lnn]; !present && lnn != s.self.LNN {
			continue
		}
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			var answer checksOf
			if lnn == s.self.LNN {
				answer.checks = s.ownChecks(only)
			} else {
				answer.checks, answer.err = s.edges.checks.Checks(ctx, lnn, only)
			}
			mu.Lock()
			answers[lnn] = answer
			mu.Unlock()
		})
	}
	wg.Wait()
	return answers
}

// checkStates are the checks of a pool as one of its nodes says they stand. What it does not say is unknown, with the reason.
func checkStates(v *view, id cluster.PoolID, lnn int, answer checksOf, asked bool) []*holdfastv1.CheckState {
	said := map[string]*holdfastv1.CheckState{}
	for _, check := range answer.checks {
		if check.Pool == id.String() && check.State != nil {
			said[check.State.Name] = check.State
		}
	}
	pool, _, _, _ := v.world.Config.Pool(id)
	var states []*holdfastv1.CheckState
	for i, check := range pool.Checks {
		_, name, _ := strings.Cut(checkID(id, i, check), "/")
		state, known := said[name]
		switch {
		case known:
		case !asked:
			state = &holdfastv1.CheckState{Name: name, Verdict: verdict.Unknown.String(), Reason: nameOf(v.world, lnn) + " is down"}
		case answer.err != nil:
			state = &holdfastv1.CheckState{Name: name, Verdict: verdict.Unknown.String(), Reason: nameOf(v.world, lnn) + " " + whySilent(v, lnn, checksAnswers, answer.err)}
		default:
			state = &holdfastv1.CheckState{Name: name, Verdict: verdict.Unknown.String(), Reason: nameOf(v.world, lnn) + " does not run it yet"}
		}
		states = append(states, state)
	}
	return states
}

// ownChecks are the verdicts of this node's own checks, sorted; of one pool, or of all for an empty id.
func (a *Agent) ownChecks(pool string) []*holdfastv1.PoolCheck {
	var out []*holdfastv1.PoolCheck
	status := a.checks.Status()
	for _, key := range slices.Sorted(maps.Keys(status)) {
		id, name, _ := strings.Cut(key, "/")
		if pool == "" || pool == id {
			out = append(out, &holdfastv1.PoolCheck{Pool: id, State: checkState(name, status[key])})
		}
	}
	return out
}

func checkState(name string, v verdict.Verdict) *holdfastv1.CheckState {
	state := &holdfastv1.CheckState{
		Name: name, Verdict: v.State.String(), Since: stamp(v.Since), Evidence: shortened(v.Evidence), Reason: shortened(v.Reason), HeldUntil: stamp(v.HeldUntil),
	}
	if !v.HeldUntil.IsZero() {
		state.Reason = fmt.Sprintf("good again; held down for %s after failing %s, until %s", v.HoldDown, times(v.Flaps), clockText(v.HeldUntil))
	}
	return state
}

func shortened(text string) string {
	if len(text) <= evidenceLength {
		return text
	}
	return strings.ToValidUTF8(text[:evidenceLength], "") + " ..."
}

// Checks asks a node how its own checks stand.
func (p *peers) Checks(ctx context.Context, lnn int, pool string) ([]*holdfastv1.PoolCheck, error) {
	client, err := p.of(lnn)
	if err != nil {
		return nil, err
	}
	answer, err := client.Checks(ctx, &holdfastv1.ChecksRequest{Pool: pool})
	if err != nil {
		return nil, err
	}
	return answer.Checks, nil
}

// Checks tells another node how this one's own checks stand.
func (s peerService) Checks(ctx context.Context, r *holdfastv1.ChecksRequest) (*holdfastv1.ChecksResponse, error) {
	if _, err := s.caller(ctx); err != nil {
		return nil, err
	}
	return &holdfastv1.ChecksResponse{Checks: s.ownChecks(r.Pool)}, nil
}
