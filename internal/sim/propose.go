package sim

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// This file mirrors internal/agent/propose.go and internal/agent/write.go.

const (
	rankStep     = 40 * time.Millisecond
	writeTimeout = 2 * time.Second
	retryAfter   = 100 * time.Millisecond
	retryLost    = 5 * time.Millisecond
)

// writer changes records in the store, one change of a key at a time.
type writer struct {
	pending map[string]int64 // key to the revision that the replica must reach before the next change; -1 while under way
	resting map[string]time.Time
}

func (p *process) mayWrite(key string) bool {
	w := &p.writer
	if until, resting := w.resting[key]; resting {
		if left := until.Sub(p.time()); left > 0 {
			p.looked.tries = true
			p.wakeIn(left)
			return false
		}
		delete(w.resting, key)
	}
	revision, busy := w.pending[key]
	if busy && revision >= 0 && revision <= p.replica.revision {
		delete(w.pending, key)
		busy = false
	}
	p.looked.tries = p.looked.tries || busy // the next look sees whether it is free
	return !busy
}

func (p *process) busy(prefix string) bool {
	for key, revision := range p.writer.pending {
		if strings.HasPrefix(key, prefix) && (revision < 0 || revision > p.replica.revision) {
			return true
		}
	}
	return false
}

func (p *process) write(key string, conditions []condition, operations []operation) {
	p.writer.pending[key] = -1
	p.looked.tries = true
	p.s.store.commit(p, writeTimeout, conditions, operations, func(revision int64, err error) {
		if err != nil {
			delete(p.writer.pending, key)
			p.writer.resting[key] = p.time().Add(retryLost)
			if !errors.Is(err, errConflict) {
				p.writer.resting[key] = p.time().Add(retryAfter)
			}
		} else {
			p.writer.pending[key] = revision
		}
		p.note()
	})
}

// letGo completes the moves away from this node whose addresses are off its interfaces, if there are any.
func (p *process) letGo(w *steering.World, incarnation tenure.Incarnation, last applied, now time.Time) (any bool) {
	on := steering.OnInterfaces{Held: last.held, Left: last.left}
	if p.s.broken == BreakRelease {
		on = steering.OnInterfaces{}
	}
	lettings := steering.LetGo(w, incarnation, on, now)
	for _, letting := range lettings {
		if p.writeRecord(letting.Pool, letting.Record, nil) {
			if p.promises.Renounce(letting.Renounced...); len(letting.Renounced) > 0 {
				p.changed(ofPromises)
			}
		}
	}
	return len(lettings) > 0
}

// noteOver takes in whose incarnations have been found over since, and has the store say so.
func (p *process) noteOver(now time.Time) {
	for lnn := 1; lnn <= p.s.Nodes; lnn++ {
		if entry, present := p.replica.members[lnn]; present && lnn != p.lnn && entry.record.Incarnation <= p.peer.Over(lnn) {
			p.replica.bury(lnn, now)
			p.changed(ofNodes)
		}
	}
	for lnn := 1; lnn <= p.s.Nodes; lnn++ {
		gone, is := p.replica.gone[lnn]
		if !is {
			continue
		}
		key := memberKey(lnn)
		if !p.turnOf(key, gone.revision > 0 && p.peer.Standing(now).MayHold, time.Duration(p.rank())*rankStep, now) {
			continue
		}
		if !p.mayWrite(key) {
			continue
		}
		record := gone.record
		record.Over = true
		p.write(key, []condition{{key, gone.revision}}, []operation{{key, record}})
	}
}

func (p *process) rank() int {
	rank := 0
	for lnn := range p.replica.members {
		if lnn < p.lnn {
			rank++
		}
	}
	return rank
}

// turnOf says whether a change that is wanted may be written now.
func (p *process) turnOf(key string, wanted bool, after time.Duration, now time.Time) bool {
	may, left := p.turns.May(key, wanted, after, now)
	if left > 0 {
		p.wakeIn(left)
	}
	return may
}

// proposePools writes what the records of pools should become, if they should become anything else.
func (p *process) proposePools(w *steering.World, now time.Time) (any bool) {
	if p.s.everyLook {
		p.rests = steering.Rests{}
	}
	proposals, rests := steering.ProposePools(w, p.rests, now)
	p.rests = rests
	for _, proposal := range proposals {
		any = any || proposal.Wanted
		if proposal.Wait > 0 {
			p.wakeIn(proposal.Wait)
		}
		if !p.turnOf(poolKey(proposal.Pool), proposal.Wanted, time.Duration(max(proposal.Rank, 0))*rankStep, now) || proposal.Rank < 0 {
			continue
		}
		p.writeRecord(proposal.Pool, proposal.Record, p.outageOperations(w, proposal.Proposal, now))
	}
	return any
}

func (p *process) writeRecord(id cluster.PoolID, record tenure.Record, more []operation) bool {
	key := poolKey(id)
	if !p.mayWrite(key) {
		return false
	}
	if p.s.broken == BreakFormer {
		record = maps.Clone(record)
		for a, st := range record {
			st.Former = tenure.Claim{}
			record[a] = st
		}
	}
	if p.s.broken == BreakRetired {
		record = forgetRetired(p.replica.config, id, record)
	}
	operations := slices.Clone(more)
	if len(record) == 0 {
		operations = append(operations, operation{key: key})
	} else {
		operations = append(operations, operation{key, record})
	}
	p.write(key, []condition{{key, p.replica.pools[id].revision}, p.sameConfig()}, operations)
	return true
}

func (p *process) sameConfig() condition { return condition{keyConfig, p.replica.configRevision} }

func (p *process) outageOperations(w *steering.World, proposal steering.Proposal, now time.Time) []operation {
	var operations []operation
	for _, lnn := range proposal.Dead {
		if _, noted := p.replica.outages[lnn]; noted {
			continue
		}
		since := p.wallTime()
		if absent := w.Nodes[lnn].AbsentSince; !absent.IsZero() {
			since = since.Add(-now.Sub(absent))
		}
		operations = append(operations, operation{outageKey(lnn), outageRecord{since}})
	}
	return operations
}

// proposeServices does the same for the records of service addresses.
func (p *process) proposeServices(w *steering.World, incarnation tenure.Incarnation, last applied, now time.Time) (any bool) {
	held := last.there()
	if last.generation != p.generation {
		held = p.assumeHeld(held)
	}
	wanted := map[string]bool{}
	for _, proposal := range steering.ProposeServices(w, incarnation, held, now) {
		key := serviceKey(proposal.Key)
		wanted[key] = true
		if !p.turnOf(key, true, proposal.After, now) {
			continue
		}
		taking := proposal.Statement.Owner.LNN == p.lnn && w.Services[proposal.Key].Owner != proposal.Statement.Owner
		if taking && p.busy(keyService+proposal.Key.Subnet.String()+"/") {
			p.tryAgainIn(retryAfter)
			continue
		}
		p.writeService(proposal)
	}
	for key := range w.Services {
		if name := serviceKey(key); !wanted[name] {
			delete(p.turns, name)
		}
	}
	return len(wanted) > 0
}

func (p *process) assumeHeld(held map[netip.Addr]bool) map[netip.Addr]bool {
	all := maps.Clone(held)
	if all == nil {
		all = map[netip.Addr]bool{}
	}
	for key, entry := range p.replica.services {
		former := entry.record.Former.LNN == p.lnn && p.s.broken != BreakUnderWay
		if entry.record.Owner.LNN == p.lnn || former {
			all[key.Address] = true
		}
	}
	return all
}

func (p *process) writeService(proposal steering.ServiceProposal) {
	key := serviceKey(proposal.Key)
	if !p.mayWrite(key) {
		return
	}
	put := operation{key: key}
	if proposal.Statement != (tenure.Statement{}) {
		put.value = proposal.Statement
	}
	if proposal.Renounced {
		p.promises.Renounce(proposal.Key.Address)
		p.changed(ofPromises)
	}
	p.write(key, []condition{{key, p.replica.services[proposal.Key].revision}, p.sameConfig()}, []operation{put})
}

// rebalance is what an operator asks this node for (internal/agent/api_change.go).
func (p *process) rebalance() {
	if p.view == nil || !p.permitted() {
		return
	}
	w := p.world(p.time())
	proposal, _, ok := steering.ProposePool(w, dynamicPool, true, p.time())
	if !ok {
		return
	}
	var trusts []operation
	for _, lnn := range proposal.Trusted {
		trusts = append(trusts, operation{trustKey(lnn), trustRecord{w.Nodes[lnn].Incarnation}})
	}
	p.writeRecord(dynamicPool, proposal.Record, trusts)
}

// spreadServices is what an operator asks this node for, one move at a time.
func (p *process) spreadServices() {
	if p.view == nil || !p.permitted() {
		return
	}
	if proposal, ok := steering.SpreadService(p.world(p.time()), dynamicPool.SubnetID(), p.time()); ok {
		p.writeService(proposal)
	}
}
