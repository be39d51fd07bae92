package boottime

import (
	"testing"
	"time"
)

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

// TestNanoseconds: it is the kernel's clock, whatever this process makes of it.
func TestNanoseconds(t *testing.T) {
	before := read()
	at := Nanoseconds(Now())
	after := read()
	if at < int64(before) || at > int64(after) {
		t.Errorf("%d is not between %d and %d", at, before, after)
	}
	if got := Nanoseconds(startWall.Add(time.Hour)); got != int64(startBoot+time.Hour) {
		t.Errorf("an hour after the start is %d", got)
	}
}
