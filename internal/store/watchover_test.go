package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/problem"
)

// The problem store.slow comes when answers are slow for a while and goes when they are quick for a while; one slow
// answer is no problem.
func TestSlowAnswersAreReported(t *testing.T) {
	board := new(problem.Board)
	c := &client{options: Options{Board: board}}
	var h hindsight
	var got []string
	for _, c2 := range []struct {
		took  time.Duration
		times int
	}{{2 * time.Millisecond, 3}, {probeTimeout, 1}, {probeTimeout, 12}, {2 * time.Millisecond, 4}, {2 * time.Millisecond, 10}} {
		for range c2.times {
			c.report(&h, true, c2.took)
		}
		state := "well"
		for _, active := range board.List() {
			state = active.Kind.Code
		}
		got = append(got, state)
	}
	if diff := cmp.Diff([]string{"well", "well", "store.slow", "store.slow", "well"}, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// A first try waits for ten times what answers usually take, within its bounds.
func TestFirstTryFollowsTheStore(t *testing.T) {
	c := &client{options: Options{TryTimeout: 200 * time.Millisecond}}
	learn := func(took time.Duration) time.Duration {
		for range 100 {
			c.learn(took)
		}
		return c.firstTry().Round(time.Millisecond)
	}
	for _, step := range []struct{ took, want time.Duration }{
		{time.Millisecond, 50 * time.Millisecond}, {12 * time.Millisecond, 120 * time.Millisecond},
		{time.Second, 200 * time.Millisecond}, {time.Millisecond, 50 * time.Millisecond},
	} {
		if got := learn(step.took); got != step.want {
			t.Errorf("answers of %v: %v, want %v", step.took, got, step.want)
		}
	}
}
