package dns

import (
	"testing"
	"time"
)

// TestSharePace: a few words go at once, many at a steady pace, and after a rest there is as much as before.
func TestSharePace(t *testing.T) {
	for name, c := range map[string]struct {
		every time.Duration // between the end of one collecting and the next answer
		words int
		quick int // of them were collected for shareDelay only
	}{
		"twenty a second are told one by one":         {every: 50 * time.Millisecond, words: 1000, quick: 1000},
		"a burst is told one by one":                  {every: 0, words: shareBurst, quick: shareBurst},
		"all the time, at the steady pace in the end": {every: 0, words: 1000, quick: shareBurst + 5},
	} {
		t.Run(name, func(t *testing.T) {
			var p sharePace
			now, quick := testNow, 0
			for range c.words {
				d := p.next(now)
				if d == shareDelay {
					quick++
				}
				now = now.Add(d + c.every)
			}
			if quick < c.quick-1 || quick > c.quick+1 {
				t.Errorf("%d of %d words after %v, expected %d", quick, c.words, shareDelay, c.quick)
			}
			now = now.Add(shareBurst * shareSteady)
			for i := range shareBurst {
				if d := p.next(now); d != shareDelay {
					t.Fatalf("after a rest, word %d is collected for %v", i+1, d)
				}
			}
		})
	}
}
