package guard

import (
	"bytes"
	"fmt"
	"io"
	"sync/atomic"
)

// lines passes the log on without ever letting the guard wait for who reads it. What does not fit is dropped and counted.
type lines struct {
	queue   chan []byte
	dropped atomic.Uint64
	done    chan struct{}
}

// maxLines bounds what waits to be written.
const maxLines = 256

func newLines(out io.Writer) *lines {
	l := &lines{queue: make(chan []byte, maxLines), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for line := range l.queue {
			if n := l.dropped.Swap(0); n > 0 {
				fmt.Fprintf(out, "%d lines of the log were dropped: whoever reads it was too slow\n", n)
			}
			_, _ = out.Write(line)
		}
	}()
	return l
}

func (l *lines) Write(b []byte) (int, error) {
	select {
	case l.queue <- bytes.Clone(b):
	default:
		l.dropped.Add(1)
	}
	return len(b), nil
}

// close writes what is left. Nothing may be written later.
func (l *lines) close() {
	close(l.queue)
	<-l.done
}
