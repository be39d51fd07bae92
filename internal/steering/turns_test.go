package steering

import (
	"testing"
	"time"
)

// A change waits from when its need arose; a need that passes is forgotten, and when it arises again waits anew.
func TestTurns(t *testing.T) {
	start := time.Unix(1000, 0)
	turns := Turns{}
	for _, step := range []struct {
		at     time.Duration
		wanted bool
		may    bool
		left   time.Duration
	}{
		{0, true, false, 80 * time.Millisecond},
		{50 * time.Millisecond, true, false, 30 * time.Millisecond},
		{80 * time.Millisecond, true, true, 0},
		{90 * time.Millisecond, true, true, 0},
		{100 * time.Millisecond, false, false, 0},
		{110 * time.Millisecond, true, false, 80 * time.Millisecond},
	} {
		if may, left := turns.May("pool/x", step.wanted, 80*time.Millisecond, start.Add(step.at)); may != step.may || left != step.left {
			t.Errorf("after %s: %t, %s left; want %t, %s", step.at, may, left, step.may, step.left)
		}
	}
	if may, left := turns.May("pool/y", true, 0, start); !may || left != 0 {
		t.Errorf("who waits for nothing: %t, %s left", may, left)
	}
}
