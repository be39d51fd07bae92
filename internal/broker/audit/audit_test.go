package audit

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// TestRecord: what a line looks like; what is empty is left out.
func TestRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := New(path).Write(Record{
		Time: noon, Event: Ended, Session: "s1", Who: "alice", Target: "db1:22", Account: "postgres", Gateway: "gw1", Client: "192.0.2.7:5000",
		Started: noon.Add(-time.Minute), Seconds: 60, Outcome: "closed by the client", BytesIn: 10, BytesOut: 20, Channels: []string{"shell"},
	}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"time":"2026-03-01T12:00:00Z","event":"ended","session":"s1","who":"alice","target":"db1:22","account":"postgres","gateway":"gw1","client":"192.0.2.7:5000",` +
		`"started":"2026-03-01T11:59:00Z","seconds":60,"outcome":"closed by the client","bytes_in":10,"bytes_out":20,"channels":["shell"]}` + "\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

// TestOnDisk: sessions are on the disk itself when they begin, and when they have ended; so is the name of a new file. What cannot be made lasting is an error.
func TestOnDisk(t *testing.T) {
	var synced []string
	var failure error
	log := New(filepath.Join(t.TempDir(), "audit.jsonl"))
	log.sync = func(f *os.File) error {
		synced = append(synced, filepath.Ext(f.Name()))
		return failure
	}
	for _, c := range []struct {
		event Event
		fails error
		want  []string
	}{
		{Started, nil, []string{".jsonl", ""}}, {Refused, nil, nil}, {Ended, nil, []string{".jsonl"}}, {Started, syscall.EIO, []string{".jsonl"}},
	} {
		synced, failure = nil, c.fails
		if err := log.Write(Record{Time: noon, Event: c.event}); !errors.Is(err, c.fails) {
			t.Errorf("%s: %v, want %v", c.event, err, c.fails)
		}
		if diff := cmp.Diff(c.want, synced); diff != "" {
			t.Errorf("%s: %s", c.event, diff)
		}
	}
}

// TestManyWriters: records do not mix, and a file that was renamed away is begun anew.
func TestManyWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log := New(path)
	write := func(n int) {
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				if err := log.Write(Record{Time: noon, Event: Started, Outcome: strings.Repeat("x", 10*MaxText)}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	write(20)
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write(3)
	for name, want := range map[string]int{path + ".1": 20, path: 3} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
		if len(lines) != want {
			t.Errorf("%d records, want %d", len(lines), want)
		}
		for _, l := range lines {
			if !strings.HasPrefix(l, "{") || !strings.HasSuffix(l, "}") || len(l) > 2*MaxText {
				t.Errorf("%d bytes: %.80s", len(l), l)
			}
		}
	}
}

func TestNotWritten(t *testing.T) {
	if err := New(filepath.Join(t.TempDir(), "missing", "audit.jsonl")).Write(Record{}); err == nil {
		t.Error("a record was written nowhere")
	}
}

// TestAfterACutOffRecord: what a full disk or a power cut left of a record does not take the next one with it, whoever has written before.
func TestAfterACutOffRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log := New(path)
	write := func() {
		t.Helper()
		if err := log.Write(Record{Time: noon, Event: Started, Session: "s1"}); err != nil {
			t.Fatal(err)
		}
	}
	cutOff := func() {
		t.Helper()
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString(`{"time":"2026-03-`); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	cutOff()
	write()
	write()
	cutOff()
	write()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	half, whole := `{"time":"2026-03-`, `{"time":"2026-03-01T12:00:00Z","event":"started","session":"s1","gateway":"","client":""}`
	if diff := cmp.Diff([]string{half, whole, whole, half, whole, ""}, strings.Split(string(got), "\n")); diff != "" {
		t.Error(diff)
	}
}
