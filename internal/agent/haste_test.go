package agent

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/bubble"
)

// hurries is a haste whose hurries are noted. A haste calls what notes them under its lock.
type hurries struct {
	*haste
	noted   noted
	refused error
}

type noted struct {
	asked   int
	since   time.Time // the present one; zero: there is none
	took    time.Duration
	longest time.Duration
}

func (h *hurries) seen() noted {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.noted
}

func newHurries() *hurries {
	h := &hurries{}
	h.haste = newHaste(func() (func() error, error) {
		h.noted.asked++
		if h.refused != nil {
			return nil, h.refused
		}
		h.noted.since = time.Now()
		return func() error {
			n := &h.noted
			took := time.Since(n.since)
			n.took, n.longest, n.since = n.took+took, max(n.longest, took), time.Time{}
			return nil
		}, nil
	}, time.Now, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	return h
}

// A hurry ends by itself some time after the last reason for it, or as soon as there is none any more, and begins again for another.
func TestHasteEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHurries()
		h.begin()
		time.Sleep(hasteFor - 1)
		h.begin() // goes on
		time.Sleep(hasteFor - 1)
		synctest.Wait()
		if n := h.seen(); n.since.IsZero() || n.asked != 1 {
			t.Fatalf("it does not hurry any more, or began %d times", n.asked)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if n := h.seen(); !n.since.IsZero() || n.took != 2*hasteFor-1 {
			t.Errorf("it hurried for %v, and does still: %v", n.took, !n.since.IsZero())
		}
		h.begin()
		h.enough()
		h.enough()
		if n := h.seen(); !n.since.IsZero() || n.asked != 2 || n.took != 2*hasteFor-1 {
			t.Errorf("it hurries although nothing is on its way any more, or began %d times", n.asked)
		}
	})
}

// However many reasons there are, it hurries for a bounded time at once, and then for its share.
func TestHasteIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHurries()
		const all = 20 * time.Second
		for began := time.Now(); time.Since(began) < all; time.Sleep(time.Millisecond) {
			h.begin()
		}
		h.enough()
		synctest.Wait()
		n := h.seen()
		if n.longest > hasteMost {
			t.Errorf("it hurried for %v at a stretch; the bound is %v", n.longest, hasteMost)
		}
		if most := hasteMost + all/hasteShare; n.took > most || n.took < all/hasteShare/2 {
			t.Errorf("it hurried for %v of %v; the bound is %v", n.took, all, most)
		}
	})
}

// What is refused once is not asked for again, and an agent that cannot hurry goes on.
func TestHasteThatIsRefused(t *testing.T) {
	h := newHurries()
	h.refused = errors.New("not permitted")
	h.begin()
	h.begin()
	h.enough()
	if n := h.seen(); n.asked != 1 {
		t.Errorf("asked %d times", n.asked)
	}
	never := newHaste(nil, time.Now, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	never.begin()
	never.enough()
}
