package tenure

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world is the least that can go wrong: one holder, its lease in a store that can be cut off, and the others, which grant,
// restart and confirm. Messages take any time; the world's clock is the only one.
type world struct {
	now       time.Time
	holder    *Holder
	observers map[int]*Observer
	leaseEnd  time.Time // in the store: from the receipt, plus up to half a second of slowness
	leaseGone bool
	pending   []func() // answers on their way back to the holder
	down      bool     // somebody concluded that it is over
}

// TestDownMeansLapsed is the safety of the room: at the moment at which anybody may conclude that an incarnation is over (its
// lease is gone from the store, and a majority confirmed), the holder does not hold.
func TestDownMeansLapsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "others")
		w := &world{now: epoch, observers: map[int]*Observer{}}
		var others []int
		for lnn := 2; lnn < n+2; lnn++ {
			others = append(others, lnn)
			w.observers[lnn] = NewObserver(epoch.Add(-2*time.Second), time.Second)
		}
		w.holder = NewHolder(1, others, 0) // no margin: the rules alone must do
		w.leaseEnd = w.now.Add(time.Second)
		w.holder.Step(LeaseRenewed{Sent: w.now, TTL: time.Second}, w.now)
		for range rapid.IntRange(10, 120).Draw(t, "steps") {
			w.act(t, others)
		}
	})
}

func (w *world) act(t *rapid.T, others []int) {
	w.now = w.now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond)
	if !w.leaseGone && w.now.After(w.leaseEnd) {
		w.leaseGone = true
	}
	sent := w.now
	switch rapid.IntRange(0, 5).Draw(t, "act") {
	case 0: // the holder renews; the store may get it, the answer may arrive now or later
		w.now = w.now.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "way")) * time.Millisecond)
		if w.now.After(w.leaseEnd) {
			w.leaseGone = true
		}
		if !w.leaseGone && rapid.Bool().Draw(t, "received") {
			w.leaseEnd = w.now.Add(time.Second)
			w.pending = append(w.pending, func() { w.holder.Step(LeaseRenewed{Sent: sent, TTL: time.Second}, w.now) })
		}
	case 1: // it asks somebody for a span
		lnn := rapid.SampledFrom(others).Draw(t, "observer")
		w.now = w.now.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "way")) * time.Millisecond)
		if w.observers[lnn].Grant(1, 1, time.Second, w.now).Yes {
			w.pending = append(w.pending, func() { w.holder.Step(Granted{Observer: lnn, Sent: sent, Span: time.Second}, w.now) })
		}
	case 2: // an answer arrives, in any order
		if len(w.pending) > 0 {
			i := rapid.IntRange(0, len(w.pending)-1).Draw(t, "answer")
			w.pending[i]()
			w.pending = append(w.pending[:i], w.pending[i+1:]...)
		}
	case 3: // an observer restarts and has forgotten everything
		w.observers[rapid.SampledFrom(others).Draw(t, "observer")] = NewObserver(w.now, time.Second)
	default:
		w.inquire(t, others)
	}
	if standing := w.holder.Step(Tick{}, w.now); w.down && standing.MayHold {
		t.Fatalf("at %s it holds again, by %s, although it is down for somebody", w.now.Sub(epoch), standing.Reason)
	}
}

// ask is a question for a span that is answered at once.
func (w *world) ask(lnn int) {
	if w.observers[lnn].Grant(1, 1, time.Second, w.now).Yes {
		w.holder.Step(Granted{Observer: lnn, Sent: w.now, Span: time.Second}, w.now)
	}
}

// inquire is one round of questions; the answers are given at different moments.
func (w *world) inquire(t *rapid.T, others []int) {
	if !w.leaseGone {
		return
	}
	q := NewInquiry(1, 1, len(others))
	w.holder.Step(Tick{}, w.now)
	for _, lnn := range others {
		w.now = w.now.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "way")) * time.Millisecond)
		confirmed := w.observers[lnn].Confirm(1, 1, w.now).Yes
		if rapid.Bool().Draw(t, "asks meanwhile") {
			w.ask(rapid.SampledFrom(others).Draw(t, "observer"))
		}
		if confirmed && q.Confirmed(lnn) {
			w.down = true
			if standing := w.holder.Step(Tick{}, w.now); standing.MayHold {
				t.Fatalf("at %s the incarnation is down for somebody, and it still may hold until %s by %s", w.now.Sub(epoch), standing.Until.Sub(epoch), standing.Reason)
			}
			return
		}
	}
}
