package steering

import "time"

// Turns is since when each change that a node wants to write has been wanted, by the key of its record. Nodes that want the same wait
// differently long, so that many do not write at once. It belongs to its caller; it has an entry for each record at the most.
type Turns map[string]time.Time

// May says whether a change may be written now, given how long this node waits from when the need arose, or else in what time that is.
// What is not wanted any more is forgotten.
func (t Turns) May(key string, wanted bool, after time.Duration, now time.Time) (may bool, left time.Duration) {
	if !wanted {
		delete(t, key)
		return false, 0
	}
	since, known := t[key]
	if !known {
		since = now
		t[key] = now
	}
	left = since.Add(after).Sub(now)
	return left <= 0, max(left, 0)
}
