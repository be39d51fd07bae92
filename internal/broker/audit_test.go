package broker

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// An audit has so many files of such a size; the oldest goes.
func TestTheAuditHasABound(t *testing.T) {
	b := newBroker(t, "b1", nil)
	a := newTrail(filepath.Join(t.TempDir(), "audit"), b.options.Board, b.now, b.measure)
	path := filepath.Join(a.dir, auditName)
	for i := range auditFiles + 2 {
		a.add(&Entry{Launch: strings.Repeat("x", 1+i)})
		a.flush()
		if i == 0 {
			continue
		}
		a.size = maxAuditFile // as if it had come so far
	}
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != auditFiles {
		t.Errorf("there are %q, %v", files, err)
	}
	text, err := os.ReadFile(path)
	if err != nil || strings.Count(string(text), "\n") != 1 || !strings.Contains(string(text), `"xxxxxx"`) {
		t.Errorf("the present one has %q, %v", text, err)
	}
}

// So it is after a restart, however long the file was, and a line that a power cut left half takes no other with it.
func TestTheAuditGoesOnAfterARestart(t *testing.T) {
	b := newBroker(t, "b1", nil)
	again := func(dir string) []string {
		t.Helper()
		a := newTrail(dir, b.options.Board, b.now, b.measure)
		a.add(&Entry{Launch: "x"})
		a.flush()
		if err := a.close(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, auditName))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(string(text), "\n")
	}
	whole := t.TempDir()
	again(whole)
	if got := again(whole); len(got) != 3 || got[0] == "" || got[1] == "" {
		t.Errorf("after a line that is whole: %q", got)
	}
	half := t.TempDir()
	if err := os.WriteFile(filepath.Join(half, auditName), []byte(`{"at":"2026-03-`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := again(half); len(got) != 3 || got[0] != `{"at":"2026-03-` || !strings.HasPrefix(got[1], "{") {
		t.Errorf("after half a line: %q", got)
	}
	full := t.TempDir()
	if file, err := os.Create(filepath.Join(full, auditName)); err != nil {
		t.Fatal(err)
	} else if err := errors.Join(file.Truncate(maxAuditFile), file.Close()); err != nil {
		t.Fatal(err)
	}
	if got := again(full); len(got) != 2 {
		t.Errorf("after a file that was full: %d lines", len(got))
	}
	if older, err := os.Stat(filepath.Join(full, auditName+".1")); err != nil || older.Size() != maxAuditFile {
		t.Errorf("the older one: %v", err)
	}
}

// What comes faster than the disk takes it is counted, and costs no more memory than the bound.
func TestWhatTheAuditCannotTakeIsCounted(t *testing.T) {
	b := newBroker(t, "b1", nil)
	a := newTrail(filepath.Join(t.TempDir(), "audit"), b.options.Board, b.now, b.measure)
	e := &Entry{Says: strings.Repeat("x", 1<<20)}
	for range 10 {
		a.add(e)
	}
	if len(a.pending) > maxUnwritten || a.lost != 3 {
		t.Errorf("%d bytes wait, %d are lost", len(a.pending), a.lost)
	}
	a.flush()
	var metric dto.Metric
	if err := b.measure.auditLost.Write(&metric); err != nil {
		t.Fatal(err)
	}
	if got := metric.GetCounter().GetValue(); got != 3 || !b.has(auditLost.Code) {
		t.Errorf("%v are counted, on the board: %v", got, b.has(auditLost.Code))
	}
	a.add(&Entry{})
	a.flush()
	if b.has(auditLost.Code) {
		t.Error("the problem stays when the audit is written again")
	}
	if err := a.close(); err != nil {
		t.Error(err)
	}
}

// Of many launches at once some are told as events, and those that are not are counted.
func TestEventsOfLaunchesHaveABound(t *testing.T) {
	var w allowance
	now := time.Unix(1000, 0)
	told := 0
	for range 1000 {
		if ok, _ := w.take(now); ok {
			told++
		}
	}
	if ok, held := w.take(now.Add(time.Second)); told != maxToldSecond || !ok || held != 1000-maxToldSecond {
		t.Errorf("%d were told, then %v with %d", told, ok, held)
	}
}
