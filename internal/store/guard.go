package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/internal/problem"
)

// ClusterIDKey holds the ClusterID: the first record of every cluster, never deleted.
const ClusterIDKey = "cluster-id"

// ClusterID says whose store this is. Agents keep a copy beside their identity and compare.
type ClusterID struct {
	Cluster string `json:"cluster"` // the name
	ID      string `json:"id"`      // 32 random hexadecimal digits, drawn at Found
}

// Found writes the ClusterID of a new cluster into a store that has none, and returns it. A store that already has one of
// the same cluster name returns that; another name is ErrForeign.
func Found(ctx context.Context, s Store, cluster string) (ClusterID, error) {
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return ClusterID{}, fmt.Errorf("drawing a cluster id: %w", err)
	}
	id := ClusterID{Cluster: cluster, ID: hex.EncodeToString(random)}
	put, err := PutOp(ClusterIDKey, id, 0)
	if err != nil {
		return ClusterID{}, err
	}
	_, err = s.Commit(ctx, Txn{If: []Condition{Absent(ClusterIDKey)}, Then: []Op{put}})
	switch {
	case err == nil:
		return id, nil
	case !errors.Is(err, ErrConflict):
		return ClusterID{}, fmt.Errorf("founding cluster %q in the store: %w", cluster, err)
	}
	present, found, err := GetRecord[ClusterID](ctx, s, ClusterIDKey)
	switch {
	case err != nil:
		return ClusterID{}, err
	case !found:
		return ClusterID{}, ErrEmpty
	case present.Value.Cluster != cluster:
		return ClusterID{}, fmt.Errorf("founding cluster %q: the store holds cluster %q: %w", cluster, present.Value.Cluster, ErrForeign)
	}
	return present.Value, nil
}

// Verify checks that the store is the one that want names: nil, ErrEmpty, ErrForeign, or that it cannot be read.
func Verify(ctx context.Context, s Store, want ClusterID) error {
	_, err := verify(ctx, s, want)
	return err
}

func verify(ctx context.Context, s Store, want ClusterID) (revision int64, err error) {
	present, found, err := GetRecord[ClusterID](ctx, s, ClusterIDKey)
	switch {
	case err != nil:
		return 0, err
	case !found:
		return 0, fmt.Errorf("cluster %q: %w", want.Cluster, ErrEmpty)
	case present.Value != want:
		return 0, fmt.Errorf("this is cluster %q (%s), the store holds cluster %q (%s): %w", want.Cluster, want.ID,
			present.Value.Cluster, present.Value.ID, ErrForeign)
	}
	return present.Revision, nil
}

// guarded is a Store that answers only while it is the store of one cluster.
type guarded struct {
	Store
	want     ClusterID
	board    *problem.Board
	revision atomic.Int64 // of the ClusterID record when last seen; zero: not seen yet
}

// Guard returns a Store that refuses with ErrEmpty or ErrForeign to act on a store that is not want's, so that a store that
// lost its data, or another cluster's, is never taken for the truth:
//
//   - reads verify after reading, so that an empty answer of a wiped store is never believed;
//   - commits carry the condition that the ClusterID record is unchanged;
//   - a watch holds back a Resync batch until the store has been verified. Meanwhile it is silent, and what the reader knows
//     stands.
//
// It costs a read one more round trip, a commit none. A refusal is the problem store.empty on the board until the store is
// the right one again.
func Guard(s Store, want ClusterID, board *problem.Board) Store {
	return &guarded{Store: s, want: want, board: board}
}

// verifyPause is the time between two looks at a store that was refused.
const verifyPause = 500 * time.Millisecond

func (g *guarded) verify(ctx context.Context) error {
	revision, err := verify(ctx, g.Store, g.want)
	switch {
	case err == nil:
		g.revision.Store(revision)
		g.board.Clear(empty, "store")
	case errors.Is(err, ErrEmpty) || errors.Is(err, ErrForeign):
		g.board.Set(empty, "store", err.Error(), time.Now())
	}
	return err
}

func (g *guarded) Get(ctx context.Context, key string) (Entry, bool, error) {
	entry, found, err := g.Store.Get(ctx, key)
	if err == nil {
		err = g.verify(ctx)
	}
	if err != nil {
		return Entry{}, false, err
	}
	return entry, found, nil
}

func (g *guarded) List(ctx context.Context, prefix string) ([]Entry, int64, error) {
	entries, revision, err := g.Store.List(ctx, prefix)
	if err == nil {
		err = g.verify(ctx)
	}
	if err != nil {
		return nil, 0, err
	}
	return entries, revision, nil
}

// Commit adds the condition and, on a conflict, finds out whether it was the cause.
func (g *guarded) Commit(ctx context.Context, txn Txn) (int64, error) {
	if err := txn.Validate(); err != nil {
		return 0, err
	}
	for _, op := range txn.Then {
		if op.key() == ClusterIDKey {
			return 0, fmt.Errorf("%w: the record %q is written once, when the cluster is founded", ErrInvalid, ClusterIDKey)
		}
	}
	seen := g.revision.Load()
	if seen == 0 {
		if err := g.verify(ctx); err != nil {
			return 0, err
		}
		seen = g.revision.Load()
	}
	guardedTxn := Txn{Then: txn.Then, If: append([]Condition{{Key: ClusterIDKey, Revision: seen}}, txn.If...)}
	if len(guardedTxn.If) > MaxTxnOps {
		return 0, fmt.Errorf("%w: %d conditions, of which one is the guard's, at most %d", ErrInvalid, len(guardedTxn.If), MaxTxnOps)
	}
	revision, err := g.Store.Commit(ctx, guardedTxn)
	if !errors.Is(err, ErrConflict) {
		return revision, err
	}
	if verifyErr := g.verify(ctx); verifyErr != nil {
		return 0, verifyErr
	}
	// Either the caller's condition failed, or the record was restored under a new revision and the caller, who must read
	// again after a conflict anyway, succeeds next time.
	return 0, err
}

func (g *guarded) Watch(ctx context.Context, prefix string, from int64) <-chan Batch {
	out := make(chan Batch)
	go func() {
		defer close(out)
		for from >= 0 && ctx.Err() == nil {
			from = g.follow(ctx, prefix, from, out)
		}
	}()
	return out
}

// follow forwards one inner watch. It returns 0 to begin anew with the whole state, and -1 when the watch is over.
func (g *guarded) follow(ctx context.Context, prefix string, from int64, out chan<- Batch) int64 {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	for batch := range g.Store.Watch(inner, prefix, from) {
		if batch.Resync {
			if err := g.verify(ctx); err != nil {
				return g.awaitOwn(ctx)
			}
		}
		select {
		case out <- batch:
		case <-ctx.Done():
			return -1
		}
	}
	return -1
}

// awaitOwn waits until the store is the right one. The held-back batch is thrown away: it came from a store that was not.
func (g *guarded) awaitOwn(ctx context.Context) int64 {
	for {
		timer := time.NewTimer(verifyPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return -1
		}
		err := g.verify(ctx)
		if err == nil {
			return 0
		}
		if errors.Is(err, ErrClosed) {
			return -1
		}
	}
}
