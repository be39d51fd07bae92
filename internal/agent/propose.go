package agent

import (
	"context"
	"maps"
	"net/netip"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/store"
	"github.com/holdfast/holdfast/internal/tenure"
)

// letGo completes the moves away from this node whose addresses are off its interfaces.
func (l *loop) letGo(ctx context.Context, w *steering.World, incarnation tenure.Incarnation, last applied, now time.Time) {
	for _, letting := range steering.LetGo(w, incarnation, steering.OnInterfaces{Held: last.held, Left: last.left}, now) {
		if l.writeRecord(ctx, letting.Pool, letting.Record, nil) {
			l.promises.Renounce(letting.Renounced...)
		}
	}
}

// noteOver takes in whose incarnations have been found over since, and has the store say so, so that whoever starts later knows.
func (l *loop) noteOver(ctx context.Context, now time.Time) {
	for lnn, entry := range l.replica.members {
		if lnn != l.self.LNN && entry.record.Incarnation <= l.tenancy.Down(lnn) {
			l.replica.bury(lnn, now)
		}
	}
	for lnn, gone := range l.replica.gone {
		key := memberKey(lnn)
		if !l.turn(key, gone.revision > 0 && l.tenancy.Standing().MayHold, time.Duration(l.rank())*rankStep, now) {
			continue
		}
		if !l.mayWrite(key) {
			continue
		}
		record := gone.record
		record.Over = true
		if op, err := store.PutOp(key, record, 0); err == nil {
			l.writer.Write(ctx, key, store.Txn{If: []store.Condition{{Key: key, Revision: gone.revision}}, Then: []store.Op{op}}, nil)
		}
	}
}

// rank is this node's turn among those that live: how many have a smaller number.
func (l *loop) rank() int {
	rank := 0
	for lnn := range l.replica.members {
		if lnn < l.self.LNN {
			rank++
		}
	}
	return rank
}

// proposePools writes what the records of the pools should become, when it is this node's turn.
func (l *loop) proposePools(ctx context.Context, w *steering.World, now time.Time) {
	proposals, rests := steering.ProposePools(w, l.rests, now)
	l.rests = rests
	for _, p := range proposals {
		if p.Wait > 0 {
			l.wakeIn(p.Wait)
		}
		l.observeEvenness(w, p.Pool, p.Evenness, now)
		if !l.turn(poolKey(p.Pool), p.Wanted, time.Duration(max(p.Rank, 0))*rankStep, now) || p.Rank < 0 {
			continue
		}
		l.writeRecord(ctx, p.Pool, p.Record, l.outageOps(w, p.Proposal))
	}
}

// mayWrite reports whether a record may be changed now; if it only rests, the loop looks again when it has.
func (l *loop) mayWrite(key string) bool {
	ready, rests := l.writer.Ready(key, l.replica.revision)
	if rests > 0 {
		l.wakeIn(rests)
	}
	return ready
}

// turn says whether a change that is wanted may be written now, given how long this node must wait for its turn.
func (l *loop) turn(key string, wanted bool, after time.Duration, now time.Time) bool {
	may, left := l.turns.May(key, wanted, after, now)
	if left > 0 {
		l.wakeIn(left)
	}
	return may
}

// writeRecord writes a pool's record on the condition that it is still the one that the decision saw.
func (l *loop) writeRecord(ctx context.Context, id cluster.PoolID, record tenure.Record, more []store.Op) bool {
	key := poolKey(id)
	if !l.mayWrite(key) {
		return false
	}
	txn := store.Txn{If: []store.Condition{{Key: key, Revision: l.replica.pools[id].revision}, l.sameConfig()}, Then: more}
	if len(record) == 0 {
		txn.Then = append(txn.Then, store.Delete{Key: key})
	} else if op, err := store.PutOp(key, record, 0); err == nil {
		txn.Then = append(txn.Then, op)
	}
	l.writer.Write(ctx, key, txn, nil)
	return true
}

// sameConfig is the condition that the configuration is still the one that the decision saw: a release that is written late must
// not take away what a later configuration gave back.
func (l *loop) sameConfig() store.Condition {
	return store.Condition{Key: keyConfig, Revision: l.replica.configSeen}
}

// outageOps notes since when the addresses of a dead node are with others.
func (l *loop) outageOps(w *steering.World, p steering.Proposal) []store.Op {
	var ops []store.Op
	for _, lnn := range p.Dead {
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
	held := last.there()
	if last.generation != l.generation || last.blind {
		held = l.assumeHeld(held) // what is being taken off or put on counts as held
	}
	wanted := map[string]bool{}
	for _, p := range steering.ProposeServices(w, incarnation, held, now) {
		key := serviceKey(p.Key)
		wanted[key] = true
		if !l.turn(key, true, p.After, now) {
			continue
		}
		taking := p.Statement.Owner.LNN == l.self.LNN && w.Services[p.Key].Owner != p.Statement.Owner
		if taking && l.writer.Busy(keyService+p.Key.Subnet.String()+"/", l.replica.revision) {
			l.wakeIn(retryAfter) // what is being taken is not counted yet: one at a time keeps the spread
			continue
		}
		l.writeService(ctx, p)
	}
	for key := range w.Services {
		if name := serviceKey(key); !wanted[name] {
			delete(l.turns, name)
		}
	}
}

// assumeHeld adds what may be on the interfaces while a wish is under way: what this node owns, and what it may have taken as the next of
// before, which it must not acknowledge until the wish that has it is over.
func (l *loop) assumeHeld(held map[netip.Addr]bool) map[netip.Addr]bool {
	all := maps.Clone(held)
	if all == nil {
		all = map[netip.Addr]bool{}
	}
	for key, entry := range l.replica.services {
		if entry.statement.Owner.LNN == l.self.LNN || entry.statement.Former.LNN == l.self.LNN {
			all[key.Address] = true
		}
	}
	return all
}

func (l *loop) writeService(ctx context.Context, p steering.ServiceProposal) {
	key := serviceKey(p.Key)
	if !l.mayWrite(key) {
		return
	}
	txn := store.Txn{If: []store.Condition{{Key: key, Revision: l.replica.services[p.Key].revision}, l.sameConfig()}}
	if p.Statement == (tenure.Statement{}) {
		txn.Then = []store.Op{store.Delete{Key: key}}
	} else if op, err := store.PutOp(key, p.Statement, 0); err == nil {
		txn.Then = []store.Op{op}
	}
	if p.Renounced {
		l.promises.Renounce(p.Key.Address)
	}
	l.writer.Write(ctx, key, txn, nil)
}
