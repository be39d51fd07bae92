package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/store"
	"github.com/holdfast/holdfast/internal/tenure"
)

// How the loop paces itself.
const (
	rankStep      = 40 * time.Millisecond // later ranks propose later, so that many nodes do not write at once
	settleLimit   = 5 * time.Second       // how long a starting cluster waits for nodes that are configured but not heard
	lookAgain     = 5 * time.Second       // the loop looks at everything so often although nothing happened
	loadsTogether = 50 * time.Millisecond // samples that come within this are taken together,
	loadsOfEach   = time.Millisecond      // or, of many nodes, within this for each of them
	evaluateStep  = 2 * time.Millisecond  // what happens within this is looked at together
)

// loop is the one place where what this node knows becomes what it does: batches of the store, the right to hold, checks,
// links, loads and the results on the interfaces come in; wishes, proposals, the DNS view and this node's own report go out.
// It decides nothing itself: steering does.
type loop struct {
	*Agent
	stills       stills
	beside       atomic.Bool                   // another agent still runs: this one looks on
	heritage     atomic.Pointer[handoverRooms] // what it had, to be gone on from
	least        int64                         // the revision of the store that it had seen: nothing is decided by an older view
	besideWaits  atomic.Pointer[string]        // what this one waits for before it can take over
	replica      *replica
	notes        chan struct{} // something outside the store changed
	loadNotes    chan struct{} // samples came in
	loadsPending atomic.Bool
	generation   uint64
	wanted       []steering.Holding
	routesOf     *cluster.Config // whose routes the last wish has
	silenced     uint64          // how often the node had been silenced when the last wish was made
	checksOf     *cluster.Config // whose checks run
	turns        steering.Turns  // since when changes of records are wanted
	wasReady     bool
	readySince   time.Time
	wakeAt       time.Time
	moveFrom     map[netip.Addr]moveEnds
	causes       map[netip.Addr]cause // by which failover addresses came here
	promises     steering.Promises    // what this node has said of addresses
	rests        steering.Rests       // the pools of which nothing needs to be decided until something changes
	readiness    steering.Readiness   // which of those that move away could be taken
	toldReady    steering.ToldReady
	reported     map[int]string // what was last said of each node, for the events
	planned      plannedLoads
	measured     measured        // the last measurements, of those pools that are decided by them
	seen         *steering.World // the last world, as it was read: what is still so in the next is not worked out again
	observed     observed
	ground       ground
	since        sinces   // since when nodes and members are what they are
	ownSince     struct { // since when this node is what it is, by both clocks
		at time.Time
		ms int64
	}
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
		case s := <-l.stills:
			s.still(ctx.Done())
			if ctx.Err() != nil {
				return
			}
		case <-l.loadNotes:
			l.refreshLoads()
			continue
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
	members := l.replica.sharedMembers()
	revision := l.replica.configRevision
	l.replica.apply(batch, l.now())
	for lnn, entry := range l.replica.members {
		if lnn != l.self.LNN && entry.revision != members[lnn].revision {
			l.tenancy.Recorded(lnn, entry.record)
		}
	}
	for lnn, gone := range l.replica.gone {
		news := gone.incarnation > l.tenancy.Down(lnn) || gone.record.Declared != nil && !l.tenancy.Declared(lnn)
		if gone.record.Over && lnn != l.self.LNN && news {
			l.tenancy.Recorded(lnn, gone.record)
		}
	}
	if _, present := l.replica.members[l.self.LNN]; !present && members[l.self.LNN].revision > 0 {
		l.tenancy.Vanished()
	}
	if l.replica.configRevision != revision {
		l.configChanged()
	}
	if !l.beside.Load() {
		l.tellMoves(before, services)
	}
}

// configChanged puts a new configuration into effect in the rooms that hold a part of it.
func (l *loop) configChanged() {
	config := l.replica.config
	l.gateways.configure(config, l.self.LNN)
	l.tenancy.Configure(config)
	l.peers.SetNodes(config.Nodes)
	l.keepConfig(config)
	l.tellGuard(config)
	l.since.forget(config)
	l.event("config.applied", "cluster", fmt.Sprintf("configuration of revision %d is in effect", l.replica.configRevision), nil)
}

// noteLoad says that a sample came in. Many come together; the names see them a moment later, and nothing else is looked at.
func (l *loop) noteLoad() {
	if l.loadsPending.Swap(true) {
		return
	}
	wait := loadsTogether
	if v := l.view.Load(); v != nil {
		wait = max(wait, time.Duration(len(v.world.Nodes))*loadsOfEach)
	}
	time.AfterFunc(wait, func() {
		l.loadsPending.Store(false)
		select {
		case l.loadNotes <- struct{}{}:
		default:
		}
	})
}

// refreshLoads gives the names the last measurements. Where every pool answers in turn nothing is decided by them: they are looked at with
// the rest.
func (l *loop) refreshLoads() {
	if l.replica.config == nil || !l.replica.synced || l.beside.Load() {
		return
	}
	if !l.wasReady {
		l.note() // it may be what this node waited for
	}
	if !answersByLoad(l.replica.config) {
		return
	}
	now := l.now()
	w := l.world(now)
	l.answers.SetView(l.read(w), now)
	l.publish(w, l.tenancy.Standing(), l.tenancy.Incarnation(), l.applier.Last(), now)
}

// answersByLoad reports whether a pool's answers depend on measurements.
func answersByLoad(config *cluster.Config) bool {
	by := false
	eachPool(config, func(_ cluster.PoolID, pool *cluster.Pool) { by = by || pool.ConnectPolicy != cluster.RoundRobin })
	return by
}

// evaluate looks at everything and acts.
func (l *loop) evaluate(ctx context.Context) {
	if l.replica.config == nil || !l.replica.synced || l.looksOn() {
		return
	}
	now := l.now()
	l.noteOver(ctx, now)
	seen := l.world(now) // it is read by others, who make copies of it with other nodes
	w := l.read(seen)
	silences := l.applier.reconciler.Silences() // before the right is looked at: one that ends from here on ends the wish, too
	standing, incarnation := l.tenancy.Standing(), l.tenancy.Incarnation()
	if l.ready() { // nothing is taken, not even what is static, before the first full view
		l.want(w, steering.Desired(w, incarnation, standing.MayHold), steering.Leaving(w, incarnation, standing.MayHold), silences)
	}
	l.tellReady(w, incarnation, standing.MayHold, now)
	last := l.applier.Last()
	if standing.MayHold {
		if l.generation > 0 && last.generation == l.generation && !last.blind { // what is on the interfaces is known
			l.letGo(ctx, w, incarnation, last, now)
		}
		l.proposePools(ctx, w, now)
		l.proposeServices(ctx, w, incarnation, last, now)
	}
	l.observeNodes(w, now)
	if l.checksOf != w.Config {
		l.checksOf = w.Config
		l.checks.Set(l.checkTargets(w))
	}
	l.tenancy.Publish(l.ownReport())
	l.answers.SetView(w, now)
	l.publish(seen, standing, incarnation, last, now)
	if len(l.toldReady)+len(w.Unready) == 0 && l.applier.AtRest() {
		l.haste.enough()
	}
}

// world is everything that the decisions may look at.
func (l *loop) world(now time.Time) *steering.World {
	config := l.replica.config
	w := &steering.World{
		Config: config, Self: l.self.LNN, Nodes: map[int]steering.Node{},
		Pools: l.replica.statements(), Services: l.replica.serviceStatements(), Idle: map[netip.Addr]bool{},
	}
	w.Recall(l.seen)
	l.promises.Bind(w)
	w.Released = l.releases.current(w)
	for _, node := range config.Nodes {
		w.Nodes[node.LNN] = steering.Node{LNN: node.LNN, Name: node.Name, Weight: node.Weight, Witness: node.Witness}
	}
	for lnn, entry := range l.replica.members {
		w.Nodes[lnn] = l.presentNode(w.Nodes[lnn], lnn, entry)
	}
	for lnn, gone := range l.replica.gone {
		node := w.Nodes[lnn]
		node.LNN, node.Name, node.Incarnation, node.AbsentSince, node.Over, node.Left = lnn, gone.name, gone.incarnation, gone.since, l.tenancy.Down(lnn), gone.left
		node.Declared = l.tenancy.Declared(lnn)
		w.Nodes[lnn] = node
	}
	if standing := l.tenancy.Standing(); !standing.MayHold && l.tenancy.Incarnation() > 0 {
		self := w.Nodes[l.self.LNN]
		self.Lapsed = standing.Reason
		w.Nodes[l.self.LNN] = self
	}
	l.unseenOutages(w)
	w.AddOwners(l.tenancy.Down)
	l.awaitReady(w, now)
	l.addLoads(w, now)
	w.Settling = l.settling(w, now)
	return w
}

// read is a world for reading by the loop alone, with what was asked about the last one and is still so.
func (l *loop) read(w *steering.World) *steering.World {
	l.seen = w.ForReadingAfter(l.seen)
	return l.seen
}

// unseenOutages finds nodes that this agent has never seen, and of which the store says since when they are away.
func (l *loop) unseenOutages(w *steering.World) {
	for lnn, outage := range l.replica.outages {
		if node, configured := w.Nodes[lnn]; configured && !node.Present && node.AbsentSince.IsZero() {
			node.AbsentSince = l.now().Add(-time.Since(outage.Since))
			w.Nodes[lnn] = node
		}
	}
}

// presentNode adds to what the configuration says of a node what its own report says.
func (l *loop) presentNode(node steering.Node, lnn int, entry memberEntry) steering.Node {
	r := entry.record
	node.LNN, node.Name, node.Present, node.Incarnation, node.Ready, node.Leaving = lnn, r.Name, true, r.Incarnation, r.Ready, r.Leaving
	node.Waiting = r.Waiting
	node.Over = max(r.Incarnation-1, l.tenancy.Down(lnn))
	node.Faults, node.PoolFaults = r.Faults, map[cluster.PoolID]string{}
	node.FitSince, node.Outage, node.HoldDown = entry.fitSince, time.Duration(r.OutageMS)*time.Millisecond, time.Duration(r.HoldDownMS)*time.Millisecond
	node.Trusted = l.replica.trusts[lnn].Incarnation == r.Incarnation
	node.Mended, node.MendedPools = entry.faults.Mended()
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
	if !w.Unheard() {
		return false
	}
	l.wakeIn(left)
	return true
}

// want hands a wish to the applier when it differs from the last, or when the node was silenced since: a silence drops the wish with the
// addresses, and a lapse may be over before the loop sees that there was one.
func (l *loop) want(w *steering.World, holdings []steering.Holding, leaving map[netip.Addr]bool, silences uint64) {
	moving := slices.ContainsFunc(holdings, func(h steering.Holding) bool { return h.Kind != steering.Static })
	if l.generation > 0 && slices.Equal(holdings, l.wanted) && l.routesOf == w.Config && (!moving || l.silenced == silences) {
		return
	}
	l.generation++
	l.wanted, l.routesOf, l.silenced = holdings, w.Config, silences
	handing := steering.Handing(w, l.tenancy.Incarnation(), l.changing)
	l.promises.Give(handing)
	l.promises.Bind(w) // what is told is not taken back by what is decided next
	l.applier.Want(wish{
		handing:    handing,
		generation: l.generation, silences: silences, holdings: holdings, managed: l.clusterAddress(w),
		routes: l.routes(w, holdings), moving: l.moveEnds(w, holdings), causes: l.causesOf(w, holdings), leaving: leaving,
	})
}

// moveEnds says for each address that this node gives or gets where it comes from and goes to.
func (l *loop) moveEnds(w *steering.World, holdings []steering.Holding) map[netip.Addr]moveEnds {
	ends := map[netip.Addr]moveEnds{}
	w.Concerning(func(id cluster.PoolID, addr netip.Addr, st tenure.Statement) bool {
		if (id != cluster.PoolID{}) && st.Owner.LNN == w.Self && !st.To.IsZero() {
			ends[addr] = moveEnds{st.Owner.Member(), st.To.Member()}
		}
		return true
	})
	for _, h := range holdings {
		if from, here := l.moveFrom[h.Address]; here {
			ends[h.Address] = from
		}
		switch st := w.Behind(h); { // what comes before the record says so
		case h.Kind == steering.Static || st.Owner.LNN == w.Self:
		case w.Over(st.Owner):
			ends[h.Address] = moveEnds{to: cluster.Member{LNN: w.Self, Interface: h.Interface}}
		default:
			ends[h.Address] = moveEnds{st.Owner.Member(), st.To.Member()}
		}
	}
	return ends
}
