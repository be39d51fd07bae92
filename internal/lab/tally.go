package lab

import "time"

// silence is for how long one address did not answer.
type silence struct {
	last    time.Time // when the last answer came
	longest time.Duration
}

// answered takes in an answer. Answers may be told in another order than they came.
func (s *silence) answered(at time.Time) {
	if at.After(s.last) {
		s.longest = max(s.longest, at.Sub(s.last))
		s.last = at
	}
}

// until is the longest silence, with the one that goes on now.
func (s *silence) until(now time.Time) time.Duration { return max(s.longest, now.Sub(s.last)) }

// tally counts numbered probes of one address that were never answered. Those that may still be on their way are not counted: a
// probe is lost when a later one has been answered.
type tally struct {
	next uint32 // the number after the highest that was answered, or the first that counts
	lost map[uint32]bool
}

// maxLost bounds the numbers that are kept for answers that are late; more are not counted.
const maxLost = 1 << 16

// answered takes in the answer to one probe.
func (t *tally) answered(number uint32) {
	if ahead := int32(number - t.next); ahead < 0 {
		delete(t.lost, number) // it was late
		return
	}
	if t.lost == nil {
		t.lost = map[uint32]bool{}
	}
	for ; t.next != number && len(t.lost) < maxLost; t.next++ {
		t.lost[t.next] = true
	}
	t.next = number + 1
}
