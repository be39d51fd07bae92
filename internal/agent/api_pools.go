package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

func (s nodeService) PoolStatus(ctx context.Context, r *holdfastv1.PoolStatusRequest) (*holdfastv1.PoolStatusResponse, error) {
	v, err := s.seen()
	if err != nil {
		return nil, err
	}
	pools := v.world.Config.Pools()
	if r.Pool != "" {
		id, err := cluster.ParsePoolID(v.world.Config, r.Pool)
		if err != nil {
			return nil, api.NotFound("%v", err)
		}
		pools = []cluster.PoolID{id}
	}
	response, checks := &holdfastv1.PoolStatusResponse{}, s.askChecks(ctx, v, pools)
	for _, id := range pools {
		response.Pools = append(response.Pools, s.poolState(v, id, checks))
	}
	return response, nil
}

// poolState says of a pool and of each of its nodes and addresses how it stands.
func (s nodeService) poolState(v *view, id cluster.PoolID, checks map[int]checksOf) *holdfastv1.PoolState {
	w := v.world
	pool, _, _, _ := w.Config.Pool(id)
	state := &holdfastv1.PoolState{
		Id: id.String(), Zone: pool.Zone, ZoneAliases: pool.ZoneAliases, AllocMethod: string(pool.AllocMethod),
		ConnectPolicy: string(pool.ConnectPolicy), FailoverPolicy: string(pool.FailoverPolicy), RebalancePolicy: string(pool.RebalancePolicy),
		RebalanceNote: rebalanceNote(w, id, s.now()),
	}
	last := 0 // members are sorted: a node's interfaces follow each other, and its checks belong to all of them
	for _, given := range steering.GivenMembers(w, id, s.now()) {
		m, node := given.Member, s.poolNode(v, id, pool, given)
		if m.LNN != last {
			answer, asked := checks[m.LNN]
			node.Checks = checkStates(v, id, m.LNN, answer, asked)
		}
		last = m.LNN
		state.Nodes = append(state.Nodes, node)
	}
	for _, addr := range w.Config.Addresses(id) {
		st := w.Pools[id][addr]
		if st.Owner.IsZero() || w.Over(st.Owner) && !shownWithNode(w, id, pool, st) {
			state.Unassigned = append(state.Unassigned, &holdfastv1.PoolAddress{Address: addr.String(), Why: poolAddressMessage(w, id, addr).Why})
		}
	}
	return state
}

// shownWithNode reports whether an address belongs to a member although that is down: a static one does.
func shownWithNode(w *steering.World, id cluster.PoolID, pool *cluster.Pool, st tenure.Statement) bool {
	return pool.AllocMethod == cluster.AllocStatic && slices.Contains(w.Config.Members(id), st.Owner.Member())
}

// rebalanceNote says why addresses are not even, what a rebalance would move and when that happens by itself, and which nodes are
// held down until when.
func rebalanceNote(w *steering.World, id cluster.PoolID, now time.Time) string {
	var notes []string
	for _, lnn := range lnnsOf(w.Config.Members(id)) {
		node := w.Nodes[lnn]
		if until := heldDownUntil(node, now); !until.IsZero() {
			notes = append(notes, nameOf(w, lnn)+": "+heldDownText(node, until, now))
		}
	}
	notes = firstTexts(notes)
	if uneven := unevenText(w, id, steering.EvennessOf(w, id, now)); uneven != "" {
		notes = append(notes, fmt.Sprintf("%s; `holdfast network pools rebalance-ips %s` does it now", uneven, id))
	}
	return strings.Join(notes, "; ")
}

func (s nodeService) poolNode(v *view, id cluster.PoolID, pool *cluster.Pool, given steering.GivenMember) *holdfastv1.PoolNode {
	w, m, why := v.world, given.Member, given.Why
	node := &holdfastv1.PoolNode{
		Name: nameOf(w, m.LNN), Lnn: int32(m.LNN), Weight: int32(w.Weight(pool, m.LNN)), In: why == "", Why: why,
		Suspended: slices.Contains(pool.SuspendedNodes, m.LNN), Load: loadMessage(s.memberLoad(w, id, m), 0),
		Since: stamp(wall(memberSince(v, id, m), s.now())),
	}
	if node.In {
		node.Why = "up, fit and holding addresses"
	}
	if until := heldDownUntil(w.Nodes[m.LNN], s.now()); !until.IsZero() && w.UnfitFor(id, m) == "" && pool.AllocMethod == cluster.AllocDynamic {
		node.HeldUntil = stamp(wall(until, s.now()))
		node.Why += "; " + heldDownText(w.Nodes[m.LNN], until, s.now())
	}
	for _, addr := range w.Config.Addresses(id) {
		st := w.Pools[id][addr]
		if st.Owner.Member() != m || w.Over(st.Owner) && !shownWithNode(w, id, pool, st) {
			continue
		}
		message := poolAddressMessage(w, id, addr)
		address := &holdfastv1.PoolAddress{
			Address: addr.String(), Interface: m.Interface, In: node.In && slices.Contains(given.Addresses, addr), Why: message.Why, Since: message.Since, Pinned: message.Pinned,
		}
		if load := s.loads.Of(m.LNN, m.Interface, []netip.Addr{addr}, s.now(), w.Config.Settings.SampleInterval); load.Known {
			address.Connections = int32(load.Connections)
		}
		node.Addresses = append(node.Addresses, address)
	}
	return node
}

// memberLoad is what was measured of a member last; connections are those to the addresses of the pool that it owns.
func (s nodeService) memberLoad(w *steering.World, id cluster.PoolID, m cluster.Member) placement.Load {
	var owned []netip.Addr
	for addr, st := range w.Pools[id] {
		if st.Owner.Member() == m {
			owned = append(owned, addr)
		}
	}
	return s.loads.Of(m.LNN, m.Interface, owned, s.now(), w.Config.Settings.SampleInterval)
}

// memberSince is since when a member is in or out of a pool's answers; where a pool has no name to answer, since when its node is
// what it is.
func memberSince(v *view, id cluster.PoolID, m cluster.Member) time.Time {
	if since, seen := v.since.of(sinceKey{id, m}); seen {
		return since.at
	}
	since, _ := v.since.of(nodeKey(m.LNN))
	return since.at
}
