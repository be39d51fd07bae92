package recording

import (
	"slices"
	"time"
	"unicode/utf8"
)

// escapes takes terminal output apart into what is shown and the sequences that control the terminal (ECMA-48), which may be split
// anywhere over calls. Its zero value is ready.
type escapes struct {
	state    escapeState
	sequence []byte // of the sequence under way, without the escape character
}

type escapeState uint8

const (
	plainText      escapeState = iota
	escaped                    // after ESC
	control                    // after ESC [ : parameters, then one final byte
	oneMore                    // after ESC and an intermediate byte: one final byte
	text                       // in a string (OSC, DCS, APC, PM, SOS): up to BEL or ESC \
	textEscaped                // in a string, after ESC
	maxSequence    = 4096      // a longer sequence is none: it is given up, and what follows is text again
	maxTextToClose = 1 << 20   // a string that is not closed by then is given up as well
)

// step takes one byte. It returns whether the byte belongs to a sequence, and whether that is complete with it.
func (e *escapes) step(b byte) (inside, complete bool) {
	switch e.state {
	case plainText:
		if b != 0x1b {
			return false, false
		}
		e.state, e.sequence = escaped, e.sequence[:0]
		return true, false
	case escaped:
		e.sequence = append(e.sequence, b)
		switch {
		case b == '[':
			e.state = control
		case b == ']' || b == 'P' || b == '_' || b == '^' || b == 'X':
			e.state = text
		case b >= 0x20 && b <= 0x2f:
			e.state = oneMore
		default:
			e.state = plainText
			return true, true
		}
		return true, false
	case control, oneMore:
		e.sequence = append(e.sequence, b)
		final := b >= 0x40 && b <= 0x7e || e.state == oneMore && b >= 0x30
		if b == 0x1b || b == 0x18 || b == 0x1a || len(e.sequence) >= maxSequence { // cancelled
			e.state = plainText
			if b == 0x1b {
				e.state, e.sequence = escaped, e.sequence[:0]
			}
			return true, false
		}
		if final {
			e.state = plainText
		}
		return true, final
	case textEscaped:
		if b != '\\' { // the string is broken off, and another sequence begins: terminals do so, and nothing may be hidden from a search by it
			e.state, e.sequence = escaped, e.sequence[:0]
			return e.step(b)
		}
		e.state = plainText
		return true, true
	}
	e.sequence = append(e.sequence, b)
	switch {
	case b == 0x1b:
		e.state = textEscaped
	case b == 0x07 || b == 0x18 || b == 0x1a || len(e.sequence) >= maxTextToClose:
		e.state = plainText
		return true, true
	}
	return true, false
}

// maxColumns bounds a line of text, in characters. A longer one is continued as the next.
const maxColumns = 4096

// Line is one line of text that a terminal showed.
type Line struct {
	At   time.Duration // when it was complete
	Text string
}

// screen turns terminal output into lines of text as they looked when the cursor left them: control sequences are gone, and what was erased or
// overwritten on its line (a corrected command, a progress bar) is not there. Full-screen programs yield the text that they wrote, in pieces.
type screen struct {
	escapes escapes
	line    []rune
	column  int
	partial []byte // of a character
}

// write takes output and returns the lines that it completed.
func (s *screen) write(at time.Duration, data string) []Line {
	var lines []Line
	for i := range len(data) {
		b := data[i]
		inside, complete := s.escapes.step(b)
		switch {
		case complete:
			if moved := s.control(s.escapes.sequence); moved {
				lines = s.leave(at, lines)
			}
		case inside:
		case b == '\n' || b == '\v' || b == '\f':
			lines = s.leave(at, lines)
		case b == '\r':
			s.column = 0
		case b == '\b':
			s.column = max(s.column-1, 0)
		case b == '\t' || b >= 0x20 && b != 0x7f:
			if s.column >= maxColumns {
				lines = s.leave(at, lines)
			}
			if b == '\t' {
				b = ' '
			}
			s.character(b)
		}
	}
	return lines
}

// character puts bytes together to characters.
func (s *screen) character(b byte) {
	s.partial = append(s.partial, b)
	if utf8.FullRune(s.partial) {
		r, _ := utf8.DecodeRune(s.partial)
		s.partial = s.partial[:0]
		if r >= 0xa0 || r < 0x80 { // what is between are control characters to some terminals
			s.show(r)
		}
	}
}

func (s *screen) show(r rune) {
	for len(s.line) <= s.column {
		s.line = append(s.line, ' ')
	}
	s.line[s.column] = r
	s.column++
}

// leave ends the line.
func (s *screen) leave(at time.Duration, lines []Line) []Line {
	if text := trimRight(s.line); text != "" {
		lines = append(lines, Line{At: at, Text: text})
	}
	s.line, s.column = s.line[:0], 0
	return lines
}

func trimRight(line []rune) string {
	end := len(line)
	for end > 0 && line[end-1] == ' ' {
		end--
	}
	return string(line[:end])
}

// control follows the sequences that change the line. It tells whether the cursor left it.
func (s *screen) control(sequence []byte) (left bool) {
	if len(sequence) < 2 || sequence[0] != '[' {
		return false
	}
	count, given := 0, false
	for _, b := range sequence[1 : len(sequence)-1] {
		if b < '0' || b > '9' {
			break
		}
		count, given = min(count*10+int(b-'0'), maxColumns), true
	}
	steps := max(count, 1)
	switch sequence[len(sequence)-1] {
	case 'C': // to the right
		s.column = min(s.column+steps, maxColumns)
	case 'D': // to the left
		s.column = max(s.column-steps, 0)
	case 'G': // to a column
		s.column = steps - 1
	case 'K': // erase: 0 to the end, 1 to the cursor, 2 all
		s.erase(count)
	case 'P': // delete characters
		if s.column < len(s.line) {
			s.line = append(s.line[:s.column], s.line[min(s.column+steps, len(s.line)):]...)
		}
	case '@': // make room
		if s.column < len(s.line) {
			room := slices.Repeat([]rune{' '}, steps)
			s.line = slices.Insert(s.line, s.column, room...)
			s.line = s.line[:min(len(s.line), maxColumns)]
		}
	case 'A', 'B', 'E', 'F', 'H', 'f', 'd': // to another line
		return true
	case 'J': // erase the screen
		return given
	}
	return false
}

func (s *screen) erase(what int) {
	switch what {
	case 0:
		s.line = s.line[:min(s.column, len(s.line))]
	case 1:
		for i := range min(s.column+1, len(s.line)) {
			s.line[i] = ' '
		}
	case 2:
		s.line = s.line[:0]
	}
}
