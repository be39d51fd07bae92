package recording

import (
	"strings"
	"testing"
)

// TestHarmless: what a session wrote to get at the terminal of whoever looks at it later, and what is left of it.
func TestHarmless(t *testing.T) {
	for _, c := range []struct{ why, in, want string }{
		{"text and colours", "a\x1b[1;31mb\x1b[0mé€😀", "a\x1b[1;31mb\x1b[0mé€😀"},
		{"a full-screen program", "\x1b[?1049h\x1b[?25l\x1b[2J\x1b[1;1H\x1b[K\x1b(0q\x1b(B\x1b7\x1b8", "\x1b[?1049h\x1b[?25l\x1b[2J\x1b[1;1H\x1b[K\x1b(0q\x1b(B\x1b7\x1b8"},
		{"a title, by a control character within a colour", "\x1b[\u009d2;mitle\x07", "itle"},
		{"an enquiry within a colour", "\x1b[\x05m", ""},
		{"a control character begun by a character set", "\x1b(\u009d2;title", "2;title"},
		{"the rest of a character whose beginning a sequence swallowed", "\x1b\u201bx\x1b\u009b6n", "x6n"},
		{"mouse and focus, which would type into the viewer's shell", "\x1b[?1003h\x1b[?1004h\x1b[?1006;25h\x1b[?2048h", ""},
		{"the keyboard", "\x1b[2h\x1b[20h\x1b[>4;2m\x1b[?1h\x1b=\x1b[>1u", ""},
		{"questions and sizes", "\x1b[c\x1b[6n\x1b[?3h\x1b[8;1;1t\x1b[?6n\x1b[>q\x1b[?1$p", ""},
		{"the clipboard", "\x1b]52;c;ZXZpbA==\x1b\\", ""},
	} {
		for _, step := range []int{1, len(c.in)} { // however it is split
			var h Harmless
			var out strings.Builder
			for from := 0; from < len(c.in); from += step {
				out.Write(h.Filter([]byte(c.in[from : from+step])))
			}
			if out.String() != c.want {
				t.Errorf("%s, %d bytes at a time: %q, want %q", c.why, step, out.String(), c.want)
			}
		}
	}
}

// TestTextIsHarmless: control characters of ISO 6429 do not get into text either, nor by notes.
func TestTextIsHarmless(t *testing.T) {
	store := testStore(t, nil)
	w := begin(t, store, header(0))
	must(t, w.Output(0, []byte("a\u009b31mb\n")), w.Mark(0, "sftp: put \x1b]0;x\x07\u009b"), w.Close(0))
	var out strings.Builder
	must(t, openID(t, store, header(0).Session.ID).Text(&out))
	if want := "    0.000  a31mb\n    0.000  [sftp: put ?]0;x??]\n    0.000  [end of session]\n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
}

// TestLineOfTabs: tabs make a line no longer than other characters do.
func TestLineOfTabs(t *testing.T) {
	var s screen
	s.write(0, strings.Repeat("\t", 3*maxColumns))
	if len(s.line) > maxColumns {
		t.Errorf("a line has %d characters, at most %d are wanted", len(s.line), maxColumns)
	}
}
