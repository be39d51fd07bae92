// Package probe asks a service once whether it works: by a TCP connection, an HTTP or HTTPS request, a DNS query, an
// ONC RPC null call or a program.
//
// Every try ends by its context, leaves no connection open, and uses bounded memory whatever the other end sends. A
// good try returns evidence, a bad one an error; both say what was asked, where, and what came back. A Probe is safe
// for concurrent use unless it says otherwise.
//
// The package judges nothing: one bad try means nothing until package verdict says so.
package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/holdfast/holdfast/internal/cluster"
)

// Probe asks one service.
type Probe interface {
	// Try asks once and returns what came back, or an error that says what, where and why.
	Try(ctx context.Context) (evidence string, err error)
}

// Dialer opens a connection as net.Dialer.DialContext does; network is "tcp" or "udp".
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// New returns the probe for a check of address; the zero address means 127.0.0.1. A nil dial uses the system's. It
// fails for a kind of check that does not exist and for an exec check without a command.
func New(check cluster.Check, address netip.Addr, dial Dialer) (Probe, error) {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	if !address.IsValid() {
		address = loopback
	}
	at := netip.AddrPortFrom(address, check.Port)
	switch check.Kind {
	case cluster.CheckTCP:
		return tcp{at: at, dial: dial}, nil
	case cluster.CheckHTTP, cluster.CheckHTTPS:
		return newHTTP(check, at, dial), nil
	case cluster.CheckDNS:
		return newDNS(check, at, dial)
	case cluster.CheckRPC:
		return rpc{at: at, program: check.Program, version: check.Version, dial: dial}, nil
	case cluster.CheckExec:
		return newProgram(check, address)
	}
	return nil, fmt.Errorf("check %s: there is no kind %q; use tcp, http, https, dns, rpc or exec", check.Name, check.Kind)
}

// tcp is good when a connection can be opened.
type tcp struct {
	at   netip.AddrPort
	dial Dialer
}

func (p tcp) Try(ctx context.Context) (string, error) {
	conn, err := p.dial(ctx, "tcp", p.at.String())
	if err != nil {
		return "", fmt.Errorf("tcp connection to %s: %w", p.at, plain(err))
	}
	// Whoever listens has accepted already; what close says does not change that.
	_ = conn.Close()
	return fmt.Sprintf("tcp connection to %s opened", p.at), nil
}

// plain strips what the net package wraps around the cause, because the probe says itself what it did and where.
func plain(err error) error {
	var cause syscall.Errno
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return errNoAnswer
	case errors.Is(err, context.Canceled):
		return errStopped
	case errors.As(err, &cause):
		return cause
	}
	return err
}

var (
	errNoAnswer = errors.New("no answer within the timeout")
	errStopped  = errors.New("stopped before an answer came")
)

// converse opens a connection that ends with ctx, hands it to talk, and closes it.
func converse(ctx context.Context, dial Dialer, network string, at netip.AddrPort, talk func(net.Conn) error) error {
	conn, err := dial(ctx, network, at.String())
	if err != nil {
		return plain(err)
	}
	defer func() { _ = conn.Close() }()
	if deadline, bounded := ctx.Deadline(); bounded {
		if err := conn.SetDeadline(deadline); err != nil {
			return fmt.Errorf("setting a deadline: %w", err)
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	err = talk(conn)
	if err != nil && ctx.Err() != nil {
		return plain(ctx.Err())
	}
	if err != nil {
		return plain(err)
	}
	return nil
}
