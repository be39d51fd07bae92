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

// TestInputWithoutATerminal: what goes to a shell or a command without a terminal is recorded, since nothing else shows it, and is there to be read.
func TestInputWithoutATerminal(t *testing.T) {
	b := start(t, startTarget(t), nil)
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
		contains(t, "its text", b.text(records[i], 0), "> true "+want)
		if records[i].Unrecorded {
			t.Errorf("audited as %+v", records[i])
		}
	}
}

// TestWhoseInputIsRecorded: with a terminal there is an echo, and there may be passwords without one. What is not recorded anywhere is in the audit log.
func TestWhoseInputIsRecorded(t *testing.T) {
	for _, c := range []struct {
		policy            InputPolicy
		terminal          bool
		kind, command     string
		recorded, unheard bool
	}{
		{InputWithoutTerminal, false, "shell", "", true, false},
		{InputWithoutTerminal, true, "shell", "", false, false},
		{InputAlways, false, "exec", "sh", true, false},
		{InputAlways, true, "shell", "", true, false},
		{InputNever, false, "shell", "", false, true},
		{InputNever, false, "exec", "sh", false, true},
		{InputNever, true, "shell", "", false, false},
		{InputWithoutTerminal, false, "exec", "rsync --server -e.x . /tmp", false, false},
	} {
		c2, recordings := lone(t)
		c2.gate.options.RecordInput = c.policy
		s := &session{connection: c2, client: mute{}, started: make(chan struct{})}
		if c.terminal {
			s.terminal = &terminalRequest{Term: "xterm", Columns: 80, Rows: 24}
		}
		if err := s.record(verdict{starts: c.kind, command: c.command}); err != nil {
			t.Fatal(err)
		}
		if c2.record(audit.Ended).Unrecorded {
			t.Errorf("%+v: unrecorded before anything is typed", c)
		}
		if err := s.lookIn([]byte("typed\n")); err != nil {
			t.Fatal(err)
		}
		s.close()
		record := c2.record(audit.Ended)
		data, err := os.ReadFile(filepath.Join(recordings, record.Recordings[0]))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(data), "typed"); got != c.recorded || record.Unrecorded != c.unheard {
			t.Errorf("%+v: recorded %v, and the audit record says unrecorded: %v", c, got, record.Unrecorded)
		}
	}
}

// TestLongInputIsAudited: so is what goes beyond the part of a command's input that is recorded.
func TestLongInputIsAudited(t *testing.T) {
	c, _ := lone(t)
	s := &session{connection: c, client: mute{}, started: make(chan struct{})}
	if err := s.record(verdict{starts: "exec", command: "sh"}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, true} {
		if err := s.lookIn(make([]byte, firstOutput/2)); err != nil {
			t.Fatal(err)
		}
		if got := c.record(audit.Ended); got.Unrecorded != want {
			t.Errorf("after %d halves of what is recorded, unrecorded is %v", i+1, got.Unrecorded)
		}
	}
	s.close()
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
