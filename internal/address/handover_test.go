package address

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestHandedOver: what one reconciler held another goes on with, without an announcement and without a gap in the lifetimes, and the
// first one touches nothing any more, whatever it is told.
func TestHandedOver(t *testing.T) {
	inBubble(t, true, func(n *node) {
		all := holdings(moving("10.0.0.7", "ext0"), moving("fd00::7", "ext1"), still("10.0.0.5", "ext0"))
		n.set(all)
		n.after(time.Minute)
		n.link.Sent()
		s := n.Hold()
		n.after(time.Minute) // it goes on to renew, however long it stands still
		n.wantThere("10.0.0.5 10.0.0.7 fd00::7")
		if err := s.Freeze(); err != nil {
			t.Fatal(err)
		}
		next := New(Options{Kernel: n.kernel, Announcer: n.link, Board: n.board})
		next.Adopt(s.Desired, s.Held, s.Proven)
		s.Retire()
		go func() { _ = next.Run(n.t.Context()) }()
		synctest.Wait()

		got := next.Set(n.t.Context(), all)
		if addresses(got.Held) != "10.0.0.5 10.0.0.7 fd00::7" || len(got.Taken)+len(got.Released) > 0 {
			t.Errorf("the next one's first wish came to %+v", got)
		}
		n.Silence("test")
		n.set(holdings(moving("10.0.0.8", "ext0")))
		n.after(time.Minute)
		n.wantThere("10.0.0.5 10.0.0.7 fd00::7")
		if sent := n.link.Sent(); len(sent) > 0 {
			t.Errorf("announced: %v", sent)
		}
	})
}

// TestHeldAndResumed: one whose successor failed goes on as if nothing had happened.
func TestHeldAndResumed(t *testing.T) {
	inBubble(t, true, func(n *node) {
		n.set(holdings(moving("10.0.0.7", "ext0")))
		s := n.Hold()
		if err := s.Freeze(); err != nil {
			t.Fatal(err)
		}
		s.Resume()
		n.set(holdings(moving("10.0.0.8", "ext0")))
		n.after(time.Minute)
		n.wantThere("10.0.0.8")
	})
}

// TestSilenceOfOneThatStandsStill: a silence waits for no handover, and ends it.
func TestSilenceOfOneThatStandsStill(t *testing.T) {
	inBubble(t, true, func(n *node) {
		n.set(holdings(moving("10.0.0.7", "ext0"), still("10.0.0.5", "ext0")))
		s := n.Hold()
		n.Silence("test")
		n.wantThere("10.0.0.5")
		if err := s.Freeze(); !errors.Is(err, ErrSilenced) {
			t.Errorf("it was frozen with %v", err)
		}
		s.Resume()
		n.after(time.Minute)
		n.wantThere("10.0.0.5")
	})
}
