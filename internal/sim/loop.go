package sim

import (
	"net/netip"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
)

// This file mirrors internal/agent/loop.go: the place where what a node knows becomes what it does.

const (
	settleLimit  = 5 * time.Second
	lookAgain    = 5 * time.Second
	evaluateStep = 2 * time.Millisecond
	storePause   = 100 * time.Millisecond
)

// looking is the state of the loop.
type looking struct {
	replica    replica
	noted      bool      // the calendar has the next look
	wakeAt     time.Time // when the loop looks again although nothing happens
	looked     looked
	wakes      int // of those that the calendar has, only the last counts
	generation uint64
	wanted     []steering.Holding
	routesOf   *cluster.Config // whose routes the last wish has
	silenced   uint64          // how often the node had been silenced when the last wish was made
	turns      steering.Turns
	rests      steering.Rests
	writer     writer
	checksDone time.Time // when the first round of checks is done
	wasReady   bool
	readySince time.Time
	leaving    bool
	closing    bool // the loop has ended
	view       *steering.World
	knownDown  []time.Duration // by LNN: when the process learned of the latest incarnation that it knows over
	subscribed bool            // the first copy of the store is here
	reading    bool            // the calendar has the next reading of the store
	read       int             // how many changes of the store it has read
}

// note says that something changed.
func (p *process) note() {
	if p.noted || p.closing {
		return
	}
	p.noted = true
	p.later(p.chance.between(30*time.Microsecond, 600*time.Microsecond), func() {
		p.noted = false
		p.look()
	})
}

// look looks at everything, and sets the timer.
func (p *process) look() {
	if p.closing {
		return
	}
	p.lookAtAll()
	p.wakes++
	wake := p.wakes
	p.later(max(p.wakeAt.Sub(p.time()), evaluateStep), func() {
		if p.wakes == wake {
			p.look()
		}
	})
}

// watch is told that the store has news.
func (p *process) watch() {
	if !p.subscribed || p.reading {
		return
	}
	p.reading = true
	late := p.s.store.way()
	if !p.s.calm && p.chance.chance(30) {
		late += p.chance.between(0, 400*time.Millisecond)
	}
	p.later(late, p.readStore)
}

// readStore reads what the watch brings, in order; as much of it as the member that serves the watch has.
func (p *process) readStore() {
	if p.reading = false; p.closing {
		return
	}
	if p.stale > 0 || !p.s.store.reaches(p.lnn) {
		p.reading = true
		p.later(storePause, p.readStore)
		return
	}
	for ; p.read < len(p.s.store.log); p.read++ {
		p.take([]change{p.s.store.log[p.read]})
	}
	p.note()
}

// subscribe gets the first copy of the store.
func (p *process) subscribe() {
	if !p.s.store.reaches(p.lnn) || !p.s.store.writes() {
		p.later(storePause, p.subscribe)
		return
	}
	p.subscribed, p.read = true, len(p.s.store.log)
	p.replica.synced = true
	p.take(p.s.store.state())
	p.checksDone = p.time().Add(p.chance.between(50*time.Millisecond, 800*time.Millisecond))
	p.note()
	p.stir()
}

// take brings changes into the replica and acts on members that came or went.
func (p *process) take(changes []change) {
	members := p.replica.memberRevisions()
	revision := p.replica.configRevision
	for _, c := range changes {
		if part, changed := p.replica.apply(c, p.time()); changed {
			p.changed(part)
		}
		p.replica.revision = max(p.replica.revision, c.revision)
	}
	for lnn := 1; lnn <= p.s.Nodes; lnn++ {
		if entry, present := p.replica.members[lnn]; present && lnn != p.lnn && entry.revision != members[lnn] {
			p.recorded(lnn, entry.record)
		}
		if gone, is := p.replica.gone[lnn]; is && gone.record.Over && lnn != p.lnn {
			if gone.incarnation > p.peer.Over(lnn) || gone.record.Declared && !p.peer.Declared(lnn) {
				p.recorded(lnn, gone.record)
			}
		}
	}
	if _, present := p.replica.members[p.lnn]; !present && members[p.lnn] > 0 {
		p.written = memberRecord{}
		p.stir()
	}
	if p.replica.configRevision != revision {
		p.kept = p.replica.config
		p.configure(p.replica.config)
	}
}

// evaluate looks at everything and acts.
func (p *process) evaluate() {
	if p.replica.config == nil || !p.replica.synced {
		return
	}
	now := p.time()
	p.noteOver(now)
	saw := p.see(now)
	seen := p.world(now) // it is read by others, who make copies of it with other nodes
	w := p.forReading(seen)
	saw.settling, saw.changes[ofPromises] = w.Settling, p.looked.changes[ofPromises]
	silences := p.silences
	standing, incarnation := p.peer.Standing(now), p.incarnation()
	if p.ready() {
		p.want(w, p.desires(w, &saw, now), silences)
		saw.changes[ofWish] = p.looked.changes[ofWish]
		if p.s.broken != BreakGiven {
			saw.changes[ofPromises] = p.looked.changes[ofPromises]
		}
	}
	p.tellReady(w, standing.MayHold, now)
	last := p.last
	if standing.MayHold {
		if p.generation > 0 && (last.generation == p.generation || p.s.broken == BreakRelease) {
			p.unless(&p.looked.lettings, &saw, now, func() bool { return p.letGo(w, incarnation, last, now) }, ofServices)
		}
		p.unless(&p.looked.pools, &saw, now, func() bool { return p.proposePools(w, now) }, ofServices, ofWish)
		p.unless(&p.looked.services, &saw, now, func() bool { return p.proposeServices(w, incarnation, last, now) }, ofPools)
	}
	if report := p.ownReport(); !report.equal(p.member) {
		p.member = report
		p.stir()
	}
	p.view = seen
}

// world is everything that the decisions may look at.
func (p *process) world(now time.Time) *steering.World {
	w := &steering.World{
		Config: p.replica.config, Self: p.lnn, Pools: recordsOf(p.replica.pools), Services: recordsOf(p.replica.services), Idle: noneIdle, Loads: noLoads,
	}
	w.Recall(p.looked.seen)
	p.promised(w)
	p.nodes(w, now)
	p.awaitReady(w, now)
	w.Settling = p.settling(w, now)
	return w
}

// forReading is a world for reading by the loop alone, with what was asked about the last one and is still so.
func (p *process) forReading(w *steering.World) *steering.World {
	p.looked.seen = w.ForReadingAfter(p.looked.seen)
	return p.looked.seen
}

// What is measured in no history.
var (
	noneIdle = map[netip.Addr]bool{}
	noLoads  = steering.Loads{}
)

// addNodes puts what is known of the nodes into a world.
func (p *process) addNodes(w *steering.World, now time.Time) {
	config := w.Config
	w.Nodes = make(map[int]steering.Node, len(config.Nodes))
	for _, node := range config.Nodes {
		w.Nodes[node.LNN] = steering.Node{LNN: node.LNN, Name: node.Name, Weight: node.Weight, Witness: node.Witness}
	}
	for lnn, entry := range p.replica.members {
		w.Nodes[lnn] = p.presentNode(w.Nodes[lnn], lnn, entry)
	}
	for lnn, gone := range p.replica.gone {
		node := w.Nodes[lnn]
		node.LNN, node.Name, node.Incarnation, node.AbsentSince, node.Over, node.Left = lnn, gone.name, gone.incarnation, gone.since, p.peer.Over(lnn), gone.left
		node.Declared = p.peer.Declared(lnn)
		w.Nodes[lnn] = node
	}
	if standing := p.peer.Standing(now); !standing.MayHold && p.incarnation() > 0 {
		self := w.Nodes[p.lnn]
		self.Lapsed = standing.Reason
		w.Nodes[p.lnn] = self
	}
	for lnn, outage := range p.replica.outages {
		if node, configured := w.Nodes[lnn]; configured && !node.Present && node.AbsentSince.IsZero() {
			node.AbsentSince = now.Add(-p.wallTime().Sub(outage.Since))
			w.Nodes[lnn] = node
		}
	}
	w.AddOwners(p.peer.Over)
}

// presentNode adds to what the configuration says of a node what its own report says.
func (p *process) presentNode(node steering.Node, lnn int, entry memberEntry) steering.Node {
	r := entry.record
	node.LNN, node.Name, node.Present, node.Incarnation, node.Ready, node.Leaving = lnn, r.Name, true, r.Incarnation, r.Ready, r.Leaving
	node.Over = max(r.Incarnation-1, p.peer.Over(lnn))
	node.Faults = r.Faults
	node.FitSince, node.Outage, node.HoldDown = entry.fitSince, r.Outage, r.HoldDown
	node.Trusted = p.replica.trusts[lnn].Incarnation == r.Incarnation
	node.Mended, node.MendedPools = entry.faults.Mended()
	_, node.Draining = p.replica.drains[lnn]
	for id, why := range r.PoolFaults {
		if parsed, err := cluster.NewPoolID(id); err == nil {
			if node.PoolFaults == nil {
				node.PoolFaults = map[cluster.PoolID]string{}
			}
			node.PoolFaults[parsed] = why
		}
	}
	return node
}

// settling is true while a cluster starts and some of its nodes have not been heard yet, for a bounded time.
func (p *process) settling(w *steering.World, now time.Time) bool {
	if p.readySince.IsZero() {
		if !p.ready() {
			return true
		}
		p.readySince = now
	}
	left := p.readySince.Add(settleLimit).Sub(now)
	if left <= 0 {
		return false
	}
	if !w.Unheard() {
		return false
	}
	p.wakeIn(left)
	return true
}

// ready reports whether the first full view is complete: the store's copy, and a first round of checks.
func (p *process) ready() bool {
	if !p.wasReady && !p.checksDone.IsZero() {
		if left := p.checksDone.Sub(p.time()); left > 0 {
			p.wakeIn(left)
		} else {
			p.wasReady = true
		}
	}
	return p.wasReady
}

// ownReport is what the node says of itself.
func (p *process) ownReport() memberRecord {
	report := memberRecord{Name: p.name, Ready: p.ready(), Leaving: p.leaving, Outage: p.past.Outage, HoldDown: p.past.HoldDown}
	if p.noCarrier > 0 {
		report.Faults = map[string]string{interfaceName: "interface " + interfaceName + " has no carrier"}
	}
	if p.failing > 0 {
		report.PoolFaults = map[string]string{dynamicPool.String(): "its check fails"}
	}
	if p.last.generation == p.generation {
		report.ConfigRevision = p.replica.configRevision
	} else if old, known := p.replica.members[p.lnn]; known {
		report.ConfigRevision = old.record.ConfigRevision
	}
	return report
}
