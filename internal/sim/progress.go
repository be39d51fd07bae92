package sim

import (
	"fmt"
	"io"
	"time"
)

// How often is said how far it is.
const (
	everyOnTerminal = 200 * time.Millisecond
	everyElsewhere  = 30 * time.Second // each time on a line of its own
	quietAtFirst    = time.Second
)

// progress says how far it is: on a terminal in one line that is written over, elsewhere now and then in plain lines.
type progress struct {
	to       io.Writer
	terminal bool
	of, got  uint64
	began    time.Time
	shown    time.Time // when it was said last, or when it began
}

func newProgress(to io.Writer, terminal bool, of uint64, now time.Time) *progress {
	return &progress{to: to, terminal: terminal, of: of, began: now, shown: now}
}

// played notes one more, and says so if it is time to.
func (p *progress) played(wrong uint64, now time.Time) {
	p.got++
	every := everyElsewhere
	if p.terminal {
		every = everyOnTerminal
	}
	if now.Sub(p.began) < quietAtFirst || now.Sub(p.shown) < every {
		return
	}
	p.shown = now
	p.clear()
	rate := float64(p.got) / now.Sub(p.began).Seconds()
	fmt.Fprintf(p.to, "%d of %d seeds, %d failed, %.0f a second, %s left", p.got, p.of, wrong, rate, time.Duration(float64(p.of-p.got)/rate*1e9).Round(time.Second))
	if !p.terminal {
		fmt.Fprintln(p.to)
	}
}

// clear takes the line off a terminal.
func (p *progress) clear() {
	if p.terminal {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}
