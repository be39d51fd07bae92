package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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

// healthTimeout bounds the question to the store's members; who does not answer by then is not well.
const healthTimeout = 600 * time.Millisecond

func (s nodeService) Status(ctx context.Context, _ *holdfastv1.StatusRequest) (*holdfastv1.StatusResponse, error) {
	status := &holdfastv1.StatusResponse{
		Cluster: s.identity.Cluster, Node: s.self.Name, Lnn: int32(s.self.LNN), Version: s.options.Version,
		Problems: problemMessages(s.self.Name, s.board.List()), FailureDetection: failureDetection(s.tenancy.Span()),
		At: stamp(time.Now()), Started: stamp(s.started),
	}
	v := s.view.Load()
	if v == nil {
		status.NotServingBecause = "this agent is starting and has not read the configuration from the store yet"
		return status, nil
	}
	status.NotServingBecause = s.loop.serving(v)
	status.Serving = status.NotServingBecause == ""
	status.ConfigRevision = v.configRevision
	status.Store = s.storeStatus(ctx, v)
	for _, lnn := range slices.Sorted(maps.Keys(v.world.Nodes)) {
		status.Nodes = append(status.Nodes, s.nodeStatus(v, lnn))
	}
	for _, id := range v.world.Config.Pools() {
		status.Pools = append(status.Pools, poolSummary(v, id, s.now()))
	}
	for _, subnet := range v.world.Config.Subnets() {
		status.ServiceAddresses = append(status.ServiceAddresses, serviceAddresses(v.world, subnet)...)
	}
	return status, nil
}

// serving says why the cluster does not serve as this node sees it; empty when it does.
func (l *loop) serving(v *view) string {
	if !v.ready {
		return "this node has not finished its first full view of the configuration, its checks and the load"
	}
	if v.applied.generation != v.generation {
		return "this node is just putting a change on its interfaces"
	}
	if l.tenancy.StoreSilentFor() > 2*l.tenancy.Span().lease() {
		return "the store does not answer"
	}
	for _, id := range v.world.Config.Pools() {
		if summary := poolSummary(v, id, l.now()); !summary.Serving {
			return fmt.Sprintf("%s: %s", id, summary.Why)
		}
	}
	for _, subnet := range v.world.Config.Subnets() {
		if all := v.world.Config.ServiceAddresses(subnet); len(v.world.ServiceHolders(subnet)) < len(all) {
			return fmt.Sprintf("%d of the %d service addresses of %s have no holder", len(all)-len(v.world.ServiceHolders(subnet)), len(all), subnet)
		}
	}
	return ""
}

func (s nodeService) nodeStatus(v *view, lnn int) *holdfastv1.NodeStatus {
	node := v.world.Nodes[lnn]
	state, why := nodeState(v.world, node)
	status := &holdfastv1.NodeStatus{
		Name: nameOf(v.world, lnn), Lnn: int32(lnn), State: nodeStates[state], Why: why,
		Incarnation: &holdfastv1.Incarnation{Start: uint64(node.Incarnation)}, PoolAddresses: int32(v.owned(lnn)),
		Load: s.nodeLoad(v, lnn),
	}
	if entry, present := v.members[lnn]; present {
		status.ConfigRevision, status.Version, status.Since = entry.record.ConfigRevision, entry.record.Version, stamp(wall(entry.upSince, s.now()))
	} else if !node.AbsentSince.IsZero() {
		status.Since = stamp(wall(node.AbsentSince, s.now()))
	}
	if lnn == s.self.LNN && !v.standing.Until.IsZero() {
		status.LeaseUntil = stamp(wall(v.standing.Until, s.now()))
	}
	for _, st := range v.world.Services {
		if st.Owner.LNN == lnn && !v.world.Over(st.Owner) {
			status.ServiceAddresses++
		}
	}
	if configured, ok := v.world.Config.Node(lnn); ok {
		status.Witness = configured.Witness
	}
	return status
}

// wall turns a reading of the agent's clock into wall-clock time.
func wall(t, now time.Time) time.Time { return time.Now().Add(t.Sub(now)) }

var nodeStates = map[string]holdfastv1.NodeStatus_State{
	"unknown": holdfastv1.NodeStatus_unknown, "up": holdfastv1.NodeStatus_up, "unfit": holdfastv1.NodeStatus_unfit,
	"draining": holdfastv1.NodeStatus_draining, "down": holdfastv1.NodeStatus_down,
}

// nodeLoad is a node's load over all its interfaces and addresses.
func (s nodeService) nodeLoad(v *view, lnn int) *holdfastv1.Load {
	node, ok := v.world.Config.Node(lnn)
	if !ok {
		return nil
	}
	var owned []netip.Addr
	for _, record := range v.world.Pools {
		for addr, st := range record {
			if st.Owner.LNN == lnn {
				owned = append(owned, addr)
			}
		}
	}
	var worst placement.Load
	for _, iface := range node.Interfaces {
		load := s.loads.Of(lnn, iface, owned, s.now(), v.world.Config.Settings.SampleInterval)
		if !worst.Known || load.Throughput > worst.Throughput {
			worst = load
		}
	}
	return loadMessage(worst, 0)
}

func (s nodeService) storeStatus(ctx context.Context, v *view) *holdfastv1.StoreStatus {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	health := s.store.Health(ctx)
	status := &holdfastv1.StoreStatus{Mode: holdfastv1.StoreStatus_embedded, Leader: health.Leader, Healthy: health.Writable, Revision: v.storeRevision}
	if len(v.world.Config.Settings.StoreEndpoints) > 0 {
		status.Mode = holdfastv1.StoreStatus_external
	}
	if !health.Writable {
		status.Why = "no majority of its members works together"
	}
	if health.Full {
		status.Why = "its space is used up: it takes no writes"
	}
	for _, m := range health.Members {
		status.Members = append(status.Members, &holdfastv1.StoreMember{Name: m.Name, Endpoint: m.Endpoint, Healthy: m.Reachable, Why: m.Problem})
	}
	return status
}

// failureDetection says how a death is noticed and what gap that gives. The store looks for ended leases twice a second, and its
// own election takes up to a second.
func failureDetection(s span) *holdfastv1.FailureDetection {
	soonest, latest := s.lease()-s.renewEvery(), s.lease()+500*time.Millisecond
	worst := 2*s.lease() + 600*time.Millisecond
	return &holdfastv1.FailureDetection{
		Method: "store lease", IntervalMs: s.renewEvery().Milliseconds(), Multiplier: int32(s.lease() / s.renewEvery()), SpanMs: s.lease().Milliseconds(),
		GapMsTypical: ((soonest + latest) / 2).Milliseconds(), GapMsMax: worst.Milliseconds(),
		Text: fmt.Sprintf("A node renews a lease of %s in the store four times in that time. When it dies, the store notices %s to %s later, "+
			"the other nodes confirm it within a round trip, and its successors take its addresses. When the dead node led the store, "+
			"an election comes first and every lease begins anew: up to %s.", s.lease(), soonest, latest, worst),
	}
}

func poolSummary(v *view, id cluster.PoolID, now time.Time) *holdfastv1.PoolSummary {
	w := v.world
	pool, _, _, _ := w.Config.Pool(id)
	summary := &holdfastv1.PoolSummary{
		Id: id.String(), Zone: pool.Zone, AllocMethod: string(pool.AllocMethod), ConnectPolicy: string(pool.ConnectPolicy),
		Addresses: int32(len(w.Config.Addresses(id))),
	}
	moving := 0
	for _, st := range w.Pools[id] {
		if !st.Owner.IsZero() && !w.Over(st.Owner) && !w.Silent(st.Owner) {
			summary.Held++
		}
		if st.State() == tenure.Moving {
			moving++
		}
	}
	var left string
	seen := map[int]bool{}
	in := map[int]bool{}
	for _, m := range w.Config.Members(id) {
		seen[m.LNN] = true
		if why := steering.NotGiven(w, id, m, len(givable(w, id, m)), now); why == "" {
			in[m.LNN] = true
		} else if left == "" {
			left = nameOf(w, m.LNN) + ": " + why
		}
	}
	summary.Nodes, summary.NodesIn = int32(len(seen)), int32(len(in))
	switch {
	case summary.NodesIn == 0:
		summary.Why = "no node may be given"
		if left != "" {
			summary.Why += " (" + left + ")"
		}
	case pool.AllocMethod == cluster.AllocDynamic && summary.Held < summary.Addresses:
		summary.Why = fmt.Sprintf("%d of %d addresses have no holder", summary.Addresses-summary.Held, summary.Addresses)
	case moving > 0:
		summary.Serving, summary.Why = true, fmt.Sprintf("%d addresses are on their way", moving)
	default:
		summary.Serving = true
	}
	return summary
}

func serviceAddresses(w *steering.World, id cluster.SubnetID) []*holdfastv1.ServiceAddress {
	subnet, _ := w.Config.Subnet(id)
	var out []*holdfastv1.ServiceAddress
	for _, addr := range w.Config.ServiceAddresses(id) {
		st := w.Services[steering.ServiceKey{Subnet: id, Address: addr}]
		message := &holdfastv1.ServiceAddress{Subnet: id.String(), ServiceName: subnet.ServiceName, Address: addr.String(), NextNode: nameOf(w, st.Next.LNN)}
		if !st.Owner.IsZero() && !w.Over(st.Owner) {
			message.Node, message.Lnn, message.Interface, message.Since = nameOf(w, st.Owner.LNN), int32(st.Owner.LNN), st.Owner.Interface, stamp(st.Since)
		}
		out = append(out, message)
	}
	return out
}

func (s nodeService) ListInterfaces(_ context.Context, r *holdfastv1.ListInterfacesRequest) (*holdfastv1.ListInterfacesResponse, error) {
	v, err := s.seen()
	if err != nil {
		return nil, err
	}
	only := 0
	if r.Node != "" {
		node, err := findNode(v.world.Config, r.Node)
		if err != nil {
			return nil, err
		}
		only = node.LNN
	}
	response := &holdfastv1.ListInterfacesResponse{}
	for _, a := range listAddresses(v) {
		if (only == 0 || int(a.Lnn) == only) && within(a.Pool, r.Within) {
			response.Addresses = append(response.Addresses, a)
		}
	}
	return response, nil
}

// within reports whether a dotted id lies in another; short ids mean the default groupnet.
func within(id, outer string) bool {
	for _, prefix := range []string{outer, "groupnet0." + outer} {
		if outer == "" || id == prefix || len(id) > len(prefix) && id[:len(prefix)+1] == prefix+"." {
			return true
		}
	}
	return false
}

// listAddresses lists every service and pool address, sorted by place and address.
func listAddresses(v *view) []*holdfastv1.InterfaceAddress {
	w := v.world
	var out []*holdfastv1.InterfaceAddress
	for _, subnet := range w.Config.Subnets() {
		for _, addr := range w.Config.ServiceAddresses(subnet) {
			st := w.Services[steering.ServiceKey{Subnet: subnet, Address: addr}]
			out = append(out, addressMessage(w, addr, st, holdfastv1.InterfaceAddress_service, subnet.String()))
		}
	}
	for _, id := range w.Config.Pools() {
		pool, _, _, _ := w.Config.Pool(id)
		kind := holdfastv1.InterfaceAddress_dynamic
		if pool.AllocMethod == cluster.AllocStatic {
			kind = holdfastv1.InterfaceAddress_static
		}
		for _, addr := range w.Config.Addresses(id) {
			message := addressMessage(w, addr, w.Pools[id][addr], kind, id.String())
			_, message.Pinned = pool.Pins[addr]
			out = append(out, message)
		}
	}
	slices.SortStableFunc(out, func(a, b *holdfastv1.InterfaceAddress) int { return cmp.Compare(a.Kind, b.Kind) * -1 })
	return out
}

func addressMessage(w *steering.World, addr netip.Addr, st tenure.Statement, kind holdfastv1.InterfaceAddress_Kind, within string) *holdfastv1.InterfaceAddress {
	message := &holdfastv1.InterfaceAddress{
		Address: addr.String(), Kind: kind, Pool: within, Node: nameOf(w, st.Owner.LNN), Lnn: int32(st.Owner.LNN), Interface: st.Owner.Interface,
		Since: stamp(st.Since), NextNode: nameOf(w, st.Next.LNN), NextInterface: st.Next.Interface, Epoch: int64(st.Epoch), Why: st.Reason,
	}
	switch {
	case st.Owner.IsZero():
		message.State = holdfastv1.InterfaceAddress_unassigned
		if message.Why == "" {
			message.Why = "nobody has been given it"
		}
	case w.Over(st.Owner) || w.Silent(st.Owner):
		message.State = holdfastv1.InterfaceAddress_orphaned
		message.Why = fmt.Sprintf("its owner %s is not up, and nobody has taken over yet", nameOf(w, st.Owner.LNN))
	case st.State() == tenure.Moving:
		message.State = holdfastv1.InterfaceAddress_moving
		message.Why = fmt.Sprintf("on its way to %s: %s", nameOf(w, st.To.LNN), st.Reason)
	default:
		message.State = holdfastv1.InterfaceAddress_held
	}
	return message
}

func (s nodeService) PoolStatus(_ context.Context, r *holdfastv1.PoolStatusRequest) (*holdfastv1.PoolStatusResponse, error) {
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
	response := &holdfastv1.PoolStatusResponse{}
	for _, id := range pools {
		response.Pools = append(response.Pools, s.poolState(v, id))
	}
	return response, nil
}

func (s nodeService) poolState(v *view, id cluster.PoolID) *holdfastv1.PoolState {
	w := v.world
	pool, _, _, _ := w.Config.Pool(id)
	state := &holdfastv1.PoolState{
		Id: id.String(), Zone: pool.Zone, ZoneAliases: pool.ZoneAliases, AllocMethod: string(pool.AllocMethod),
		ConnectPolicy: string(pool.ConnectPolicy), FailoverPolicy: string(pool.FailoverPolicy), RebalancePolicy: string(pool.RebalancePolicy),
		RebalanceNote: s.rebalanceNote(w, id),
	}
	for _, m := range w.Config.Members(id) {
		state.Nodes = append(state.Nodes, s.poolNode(v, id, pool, m))
	}
	for _, addr := range w.Config.Addresses(id) {
		if st := w.Pools[id][addr]; st.Owner.IsZero() || w.Over(st.Owner) {
			state.Unassigned = append(state.Unassigned, &holdfastv1.PoolAddress{Address: addr.String(), Why: addressMessage(w, addr, st, 0, "").Why})
		}
	}
	return state
}

// rebalanceNote says what a rebalance would move, and what it waits for.
func (s nodeService) rebalanceNote(w *steering.World, id cluster.PoolID) string {
	uneven := unevenText(w, id, steering.EvennessOf(w, id, s.now()))
	if uneven == "" {
		return ""
	}
	return fmt.Sprintf("%s; `holdfast network pools rebalance-ips %s` does it now", uneven, id)
}

func (s nodeService) poolNode(v *view, id cluster.PoolID, pool *cluster.Pool, m cluster.Member) *holdfastv1.PoolNode {
	w := v.world
	given := givable(w, id, m)
	why := steering.NotGiven(w, id, m, len(given), s.now())
	node := &holdfastv1.PoolNode{
		Name: nameOf(w, m.LNN), Lnn: int32(m.LNN), Weight: int32(w.Weight(pool, m.LNN)), In: why == "", Why: why,
		Suspended: slices.Contains(pool.SuspendedNodes, m.LNN), Load: loadMessage(w.Loads[id][m], 0),
	}
	if node.In {
		node.Why = "up, fit and holding addresses"
	}
	if entry, present := v.members[m.LNN]; present {
		node.Since = stamp(wall(entry.fitSince, s.now()))
	}
	for _, addr := range w.Config.Addresses(id) {
		st := w.Pools[id][addr]
		if st.Owner.Member() != m || w.Over(st.Owner) {
			continue
		}
		message := addressMessage(w, addr, st, 0, "")
		in := node.In && slices.Contains(given, addr)
		address := &holdfastv1.PoolAddress{Address: addr.String(), Interface: m.Interface, In: in, Why: message.Why, Since: message.Since}
		_, address.Pinned = pool.Pins[addr]
		if load := s.loads.Of(m.LNN, m.Interface, []netip.Addr{addr}, s.now(), w.Config.Settings.SampleInterval); load.Known {
			address.Connections = int32(load.Connections)
		}
		node.Addresses = append(node.Addresses, address)
	}
	if m.LNN == s.self.LNN {
		node.Checks = s.checkStates(id)
	}
	return node
}

// checkStates are the verdicts of this node's own checks for a pool.
func (s nodeService) checkStates(id cluster.PoolID) []*holdfastv1.CheckState {
	var out []*holdfastv1.CheckState
	status := s.checks.Status()
	for _, key := range slices.Sorted(maps.Keys(status)) {
		if name, belongs := strings.CutPrefix(key, id.String()+"/"); belongs {
			v := status[key]
			out = append(out, &holdfastv1.CheckState{Name: name, Verdict: v.State.String(), Since: stamp(v.Since), Evidence: v.Evidence})
		}
	}
	return out
}
