package sshgate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/audit"
	"github.com/holdfast/holdfast/internal/broker/token"
)

// TestInputWithoutATerminal: where input is recorded, it is without a terminal as well, whose echo would be missing too.
func TestInputWithoutATerminal(t *testing.T) {
	b := start(t, startTarget(t), func(o *Options) { o.RecordInput = true })
	if got := b.ssh("true by-shell\n", b.token(token.Shell)); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	b.records(audit.Started, audit.Ended)
	if got := b.ssh("true by-command\n", b.token(token.Exec), "sh"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	records := b.records(audit.Started, audit.Ended, audit.Started, audit.Ended)
	for i, want := range map[int]string{1: "by-shell", 3: "by-command"} {
		data, err := os.ReadFile(filepath.Join(b.folder, "recordings", records[i].Recordings[0]))
		if err != nil {
			t.Fatal(err)
		}
		contains(t, "the recording", string(data), `"i", "true `+want)
	}
}

// TestWhatTargetsSay: a target does not write to the terminal of the user, or much into the audit log, by what it says when it refuses.
func TestWhatTargetsSay(t *testing.T) {
	evil := strings.Repeat("\x1b]0;title\x07\u009b6n", 10_000)
	_, login := loginFailed(errors.New(evil), token.Grant{Account: "postgres"}, "db1:22")
	_, reason := rejection(&ssh.OpenChannelError{Message: evil})
	for _, text := range []string{login.Error(), reason} {
		if strings.ContainsAny(text, "\x1b\x07\u009b") || len(text) > 1000 {
			t.Errorf("%d bytes: %.100q", len(text), text)
		}
	}
}

// TestLongOutputIsAudited: a command without a terminal may be a shell; that its output was not recorded to the end is in the audit log.
func TestLongOutputIsAudited(t *testing.T) {
	c, _ := lone(t)
	s := &session{connection: c, client: mute{}, started: make(chan struct{})}
	if err := s.record(verdict{starts: "exec", command: "sh"}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, true} {
		if err := s.lookOut(make([]byte, firstOutput/2)); err != nil {
			t.Fatal(err)
		}
		if got := c.record(audit.Ended); got.Unrecorded != want {
			t.Errorf("after %d halves of what is recorded, unrecorded is %v", i+1, got.Unrecorded)
		}
	}
	s.close()
}
