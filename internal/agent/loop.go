package agent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/store"
	"github.com/holdfast/holdfast/internal/tenure"
)

// How the loop paces itself.
const (
	rankStep     = 40 * time.Millisecond // later ranks propose later, so that many nodes do not write at once
	settleLimit  = 5 * time.Second       // how long a starting cluster waits for nodes that are configured but not heard
	lookAgain    = 5 * time.Second       // the loop looks at everything so often although nothing happened
	evaluateStep = 2 * time.Millisecond  // what happens within this is looked at together
)

// loop is the one place where what this node knows becomes what it does: batches of the store, the right to hold, checks,
// links, loads and the results on the interfaces come in; wishes, proposals, the DNS view and this node's own report go out.
// It decides nothing itself: steering does.
type loop struct {
	*Agent
	replica    *replica
	notes      chan struct{} // something outside the store changed
	generation uint64
	wanted     []steering.Holding
	routesOf   *cluster.Config      // whose routes the last wish has
	checksOf   *cluster.Config      // whose checks run
	needs      map[string]time.Time // when the need for a change of a key arose
	wasReady   bool
	readySince time.Time
	wakeAt     time.Time
	moveFrom   map[netip.Addr]moveEnds
	reported   map[int]string // what was last said of each node, for the events
}

// note says that something changed; it never blocks.
func (l *loop) note() {
	select {
	case l.notes <- struct{}{}:
	default:
	}
}

// run works until the context ends or the watch is closed.
func (l *loop) run(ctx context.Context, batches <-chan store.Batch) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case batch, open := <-batches:
			if !open {
				return
			}
			l.take(ctx, batch)
		case <-l.notes:
		case <-timer.C:
		}
		l.drain(ctx, batches)
		l.wakeAt = l.now().Add(lookAgain)
		l.evaluate(ctx)
		l.beat.Store(l.now().UnixNano())
		timer.Reset(max(l.wakeAt.Sub(l.now()), evaluateStep))
	}
}

// drain takes in what is waiting already, so that a burst is looked at once.
func (l *loop) drain(ctx context.Context, batches <-chan store.Batch) {
	for range 256 {
		select {
		case batch, open := <-batches:
			if !open {
				return
			}
			l.take(ctx, batch)
		default:
			return
		}
	}
}

// wakeIn asks to look again after a while.
func (l *loop) wakeIn(d time.Duration) {
	if at := l.now().Add(d); at.Before(l.wakeAt) {
		l.wakeAt = at
	}
}

// take brings one batch into the replica and acts on members that came or went.
func (l *loop) take(ctx context.Context, batch store.Batch) {
	before := l.replica.statements()
	services := l.replica.serviceStatements()
	members := maps.Clone(l.replica.members)
	revision := l.replica.configRevision
	l.replica.apply(batch, l.now())
	for lnn, old := range members {
		if _, present := l.replica.members[lnn]; !present && lnn != l.self.LNN {
			l.tower.Inquire(ctx, lnn, old.record.Incarnation)
		}
	}
	for lnn, entry := range l.replica.members {
		l.tower.Stop(lnn)
		if entry.record.Incarnation > 1 {
			l.tower.Learn(lnn, entry.record.Incarnation-1)
		}
	}
	if l.replica.configRevision != revision {
		l.configChanged()
	}
	l.tellMoves(before, services)
}

// configChanged puts a new configuration into effect in the rooms that hold a part of it.
func (l *loop) configChanged() {
	config := l.replica.config
	others := otherNodes(config, l.self.LNN)
	l.tenancy.SetObservers(others)
	l.tower.SetOthers(others)
	l.peers.SetNodes(config.Nodes)
	l.keepConfig(config)
	l.event("config.applied", "cluster", fmt.Sprintf("configuration of revision %d is in effect", l.replica.configRevision), nil)
}

func otherNodes(config *cluster.Config, self int) []int {
	var others []int
	for _, node := range config.Nodes {
		if node.LNN != self {
			others = append(others, node.LNN)
		}
	}
	return others
}

// evaluate looks at everything and acts.
func (l *loop) evaluate(ctx context.Context) {
	if l.replica.config == nil || !l.replica.synced {
		return
	}
	now := l.now()
	w := l.world(now)
	standing, incarnation := l.tenancy.Standing(), l.tenancy.Incarnation()
	holdings := steering.Desired(w, incarnation, standing.MayHold)
	l.want(w, holdings)
	last := l.applier.Last()
	if standing.MayHold {
		if last.generation == l.generation {
			l.letGo(ctx, w, incarnation, last.held, now)
		}
		l.proposePools(ctx, w, now)
		l.proposeServices(ctx, w, incarnation, last, now)
	}
	l.observeNodes(w, now)
	if l.checksOf != w.Config {
		l.checksOf = w.Config
		l.checks.Set(l.checkTargets(w))
	}
	l.tenancy.Publish(l.ownReport(now))
	l.answers.SetView(w, standing, now)
	l.publish(w, standing, incarnation, last, now)
}

// world is everything that the decisions may look at.
func (l *loop) world(now time.Time) *steering.World {
	config := l.replica.config
	w := &steering.World{
		Config: config, Self: l.self.LNN, Nodes: map[int]steering.Node{},
		Pools: l.replica.statements(), Services: l.replica.serviceStatements(), Idle: map[netip.Addr]bool{},
	}
	for _, node := range config.Nodes {
		w.Nodes[node.LNN] = steering.Node{LNN: node.LNN, Name: node.Name}
	}
	for lnn, entry := range l.replica.members {
		w.Nodes[lnn] = l.presentNode(lnn, entry)
	}
	for lnn, gone := range l.replica.gone {
		w.Nodes[lnn] = steering.Node{LNN: lnn, Name: gone.name, Incarnation: gone.incarnation, AbsentSince: gone.since, Over: l.tower.Down(lnn), Left: gone.left}
	}
	l.unseenOwners(w)
	l.addLoads(w, now)
	w.Settling = l.settling(w, now)
	return w
}

// unseenOwners finds owners on record whose node this agent has never seen: it was down before this agent started, so nobody
// told it. They are asked about like any other.
func (l *loop) unseenOwners(w *steering.World) {
	ask := func(c tenure.Claim) {
		node := w.Nodes[c.LNN]
		if c.IsZero() || node.Present || c.LNN == l.self.LNN || c.Incarnation <= l.tower.Down(c.LNN) {
			return
		}
		if c.Incarnation > node.Incarnation {
			node.LNN, node.Incarnation = c.LNN, c.Incarnation
			w.Nodes[c.LNN] = node
		}
		l.tower.Inquire(l.ctx, c.LNN, c.Incarnation)
	}
	for _, record := range w.Pools {
		for _, st := range record {
			ask(st.Owner)
		}
	}
	for _, st := range w.Services {
		ask(st.Owner)
	}
	for lnn, node := range w.Nodes {
		if over := l.tower.Down(lnn); !node.Present && over > 0 {
			node.Over = over
			node.Incarnation = max(node.Incarnation, over)
			w.Nodes[lnn] = node
		}
	}
}

func (l *loop) presentNode(lnn int, entry memberEntry) steering.Node {
	r := entry.record
	node := steering.Node{
		LNN: lnn, Name: r.Name, Present: true, Incarnation: r.Incarnation, Over: r.Incarnation - 1, // what was found Down and yet came back under a lease is judged by that lease
		Ready: r.Ready, Leaving: r.Leaving, Faults: r.Faults, PoolFaults: map[cluster.PoolID]string{},
		FitSince: entry.fitSince, Outage: time.Duration(r.OutageMS) * time.Millisecond, HoldDown: time.Duration(r.HoldDownMS) * time.Millisecond,
	}
	_, node.Draining = l.replica.drains[lnn]
	for id, why := range r.PoolFaults {
		if parsed, err := cluster.NewPoolID(id); err == nil {
			node.PoolFaults[parsed] = why
		}
	}
	return node
}

// settling is true while a cluster starts and some of its nodes have not been heard yet, for a bounded time.
func (l *loop) settling(w *steering.World, now time.Time) bool {
	if l.readySince.IsZero() {
		if !l.ready() {
			return true
		}
		l.readySince = now
	}
	left := l.readySince.Add(settleLimit).Sub(now)
	if left <= 0 {
		return false
	}
	for _, node := range w.Config.Nodes {
		if n := w.Nodes[node.LNN]; !node.Witness && !n.Ready && n.Over == 0 {
			l.wakeIn(left)
			return true
		}
	}
	return false
}

// want hands a wish to the applier when it differs from the last.
func (l *loop) want(w *steering.World, holdings []steering.Holding) {
	if l.generation > 0 && slices.Equal(holdings, l.wanted) && l.routesOf == w.Config {
		return
	}
	l.generation++
	l.wanted, l.routesOf = holdings, w.Config
	l.applier.Want(wish{generation: l.generation, holdings: holdings, routes: l.routes(w), moving: l.moveEnds(w, holdings)})
}

// moveEnds says for each address that this node gives or gets where it comes from and goes to.
func (l *loop) moveEnds(w *steering.World, holdings []steering.Holding) map[netip.Addr]moveEnds {
	ends := map[netip.Addr]moveEnds{}
	for _, record := range w.Pools {
		for addr, st := range record {
			if st.Owner.LNN == w.Self && !st.To.IsZero() {
				ends[addr] = moveEnds{st.Owner.Member(), st.To.Member()}
			}
		}
	}
	for _, h := range holdings {
		if _, here := l.moveFrom[h.Address]; here {
			ends[h.Address] = l.moveFrom[h.Address]
		}
	}
	return ends
}

// letGo completes the moves away from this node whose addresses are off its interfaces.
func (l *loop) letGo(ctx context.Context, w *steering.World, incarnation tenure.Incarnation, held map[netip.Addr]bool, now time.Time) {
	for _, letting := range steering.LetGo(w, incarnation, held, now) {
		l.writeRecord(ctx, letting.Pool, letting.Record, nil, nil)
	}
}

// proposePools writes what the records of the pools should become, when it is this node's turn.
func (l *loop) proposePools(ctx context.Context, w *steering.World, now time.Time) {
	pools := map[cluster.PoolID]bool{}
	for _, id := range w.Config.Pools() {
		pools[id] = true
	}
	for id := range w.Pools {
		pools[id] = true
	}
	for id := range pools {
		proposal, again, ok := steering.ProposePool(w, id, false, now)
		if again > 0 {
			l.wakeIn(again)
		}
		if !l.turn(poolKey(id), ok, time.Duration(max(proposal.Rank, 0))*rankStep, now) || proposal.Rank < 0 {
			continue
		}
		l.writeRecord(ctx, id, proposal.Record, proposal.Absent, l.outageOps(w, proposal))
	}
}

// turn says whether a change that is wanted may be written now, given how long this node must wait for its turn.
func (l *loop) turn(key string, wanted bool, after time.Duration, now time.Time) bool {
	if !wanted {
		delete(l.needs, key)
		return false
	}
	since, known := l.needs[key]
	if !known {
		since = now
		l.needs[key] = now
	}
	if left := since.Add(after).Sub(now); left > 0 {
		l.wakeIn(left)
		return false
	}
	return true
}

// writeRecord writes a pool's record on the condition that it is still the one that the decision saw, and that the nodes whose
// addresses are taken over still have no lease.
func (l *loop) writeRecord(ctx context.Context, id cluster.PoolID, record tenure.Record, absent []int, more []store.Op) {
	key := poolKey(id)
	if !l.writer.Ready(key, l.replica.revision) {
		l.wakeIn(retryAfter)
		return
	}
	txn := store.Txn{If: []store.Condition{{Key: key, Revision: l.replica.pools[id].revision}}, Then: more}
	txn.If = append(txn.If, l.absent(absent)...)
	if len(record) == 0 {
		txn.Then = append(txn.Then, store.Delete{Key: key})
	} else if op, err := store.PutOp(key, record, 0); err == nil {
		txn.Then = append(txn.Then, op)
	}
	l.writer.Write(ctx, key, txn, nil)
}

func (l *loop) absent(lnns []int) []store.Condition {
	var conditions []store.Condition
	for _, lnn := range lnns {
		conditions = append(conditions, store.Condition{Key: memberKey(lnn), Revision: 0})
	}
	return conditions
}

// outageOps notes since when the addresses of a dead node are with others.
func (l *loop) outageOps(w *steering.World, p steering.Proposal) []store.Op {
	var ops []store.Op
	for _, lnn := range p.Absent {
		if _, noted := l.replica.outages[lnn]; noted {
			continue
		}
		since := time.Now().Add(-l.now().Sub(w.Nodes[lnn].AbsentSince))
		if w.Nodes[lnn].AbsentSince.IsZero() {
			since = time.Now()
		}
		if op, err := store.PutOp(outageKey(lnn), outageRecord{Since: since}, 0); err == nil {
			ops = append(ops, op)
		}
	}
	return ops
}

// proposeServices tries for free service addresses and looks after those that this node holds.
func (l *loop) proposeServices(ctx context.Context, w *steering.World, incarnation tenure.Incarnation, last applied, now time.Time) {
	held := last.held
	if last.generation != l.generation {
		held = l.assumeHeld(last.held) // what is being taken off or put on counts as held
	}
	wanted := map[string]bool{}
	for _, p := range steering.ProposeServices(w, incarnation, held, now) {
		key := serviceKey(p.Key)
		wanted[key] = true
		if !l.turn(key, true, p.After, now) {
			continue
		}
		l.writeService(ctx, p)
	}
	for key := range w.Services {
		if name := serviceKey(key); !wanted[name] {
			delete(l.needs, name)
		}
	}
}

func (l *loop) assumeHeld(held map[netip.Addr]bool) map[netip.Addr]bool {
	all := maps.Clone(held)
	if all == nil {
		all = map[netip.Addr]bool{}
	}
	for key, entry := range l.replica.services {
		if entry.statement.Owner.LNN == l.self.LNN {
			all[key.Address] = true
		}
	}
	return all
}

func (l *loop) writeService(ctx context.Context, p steering.ServiceProposal) {
	key := serviceKey(p.Key)
	if !l.writer.Ready(key, l.replica.revision) {
		l.wakeIn(retryAfter)
		return
	}
	txn := store.Txn{If: append([]store.Condition{{Key: key, Revision: l.replica.services[p.Key].revision}}, l.absent(p.Absent)...)}
	if p.Statement == (tenure.Statement{}) {
		txn.Then = []store.Op{store.Delete{Key: key}}
	} else if op, err := store.PutOp(key, p.Statement, 0); err == nil {
		txn.Then = []store.Op{op}
	}
	l.writer.Write(ctx, key, txn, nil)
}

// tellMoves turns changes of the records into events, and remembers where addresses that come here come from.
func (l *loop) tellMoves(before map[cluster.PoolID]tenure.Record, services map[steering.ServiceKey]tenure.Statement) {
	for id, entry := range l.replica.pools {
		for addr, st := range entry.record {
			l.tellMove(id.String(), addr, before[id][addr], st)
		}
	}
	for key, entry := range l.replica.services {
		l.tellMove(key.Subnet.String(), key.Address, services[key], entry.statement)
	}
}

func (l *loop) tellMove(within string, addr netip.Addr, old, now tenure.Statement) {
	fields := map[string]string{"within": within, "epoch": strconv.FormatUint(now.Epoch, 10), "from": l.memberName(old.Owner.Member()), "to": l.memberName(now.Owner.Member())}
	switch {
	case old.To.IsZero() && !now.To.IsZero():
		fields["to"] = l.memberName(now.To.Member())
		l.event("address.moving", addr.String(), fmt.Sprintf("%s is to move from %s to %s: %s", addr, fields["from"], fields["to"], now.Reason), fields)
	case old.Owner != now.Owner && now.Owner.LNN != 0:
		l.event("address.owned", addr.String(), fmt.Sprintf("%s now belongs to %s: %s", addr, fields["to"], now.Reason), fields)
		if now.Owner.LNN == l.self.LNN {
			ends := moveEnds{to: now.Owner.Member()}
			if old.To == now.Owner {
				ends.from = old.Owner.Member()
			}
			l.moveFrom[addr] = ends
		}
	}
}

func (l *loop) memberName(m cluster.Member) string {
	if m.IsZero() {
		return "nobody"
	}
	if l.replica.config != nil {
		if node, ok := l.replica.config.Node(m.LNN); ok {
			return node.Name + " " + m.String()
		}
	}
	return m.String()
}

// observeNodes turns changes in what is known of the nodes into events and problems.
func (l *loop) observeNodes(w *steering.World, now time.Time) {
	for lnn, node := range w.Nodes {
		state, why := nodeState(w, node)
		said := state + ": " + why
		if state == "up" {
			said = state
		}
		if old, known := l.reported[lnn]; !known || old != said {
			if known || state == "down" || state == "draining" {
				l.event("node."+state, l.nodeName(lnn), fmt.Sprintf("%s is %s: %s", l.nodeName(lnn), state, why), map[string]string{"incarnation": strconv.FormatUint(uint64(node.Incarnation), 10)})
			}
			l.reported[lnn] = said
		}
		l.board.Is(state == "down", problemNodeDown, l.nodeName(lnn), why, now)
		l.board.Is(state == "unfit", problemNodeUnfit, l.nodeName(lnn), why, now)
		l.board.Is(state == "draining", problemNodeDraining, l.nodeName(lnn), why, now)
	}
	for id, record := range w.Pools {
		var orphans []netip.Addr
		for addr, st := range record {
			if st.Owner.IsZero() || w.Over(st.Owner) || w.Silent(st.Owner) {
				orphans = append(orphans, addr)
			}
		}
		slices.SortFunc(orphans, netip.Addr.Compare)
		l.board.Is(len(orphans) > 0, problemOrphaned, id.String(), fmt.Sprintf("%d addresses have no working holder: %s", len(orphans), firstFew(orphans)), now)
	}
}

func firstFew(addrs []netip.Addr) string {
	if len(addrs) > 4 {
		return fmt.Sprintf("%s, %s, %s and %d more", addrs[0], addrs[1], addrs[2], len(addrs)-3)
	}
	return fmt.Sprint(addrs)
}

// nodeState is the one word for a node, and why.
func nodeState(w *steering.World, node steering.Node) (state, why string) {
	member := cluster.Member{LNN: node.LNN}
	if configured, ok := w.Config.Node(node.LNN); ok && len(configured.Interfaces) > 0 {
		member.Interface = configured.Interfaces[0]
	}
	why = w.Unfit(member)
	switch {
	case node.Incarnation == 0 && !node.Present:
		return "unknown", "it has never been heard"
	case !node.Present && node.Left:
		return "down", fmt.Sprintf("its agent was stopped in an orderly way and handed over what it held; incarnation %d is over", node.Incarnation)
	case !node.Present && node.Over >= node.Incarnation:
		return "down", fmt.Sprintf("its lease ended and a majority of the other nodes has given up incarnation %d", node.Incarnation)
	case !node.Present:
		return "unknown", "its lease in the store is gone; the other nodes are being asked"
	case node.Draining:
		return "draining", why
	case why != "":
		return "unfit", why
	}
	for _, id := range w.Config.Pools() {
		if why := node.PoolFaults[id]; why != "" {
			return "unfit", fmt.Sprintf("for %s: %s", id, why)
		}
	}
	return "up", "its lease in the store is live and its checks pass"
}

func (l *loop) nodeName(lnn int) string {
	if l.replica.config != nil {
		if node, ok := l.replica.config.Node(lnn); ok {
			return node.Name
		}
	}
	return "node " + strconv.Itoa(lnn)
}

// addLoads puts the last measurements into the world.
func (l *loop) addLoads(w *steering.World, now time.Time) {
	for _, id := range w.Config.Pools() {
		for _, member := range w.Config.Members(id) {
			node := w.Nodes[member.LNN]
			if node.Loads == nil {
				node.Loads = map[cluster.Member]placement.Load{}
			}
			node.Loads[member] = l.loads.Of(member.LNN, member.Interface, ownedBy(w.Pools[id], member), now, w.Config.Settings.SampleInterval)
			w.Nodes[member.LNN] = node
		}
	}
	for _, record := range w.Pools {
		for addr, st := range record {
			if load := l.loads.Of(st.Owner.LNN, st.Owner.Interface, []netip.Addr{addr}, now, w.Config.Settings.SampleInterval); load.Known && !load.Stale && load.Connections == 0 {
				w.Idle[addr] = true
			}
		}
	}
}

func ownedBy(record tenure.Record, member cluster.Member) []netip.Addr {
	var owned []netip.Addr
	for addr, st := range record {
		if st.Owner.Member() == member {
			owned = append(owned, addr)
		}
	}
	return owned
}
