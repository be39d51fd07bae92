package sshgate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/audit"
	"github.com/holdfast/holdfast/internal/broker/token"
)

// userName is who a client says that he is.
type userName struct {
	ssh.ConnMetadata
	name string
}

func (u userName) User() string { return u.name }

// TestKeysAndTokens: a client that never asks by the method "none" comes in with any key, as the token alone is enough; one that was told why not is told
// nothing else; and a token that is bound to a key wants that one.
func TestKeysAndTokens(t *testing.T) {
	b := start(t, service(t, counting), nil)
	mine, other := newKey(t, "").PublicKey(), newKey(t, "").PublicKey()
	bound, expired := b.grant(token.Exec), b.grant(token.Exec)
	bound.ClientKey = KeyHash(mine)
	expired.Issued, expired.Expires = time.Now().Add(-3*time.Minute), time.Now().Add(-time.Minute)
	for name, c := range map[string]struct {
		token string
		none  bool // it asks by "none" first
		key   ssh.PublicKey
		says  string
	}{
		"unbound, with a key":        {b.token(token.Exec), false, other, ""},
		"bound, with its key":        {b.sign(bound), true, mine, ""},
		"bound, with another":        {b.sign(bound), true, other, "bound to a key that this client did not prove"},
		"expired, with a key":        {b.sign(expired), false, other, "expired"},
		"expired, and then with one": {b.sign(expired), true, other, "expired"},
	} {
		a := &attempt{gate: b.gate, client: named("192.0.2.1:5")}
		var config ssh.ServerConfig
		a.configure(&config)
		meta := userName{name: c.token}
		if c.none {
			if _, err := config.NoClientAuthCallback(meta); err == nil {
				t.Errorf("%s: admitted without a key", name)
			}
		}
		allowed, err := config.PublicKeyCallback(meta, c.key)
		if err == nil {
			_, err = config.VerifiedPublicKeyCallback(meta, c.key, allowed, "")
		}
		var banner *ssh.BannerError
		if errors.As(err, &banner) {
			err = errors.New(banner.Message)
		}
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		a.abandon()
	}
}

// TestAgentThatDoesNotAnswer: a client that neither opens nor refuses the way to its agent, or whose agent says nothing, learns so in time.
func TestAgentThatDoesNotAnswer(t *testing.T) {
	behind := startTarget(t)
	for name, c := range map[string]struct {
		accept bool
		says   string
	}{"the way to it": {false, "did not answer within 300ms whether it forwards one"}, "the agent": {true, "does not let the account"}} {
		b := start(t, behind, func(o *Options) { o.Limits.Dial = 300 * time.Millisecond })
		g := b.grant(token.Exec)
		g.Proof = token.ForwardedAgent
		client := b.mustDial(b.sign(g))
		offers := client.HandleChannelOpen(agentChannel)
		go func() {
			for n := range offers {
				if c.accept {
					_, requests, err := n.Accept()
					if err == nil {
						go ssh.DiscardRequests(requests)
					}
				}
			}
		}()
		s := b.mustSession(client)
		var errs lockedBuffer
		s.Stderr = &errs
		if err := s.Run("true"); err == nil || !strings.Contains(errs.String(), c.says) {
			t.Errorf("%s: %v, %s", name, err, errs.String())
		}
		client.Close()
		b.records(audit.Started, audit.Ended)
	}
}

// TestOpenedTooLate: a channel that is opened when nobody waits for it any more is closed. Until then it counts, or the other side could leave any number of them
// unanswered.
func TestOpenedTooLate(t *testing.T) {
	c, _ := lone(t)
	late := &lateConn{answer: make(chan struct{}), closed: make(chan struct{})}
	c.gate.options.Limits.Dial = time.Millisecond
	n := offered{kind: agentChannel}
	refused := make(chan string, 1)
	if _, _, ok := c.pass(rejecting{n, refused}, late, "agent-forward"); ok {
		t.Fatal("it was opened")
	}
	if got := <-refused; !strings.Contains(got, "not answered in time") {
		t.Errorf("refused with %q", got)
	}
	if c.channels.Load() != 1 || c.unread.Load() != window {
		t.Errorf("%d channels count, and %d bytes", c.channels.Load(), c.unread.Load())
	}
	close(late.answer)
	<-late.closed
	for c.channels.Load() != 0 || c.unread.Load() != 0 {
		runtime.Gosched()
	}
}

type rejecting struct {
	offered
	refused chan string
}

func (r rejecting) Reject(_ ssh.RejectionReason, message string) error {
	r.refused <- message
	return nil
}

// lateConn opens a channel when it is told to.
type lateConn struct {
	ssh.Conn
	answer, closed chan struct{}
}

func (l *lateConn) OpenChannel(string, []byte) (ssh.Channel, <-chan *ssh.Request, error) {
	<-l.answer
	requests := make(chan *ssh.Request)
	close(requests)
	return closing{closed: l.closed}, requests, nil
}

type closing struct {
	empty
	closed chan struct{}
}

func (c closing) Close() error {
	close(c.closed)
	return nil
}

// TestKnownHostsNoticeWhatLooksAlike: a file that was put in the place of another counts with the next session, also with the same size and time.
func TestKnownHostsNoticeWhatLooksAlike(t *testing.T) {
	path := filepath.Join(t.TempDir(), "known")
	at := time.Now().Add(-time.Hour)
	put := func(key ssh.Signer) {
		t.Helper()
		write(t, path+".new", fmt.Sprintf("db1 %s", authorized(key)))
		if err := errors.Join(os.Chtimes(path+".new", at, at), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	first, second := newKey(t, ""), newKey(t, "")
	put(first)
	known, err := NewKnownHosts(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []ssh.Signer{first, second} {
		put(key)
		check, _, err := known.For("db1:22")
		if err != nil {
			t.Fatal(err)
		}
		if err := check("db1:22", named("192.0.2.1:22"), key.PublicKey()); err != nil {
			t.Error(err)
		}
	}
}
