package lab

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var start = time.Unix(1000, 0)

// play sends frames through one direction, a millisecond apart.
func play(faults Faults, seed uint64, frames int) []fate {
	d := newDirection(faults, seed, 1)
	fates := make([]fate, frames)
	for i := range fates {
		fates[i] = d.next(start.Add(time.Duration(i) * time.Millisecond))
	}
	return fates
}

func TestDirectionShares(t *testing.T) {
	const frames = 100_000
	fates := play(Faults{Loss: 0.1, Duplication: 0.2, Reordering: 0.3}, 1, frames)
	var lost, doubled, reordered int
	for _, f := range fates {
		switch len(f.leaves) {
		case 0:
			lost++
		case 2:
			doubled++
		}
		if f.reordered {
			reordered++
		}
	}
	// The other shares count among frames that were not lost. The seed is fixed, so these numbers never change.
	for what, got := range map[string][2]float64{
		"lost": {float64(lost) / frames, 0.1}, "doubled": {float64(doubled) / frames, 0.9 * 0.2}, "reordered": {float64(reordered) / frames, 0.9 * 0.3},
	} {
		if got[0] < got[1]*0.97 || got[0] > got[1]*1.03 {
			t.Errorf("%s: share %v, want about %v", what, got[0], got[1])
		}
	}
}

func TestDirectionIsRepeatable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		share := rapid.Float64Range(0, 1)
		faults := Faults{
			Loss: share.Draw(t, "loss"), Duplication: share.Draw(t, "duplication"), Reordering: share.Draw(t, "reordering"),
			Delay: time.Duration(rapid.IntRange(0, 1000).Draw(t, "delay")) * time.Microsecond, Jitter: time.Duration(rapid.IntRange(0, 5000).Draw(t, "jitter")) * time.Microsecond,
		}
		seed := rapid.Uint64().Draw(t, "seed")
		one, two := play(faults, seed, 200), play(faults, seed, 200)
		if diff := cmp.Diff(one, two, cmp.AllowUnexported(fate{})); diff != "" {
			t.Fatal(diff)
		}
		last := start
		for i, f := range one {
			arrived := start.Add(time.Duration(i) * time.Millisecond)
			for _, leave := range f.leaves {
				if leave.Before(arrived.Add(faults.Delay)) {
					t.Fatalf("frame %d leaves before its delay is over", i)
				}
				if !f.reordered && leave.Before(last) {
					t.Fatalf("frame %d overtakes one before it, though nothing is reordered there", i)
				}
			}
			if len(f.leaves) > 0 && !f.reordered {
				last = f.leaves[0]
			}
		}
	})
}

func TestCarrierKeepsOrderAndBound(t *testing.T) {
	c := newCarrier(nil, nil, newDirection(Faults{Delay: time.Second}, 1, 1))
	for i := range wireQueue + 5 {
		c.take([]byte{byte(i), byte(i >> 8)}, start)
	}
	if got := c.counts(); got.Frames != wireQueue+5 || got.Overflow != 5 {
		t.Errorf("a full queue: %+v", got)
	}
	if frame, wait := c.due(start); frame != nil || wait != time.Second {
		t.Errorf("a frame that is not due: %v, wait %v", frame, wait)
	}
	for i := range wireQueue {
		frame, _ := c.due(start.Add(time.Second))
		if frame == nil || frame[0] != byte(i) || frame[1] != byte(i>>8) {
			t.Fatalf("frame %d left as %v", i, frame)
		}
	}
}
