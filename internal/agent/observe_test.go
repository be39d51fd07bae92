package agent

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast/holdfast/internal/tenure"
)

// agreeing are other nodes that confirm what they are asked, up to a number.
type agreeing struct {
	mu    sync.Mutex
	upTo  tenure.Incarnation
	asked []tenure.Incarnation
	holds bool // what the node that is asked about says itself
	calls int  // how often it was asked
}

func (a *agreeing) Confirm(_ context.Context, _, _ int, incarnation tenure.Incarnation) (tenure.Answer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, incarnation)
	return tenure.Answer{Yes: incarnation <= a.upTo}, nil
}

func (a *agreeing) Alive(context.Context, int, tenure.Incarnation) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	return a.holds, nil
}

func testTower(peers peerConfirmer, found func(int, tenure.Incarnation, time.Duration)) *watchtower {
	w := newWatchtower(1, span(time.Second), time.Now, slog.New(slog.DiscardHandler))
	w.peers, w.found, w.others = peers, found, []int{2, 3, 4}
	time.Sleep(2 * time.Second) // virtual: it only listens at first
	return w
}

// Nobody can bar a node for good by asking whether a number that it has not reached is over.
func TestAnObserverGivesUpOnlyWhatItHasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := testTower(&agreeing{}, nil)
		if answer := w.Confirm(t.Context(), 2, 1<<63); answer.Yes || !strings.Contains(answer.Reason, "knows of no incarnation") {
			t.Errorf("a number that nobody has: %+v", answer)
		}
		if answer := w.Acknowledge(2, 7, time.Second); !answer.Yes {
			t.Errorf("and yet node 2 is barred: %+v", answer)
		}
		time.Sleep(2 * time.Second)
		w.Saw(2, 7)
		if answer := w.Confirm(t.Context(), 2, 7); !answer.Yes {
			t.Errorf("what was seen and has no promise any more: %+v", answer)
		}
		if answer := w.Confirm(t.Context(), 2, 8); answer.Yes {
			t.Error("its next incarnation is given up before it began")
		}
	})
}

// A later incarnation that dies while an earlier one is asked about is asked about at once, and the end of the earlier question does
// not end the later one.
func TestAnInquiryAboutALaterIncarnationReplacesTheEarlierOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var mu sync.Mutex
		var found []tenure.Incarnation
		others := &agreeing{upTo: 4}
		w := testTower(others, func(_ int, over tenure.Incarnation, _ time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			found = append(found, over)
		})
		w.Inquire(ctx, 2, 5)
		time.Sleep(time.Second)
		w.Inquire(ctx, 2, 6)
		time.Sleep(time.Second)
		others.mu.Lock()
		last := others.asked[len(others.asked)-1]
		others.upTo = 6
		others.mu.Unlock()
		if last != 6 {
			t.Errorf("incarnation %d is asked about, want 6", last)
		}
		w.conclude(2, 5) // the answer to the earlier question comes late
		time.Sleep(time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if w.Down(2) != 6 || len(found) != 1 || found[0] != 6 {
			t.Errorf("down up to %d, found %v", w.Down(2), found)
		}
	})
}

// A node whose lease is gone and who answers that it holds is not given up, and is asked once for all who want to know; as soon as
// it does not answer so any more, it is.
func TestANodeThatAnswersThatItHoldsIsNotGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		others := &agreeing{upTo: 9, holds: true}
		w := testTower(others, nil)
		w.Saw(2, 5)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if answer := w.Confirm(t.Context(), 2, 5); answer.Yes || !strings.Contains(answer.Reason, "answers") {
					t.Errorf("a node that holds: %+v", answer)
				}
			})
		}
		all.Wait()
		if answer := w.Acknowledge(2, 5, time.Second); !answer.Yes {
			t.Errorf("it is barred: %+v", answer)
		}
		time.Sleep(2 * time.Second)
		others.mu.Lock()
		others.holds = false
		others.mu.Unlock()
		if answer := w.Confirm(t.Context(), 2, 5); !answer.Yes {
			t.Errorf("a node that holds no more: %+v", answer)
		}
		if answer := w.Acknowledge(2, 5, time.Second); answer.Yes {
			t.Error("what was given up is acknowledged again")
		}
	})
}
