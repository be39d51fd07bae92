package wholefile

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestState: a file that is replaced or written to is another, also with the same size and with its time of modification set back to what it was.
func TestState(t *testing.T) {
	later := time.Now().Add(time.Minute)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, change := range map[string]func(path string) error{
		"written over": func(path string) error { return os.WriteFile(path, []byte("two"), 0o600) },
		"replaced":     func(path string) error { return Replace(path, []byte("two")) },
		"lengthened":   func(path string) error { return os.WriteFile(path, []byte("three"), 0o600) },
	} {
		path := filepath.Join(t.TempDir(), "file")
		look := func() State {
			t.Helper()
			s, err := Look(path, later)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		for _, step := range []func() error{func() error { return os.WriteFile(path, []byte("one"), 0o600) }, func() error { return os.Chtimes(path, at, at) }} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		before := look()
		if !before.Same(look()) {
			t.Errorf("%s: it is another before that", name)
		}
		for other := before; other.change <= before.change; { // the clock of changes may be coarse, and the test is quick
			beside := path + ".beside"
			if err := os.WriteFile(beside, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			var err error
			if other, err = Look(beside, later); err != nil {
				t.Fatal(err)
			}
		}
		if err := change(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		if before.Same(look()) {
			t.Errorf("%s: it is the same", name)
		}
	}
}

// TestStateOfAFileThatJustChanged: it may change once more within the same moment.
func TestStateOfAFileThatJustChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	soon, err := Look(path, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	late, err := Look(path, time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if soon.Same(late) || !late.Same(late) || (State{}).Same(late) {
		t.Errorf("%+v and %+v", soon, late)
	}
	if _, err := Look(path+".gone", time.Now()); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
}
