package datagram

import (
	"testing"

	"pgregory.net/rapid"
)

// TestWindow compares it with one that remembers everything.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
		newest, seen := uint64(0), map[uint64]bool{}
		start := rapid.SampledFrom([]uint64{0, 1000, maxNumber - 20_000}).Draw(t, "start")
		for range rapid.IntRange(1, 300).Draw(t, "count") {
			var n uint64
			switch rapid.IntRange(0, 4).Draw(t, "which") {
			case 0:
				n = newest + 1
			case 1:
				n = newest + rapid.Uint64Range(1, 3*windowSize).Draw(t, "ahead")
			case 2:
				n = newest - min(newest, rapid.Uint64Range(windowSize-2, windowSize+2).Draw(t, "at the edge"))
			case 3:
				n = newest - min(newest, rapid.Uint64Range(0, windowSize).Draw(t, "behind"))
			case 4:
				n = start + rapid.Uint64Range(0, 2*windowSize).Draw(t, "anywhere")
			}
			want := n > 0 && !seen[n] && (n > newest || newest-n < windowSize)
			if got := w.take(n); got != want {
				t.Fatalf("%d is taken: %v, want %v; the newest is %d", n, got, want, newest)
			}
			if want {
				seen[n] = true
				newest = max(newest, n)
			}
		}
	})
}

// What overtakes others on the way is taken, and they are too; each once.
func TestWindowOfDatagramsThatOvertake(t *testing.T) {
	var w window
	for _, n := range []uint64{1, 5, 3, 2, 1025, 4, 6} {
		if !w.take(n) {
			t.Errorf("%d is not taken", n)
		}
	}
	for _, n := range []uint64{1, 5, 3, 2, 1025, 4, 6, 0} {
		if w.take(n) {
			t.Errorf("%d is taken again", n)
		}
	}
	if w.take(1) {
		t.Error("1 lies before the window")
	}
	if w.take(9000); w.take(9000-windowSize) || !w.take(9000-windowSize+1) || w.take(9000) {
		t.Error("after a leap, the window is not the last 1024")
	}
}
