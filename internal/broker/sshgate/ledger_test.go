package sshgate

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/token"
)

// ledger is one in memory.
type ledger struct {
	used map[token.ID]time.Time
	full error
}

func (l ledger) Used() map[token.ID]time.Time { return l.used }

func (l ledger) Note(id token.ID, until time.Time) error {
	if l.full == nil {
		l.used[id] = until
	}
	return l.full
}

// TestUsedTokensOutliveTheGateway: a token that was used before the gateway started anew is used; one that was not is good, if it can be written down.
func TestUsedTokensOutliveTheGateway(t *testing.T) {
	c, _ := lone(t)
	options := c.gate.options
	now := time.Now()
	admit := func(l ledger, n byte) string {
		options.Ledger = l
		g, err := New(options)
		if err != nil {
			t.Fatal(err)
		}
		a := &attempt{gate: g, client: &net.TCPAddr{}}
		_, err = a.admit(token.Grant{ID: token.ID{n}, Gateway: "gw1", Who: "alice", May: token.Exec, Issued: now, Expires: now.Add(time.Minute)})
		var banner *ssh.BannerError
		if errors.As(err, &banner) {
			return banner.Message
		}
		return ""
	}
	l := ledger{used: map[token.ID]time.Time{}}
	if got := admit(l, 1); got != "" {
		t.Fatal(got)
	}
	if got := admit(l, 1); !strings.Contains(got, "was used before") {
		t.Errorf("after the start the token is accepted again: %q", got)
	}
	if got := admit(l, 2); got != "" {
		t.Errorf("another token: %q", got)
	}
	l.full = errors.New("no space left on device")
	if got := admit(l, 3); !strings.Contains(got, "no space left on device") {
		t.Errorf("a token that cannot be written down: %q", got)
	}
	l.full = nil
	if got := admit(l, 3); got != "" {
		t.Errorf("when it can be: %q", got)
	}
}
