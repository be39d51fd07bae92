package agent

import (
	"sync"
	"time"
)

// maxEvents bounds what one agent remembers; the oldest go first.
const maxEvents = 4096

// event is one thing that happened.
type event struct {
	ID      int64
	At      time.Time
	Node    string
	Kind    string
	Subject string
	Message string
	Fields  map[string]string
}

// eventLog keeps the last events and wakes those who follow. It is safe for concurrent use.
type eventLog struct {
	mu    sync.Mutex
	ring  []event
	first int64 // ID of ring[0]
	more  chan struct{}
}

func newEventLog() *eventLog { return &eventLog{first: 1, more: make(chan struct{})} }

func (l *eventLog) add(e event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.ID = l.first + int64(len(l.ring))
	l.ring = append(l.ring, e)
	if over := len(l.ring) - maxEvents; over > 0 {
		l.ring = append([]event(nil), l.ring[over+maxEvents/8:]...)
		l.first += int64(over + maxEvents/8)
	}
	close(l.more)
	l.more = make(chan struct{})
}

// after returns the events behind an ID, and a channel that is closed when there are more.
func (l *eventLog) after(id int64) ([]event, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := max(id+1-l.first, 0)
	if from >= int64(len(l.ring)) {
		return nil, l.more
	}
	return append([]event(nil), l.ring[from:]...), l.more
}
