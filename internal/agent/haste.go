package agent

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/linux/threads"
)

// How long this agent hurries. What is done between the moment at which an address leaves a node and the one at which another has announced
// it takes a millisecond of a processor, in some ten steps that each wait for one. On a busy node an ordinary process waits for
// milliseconds at each of them, however little it needs.
const (
	hasteFor      = 50 * time.Millisecond  // after each word that an address is on its way, unless none is any more,
	hasteMost     = 200 * time.Millisecond // but no longer than this when it has not hurried for long,
	hasteShare    = 4                      // and then a quarter of the time, so that others have the rest,
	hasteLeast    = 5 * time.Millisecond   // and not for less than this
	hastePriority = 1                      // of SCHED_RR: behind the heartbeats, the guard, and whatever else is in real time here
)

// haste has this process scheduled before everything that is not real-time while addresses are with nobody, for a bounded time and a
// bounded share of it. It is safe for concurrent use; the zero value never hurries.
type haste struct {
	hurry func() (back func() error, err error) // nil: ordinary priority is all that there is
	now   func() time.Time
	log   *slog.Logger
	count prometheus.Counter

	mu    sync.Mutex
	back  func() error // ends the one that is under way; nil: none is
	began time.Time
	until time.Time     // the present one ends
	timer *time.Timer   // ends it
	spare time.Duration // for how long it may hurry, as of when the last one ended
	ended time.Time     // that moment; zero: there was none
}

func newHaste(hurry func() (func() error, error), now func() time.Time, log *slog.Logger, registerer prometheus.Registerer) *haste {
	h := &haste{hurry: hurry, now: now, log: log, count: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_agent_hurries_total", Help: "How often this agent ran at real-time priority for some ten milliseconds, because addresses were on their way.",
	})}
	registerer.MustRegister(h.count)
	return h
}

// hurryThreads is the kernel's.
func hurryThreads() (func() error, error) { return threads.Hurry(hastePriority) }

// begin hurries from now on for a moment, if it may. It takes some fifty microseconds, two calls of the kernel for each thread, and waits for
// nobody: whoever has the lock begins one as well, or is an ordinary thread by now that ends one, and the heartbeats' thread, which calls this
// too, must not wait until that is scheduled.
func (h *haste) begin() {
	if !h.mu.TryLock() {
		return
	}
	defer h.mu.Unlock()
	if h.hurry == nil {
		return
	}
	now := h.now()
	if h.back != nil {
		h.until = h.end(now)
		return
	}
	spare := hasteMost
	if !h.ended.IsZero() {
		spare = min(hasteMost, h.spare+now.Sub(h.ended)/hasteShare)
	}
	if spare < hasteLeast {
		return
	}
	back, err := h.hurry()
	if err != nil {
		// The heartbeats' thread does not wait for a log either.
		go h.log.Info("addresses are handed over at ordinary priority, which takes longer on a busy node", "reason", err)
		h.hurry = nil // it will not be allowed later
		return
	}
	h.count.Inc()
	h.back, h.began, h.spare = back, now, spare
	h.until = h.end(now)
	h.timer = time.AfterFunc(h.until.Sub(now), h.over)
}

// end is when a hurry ends for which there was a reason now.
func (h *haste) end(now time.Time) time.Time {
	until, most := now.Add(hasteFor), h.began.Add(h.spare)
	if until.After(most) {
		return most
	}
	return until
}

// enough says that no address is on its way any more.
func (h *haste) enough() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.back != nil && h.timer.Stop() {
		h.stop(h.now())
	}
}

// over ends the hurry, unless there were reasons since to go on.
func (h *haste) over() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	if left := h.until.Sub(now); left > 0 {
		h.timer.Reset(left)
		return
	}
	h.stop(now)
}

// stop ends the hurry. h.mu is held.
func (h *haste) stop(now time.Time) {
	if err := h.back(); err != nil {
		h.log.Error("some threads stay in real time", "error", err)
		h.hurry = nil
	}
	h.back, h.ended, h.spare = nil, now, h.spare-now.Sub(h.began)
}
