package lastgood

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/wholefile"
)

var written = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func record(t testing.TB) *Record {
	t.Helper()
	view, err := fleet.NewView("cm", []fleet.Gateway{
		{Key: "cm", Name: "cm.example", Roles: fleet.NewRoles(fleet.CentralManagement, fleet.SearchLocal), Status: fleet.Available},
		{
			Key: "gw1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
			Roles: fleet.ParseRoles([]string{"managed-host", "search-archive"}), Services: []fleet.Service{{Protocol: fleet.SSH, Port: 22}},
			Status: fleet.Unavailable, Why: "the central manager says that it is down", LastSeen: written, Sync: "pending",
			Health: fleet.Health{Known: true, DiskUsed: 12.5, Load5: 0.1, Cores: 8, Sessions: 3},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &Record{Fleet: "f", View: view, Stamp: Stamp{Age: 90 * time.Second, AtLeast: true, Clocks: Clocks{Wall: written, Boot: "boot-1", Since: time.Hour}}}
}

func encoded(t testing.TB, r *Record) []byte {
	t.Helper()
	text, err := Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func open(t testing.TB, dir string) *Shelf {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSaveAndLoad(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "views"))
	if r, err := s.Load("f"); r != nil || err != nil {
		t.Fatalf("of an empty shelf: %v, %v", r, err)
	}
	want := record(t)
	if err := s.Save(want); err != nil {
		t.Fatal(err)
	}
	got, err := s.Load("f")
	if err != nil || !got.View.Alike(want.View) || got.Stamp != want.Stamp || got.Fleet != "f" {
		t.Fatalf("read back: %v, %+v", err, got)
	}
	g, h := got.View.Gateways[1], want.View.Gateways[1]
	if g.Health != h.Health || g.Why != h.Why || !g.LastSeen.Equal(h.LastSeen) || g.Sync != h.Sync || g.Refuses() != h.Refuses() || g.Refuses() == "" {
		t.Errorf("read back: %+v", g)
	}
	if err := errors.Join(s.Forget("f"), s.Forget("f")); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Load("f"); r != nil || err != nil {
		t.Errorf("after it was forgotten: %v, %v", r, err)
	}
}

// Fleets with names that mean something to a file system have files of their own, in the directory.
func TestNamesOfFleets(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "views"))
	for _, name := range []string{"..", "../x", "a/b", "a%2fb", ".", "f"} {
		r := record(t)
		r.Fleet = name
		if err := s.Save(r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	files, _ := filepath.Glob(filepath.Join(dir, "views", "*"+suffix))
	if around, _ := os.ReadDir(dir); len(files) != 6 || len(around) != 1 {
		t.Errorf("files %q", files)
	}
}

// A file that is cut off at any byte is refused, and with the reason.
func TestCutOffAtEveryByte(t *testing.T) {
	text := encoded(t, record(t))
	for n := range text {
		if r, err := Decode("f", text[:n]); r != nil || err == nil {
			t.Fatalf("of %d bytes of %d a view was made", n, len(text))
		}
	}
	if r, err := Decode("f", append(bytes.Clone(text), ' ')); r != nil || err == nil {
		t.Error("with a byte too many a view was made")
	}
}

// So is one in which any bit is wrong, in its first line as well.
func TestEveryBitFlipped(t *testing.T) {
	text := encoded(t, record(t))
	for i := range text {
		for bit := range 8 {
			text[i] ^= 1 << bit
			if r, err := Decode("f", text); r != nil || err == nil {
				t.Fatalf("with bit %d of byte %d flipped a view was made", bit, i)
			}
			text[i] ^= 1 << bit
		}
	}
}

// What is right by its checksum and nothing else: it was written by something else, and is refused too.
func TestRightChecksumOnly(t *testing.T) {
	text := encoded(t, record(t))
	if _, err := Decode("g", text); err == nil || !strings.Contains(err.Error(), `it is of fleet "f", not of g`) {
		t.Errorf("of another fleet: %v", err)
	}
	body := text[bytes.IndexByte(text, '\n')+1:]
	for change, says := range map[[2]string]string{
		{`"status":2`, `"status":3`}:        "which this version does not know",
		{`"central":"cm"`, `"central":"x"`}: "is not among its gateways",
		{`"key":"gw1"`, `"key":"cm"`}:       "is there twice",
		{`{"fleet"`, `{"fleet":7,"x"`}:      "cannot be read",
	} {
		changed := bytes.Replace(body, []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(changed, body) {
			t.Fatalf("%s is not in the text", change[0])
		}
		if r, err := Decode("f", seal(changed)); r != nil || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", change[1], err)
		}
	}
	if _, err := Decode("f", make([]byte, MaxRecord+1)); err == nil {
		t.Error("one that is too long was read")
	}
}

// An unreadable file is told, and replaced by the next view.
func TestUnreadableIsToldAndReplaced(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.Save(record(t)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "f"+suffix)
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	want := "the last good view of fleet f in " + path + " is not used: its length or checksum is not what its first line says: it was cut off or changed"
	if _, err := s.Load("f"); err == nil || err.Error() != want {
		t.Errorf("told: %v", err)
	}
	if err := s.Save(record(t)); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Load("f"); r == nil || err != nil {
		t.Errorf("after it was replaced: %v", err)
	}
}

// A full disk keeps the old view, and says so.
func TestAFullDiskKeepsTheOldView(t *testing.T) {
	s := open(t, t.TempDir())
	if err := s.Save(record(t)); err != nil {
		t.Fatal(err)
	}
	s.disk = wholefile.Disk{Write: func(*os.File, []byte) (int, error) { return 0, syscall.ENOSPC }}
	newer := record(t)
	newer.Stamp.Age = time.Hour
	if err := s.Save(newer); err == nil || !strings.Contains(err.Error(), "keeping the last good view of fleet f (the older one stays)") {
		t.Errorf("told: %v", err)
	}
	if r, err := s.Load("f"); err != nil || r.Stamp.Age != 90*time.Second {
		t.Errorf("afterwards: %v, %+v", err, r)
	}
	s.disk = wholefile.Disk{}
	if err := s.Save(newer); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Load("f"); err != nil || r.Stamp.Age != time.Hour {
		t.Errorf("once there is space: %v, %+v", err, r)
	}
}

// What a killed process leaves beside the file is taken out at the next start, and the file is the old one.
func TestKilledWhileWriting(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, dir).Save(record(t)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"+suffix+wholefile.Partial), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	if r, err := s.Load("f"); r == nil || err != nil {
		t.Errorf("read %v, %v", r, err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("files %v", files)
	}
}

func TestTooLongIsNotKept(t *testing.T) {
	gateways := make([]fleet.Gateway, fleet.MaxGateways)
	for i := range gateways {
		gateways[i] = fleet.Gateway{Key: fmt.Sprintf("%0128d", i), Name: strings.Repeat("n", fleet.MaxName), Why: strings.Repeat("w", 2000)}
	}
	view, err := fleet.NewView(gateways[0].Key, gateways)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Encode(&Record{Fleet: "f", View: view}); err == nil || !strings.Contains(err.Error(), "at most 8388608 are kept") {
		t.Errorf("told: %v", err)
	}
}

// How old a view is after a restart, by what the clocks show then.
func TestAged(t *testing.T) {
	stamp := Stamp{Age: time.Minute, Clocks: Clocks{Wall: written, Boot: "boot-1", Since: time.Hour}}
	tests := []struct {
		name    string
		now     Clocks
		age     time.Duration
		atLeast bool
	}{
		{"the process was restarted", Clocks{written.Add(5 * time.Minute), "boot-1", time.Hour + 5*time.Minute}, 6 * time.Minute, false},
		{"and the clock was set back by a day", Clocks{written.Add(-24 * time.Hour), "boot-1", time.Hour + 5*time.Minute}, 6 * time.Minute, false},
		{"and the clock was set forward by a day", Clocks{written.Add(24 * time.Hour), "boot-1", time.Hour + 5*time.Minute}, 6 * time.Minute, false},
		{"the machine was restarted", Clocks{written.Add(time.Hour), "boot-2", 2 * time.Minute}, 61 * time.Minute, false},
		{"and the clock was set back to before the writing", Clocks{written.Add(-time.Hour), "boot-2", 2 * time.Minute}, 3 * time.Minute, true},
		{"and the clock was set back to just after it", Clocks{written.Add(time.Second), "boot-2", 2 * time.Minute}, 3 * time.Minute, true},
		{"and the clock was set forward", Clocks{written.Add(24 * time.Hour), "boot-2", 2 * time.Minute}, 24*time.Hour + time.Minute, false},
		{"the same boot, with a clock that went back", Clocks{written.Add(time.Minute), "boot-1", time.Minute}, 2 * time.Minute, false},
		{"no boot is known", Clocks{written.Add(time.Hour), "", 3 * time.Hour}, 61 * time.Minute, false},
		{"no boot is known, and the clock was set back", Clocks{written.Add(-time.Hour), "", 3 * time.Hour}, time.Minute, true},
		{"a file from the beginning of time", Clocks{written.Add(1 << 62), "boot-2", 1 << 62}, 1<<62 + time.Minute, false},
	}
	for _, test := range tests {
		unknown := stamp
		if test.now.Boot == "" {
			unknown.Boot = ""
		}
		if age, atLeast := unknown.Aged(test.now); age != test.age || atLeast != test.atLeast {
			t.Errorf("%s: %s, at least %v; want %s, %v", test.name, age, atLeast, test.age, test.atLeast)
		}
	}
}

// Whatever clocks do, a view is never younger than it was when it was written, nor than the machine's own time since then.
func TestNoStepMakesAViewFresh(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		span := func(what string, least int64) time.Duration {
			return time.Duration(rapid.Int64Range(least, 1<<50).Draw(t, what))
		}
		stamp := Stamp{Age: span("age", 0), AtLeast: rapid.Bool().Draw(t, "at least"), Clocks: Clocks{Wall: written, Boot: rapid.SampledFrom([]string{"", "1"}).Draw(t, "boot"), Since: span("since", 0)}}
		now := Clocks{Wall: written.Add(span("step", -1<<50)), Boot: rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "boot now"), Since: span("since now", 0)}
		age, atLeast := stamp.Aged(now)
		if age < stamp.Age || stamp.AtLeast && !atLeast {
			t.Fatalf("%+v at %+v: %s", stamp, now, age)
		}
		if stamp.Boot == "1" && now.Boot == "2" && age < stamp.Age+now.Since {
			t.Fatalf("younger than the machine: %+v at %+v: %s", stamp, now, age)
		}
		if stamp.Boot == "1" && now.Boot == "1" && now.Since >= stamp.Since && age != stamp.Age+now.Since-stamp.Since {
			t.Fatalf("not exact: %+v at %+v: %s", stamp, now, age)
		}
	})
}

// FuzzDecode: what is believed can be written again and is the same.
func FuzzDecode(f *testing.F) {
	f.Add(encoded(f, record(f)))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, text []byte) {
		// Nothing that is drawn has the right checksum, so the body is also looked at under one.
		for _, text := range [][]byte{text, seal(text)} {
			r, err := Decode("f", text)
			if err != nil {
				continue
			}
			again, err := Decode("f", encoded(t, r))
			if err != nil || !again.View.Alike(r.View) || again.Stamp.Age != r.Stamp.Age {
				t.Fatalf("written again: %v", err)
			}
			r.Stamp.Aged(Clocks{Wall: written})
		}
	})
}

// Two looks at this machine's clocks are of one start of it, and time has not run backwards between them.
func TestLook(t *testing.T) {
	before, after := Look(), Look()
	if before.Boot == "" || before.Boot != after.Boot || after.Since < before.Since || before.Since <= 0 || before.Wall.IsZero() {
		t.Errorf("%+v, then %+v", before, after)
	}
	stamp := Stamp{Age: time.Second, Clocks: before}
	if age, atLeast := stamp.Aged(after); age < time.Second || atLeast {
		t.Errorf("aged %s, at least %v", age, atLeast)
	}
}
