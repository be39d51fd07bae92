// Package store is the cluster's shared truth: small records under text keys, read and written linearizably, changed by
// compare-and-swap, watched without gaps, and bound to leases where they must not outlive their writer.
//
// Behind the Store interface stands etcd, embedded in this process (StartMember) or elsewhere (Open with its
// endpoints). What the package guarantees:
//
//   - Every read and write is linearizable. A Commit that returns a revision has been made exactly once; one that returns
//     ErrConflict has not been made and never will be; one that returns ErrOutcomeUnknown may have been made, at most once.
//   - A call tries one member for a short time, then the next, within the caller's context. The death or stall of one
//     member costs a call some tries, never etcd's own request timeout of many seconds.
//   - A watch resumes by itself. It either delivers every change in order or says Resync and delivers the whole state.
//   - With Guard, a store that comes back empty or is another cluster's is refused, never taken for the truth.
//
// All of it is safe for concurrent use. The package does not cache, does not retry conflicts, and does not decide what a
// lost store means: callers go on with what they know.
package store

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of one store. What goes beyond is refused with ErrInvalid before it is sent.
const (
	MaxKeyBytes    = 512
	MaxTxnBytes    = 1 << 20 // keys and values that one Txn changes; etcd's own limit is 1.5 MiB for the whole request
	MaxTxnOps      = 100     // conditions, and separately operations, of one Txn; an external etcd allows 128 by default
	MaxListEntries = 100_000 // entries of one List; more is ErrTooMany
	MaxWatches     = 256     // of one Store; a further one is closed at once
)

// LeaseID names a lease; zero is no lease.
type LeaseID int64

// Entry is one key with its value.
type Entry struct {
	Key      string
	Value    []byte
	Revision int64   // of the last change of this key
	Lease    LeaseID // the key goes when the lease goes; zero: it stays
}

// Event is one change of one key. A deletion has the key and the revision of the deletion.
type Event struct {
	Entry
	Deleted bool
}

// Batch is what a watch delivers: changes in the order in which they were made. All changes of one Commit are in one
// batch.
type Batch struct {
	Events   []Event
	Revision int64 // everything up to here has been delivered
	Resync   bool  // Events is the whole state under the prefix, sorted by key; what is not in it is gone
}

// Condition holds when the key's last change was at Revision; zero means that the key is absent.
type Condition struct {
	Key      string
	Revision int64
}

// Op is one change: Put or Delete.
type Op interface{ key() string }

// Put sets a key. A lease that is gone fails the whole Txn with ErrLeaseGone.
type Put struct {
	Key   string
	Value []byte
	Lease LeaseID
}

// Delete removes a key. Deleting an absent key does nothing.
type Delete struct{ Key string }

func (p Put) key() string    { return p.Key }
func (d Delete) key() string { return d.Key }

// Txn makes all of Then if all of If holds, and nothing otherwise. A key may occur once in Then.
type Txn struct {
	If   []Condition
	Then []Op
}

// Store is the shared truth. Errors wrap the sentinels of this package, or the context's error when the caller gave up.
type Store interface {
	// Get returns the entry of a key and whether it exists.
	Get(ctx context.Context, key string) (Entry, bool, error)
	// List returns the entries whose keys begin with prefix, sorted by key, and the revision at which this was the state.
	// An empty prefix means all.
	List(ctx context.Context, prefix string) ([]Entry, int64, error)
	// Watch delivers all changes under prefix from revision from on. With from zero, or when that revision is no longer
	// kept, it begins with a Resync batch. The channel is closed when ctx ends or the store is closed. A reader that is slow
	// holds up only its own watch.
	Watch(ctx context.Context, prefix string, from int64) <-chan Batch
	// Commit makes a Txn and returns the revision it got. ErrConflict: a condition did not hold.
	Commit(ctx context.Context, txn Txn) (int64, error)
	// Grant returns a new lease and the life it got, which is whole seconds and may be longer than asked. The life counts
	// from some moment between the call and its return.
	Grant(ctx context.Context, ttl time.Duration) (LeaseID, time.Duration, error)
	// KeepAlive starts the lease's life anew and returns it. The caller must count the life from the moment at which it
	// called: the store may have counted from any later moment. ErrLeaseGone: it ended, and its keys are gone.
	KeepAlive(ctx context.Context, id LeaseID) (time.Duration, error)
	// Revoke ends a lease and deletes its keys. Revoking a lease that is gone does nothing.
	Revoke(ctx context.Context, id LeaseID) error
	// Health asks every member how it is.
	Health(ctx context.Context) Health
	// Close ends the watches. Later calls return ErrClosed. It does not end leases that Grant gave.
	Close() error
}

// Health is the state of the store as seen from here.
type Health struct {
	Members   []MemberHealth // in the order of the endpoints
	Leader    string         // endpoint or name of the leader; empty: none is known
	Writable  bool           // a linearizable read was answered: a majority of the members works together
	Revision  int64
	SizeBytes int64 // of the largest member's database file
	Full      bool  // the space quota is used up
}

// MemberHealth is one member's own word.
type MemberHealth struct {
	Endpoint  string
	Name      string // empty when unknown
	ID        uint64 // etcd's number for it; zero when unknown
	Reachable bool
	Leader    bool
	Learner   bool // it is on its way in and has no vote yet
	SizeBytes int64
	Problem   string // why it is not reachable; empty when it is
}

// Validate checks a Txn against the bounds of the store.
func (t Txn) Validate() error {
	if len(t.Then) == 0 || len(t.Then) > MaxTxnOps || len(t.If) > MaxTxnOps {
		return fmt.Errorf("%w: %d operations under %d conditions, of 1 to %d and at most %d", ErrInvalid, len(t.Then),
			len(t.If), MaxTxnOps, MaxTxnOps)
	}
	size := 0
	for _, condition := range t.If {
		if err := ValidateKey(condition.Key); err != nil {
			return err
		}
		if condition.Revision < 0 {
			return fmt.Errorf("%w: key %q cannot have revision %d", ErrInvalid, condition.Key, condition.Revision)
		}
	}
	seen := make(map[string]bool, len(t.Then))
	for _, op := range t.Then {
		if err := ValidateKey(op.key()); err != nil {
			return err
		}
		if seen[op.key()] {
			return fmt.Errorf("%w: key %q is changed twice in one transaction", ErrInvalid, op.key())
		}
		seen[op.key()] = true
		size += len(op.key())
		if put, isPut := op.(Put); isPut {
			size += len(put.Value)
		}
	}
	if size > MaxTxnBytes {
		return fmt.Errorf("%w: a transaction of %d bytes, at most %d", ErrInvalid, size, MaxTxnBytes)
	}
	return nil
}

// ValidateKey checks a key: 1 to MaxKeyBytes bytes of UTF-8 without NUL.
func ValidateKey(key string) error {
	if key == "" || len(key) > MaxKeyBytes || !utf8.ValidString(key) || strings.ContainsRune(key, 0) {
		return fmt.Errorf("%w: key %.64q must be 1 to %d bytes of text", ErrInvalid, key, MaxKeyBytes)
	}
	return nil
}

// WholeSeconds rounds a lease's life up to the whole seconds that etcd counts in, at least one.
func WholeSeconds(ttl time.Duration) time.Duration {
	return max(time.Second, (ttl + time.Second - 1).Truncate(time.Second))
}
