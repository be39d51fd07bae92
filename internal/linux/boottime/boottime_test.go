package boottime

import "testing"

func TestNowNeverGoesBack(t *testing.T) {
	last := Now()
	for range 10_000 {
		now := Now()
		if now.Before(last) {
			t.Fatalf("the clock went back from %s to %s", last, now)
		}
		last = now
	}
}
