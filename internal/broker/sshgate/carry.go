package sshgate

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

// end is one end of what is carried: an SSH channel or a TCP connection.
type end interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// lingering is how long what a client sent is still carried on after it closed its channel altogether.
const lingering = 5 * time.Second

// bufferSize is what one direction carries at a time: a few of SSH's packets of 32 KiB.
const bufferSize = 64 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// copy carries one direction until its end, and hands each part to look before it goes on, if look is not nil.
func (c *connection) copy(to io.Writer, from io.Reader, count *atomic.Int64, look func([]byte) error) error {
	buffer, _ := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buffer)
	for {
		n, err := from.Read(buffer[:])
		if n > 0 {
			count.Add(int64(n))
			c.moved.Store(int64(c.elapsed()))
			if look != nil {
				if err := look(buffer[:n]); err != nil {
					return err
				}
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// pipe carries both directions between a client's end and the target's until both are over, or one fails. A direction that is over is closed onward
// by itself: what has half closed its connection still gets its answer. It returns what failed first, and hands what it carries to look.
func (c *connection) pipe(client, target end, lookIn, lookOut func([]byte) error) error {
	var both sync.WaitGroup
	var once sync.Once
	var failure error
	one := func(to, from end, count *atomic.Int64, look func([]byte) error) {
		err := c.copy(to, from, count, look)
		if err == nil {
			err = to.CloseWrite()
		}
		if err == nil {
			return
		}
		once.Do(func() { failure = err })
		_ = client.Close() // the other direction ends with it
		_ = target.Close()
	}
	both.Go(func() { one(target, client, &c.in, lookIn) })
	both.Go(func() { one(client, target, &c.out, lookOut) })
	both.Wait()
	_ = client.Close()
	_ = target.Close()
	return failure
}

// side is one side's channel, with what it asks for in it.
type side struct {
	ssh.Channel
	requests <-chan *ssh.Request
}

// hear answers no to all requests of a channel, and closes the other end some time after the channel is closed: by then what was sent is carried.
// Closed ends when the other side has closed the channel. Until then the library keeps it, whatever we have closed, and so it must count as open:
// a client that never closes any could have any number of them.
func (c *connection) hear(requests <-chan *ssh.Request, other end) (closed <-chan struct{}) {
	over := make(chan struct{})
	go func() {
		for r := range requests {
			c.answer(r.Reply(false, nil))
		}
		close(over)
		c.linger(nil)
		_ = other.Close()
	}()
	return over
}

// linger waits until what was sent is carried, for as long as that may take.
func (c *connection) linger(carried <-chan struct{}) {
	timer := time.NewTimer(lingering)
	defer timer.Stop()
	select {
	case <-carried:
	case <-timer.C:
	case <-c.ctx.Done():
	}
}

// pass opens a channel onward for one that is offered, and accepts that one then. It is where ports, agents and windows begin to be forwarded.
func (c *connection) pass(n ssh.NewChannel, onward ssh.Conn, what string) (offered, opened side, ok bool) {
	ctx, cancel := context.WithTimeout(c.ctx, c.patience(n.ChannelType()))
	defer cancel()
	channel, requests, err := c.openWithin(ctx, onward, n.ChannelType(), n.ExtraData())
	if err != nil {
		c.answer(n.Reject(rejection(err)))
		return side{}, side{}, false
	}
	accepted, asked, err := n.Accept()
	if err != nil {
		_ = channel.Close()
		return side{}, side{}, false
	}
	c.noteUnrecorded(what)
	return side{accepted, asked}, side{channel, requests}, true
}

// patience is how long the other side may take to open a channel or refuse it: an agent and a display are where it is, and so quick; a port may be at a host
// that does not answer, which whoever connects there notices in his own time.
func (c *connection) patience(kind string) time.Duration {
	if kind == agentChannel || kind == "x11" {
		return c.gate.options.Limits.Dial
	}
	return longestConnect
}

// longestConnect is more than Linux tries to connect by default.
const longestConnect = 3 * time.Minute

// join carries between two channels, with the requests of both refused.
func (c *connection) join(client, target side) {
	byClient, byTarget := c.hear(client.requests, target), c.hear(target.requests, client)
	_ = c.pipe(client, target, nil, nil) // how a forwarded port ends is between the two
	<-byClient
	<-byTarget
}

// through lets the target connect further (ssh -L).
func (c *connection) through(n ssh.NewChannel, what string) {
	target, err := c.reach()
	if err != nil {
		c.answer(n.Reject(ssh.ConnectionFailed, "holdfast: "+err.Error()))
		return
	}
	if here, there, ok := c.pass(n, target, what); ok {
		c.join(here, there)
	}
}

// rejection passes on why a channel was not opened.
func rejection(err error) (ssh.RejectionReason, string) {
	var refused *ssh.OpenChannelError
	if errors.As(err, &refused) {
		return refused.Reason, "the target says: " + said{errors.New(refused.Message)}.Error()
	}
	if errors.Is(err, errUnanswered) {
		return ssh.ConnectionFailed, "holdfast: " + err.Error()
	}
	return ssh.ConnectionFailed, "holdfast: the connection to the target is lost"
}

// fromTarget takes a channel that the target wants to open to the client: for ssh -R, -A and -X.
func (c *connection) fromTarget(n ssh.NewChannel) {
	what, allowed := c.rules.fromTarget(n.ChannelType())
	if !allowed {
		c.noteRefused(n.ChannelType(), "the target may not open it")
		c.answer(n.Reject(ssh.Prohibited, "holdfast: this is not allowed"))
		return
	}
	c.carry(n, 2, func() {
		if there, here, ok := c.pass(n, c.conn, what); ok {
			c.join(here, there)
		}
	})
}

// noteUnrecorded writes down that something was done that no recording shows.
func (c *connection) noteUnrecorded(what string) {
	c.note(&c.done, what)
	c.lock.Lock()
	defer c.lock.Unlock()
	c.unrecorded = true
}
