package recording

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// PlayOptions say how a recording is played.
type PlayOptions struct {
	Speed     float64       // 2 is twice as fast; default 1
	IdleLimit time.Duration // no pause is longer than this; 0 for as long as they were
	// Wait sleeps, and returns early with an error when the context ends.
	Wait func(context.Context, time.Duration) error
}

// Play writes a recording to a terminal at its pace. What could make that terminal do more than show it is left out: whoever looks at a recording does
// not let its maker set the title or the clipboard, or ask the terminal questions, whose answers would be typed into the viewer's shell.
func (r *Reader) Play(ctx context.Context, into io.Writer, options PlayOptions) error {
	if options.Speed == 0 {
		options.Speed = 1
	}
	var harmless Harmless
	var before time.Duration
	for {
		event, err := r.Next()
		if errors.Is(err, io.EOF) {
			// What the session may have left behind: colours, a hidden cursor, the alternate screen, the mouse.
			_, err = io.WriteString(into, "\x1b[0m\x1b[?25h\x1b[?1049l\x1b[?1000l\x1b[?2004l\r\n")
			return err
		}
		if err != nil {
			return err
		}
		pause := max(event.At-before, 0)
		before = max(event.At, before)
		if options.IdleLimit > 0 {
			pause = min(pause, options.IdleLimit)
		}
		if err := options.Wait(ctx, time.Duration(float64(pause)/options.Speed)); err != nil {
			return err
		}
		switch event.Kind {
		case Output:
			_, err = into.Write(harmless.Filter([]byte(event.Data)))
		case Marker:
			if r.Header.Session.Kind == "sftp" { // there is nothing else to see
				_, err = fmt.Fprintf(into, "%s\r\n", harmless.Filter([]byte(event.Data)))
			}
		}
		if err != nil {
			return err
		}
	}
}

// Harmless lets through what draws on a terminal, and drops what makes it answer or changes anything beyond its screen. Its zero value is ready.
type Harmless struct {
	escapes escapes
	lead    bool // the first byte of a character was held back, which may be one of the control characters of ISO 6429
}

// Filter returns what may be shown of a part of terminal output. Sequences may be split over calls.
func (h *Harmless) Filter(data []byte) []byte {
	out := make([]byte, 0, len(data))
	for _, b := range data {
		if h.lead {
			h.lead = false
			if b <= 0x9f { // U+0080 to U+009F: some terminals take them for the beginning of a sequence
				continue
			}
			out = append(out, 0xc2)
		}
		inside, complete := h.escapes.step(b)
		switch {
		case !inside && b == 0xc2:
			h.lead = true
		case complete && draws(h.escapes.sequence):
			out = append(append(out, 0x1b), h.escapes.sequence...)
		case inside || complete:
		case b == 0x05 || b == 0x07: // enquiry, and the bell
		default:
			out = append(out, b)
		}
	}
	return out
}

// draws tells whether a sequence only draws: control sequences except those that the terminal answers or that resize and move its window, and the
// short ones that save, restore and choose character sets.
func draws(sequence []byte) bool {
	final := sequence[len(sequence)-1]
	switch sequence[0] {
	case '[':
		switch final {
		case 'c', 'n', 'p', 'q', 't', 'u', 'w', 'x', 'y', 'z', 'i': // reports, requests for them, window, printer
			return final == 'u' && len(sequence) == 2 // restore the cursor
		}
		return true
	case '(', ')', '*', '+':
		return len(sequence) == 2
	case '7', '8', 'D', 'E', 'H', 'M', '=', '>':
		return len(sequence) == 1
	}
	return false
}
