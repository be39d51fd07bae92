package recording

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
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
func (r *Reader) Play(ctx context.Context, into io.Writer, options PlayOptions) (err error) {
	if options.Speed == 0 {
		options.Speed = 1
	}
	// However it ends, by the viewer's Ctrl-C too, the terminal is as it was.
	defer func() {
		_, restored := io.WriteString(into, restore)
		err = errors.Join(err, restored)
	}()
	var harmless Harmless
	var before time.Duration
	for {
		event, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
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
		case Input:
			if r.Header.Session.Plain {
				_, err = into.Write(harmless.Filter([]byte(typedMark + event.Data)))
			}
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

// restore undoes what a session may have left behind on the viewer's terminal, as far as draws lets it through: colours, a character set, a scrolling region,
// insertion, a hidden cursor, reverse video, no wrapping, the alternate screen. The cursor is saved and restored, since giving up the region moves it.
const restore = "\x0f\x1b(B\x1b[0m\x1b7\x1b[r\x1b8\x1b[4l\x1b[?5l\x1b[?7h\x1b[?25h\x1b[?1049l\r\n"

// Harmless lets through what draws on a terminal, and drops what makes it answer or changes anything beyond its screen. Its zero value is ready.
type Harmless struct {
	escapes escapes
	rest    int  // bytes that the character under way still has
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
		case h.belongs(b):
			out = append(out, b)
		}
	}
	return out
}

// belongs tells whether a byte may stand where it does. A sequence may have swallowed the first byte of a character: what follows of it would be a control
// character to some terminals, or become one with the byte before.
func (h *Harmless) belongs(b byte) bool {
	switch {
	case b < 0x80:
		h.rest = 0
	case b < 0xc0:
		if h.rest == 0 {
			return false
		}
		h.rest--
	case b < 0xe0:
		h.rest = 1
	case b < 0xf0:
		h.rest = 2
	default:
		h.rest = 3
	}
	return true
}

// draws tells whether a sequence only draws: control sequences except those that the terminal answers, that resize and move its window, or that change what the
// keyboard and the mouse send; and the short ones that save, restore and choose character sets. Within a sequence terminals obey control characters,
// so that one with anything but its own characters in it is none.
func draws(sequence []byte) bool {
	final := sequence[len(sequence)-1]
	switch sequence[0] {
	case '[':
		return len(sequence) > 1 && drawsControl(sequence[1:len(sequence)-1], final)
	case '(', ')', '*', '+':
		return len(sequence) == 2 && final >= '0' && final <= '~'
	case '7', '8', 'D', 'E', 'H', 'M':
		return len(sequence) == 1
	}
	return false
}

// modes are those of private modes (ESC [ ? N h) that only concern the screen: reverse video, wrapping, blinking and visible cursor, alternate screens, and
// drawing at once. All others change what the terminal sends, or its size.
var modes = map[string]bool{"5": true, "7": true, "12": true, "25": true, "47": true, "1047": true, "1048": true, "1049": true, "2026": true}

func drawsControl(parameters []byte, final byte) bool {
	private := false
	for i, b := range parameters {
		switch {
		case b >= '0' && b <= ';':
		case i == 0 && b == '?':
			private = true
		default:
			return false
		}
	}
	switch {
	case (final == 'h' || final == 'l') && private:
		for _, mode := range strings.Split(string(parameters[1:]), ";") {
			if !modes[mode] {
				return false
			}
		}
		return true
	case final == 'h' || final == 'l':
		return string(parameters) == "4" // insertion
	case private:
		return final == 'J' || final == 'K'
	case final == 'u' || final == 's': // restore and save the cursor
		return len(parameters) == 0
	}
	return final >= '@' && final <= 'Z' || final == '`' || final == 'a' || final == 'b' || final == 'd' || final == 'e' || final == 'f' || final == 'g' || final == 'm' || final == 'r'
}
