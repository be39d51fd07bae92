package sshgate

import (
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/audit"
	"github.com/holdfast/holdfast/internal/broker/recording"
	"github.com/holdfast/holdfast/internal/broker/token"
)

// lone is a connection of a gateway that listens to nobody.
func lone(t *testing.T) (c *connection, recordings string) {
	t.Helper()
	recordings = t.TempDir()
	store, err := recording.NewStore(recording.Options{Directory: recordings, MinFree: 1})
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(Options{
		Name: "gw1", HostKeys: []ssh.Signer{newKey(t, "")}, Recorder: store, Auditor: audit.New(filepath.Join(t.TempDir(), "audit")),
		Logger: slog.New(slog.DiscardHandler), Limits: Limits{KeepAlive: time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c = newConnection(g, token.Grant{Who: "alice"}, recording.NewSessionID(now, [8]byte{1}), now, named("192.0.2.1:5"))
	t.Cleanup(c.cancel)
	return c, recordings
}

// silent is a connection whose other side answers nothing.
type silent struct {
	ssh.Conn
	closed chan struct{}
	once   *sync.Once
}

func newSilent() silent { return silent{closed: make(chan struct{}), once: &sync.Once{}} }

func (s silent) SendRequest(string, bool, []byte) (bool, []byte, error) {
	<-s.closed
	return false, nil, io.EOF
}

func (s silent) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// TestSilentTargetKeepsNoSession: a target that stops answering, which who is root on it can bring about, must not take away the session's limits, nor keep the gateway
// from stopping: the client's connection is still there, with all that does not go over the gateway's login.
func TestSilentTargetKeepsNoSession(t *testing.T) {
	c, _ := lone(t)
	client := newSilent()
	c.conn = client
	c.keepAlive(newSilent(), "the target no longer answers")
	c.end("it has lasted as long as it may")
	select {
	case <-client.closed:
	default:
		t.Error("the session goes on beyond its limit")
	}
	if got := c.record(audit.Ended).Outcome; got != "the target no longer answers" {
		t.Errorf("the outcome is %q, want what happened first", got)
	}
}

// mute is a channel that takes everything.
type mute struct{ ssh.Channel }

func (mute) Write(p []byte) (int, error)                    { return len(p), nil }
func (mute) Stderr() io.ReadWriter                          { return struct{ io.ReadWriter }{} }
func (mute) CloseWrite() error                              { return nil }
func (mute) Close() error                                   { return nil }
func (mute) SendRequest(string, bool, []byte) (bool, error) { return true, nil }

// TestFlushAfterTheEnd: the flush of every second may come when a recording has just been ended, as may a change of the window's size. That is no failure, and must
// not end the other sessions of the connection.
func TestFlushAfterTheEnd(t *testing.T) {
	c, _ := lone(t)
	s := &session{connection: c, client: mute{}, started: make(chan struct{})}
	if err := s.record(verdict{starts: "shell"}); err != nil {
		t.Fatal(err)
	}
	s.close()
	s.recorded(func(w *recording.Writer) error { return w.Flush(c.elapsed()) })
	if s.broken.Load() || valueOf(c.gate.counts.recordingsFailed) != 0 {
		t.Error("a recording that was ended in order counts as failed")
	}
}

// TestHeaderStaysReadable: whatever a client calls its terminal and runs, the recording's first line is one that can be read again.
func TestHeaderStaysReadable(t *testing.T) {
	c, folder := lone(t)
	s := &session{connection: c, client: mute{}, started: make(chan struct{}), terminal: &terminalRequest{Term: strings.Repeat("<", 250_000)}}
	command := strings.Repeat("\x01", maxCommand)
	v := rules{may: token.Exec}.request("exec", text(command), false)
	if v.do != forward {
		t.Fatalf("the command was not accepted: %+v", v)
	}
	if err := s.record(v); err != nil {
		t.Fatal(err)
	}
	s.close()
	r, err := recording.Open(filepath.Join(folder, c.recordings[0]), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Header.Command != command {
		t.Error("the command is another one in the recording")
	}
	if v := (rules{may: token.Exec}).request("exec", text(command+"\x01"), false); v.do != refuse {
		t.Errorf("a longer command was accepted")
	}
}

// TestWhatCountsAsTransfer: only what runs nothing else is spared the recording of its output.
func TestWhatCountsAsTransfer(t *testing.T) {
	for command, want := range map[string]bool{
		"rsync --server -vlogDtpre.iLsfxCIvu . data/": true, "rsync --server . 'a b'": true, "rsync --server . x; bash -i": false, "rsync --server . $(bash -i >&2)": false,
		"scp -t data": true, "scp -t data; bash": false, `scp -t 'a\' '; bash; '`: false,
	} {
		if got := transfers(command); got != want {
			t.Errorf("%s counts as a transfer: %v, want %v", command, got, want)
		}
	}
}
