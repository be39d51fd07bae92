package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/store"
)

// writeTimeout bounds one attempt to change a record; what failed is proposed anew from what is then known.
const writeTimeout = 2 * time.Second

// writer changes records in the store, one change of a key at a time. A change that lost a race or met a store that does not
// answer is dropped: the loop looks at the new state and proposes again if it still wants something.
// It is safe for concurrent use.
type writer struct {
	store   store.Store
	log     *slog.Logger
	done    func() // something was written or failed; must not block
	mu      sync.Mutex
	pending map[string]int64 // key to the revision that the replica must reach before the next change; -1 while under way
	failing map[string]time.Time
	now     func() time.Time
}

// How long a key rests after a write that the store did not answer, and after one that lost a race: what it lost to is on its way here.
const (
	retryAfter = 100 * time.Millisecond
	retryLost  = 5 * time.Millisecond
)

// Ready reports whether a key may be changed, given the revision that the replica has reached, and else how long it rests still: zero when it
// waits for a change that is under way, or for the replica to see it, of which the loop is told.
func (w *writer) Ready(key string, reached int64) (ready bool, rests time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if until, resting := w.failing[key]; resting {
		if left := until.Sub(w.now()); left > 0 {
			return false, left
		}
		delete(w.failing, key)
	}
	revision, busy := w.pending[key]
	if busy && revision >= 0 && revision <= reached {
		delete(w.pending, key)
		busy = false
	}
	return !busy, 0
}

// Busy reports whether a change of any key under a prefix is under way, or made and not yet seen by the replica.
func (w *writer) Busy(prefix string, reached int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, revision := range w.pending {
		if strings.HasPrefix(key, prefix) && (revision < 0 || revision > reached) {
			return true
		}
	}
	return false
}

// Write begins a change. Written is called when the store has taken it.
func (w *writer) Write(ctx context.Context, key string, txn store.Txn, written func(revision int64)) {
	w.mu.Lock()
	w.pending[key] = -1
	w.mu.Unlock()
	go func() {
		try, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		revision, err := w.store.Commit(try, txn)
		w.mu.Lock()
		if err != nil {
			delete(w.pending, key)
			w.failing[key] = w.now().Add(retryLost)
			if !errors.Is(err, store.ErrConflict) {
				w.failing[key] = w.now().Add(retryAfter)
				w.log.Debug("record not written", "key", key, "error", err)
			}
		} else {
			w.pending[key] = revision
		}
		w.mu.Unlock()
		if err == nil && written != nil {
			written(revision)
		}
		w.done()
	}()
}

// rest waits until nothing is being written, for a bounded time, and returns the revision of the last that was. Nothing may be begun
// meanwhile.
func (w *writer) rest(limit time.Duration) (revision int64, err error) {
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		under := 0
		w.mu.Lock()
		for _, written := range w.pending {
			if revision = max(revision, written); written < 0 {
				under++
			}
		}
		w.mu.Unlock()
		switch {
		case under == 0:
			return revision, nil
		case time.Now().After(deadline):
			return 0, fmt.Errorf("%d changes are still on their way to the store", under)
		}
	}
}
