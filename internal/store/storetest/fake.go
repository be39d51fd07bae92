// Package storetest holds what tests of the store's users need: a Fake store in memory and the Contract that every Store
// passes, the Fake included.
//
// The Fake is deterministic: it runs no goroutine but the watches', has the clock it is given, and says no to whatever etcd
// says no to. Each user gets a Store of its own from the same Fake, so that faults can hit one node or all.
package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/store"
)

// historyMax bounds the changes that the Fake keeps for watches; older ones are compacted away, and a watch that still
// needed them resyncs.
const historyMax = 10_000

// Fake is a store in memory. Make it with New; use it through the Stores that Connect returns.
type Fake struct {
	now func() time.Time

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced whenever anything changes that a waiter may wait for
	life      int           // counts the Wipes
	revision  int64
	compacted int64 // changes up to here are no longer in history
	entries   map[string]store.Entry
	history   []change
	leases    map[store.LeaseID]*lease
	nextLease store.LeaseID

	stalled  bool
	noQuorum bool
	full     bool
}

// change is what one commit, or the end of one lease, did.
type change struct {
	revision int64
	events   []store.Event
}

type lease struct {
	ttl     time.Duration
	expires time.Time
}

// New returns an empty Fake. Leases expire by now, which may be nil for time.Now, when somebody uses the Fake or calls Tick.
func New(now func() time.Time) *Fake {
	if now == nil {
		now = time.Now
	}
	return &Fake{now: now, changed: make(chan struct{}), revision: 1, entries: map[string]store.Entry{},
		leases: map[store.LeaseID]*lease{}, nextLease: 1000}
}

// Connect returns one user's Store.
func (f *Fake) Connect() *Store { return &Store{fake: f, closed: make(chan struct{})} }

// Tick ends the leases whose time has come. Every call does so too.
func (f *Fake) Tick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
}

// Stall makes every call and watch of every user hang, as when all members are frozen.
func (f *Fake) Stall(on bool) { f.set(func() { f.stalled = on }) }

// LoseQuorum makes every call fail with ErrUnavailable and every watch silent. Leases do not run out meanwhile, and when
// the quorum is back they begin a new life, as after an election in etcd.
func (f *Fake) LoseQuorum(on bool) {
	f.set(func() {
		if f.noQuorum && !on {
			for _, l := range f.leases {
				l.expires = f.now().Add(l.ttl)
			}
		}
		f.noQuorum = on
	})
}

// Fill makes every write fail with ErrFull; reads go on.
func (f *Fake) Fill(on bool) { f.set(func() { f.full = on }) }

// Wipe makes the store come back empty: no entries, no leases, and revisions that begin anew.
func (f *Fake) Wipe() {
	f.set(func() {
		f.life++
		f.revision, f.compacted, f.history = 1, 0, nil
		clear(f.entries)
		clear(f.leases)
	})
}

// Compact forgets the changes so far: a watch that has not seen them resyncs.
func (f *Fake) Compact() {
	f.set(func() { f.compacted, f.history = f.revision, nil })
}

// ExpireLease ends a lease now, as if its time had come. It says whether there was one.
func (f *Fake) ExpireLease(id store.LeaseID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, found := f.leases[id]
	f.end(id)
	return found
}

// Leases returns the leases that live, oldest first.
func (f *Fake) Leases() []store.LeaseID {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
	var ids []store.LeaseID
	for id := range f.leases {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (f *Fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
	change()
	f.wake()
}

// wake lets every waiter look again. The caller holds mu.
func (f *Fake) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// expire ends what has run out, oldest lease first so that the order is the same each time. The caller holds mu.
func (f *Fake) expire() {
	if f.noQuorum || f.stalled {
		return
	}
	now := f.now()
	var over []store.LeaseID
	for id, l := range f.leases {
		if !now.Before(l.expires) {
			over = append(over, id)
		}
	}
	slices.Sort(over)
	for _, id := range over {
		f.end(id)
	}
}

// end removes a lease and its keys. The caller holds mu.
func (f *Fake) end(id store.LeaseID) {
	if _, found := f.leases[id]; !found {
		return
	}
	delete(f.leases, id)
	var keys []string
	for key, entry := range f.entries {
		if entry.Lease == id {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	var ops []store.Op
	for _, key := range keys {
		ops = append(ops, store.Delete{Key: key})
	}
	f.apply(ops)
}

// apply makes changes that have been checked. The caller holds mu.
func (f *Fake) apply(ops []store.Op) {
	f.revision++
	var events []store.Event
	for _, op := range ops {
		switch op := op.(type) {
		case store.Put:
			entry := store.Entry{Key: op.Key, Value: slices.Clone(op.Value), Revision: f.revision, Lease: op.Lease}
			f.entries[op.Key] = entry
			events = append(events, store.Event{Entry: entry})
		case store.Delete:
			if _, found := f.entries[op.Key]; found {
				delete(f.entries, op.Key)
				events = append(events, store.Event{Entry: store.Entry{Key: op.Key, Revision: f.revision}, Deleted: true})
			}
		}
	}
	f.history = append(f.history, change{f.revision, events})
	if excess := len(f.history) - historyMax; excess > 0 {
		f.compacted = f.history[excess-1].revision
		f.history = slices.Delete(f.history, 0, excess)
	}
	f.wake()
}

// commit checks and makes a Txn. The caller holds mu.
func (f *Fake) commit(txn store.Txn) (int64, error) {
	if f.full {
		return 0, store.ErrFull
	}
	for _, condition := range txn.If {
		if f.entries[condition.Key].Revision != condition.Revision {
			return 0, fmt.Errorf("committing under %q: %w", condition.Key, store.ErrConflict)
		}
	}
	for _, op := range txn.Then {
		if put, isPut := op.(store.Put); isPut && put.Lease != 0 && f.leases[put.Lease] == nil {
			return 0, fmt.Errorf("writing %q: %w", put.Key, store.ErrLeaseGone)
		}
	}
	f.apply(txn.Then)
	return f.revision, nil
}

// list returns the state under a prefix. The caller holds mu.
func (f *Fake) list(prefix string) []store.Entry {
	var found []store.Entry
	for key, entry := range f.entries {
		if strings.HasPrefix(key, prefix) {
			entry.Value = slices.Clone(entry.Value)
			found = append(found, entry)
		}
	}
	slices.SortFunc(found, func(a, b store.Entry) int { return strings.Compare(a.Key, b.Key) })
	return found
}
