package recording

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func testStore(t *testing.T, change func(*Options)) *Store {
	t.Helper()
	options := Options{Directory: t.TempDir(), MinFree: 1, Free: func(string) (uint64, error) { return 1 << 40, nil }}
	if change != nil {
		change(&options)
	}
	store, err := NewStore(options)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// sealedStore is one whose recordings are encrypted.
func sealedStore(t *testing.T) (*Store, *age.X25519Identity) {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	must(t, err)
	return testStore(t, func(o *Options) { o.Recipients = []age.Recipient{identity.Recipient()} }), identity
}

func header(n byte) Header {
	id := NewSessionID(began.Add(time.Duration(n)*time.Minute), [8]byte{n}) + ".1"
	return Header{Width: 80, Height: 24, Timestamp: began.Unix(), Command: "/bin/sh", Session: About{
		ID: id, Session: strings.TrimSuffix(id, ".1"), Who: "alice", Target: "db1:22", Account: "postgres", Gateway: "gw1", Kind: "shell", Began: "2026-03-01T12:00:00Z",
	}}
}

func begin(t *testing.T, s *Store, h Header) *Writer {
	t.Helper()
	w, err := s.Begin(h, nil)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func events(t *testing.T, r *Reader) []Event {
	t.Helper()
	var all []Event
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
}

func openID(t *testing.T, s *Store, id string, identities ...age.Identity) *Reader {
	t.Helper()
	r, err := s.Find(id, identities)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// TestFile: what a plain recording looks like, byte by byte: any player of asciicast reads it.
func TestFile(t *testing.T) {
	store := testStore(t, nil)
	w := begin(t, store, header(0))
	must(t, w.Output(1500*time.Millisecond, []byte("caf\xc3")), w.Output(2*time.Second, []byte("\xa9 \x1b[1m\"x\"\\\r\n")), w.Resize(3*time.Second, 120, 40), w.Mark(4*time.Second, "sftp: put a"), w.Close(5*time.Second))
	got, err := os.ReadFile(filepath.Join(store.options.Directory, w.Name()))
	must(t, err)
	_, lines, _ := strings.Cut(string(got), "\n")
	want := `[1.500000, "o", "caf"]
[2.000000, "o", "é \u001b[1m\"x\"\\\r\n"]
[3.000000, "r", "120x40"]
[4.000000, "m", "sftp: put a"]
[5.000000, "m", "end of session"]
`
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
	if w.Name() != "2026-03-01/20260301T120000Z-0000000000000000.1.cast" {
		t.Error(w.Name())
	}
}

// TestEventsRead: what is written is read, whatever text it is and wherever it is split, plain or encrypted.
func TestEventsRead(t *testing.T) {
	n := byte(0)
	sealed, identity := sealedStore(t)
	stores := []*Store{testStore(t, nil), sealed}
	rapid.Check(t, func(rt *rapid.T) {
		n++
		text := []byte(rapid.String().Draw(rt, "text"))
		cuts := rapid.SliceOfN(rapid.IntRange(0, len(text)), 0, 5).Draw(rt, "cuts")
		flush := rapid.Bool().Draw(rt, "flush")
		slices.Sort(cuts)
		for _, store := range stores {
			h := header(n % 60)
			h.Session.ID = fmt.Sprintf("%s.%d", h.Session.ID, time.Now().UnixNano())
			w := begin(t, store, h)
			from := 0
			for i, cut := range append(cuts, len(text)) {
				must(t, w.Output(time.Duration(i)*time.Second, text[from:cut]))
				if flush {
					must(t, w.Flush(time.Duration(i)*time.Second))
				}
				from = cut
			}
			must(t, w.Close(time.Hour))
			r, err := store.Find(h.Session.ID, []age.Identity{identity})
			must(t, err)
			var got strings.Builder
			for _, e := range events(t, r) {
				if e.Kind == Output {
					got.WriteString(e.Data)
				}
			}
			if got.String() != string(text) || !r.Whole() {
				rt.Fatalf("%q was read as %q, whole %v", text, got.String(), r.Whole())
			}
			r.Close()
		}
	})
}

// TestAnyBytes: bytes that are no text are replaced, and the file is still one that reads.
func TestAnyBytes(t *testing.T) {
	store := testStore(t, nil)
	w := begin(t, store, header(0))
	must(t, w.Output(0, []byte("a\xff\xfeb\xe2\x82")), w.Output(0, bytes.Repeat([]byte{0x80, 0}, 100_000)), w.Output(0, []byte{0xe2}), w.Close(time.Second))
	for _, e := range events(t, openID(t, store, header(0).Session.ID)) {
		if !utf8.ValidString(e.Data) {
			t.Errorf("%q", e.Data)
		}
	}
}

// TestCrash: a recording that is cut off anywhere reads up to its last whole line, or frame, and says that it has no end.
func TestCrash(t *testing.T) {
	sealed, identity := sealedStore(t)
	for name, store := range map[string]*Store{"plain": testStore(t, nil), "encrypted": sealed} {
		w := begin(t, store, header(0))
		for i := range 5 {
			must(t, w.Output(time.Duration(i)*time.Second, []byte(fmt.Sprintf("line %d\r\n", i))), w.Flush(time.Duration(i)*time.Second))
		}
		path := filepath.Join(store.options.Directory, w.Name())
		full, err := os.ReadFile(path)
		must(t, err, w.Close(time.Minute))
		for _, cut := range []int{len(full), len(full) - 1, len(full) - 3, len(full) * 3 / 4} {
			must(t, os.WriteFile(path, full[:cut], 0o600), os.RemoveAll(filepath.Join(filepath.Dir(path), indexName)))
			r := openID(t, store, header(0).Session.ID, identity)
			got := events(t, r)
			if want := map[bool]int{true: 5, false: 4}[cut == len(full)]; len(got) != want && cut >= len(full)-3 || len(got) == 0 && cut < len(full)-3 {
				t.Errorf("%s, cut at %d of %d: %d events, want %d", name, cut, len(full), len(got), want)
			}
			list, err := store.List(10, nil)
			must(t, err)
			if r.Whole() || len(list) != 1 || list[0].State != Unended || list[0].About.Who != "alice" {
				t.Errorf("%s: whole %v, listed as %+v", name, r.Whole(), list)
			}
		}
	}
}

// TestFramesBelongTogether: who can write to the disk, but has no key, cannot drop, exchange or borrow parts of an encrypted recording unnoticed.
func TestFramesBelongTogether(t *testing.T) {
	store, identity := sealedStore(t)
	w := begin(t, store, header(0))
	path := filepath.Join(store.options.Directory, w.Name())
	var parts [][]byte
	read := func() {
		data, err := os.ReadFile(path)
		must(t, err)
		parts = append(parts, data[len(bytes.Join(parts, nil)):])
	}
	read()
	for i := range 2 {
		must(t, w.Output(0, []byte{'a' + byte(i)}), w.Flush(0))
		read()
	}
	must(t, w.Close(0))
	read()
	outcome := func(file ...[]byte) string {
		must(t, os.WriteFile(path, bytes.Join(file, nil), 0o600))
		r, err := store.Find(header(0).Session.ID, []age.Identity{identity})
		if err != nil {
			return err.Error()
		}
		defer r.Close()
		if _, _, err := r.length(); err != nil {
			return err.Error()
		}
		return map[bool]string{true: "whole", false: "cut off"}[r.Whole()]
	}
	if got := outcome(parts...); got != "whole" {
		t.Errorf("as written: %s", got)
	}
	if got := outcome(parts[0], parts[1]); got != "cut off" {
		t.Errorf("without its end: %s", got)
	}
	foreign := begin(t, store, header(1))
	borrowed, err := os.ReadFile(filepath.Join(store.options.Directory, foreign.Name()))
	must(t, err, foreign.Close(0))
	_, borrowed, _ = bytes.Cut(borrowed, []byte("\n")) // its first frame
	_, own, _ := bytes.Cut(parts[0], []byte("\n"))
	clear := parts[0][:len(parts[0])-len(own)]
	for name, got := range map[string]string{
		"borrowed":    outcome(clear, borrowed, parts[1]),
		"one dropped": outcome(parts[0], parts[2], parts[3]), "exchanged": outcome(parts[0], parts[2], parts[1], parts[3]), "twice": outcome(parts[0], parts[1], parts[1], parts[2]),
	} {
		if !strings.Contains(got, "is not the one that belongs there") {
			t.Errorf("%s: %s", name, got)
		}
	}
	_, err = store.Find(header(0).Session.ID, nil)
	if !errors.Is(err, ErrSealed) {
		t.Errorf("without identity: %v", err)
	}
	other, err := age.GenerateX25519Identity()
	must(t, err)
	if _, err = store.Find(header(0).Session.ID, []age.Identity{other}); !errors.Is(err, ErrSealed) {
		t.Errorf("with another identity: %v", err)
	}
}

// TestExchangedHeader: the first line of an encrypted recording says who, where and when in clear text. Who cannot read the recording cannot give it to another.
func TestExchangedHeader(t *testing.T) {
	store, identity := sealedStore(t)
	w := begin(t, store, header(0))
	must(t, w.Output(0, []byte("a")), w.Flush(0), w.Output(0, []byte("b")), w.Close(0))
	path := filepath.Join(store.options.Directory, w.Name())
	data, err := os.ReadFile(path)
	must(t, err)
	first, frames, _ := bytes.Cut(data, []byte("\n"))
	outcome := func(first []byte, frames ...[]byte) (string, bool) {
		must(t, os.WriteFile(path, bytes.Join(append([][]byte{first, []byte("\n")}, frames...), nil), 0o600))
		r, err := Open(path, []age.Identity{identity})
		if err != nil {
			return err.Error(), false
		}
		defer r.Close()
		if _, _, err := r.length(); err != nil {
			return err.Error(), r.Older()
		}
		return map[bool]string{true: "whole", false: "cut off"}[r.Whole()], r.Older()
	}
	who := header(0).Session
	other := func(format string, about About) []byte {
		line, err := json.Marshal(clearHeader{Format: format, Session: about})
		must(t, err)
		return line
	}
	frame := func(h frameHeader, lines string) []byte {
		data, err := seal(store.options.Recipients, h, []byte(lines))
		must(t, err)
		return data
	}
	mallory := who
	mallory.Who = "mallory"
	inner, err := json.Marshal(Header{Version: 2, Session: who})
	must(t, err)
	forged, err := json.Marshal(Header{Version: 2, Session: mallory})
	must(t, err)
	end := "[1, \"m\", \"" + endMark + "\"]\n"
	for name, c := range map[string]struct {
		first  []byte
		frames [][]byte
		want   string
		older  bool
	}{
		"as written":                      {first, [][]byte{frames}, "whole", false},
		"another person":                  {other(encryptedFormat, mallory), [][]byte{frames}, "was exchanged", false},
		"and said to be older":            {other(encryptedFormat1, mallory), [][]byte{frames}, "was exchanged", false},
		"the same, said to be older":      {other(encryptedFormat1, who), [][]byte{frames}, "was exchanged", false},
		"with a beginning of one's own":   {other(encryptedFormat, mallory), [][]byte{frame(frameHeader{ID: who.ID, First: firstHash(other(encryptedFormat, mallory))}, string(forged)+"\n"), rest(frames)}, "was exchanged", false},
		"an older one":                    {other(encryptedFormat1, who), [][]byte{frame(frameHeader{ID: who.ID, Last: true}, string(inner)+"\n"+end)}, "whole", true},
		"an older one, of another person": {other(encryptedFormat1, mallory), [][]byte{frame(frameHeader{ID: who.ID, Last: true}, string(inner)+"\n"+end)}, "was exchanged", false},
		"without the hash, and not older": {first, [][]byte{frame(frameHeader{ID: who.ID, Last: true}, string(inner)+"\n"+end)}, "was exchanged", false},
	} {
		if got, older := outcome(c.first, c.frames...); !strings.Contains(got, c.want) || older != c.older {
			t.Errorf("%s: %s, older: %v, want %q", name, got, older, c.want)
		}
	}
}

// rest is what follows the first of some frames.
func rest(frames []byte) []byte { return frames[4+binary.BigEndian.Uint32(frames):] }

// TestNothingInClear: an encrypted recording shows who and where, and neither the command nor the output.
func TestNothingInClear(t *testing.T) {
	store, _ := sealedStore(t)
	h := header(0)
	h.Command = "mysql -psecret"
	w := begin(t, store, h)
	must(t, w.Output(0, []byte("secret")), w.Close(0))
	data, err := os.ReadFile(filepath.Join(store.options.Directory, w.Name()))
	must(t, err)
	if bytes.Contains(data, []byte("secret")) || bytes.Contains(data, []byte("mysql")) {
		t.Error("the secret is in the file")
	}
}

// failingFile fails when it is told to, as a full disk does.
type failingFile struct {
	file
	fail bool
}

var errNoSpace = errors.New("no space left on device")

func (f *failingFile) Write(p []byte) (int, error) {
	if f.fail {
		return 0, errNoSpace
	}
	return f.file.Write(p)
}

// TestWriterSaysSo: once a recording has a gap, every further call says so, and the index does not call it whole.
func TestWriterSaysSo(t *testing.T) {
	store := testStore(t, nil)
	w := begin(t, store, header(0))
	must(t, w.Output(0, []byte("kept\r\n")), w.Flush(0))
	w.file = &failingFile{file: w.file, fail: true}
	must(t, w.Output(0, []byte("lost")))
	if err := w.Flush(time.Second); !errors.Is(err, errNoSpace) {
		t.Errorf("flush: %v", err)
	}
	if err := w.Output(time.Second, []byte("x")); !errors.Is(err, errNoSpace) {
		t.Errorf("output: %v", err)
	}
	if err := w.Close(time.Second); !errors.Is(err, errNoSpace) {
		t.Errorf("close: %v", err)
	}
	list, err := store.List(1, nil)
	must(t, err)
	if len(list) != 1 || list[0].State != Unended {
		t.Errorf("listed as %+v", list)
	}
}

// TestBounded: however much comes at once, no more than a few lines wait in memory.
func TestBounded(t *testing.T) {
	store := testStore(t, nil)
	w := begin(t, store, header(0))
	for range 64 {
		must(t, w.Output(0, bytes.Repeat([]byte{0x1b}, 32<<10)))
		if len(w.waiting) > flushAt+6*maxData {
			t.Fatalf("%d bytes wait", len(w.waiting))
		}
	}
	must(t, w.Close(0))
	if got := events(t, openID(t, store, header(0).Session.ID)); len(got) < 64 {
		t.Errorf("%d events", len(got))
	}
}

// TestScreen: what a terminal shows is what is found, not what was sent.
func TestScreen(t *testing.T) {
	for _, c := range []struct{ name, output, want string }{
		{"plain", "one\r\ntwo\r\n", "one|two"},
		{"colours", "\x1b[1;31mred\x1b[0m text", "red text"},
		{"a title", "\x1b]0;my title\x07$ ls", "$ ls"},
		{"a title ended by ST", "\x1b]0;my title\x1b\\$ ls", "$ ls"},
		{"a string that is broken off", "\x1b]0;title\x1b[1mseen", "seen"},
		{"corrected by backspace", "sl\b\bls -l", "ls -l"},
		{"erased to the end", "ls /etc\b\b\b\x1b[Ktmp", "ls /tmp"},
		{"a progress bar", " 10%\r 50%\r100%\n", "100%"},
		{"a character deleted", "abXc\b\b\x1b[P", "abc"},
		{"a character inserted", "ac\b\x1b[@b", "abc"},
		{"moved along the line", "a\x1b[3Cb\x1b[1Gc", "c   b"},
		{"lines by position", "\x1b[1;1Htop\x1b[5;1Hbelow", "top|below"},
		{"characters of more bytes", "caf\xc3\xa9 \xe2\x82\xac", "café €"},
		{"a column beyond all", "\x1b[999999999999Gx\x1b[9999999999@y", strings.Repeat(" ", maxColumns-1) + "x|y"},
		{"a line without end", strings.Repeat("x", maxColumns) + "yz", strings.Repeat("x", maxColumns) + "|yz"},
	} {
		for _, step := range []int{1, len(c.output)} {
			var s screen
			var lines []Line
			for from := 0; from < len(c.output); from += step {
				lines = append(lines, s.write(0, c.output[from:from+step])...)
			}
			lines = s.leave(0, lines)
			var texts []string
			for _, l := range lines {
				texts = append(texts, l.Text)
			}
			if got := strings.Join(texts, "|"); got != c.want {
				t.Errorf("%s, %d bytes at a time: %q, want %q", c.name, step, got, c.want)
			}
		}
	}
}

// TestPlay: at the given speed, without longer pauses than wanted, and without what would harm the viewer's terminal.
func TestPlay(t *testing.T) {
	store := testStore(t, nil)
	w := begin(t, store, header(0))
	must(t, w.Output(time.Second, []byte("a\x1b]52;c;ZXZpbA==\x07b")), w.Output(61*time.Second, []byte("\x1b[6n\x1b[1mc\u009b6nd\x1b[")), w.Output(62*time.Second, []byte("31me")), w.Close(63*time.Second))
	var out bytes.Buffer
	var waits []time.Duration
	must(t, openID(t, store, header(0).Session.ID).Play(context.Background(), &out, PlayOptions{Speed: 2, IdleLimit: 4 * time.Second, Wait: func(_ context.Context, d time.Duration) error {
		waits = append(waits, d)
		return nil
	}}))
	if got, ended := strings.CutSuffix(out.String(), restore); !ended || got != "ab\x1b[1mc6nd\x1b[31me" {
		t.Errorf("%q", got)
	}
	if diff := cmp.Diff([]time.Duration{500 * time.Millisecond, 2 * time.Second, 500 * time.Millisecond, 500 * time.Millisecond}, waits); diff != "" {
		t.Error(diff)
	}
	stop := errors.New("stopped")
	out.Reset()
	if err := openID(t, store, header(0).Session.ID).Play(context.Background(), &out, PlayOptions{Wait: func(context.Context, time.Duration) error { return stop }}); !errors.Is(err, stop) {
		t.Errorf("stopped: %v", err)
	}
	if out.String() != restore {
		t.Errorf("a viewer who stopped is left with %q", out.String())
	}
}

func TestText(t *testing.T) {
	store := testStore(t, nil)
	w := begin(t, store, header(0))
	must(t, w.Output(time.Second, []byte("$ ls\r\nfile\r\n")), w.Close(2*time.Second))
	var out strings.Builder
	must(t, openID(t, store, header(0).Session.ID).Text(&out))
	if want := "    1.000  $ ls\n    1.000  file\n    2.000  [end of session]\n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
}

// FuzzOpen: no file makes the reader fail, or read without end.
func FuzzOpen(f *testing.F) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		f.Fatal(err)
	}
	first, _ := json.Marshal(header(0))
	f.Add(append(first, "\n[1, \"o\", \"x\"]\n"...))
	clear, _ := json.Marshal(clearHeader{Format: encryptedFormat, Session: header(0).Session})
	frame, _ := seal([]age.Recipient{identity.Recipient()}, frameHeader{ID: header(0).Session.ID, Last: true}, []byte("[1, \"o\", \"x\"]\n"))
	f.Add(append(append(clear, '\n'), frame...))
	f.Fuzz(func(t *testing.T, data []byte) {
		lines, err := openLines(bytes.NewReader(data), []age.Identity{identity})
		for err == nil {
			var line []byte
			if line, err = lines.line(); err == nil {
				_, _ = parseEvent(line)
			}
		}
	})
}

// FuzzTerminal: no output makes the readers of sequences fail, a line stays within its bounds, and no question to the terminal gets through.
func FuzzTerminal(f *testing.F) {
	f.Add([]byte("\x1b[6n\x1b]52;c;x\x07\x1bP+q\x1b\\\x1b[31mx\x1b\x1b[c"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s screen
		for _, l := range s.write(0, string(data)) {
			if utf8.RuneCountInString(l.Text) > maxColumns {
				t.Errorf("%d columns", len(l.Text))
			}
		}
		var h Harmless
		out := h.Filter(data)
		for _, bad := range []string{"\x1b]", "\x1bP", "\x1b_", "\x1b[c", "\x1b[6n", "\x1b[5n", "\x1bZ"} {
			if bytes.Contains(out, []byte(bad)) {
				t.Errorf("%q lets %q through", data, bad)
			}
		}
	})
}
