package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/store"
	"github.com/holdfast/holdfast/internal/tenure"
)

// draw takes the next incarnation from the store by compare-and-swap, and reads from it what the node's past was.
func (a *Agent) draw(ctx context.Context) (tenure.Incarnation, error) {
	for {
		record, found, err := store.GetRecord[incarnationRecord](ctx, a.store, incarnationKey(a.self.LNN))
		if err != nil {
			return 0, err
		}
		outage, away, err := store.GetRecord[outageRecord](ctx, a.store, outageKey(a.self.LNN))
		if err != nil {
			return 0, err
		}
		now := time.Now()
		next := incarnationRecord{Number: record.Value.Number + 1, Starts: steering.RecentStarts(record.Value.Starts, a.startOf(now), now)}
		put, err := store.PutOp(incarnationKey(a.self.LNN), next, 0)
		if err != nil {
			return 0, err
		}
		txn := store.Txn{If: []store.Condition{{Key: incarnationKey(a.self.LNN), Revision: record.Revision}}, Then: []store.Op{put}}
		if away {
			txn.Then = append(txn.Then, store.Delete{Key: outageKey(a.self.LNN)})
		}
		_, err = a.store.Commit(ctx, txn)
		switch {
		case err == nil:
			a.loop.setHistory(steering.PastOf(next.Starts, outage.Value.Since, now))
			return next.Number, nil
		case !errors.Is(err, store.ErrConflict):
			return 0, fmt.Errorf("recording incarnation %d of node %d: %w", next.Number, a.self.LNN, err)
		case found && record.Value.Number > 0:
			// Two agents under one name: the other one drew first.
		}
	}
}

// noteOutageLimit bounds what a stopping agent waits for the store to take note.
const noteOutageLimit = 500 * time.Millisecond

// noteOutage says since when this node is away when it goes in an orderly way; of a node that dies the others say it. Without the note it
// would come back as if it had never been away, and be given out at once whatever sc-auto-unsuspend-delay says.
func (a *Agent) noteOutage() {
	op, err := store.PutOp(outageKey(a.self.LNN), outageRecord{Since: time.Now()}, 0)
	if err == nil {
		ctx, cancel := context.WithTimeout(a.ctx, noteOutageLimit)
		defer cancel()
		_, err = a.store.Commit(ctx, store.Txn{Then: []store.Op{op}})
	}
	if err != nil {
		a.log.Warn("could not note since when this node is away; on its return it counts as never having been", "error", err)
	}
}

// startOf is when the start that draws now began. A number that was drawn and came to nothing, because the store did not answer, is
// not a start of its own: otherwise a node would be taken for one that flaps. Only the tenancy calls it.
func (a *Agent) startOf(now time.Time) time.Time {
	if a.drew.IsZero() || a.tenancy.RegisteredSince(a.drewAt) {
		a.drew, a.drewAt = now.Round(0), a.now()
	}
	return a.drew
}
