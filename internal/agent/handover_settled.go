package agent

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// unsettled says why the right to hold should not change hands at a moment; empty: it may. While it does, no heartbeat goes out, and that
// may take as long as half of what is left of the right. So much has to be left, and the agent that hands over must have renewed it
// itself for two spans: one that has only just taken over lives on what the one before it was given, and a second handover within that
// would pause the heartbeats twice over one and the same right. took is zero for an agent that did not take over, and until for a right
// that does not run out.
func unsettled(now, took, until time.Time, span time.Duration) string {
	if here := now.Sub(took); !took.IsZero() && here < 2*span {
		return fmt.Sprintf("it has only been here for %v, and waits for %v (two spans) before another may follow", here.Round(time.Millisecond), 2*span)
	}
	if left := until.Sub(now); !until.IsZero() && left < span/2 {
		return fmt.Sprintf("its right to hold is not being renewed: %v of a span of %v are left", left.Round(time.Millisecond), span)
	}
	return ""
}

// settlePoll is how often it is looked whether the right may change hands.
const settlePoll = 5 * time.Millisecond

// settle waits until the right may change hands. With an error it did not come to that in time.
func (t *tenancy) settle(ctx context.Context, limit time.Duration) error {
	for deadline := t.now().Add(limit); ; wait(ctx, settlePoll) {
		t.mu.Lock()
		now, standing := t.now(), t.peer.Standing(t.now())
		why := standing.Reason
		if standing.MayHold {
			why = unsettled(now, t.took, standing.Until, t.timing.Span())
		}
		t.mu.Unlock()
		switch {
		case why == "":
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case now.After(deadline):
			return errors.New(why + "; try again in a moment")
		}
	}
}
