package sshgate

import (
	"io"
	"testing"
	"testing/synctest"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/bubble"
)

// empty is a channel on which nothing comes and everything goes.
type empty struct{ mute }

func (empty) Read([]byte) (int, error) { return 0, io.EOF }
func (empty) Stderr() io.ReadWriter    { return silence{} }

type silence struct{}

func (silence) Read([]byte) (int, error)    { return 0, io.EOF }
func (silence) Write(p []byte) (int, error) { return len(p), nil }

// offered is a channel that a client opens, and closes when requests is closed.
type offered struct {
	ssh.NewChannel
	kind     string
	requests chan *ssh.Request
}

func (o offered) ChannelType() string { return o.kind }
func (o offered) ExtraData() []byte   { return nil }
func (o offered) Accept() (ssh.Channel, <-chan *ssh.Request, error) {
	return empty{}, o.requests, nil
}

// brief is a target that ends every channel at once.
type brief struct{ ssh.Conn }

func (brief) OpenChannel(string, []byte) (ssh.Channel, <-chan *ssh.Request, error) {
	over := make(chan *ssh.Request)
	close(over)
	return empty{}, over, nil
}

// TestChannelsCountUntilTheClientClosesThem: the library keeps a channel until its other side closes it, too. A client that never does must not have more of them
// than it may.
func TestChannelsCountUntilTheClientClosesThem(t *testing.T) {
	for kind, serve := range map[string]func(*connection, ssh.NewChannel){
		"session":      func(c *connection, n ssh.NewChannel) { c.session(n) },
		"direct-tcpip": func(c *connection, n ssh.NewChannel) { c.through(n, "local-forward") },
	} {
		bubble.Test(t, func(t *testing.T) {
			c, _ := lone(t)
			c.reach = func() (ssh.Conn, error) { return brief{}, nil }
			n := offered{kind: kind, requests: make(chan *ssh.Request)}
			over := false
			go func() { serve(c, n); over = true }()
			synctest.Wait()
			if over {
				t.Errorf("%s: the channel is free again before the client has closed it", kind)
			}
			close(n.requests)
			c.cancel()
			synctest.Wait()
			if !over {
				t.Errorf("%s: the channel is not free after the client has closed it", kind)
			}
		})
	}
}

// TestRequestsThatWait: a client whose requests cannot be dealt with yet, because it reads nothing or the target does not answer, has only so much waiting here.
func TestRequestsThatWait(t *testing.T) {
	c, _ := lone(t)
	s := &session{connection: c}
	turn := make(chan *ssh.Request, waitingRequests)
	long := make([]byte, maxRequest+1)
	for _, r := range []*ssh.Request{
		{Type: "env", Payload: long}, {Type: "exec", Payload: make([]byte, maxCommand+5)}, {Type: "exec", Payload: long}, {Type: "pty-req", Payload: long[1:]},
	} {
		s.wait(r, turn)
	}
	if len(turn) != 1 { // the second program is one too many, even if the first was too long
		t.Errorf("%d requests wait, want the short one alone", len(turn))
	}
	for range 3 * waitingRequests { // this never waits
		s.wait(&ssh.Request{Type: "window-change"}, turn)
	}
	s = &session{connection: c}
	turn = make(chan *ssh.Request, waitingRequests)
	s.wait(&ssh.Request{Type: "exec", Payload: make([]byte, maxCommand+4)}, turn)
	s.wait(&ssh.Request{Type: "shell"}, turn)
	if len(turn) != 1 {
		t.Errorf("%d programs wait, want one", len(turn))
	}
}
