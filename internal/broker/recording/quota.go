package recording

import (
	"errors"
	"sync/atomic"
)

// ErrQuota is the error of a recording that is not begun or continued since it would go beyond its Quota.
var ErrQuota = errors.New("the recordings of the session are as large as they may be")

// Quota bounds what the recordings of one session may take of the disk together, however many they are: one session must not fill it. A recording that meets
// the bound ends there: it goes beyond it by what waits to be written (flushAt) and one event at most. It is safe for concurrent use; a nil one has no bound.
type Quota struct{ left atomic.Int64 }

// NewQuota makes a quota of so many bytes.
func NewQuota(bytes int64) *Quota {
	q := &Quota{}
	q.left.Store(bytes)
	return q
}

// ofFile is what a file costs beside its bytes: a block that is begun, and its place in the folder and the index.
const ofFile = 4 << 10

func (q *Quota) take(bytes int) {
	if q != nil {
		q.left.Add(-int64(bytes))
	}
}

func (q *Quota) over() bool { return q != nil && q.left.Load() <= 0 }
