package gateway

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/broker/token"
)

// TestUsedTokens: what was noted is there after a start, what a crash cut off does no harm, one gateway has the file at a time, and what is over is forgotten.
func TestUsedTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "used")
	now := time.Now()
	open := func(at time.Time, want int) *usedTokens {
		l, err := openUsed(path, at)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(l.Used()); got != want {
			t.Errorf("%d tokens are on record, want %d", got, want)
		}
		return l
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	first := open(now, 0)
	must(first.Note(token.ID{1}, now.Add(time.Minute)))
	if _, err := openUsed(path, now); err == nil || !strings.Contains(err.Error(), "another gateway") {
		t.Errorf("a second gateway may have it as well: %v", err)
	}
	must(first.Close())
	crashed, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	must(err)
	_, err = crashed.WriteString("\n0102") // a power cut while a line was written
	must(errors.Join(err, crashed.Close()))
	second := open(now, 1)
	must(second.Note(token.ID{2}, now.Add(time.Hour)))
	must(second.Close())
	if err := second.Note(token.ID{3}, now); err == nil {
		t.Error("a token that cannot be written down is no error")
	}
	third := open(now.Add(2*time.Minute), 1)
	if _, known := third.Used()[token.ID{2}]; !known {
		t.Error("the token that still counts is forgotten")
	}
	must(third.Close())
	must(open(now.Add(2*time.Hour), 0).Close())
}
