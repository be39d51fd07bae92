package agent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

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
		Problems: problemMessages(s.self.Name, s.board.List()), FailureDetection: failureDetection(s.tenancy.Timing()),
		At: stamp(time.Now()), Started: stamp(s.started),
	}
	v := s.view.Load()
	if v == nil {
		status.NotServingBecause = s.seat.starting()
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
		return "this node has just started and waits for " + v.waiting
	}
	if v.applied.generation != v.generation {
		return "this node is just putting a change on its interfaces"
	}
	if l.tenancy.StoreSilentFor() > storeSilence {
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
		status.ConfigRevision, status.Version = entry.record.ConfigRevision, entry.record.Version
	}
	if since, seen := v.since.of(nodeKey(lnn)); seen {
		status.Since = stamp(wall(since.at, s.now()))
	}
	if until := heldDownUntil(node, s.now()); state == "up" && !until.IsZero() {
		status.Why += "; " + heldDownText(node, until, s.now())
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

// wall turns a reading of the agent's clock into wall-clock time; no time stays none.
func wall(t, now time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return time.Now().Add(t.Sub(now))
}

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
	status.Change = v.roster.Change
	for _, m := range health.Members {
		status.Members = append(status.Members, &holdfastv1.StoreMember{Name: m.Name, Endpoint: m.Endpoint, Healthy: m.Reachable, Why: m.Problem, Learner: m.Learner})
	}
	return status
}

// failureDetection says how a death is noticed and what gap that gives: the last heartbeat may have gone just before it, and the
// observers ask each other once.
func failureDetection(t tenure.Timing) *holdfastv1.FailureDetection {
	const around = 20 * time.Millisecond // a round trip, the take, and the first announcement
	soonest, latest := t.Span()-t.Interval, t.Span()+around
	return &holdfastv1.FailureDetection{
		Method: "heartbeat", IntervalMs: t.Interval.Milliseconds(), Multiplier: int32(t.Multiplier), SpanMs: t.Span().Milliseconds(),
		GapMsTypical: ((soonest + latest) / 2).Milliseconds(), GapMsMax: latest.Milliseconds(),
		Text: fmt.Sprintf("A node sends heartbeats every %s. When %s have passed without one, its observers declare it, confirm that to each other "+
			"within a round trip, and its successors take its addresses: %s to %s after its death.", t.Interval, t.Span(), soonest, latest),
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
	for _, given := range steering.GivenMembers(w, id, now) {
		lnn := given.Member.LNN
		seen[lnn] = true
		if given.Why == "" {
			in[lnn] = true
		} else if left == "" {
			left = nameOf(w, lnn) + ": " + given.Why
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
