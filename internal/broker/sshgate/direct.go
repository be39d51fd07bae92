package sshgate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/audit"
)

// direct connects to the target itself and carries what goes by, unread: to its own sshd, which then sees the client itself (ssh -J), or to the
// service of a tunnel.
func (c *connection) direct(n ssh.NewChannel, what string) {
	l := link{what: what, began: c.elapsed()}
	ctx, cancel := context.WithTimeout(c.ctx, c.gate.options.Limits.Dial)
	defer cancel()
	conn, err := c.gate.options.Dial(ctx, "tcp", c.grant.Target.String())
	if err != nil {
		c.gate.counts.targetsFailed.WithLabelValues("reach").Inc()
		c.noteLink(&l, "the target cannot be reached: "+cause(err))
		c.answer(n.Reject(ssh.ConnectionFailed, fmt.Sprintf("holdfast: the target %s cannot be reached from the gateway %s: %v", c.grant.Target, c.gate.options.Name, err)))
		return
	}
	there, ok := conn.(end)
	if !ok {
		there = whole{conn}
	}
	here, requests, err := n.Accept()
	if err != nil {
		_ = conn.Close()
		c.noteLink(&l, "the client went away")
		return
	}
	stop := context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	defer stop()
	c.noteUnrecorded(what)
	byClient := c.hear(requests, there)
	err = c.pipe(here, there, l.count(&l.in), l.count(&l.out))
	c.noteLink(&l, c.linkEnding(err))
	<-byClient
}

// whole is a connection that can only be closed in both directions.
type whole struct{ net.Conn }

func (w whole) CloseWrite() error { return w.Close() }

// link is one connection past the gateway's eyes, of which nothing can be known but how much and how long.
type link struct {
	what    string
	began   time.Duration // since the beginning of the session
	in, out atomic.Int64
}

func (l *link) count(into *atomic.Int64) func([]byte) error {
	return func(data []byte) error {
		into.Add(int64(len(data)))
		return nil
	}
}

// linkEnding says how a connection past the gateway's eyes ended, by what failed first.
func (c *connection) linkEnding(err error) string {
	var network *net.OpError
	switch {
	case err == nil:
		return "closed in both directions"
	case errors.As(err, &network) && !errors.Is(err, net.ErrClosed):
		return "lost at the target: " + cause(err)
	case c.ctx.Err() != nil:
		return "the session ended"
	}
	return "closed by the client"
}

// cause is what the kernel says of a connection that failed, without addresses that stand beside it.
func cause(err error) string {
	var network *net.OpError
	if errors.As(err, &network) {
		err = network.Err
	}
	return said{err}.Error()
}

// noteLink keeps for the audit record what became of a connection. What is more than maxNoted is counted.
func (c *connection) noteLink(l *link, outcome string) {
	seconds := c.elapsed() - l.began
	c.lock.Lock()
	defer c.lock.Unlock()
	if len(c.links) >= maxNoted {
		c.moreLinks++
		return
	}
	c.links = append(c.links, audit.Connection{
		What: l.what, At: l.began.Seconds(), Seconds: seconds.Seconds(), BytesIn: l.in.Load(), BytesOut: l.out.Load(), Outcome: outcome,
	})
}
