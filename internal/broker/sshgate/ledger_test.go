package sshgate

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/token"
)

// TestUsedTokensOutliveTheGateway: a token that was used before the gateway started anew is used; one that was not is good.
func TestUsedTokensOutliveTheGateway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "used")
	c, _ := lone(t)
	options := c.gate.options
	now := time.Now()
	grant := func(n byte) token.Grant {
		return token.Grant{ID: token.ID{n}, Gateway: "gw1", Who: "alice", May: token.Exec, Issued: now, Expires: now.Add(time.Minute)}
	}
	admit := func(ledger *Ledger, n byte) error {
		options.Ledger = ledger
		g, err := New(options)
		if err != nil {
			t.Fatal(err)
		}
		a := &attempt{gate: g, client: &net.TCPAddr{}}
		_, err = a.admit(grant(n))
		return err
	}
	open := func(at time.Time) *Ledger {
		l, err := OpenLedger(path, at)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first := open(now)
	if err := admit(first, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLedger(path, now); err == nil || !strings.Contains(err.Error(), "another gateway") {
		t.Errorf("a second gateway may have it as well: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	crashed, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = crashed.WriteString("\n0102") // a power cut while a line was written
	if err = errors.Join(err, crashed.Close()); err != nil {
		t.Fatal(err)
	}
	second := open(now)
	var banner *ssh.BannerError
	if err := admit(second, 1); !errors.As(err, &banner) || !strings.Contains(banner.Message, "was used before") {
		t.Errorf("after the start the token is accepted again: %v", err)
	}
	if err := admit(second, 2); err != nil {
		t.Errorf("another token: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	third := open(now)
	if got := len(third.used); got != 2 {
		t.Errorf("%d tokens are on record, want 2", got)
	}
	if err := third.Close(); err != nil {
		t.Fatal(err)
	}
	if err := admit(third, 3); !errors.As(err, &banner) || !strings.Contains(banner.Message, "writing down a used token") {
		t.Errorf("a token that cannot be written down: %v", err)
	}
	later := open(now.Add(time.Minute + token.MaxValidity + 2*time.Second))
	if got := len(later.used); got != 0 {
		t.Errorf("%d tokens are on record long after they expired", got)
	}
	if err := later.Close(); err != nil {
		t.Fatal(err)
	}
}
