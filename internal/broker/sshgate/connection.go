package sshgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/audit"
	"github.com/holdfast/holdfast/internal/broker/recording"
	"github.com/holdfast/holdfast/internal/broker/token"
)

// connection is one admitted client: its session in the sense of the audit log, with any number of channels.
type connection struct {
	gate   *Gate
	grant  token.Grant
	rules  rules
	id     string
	began  time.Time // by the gateway's clock, for people
	since  time.Time // by the monotonic clock, for durations
	client net.Addr
	quota  *recording.Quota

	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	all    sync.WaitGroup // the goroutines of the connection
	reach  func() (ssh.Conn, error)
	once   sync.Once // of over

	in, out atomic.Int64 // bytes to and from the target
	moved   atomic.Int64 // when data last went by, in nanoseconds since the beginning

	channels atomic.Int64 // of both sides
	unread   atomic.Int64 // what these may hold, in bytes

	lock       sync.Mutex
	conn       ssh.Conn // nil during the handshake. It is written before anything that is served begins, so that only end asks under the lock
	number     int      // of the last recording
	sessions   map[*session]bool
	outcome    string // why it was ended, if by the gateway, or what became of the target
	ending     bool   // end was called: what else became of it must not keep it from ending
	done       []string
	refused    []string
	recordings []string
	unrecorded bool
	links      []audit.Connection // past the gateway's eyes: jumps and tunnels
	moreLinks  int
}

// maxNoted bounds each list of an audit record. That there was more stands at its end.
const maxNoted = 100

func newConnection(g *Gate, grant token.Grant, id string, now time.Time, client net.Addr) *connection {
	c := &connection{
		gate: g, grant: grant, id: id, began: now, since: time.Now(), client: client, sessions: map[*session]bool{},
		quota: recording.NewQuota(g.options.Limits.Recorded),
		rules: rules{may: grant.May, proof: grant.Proof, environment: g.options.Environment},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.reach = sync.OnceValues(c.login)
	return c
}

// elapsed is the time since the beginning.
func (c *connection) elapsed() time.Duration { return time.Since(c.since) }

// serve serves the connection to its end.
func (c *connection) serve(client ssh.Conn, channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) {
	c.lock.Lock()
	c.conn = client
	ended := c.ending
	c.lock.Unlock()
	if ended {
		_ = client.Close()
	}
	c.all.Go(func() { c.globals(requests) })
	c.all.Go(c.watch)
	c.all.Go(func() { c.keepAlive(client, "the client no longer answers") })
	for n := range channels {
		c.opened(n)
	}
	c.cancel()
	c.all.Wait()
	c.over("closed by the client")
}

// over writes down that the session has ended, once.
func (c *connection) over(outcome string) {
	c.once.Do(func() {
		c.cancel()
		c.gate.forget(c)
		c.become(outcome)
		c.gate.counts.bytes.WithLabelValues("in").Add(float64(c.in.Load()))
		c.gate.counts.bytes.WithLabelValues("out").Add(float64(c.out.Load()))
		c.audit(audit.Ended)
	})
}

// audit writes down what can no longer be kept from happening. That it could not be written is counted and logged.
func (c *connection) audit(event audit.Event) {
	if err := c.gate.options.Auditor.Write(c.record(event)); err != nil {
		c.gate.counts.auditFailed.Inc()
		c.gate.options.Logger.Error("the end of an SSH session is not in the audit log", "session", c.id, "error", err)
	}
}

// become notes what became of the session. What happened first counts.
func (c *connection) become(outcome string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.outcome = cmp.Or(c.outcome, outcome)
}

// record is the session as the audit log has it.
func (c *connection) record(event audit.Event) audit.Record {
	c.lock.Lock()
	defer c.lock.Unlock()
	r := audit.Record{
		Time: c.began, Event: event, Session: c.id, Who: c.grant.Who, Target: c.grant.Target.String(), Account: c.grant.Account, Gateway: c.gate.options.Name,
		Client: c.client.String(), Token: c.grant.ID.String(), Rule: c.grant.Rule, Fitness: c.grant.Fitness, May: c.grant.May.Names(),
	}
	if event == audit.Ended {
		r.Time, r.Started, r.Seconds, r.Outcome = c.gate.now(), c.began, c.elapsed().Seconds(), c.outcome
		r.BytesIn, r.BytesOut, r.Channels, r.Requests, r.Recordings, r.Unrecorded = c.in.Load(), c.out.Load(), c.done, c.refused, c.recordings, c.unrecorded
		r.Connections, r.MoreConnections = c.links, c.moreLinks
	}
	return r
}

// note adds to one of the lists of the audit record.
func (c *connection) note(list *[]string, what string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	switch {
	case len(*list) < maxNoted:
		*list = append(*list, what)
	case len(*list) == maxNoted:
		*list = append(*list, "and more")
	}
}

// noteRefused writes down and counts what was refused.
func (c *connection) noteRefused(kind, reason string) {
	c.note(&c.refused, printable(fmt.Sprintf("%.40s: %s", kind, reason)))
	switch kind {
	case "shell", "exec", "subsystem", "pty-req", "auth-agent-req@openssh.com", "x11-req", "session", "direct-tcpip", "tcpip-forward", "forwarded-tcpip", "x11":
	default: // clients must not make up names of metrics
		kind = "other"
	}
	c.gate.counts.requestsRefused.WithLabelValues(kind).Inc()
}

// end ends the session from this side: whoever sits in front of it is told why, if that takes no longer than two seconds.
func (c *connection) end(reason string) {
	c.lock.Lock()
	if c.ending {
		c.lock.Unlock()
		return
	}
	c.ending = true
	c.outcome = cmp.Or(c.outcome, reason)
	conn := c.conn
	var told sync.WaitGroup
	for s := range c.sessions {
		told.Go(func() { s.say("the session is ended: " + reason) })
	}
	c.lock.Unlock()
	if conn == nil {
		return // serve sees that it is ending
	}
	c.gate.options.Logger.Info("an SSH session is ended", "session", c.id, "reason", reason)
	late := time.AfterFunc(2*time.Second, func() { _ = conn.Close() }) // then nothing can be told any more, and what waits ends
	defer late.Stop()
	told.Wait()
	_ = conn.Close()
}

// watch looks every second: recordings are flushed, and times that are over end the session.
func (c *connection) watch() {
	limits := c.gate.options.Limits
	total := limits.Total
	if c.grant.SessionLimit > 0 {
		total = min(total, c.grant.SessionLimit)
	}
	ticks := time.NewTicker(min(time.Second, limits.Idle, total))
	defer ticks.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-ticks.C:
		}
		now := c.elapsed()
		switch {
		case now >= total:
			c.end(fmt.Sprintf("it has lasted %v, which is as long as it may", total))
		case now-time.Duration(c.moved.Load()) >= limits.Idle:
			c.end(fmt.Sprintf("nothing was sent or received for %v", limits.Idle))
		}
		c.lock.Lock()
		flush := make([]*session, 0, len(c.sessions))
		for s := range c.sessions {
			flush = append(flush, s)
		}
		c.lock.Unlock()
		for _, s := range flush {
			s.recorded(func(w *recording.Writer) error { return w.Flush(now) })
		}
	}
}

// keepAlive asks the other side again and again whether it is there, and closes the connection when three questions' time has gone without an answer.
func (c *connection) keepAlive(conn ssh.Conn, otherwise string) {
	every := c.gate.options.Limits.KeepAlive
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-time.After(every):
		}
		silent := time.AfterFunc(3*every, func() {
			c.become(otherwise)
			_ = conn.Close() // which ends the question
		})
		_, _, err := conn.SendRequest("keepalive@openssh.com", true, nil) // any answer will do
		silent.Stop()
		if err != nil {
			return
		}
	}
}

// globals answers the client's requests that belong to no channel.
func (c *connection) globals(requests <-chan *ssh.Request) {
	for r := range requests {
		v := c.rules.global(r.Type)
		switch v.do {
		case forward:
			target, err := c.reach()
			if err != nil {
				c.answer(r.Reply(false, nil))
				continue
			}
			ok, data, err := target.SendRequest(r.Type, true, r.Payload)
			c.answer(r.Reply(ok && err == nil, data))
		case refuse:
			c.noteRefused(r.Type, v.reason)
			c.answer(r.Reply(false, nil))
		default:
			c.answer(r.Reply(v.do == settle, nil))
		}
	}
}

// answer looks at the error of an answer. It can only be that the connection is gone, which whoever reads from it notices.
func (c *connection) answer(err error) {
	if err != nil {
		c.gate.options.Logger.Debug("an answer could not be sent", "session", c.id, "error", err)
	}
}

// opened takes a channel that the client wants to open. It does not wait.
func (c *connection) opened(n ssh.NewChannel) {
	where, what, reason := c.rules.channel(n.ChannelType(), n.ExtraData(), c.grant.Target)
	if where == nowhere {
		c.noteRefused(n.ChannelType(), reason)
		c.answer(n.Reject(ssh.Prohibited, "holdfast: "+reason))
		return
	}
	windows := 2
	if where == toTarget {
		windows = 1 // the other side is a TCP connection, of which the kernel keeps what waits
	}
	c.carry(n, windows, func() {
		switch where {
		case toSession:
			c.session(n)
		case throughTarget:
			c.through(n, what)
		case toTarget:
			c.direct(n, what)
		}
	})
}

// window is how much the other side of a channel may send before it is taken: the library fixes it, and keeps so much of each channel.
const window = 2 << 20

// carry serves a channel that one of the sides wants to open, if there may be one more: there is a bound for their number, and one for what they may hold
// together that nobody has taken, of which a channel has as many windows as it has sides that are channels. It does not wait.
func (c *connection) carry(n ssh.NewChannel, windows int, serve func()) {
	limits := c.gate.options.Limits
	hold := int64(windows) * window
	channels, unread := c.channels.Add(1), c.unread.Add(hold)
	free := func() { c.channels.Add(-1); c.unread.Add(-hold) }
	var reason string
	switch {
	case channels > int64(limits.Channels):
		reason = fmt.Sprintf("a session has at most %d channels at a time", limits.Channels)
	case unread > limits.Unread:
		reason = fmt.Sprintf("the channels of a session hold at most %d MiB unread, and this one may hold %d MiB more", limits.Unread>>20, hold>>20)
	default:
		c.all.Go(func() {
			defer free()
			serve()
		})
		return
	}
	free()
	c.noteRefused(n.ChannelType(), "too many channels")
	c.answer(n.Reject(ssh.ResourceShortage, "holdfast: "+reason))
}

// login is what reach does once: it connects to the target, when the first channel needs it. A client that only jumps never does.
func (c *connection) login() (ssh.Conn, error) {
	target, channels, requests, err := c.gate.login(c.ctx, c.grant, c.rules, c.id, c.openAgent)
	if err != nil {
		var failed *unreachable
		if errors.As(err, &failed) {
			c.gate.counts.targetsFailed.WithLabelValues(failed.reason).Inc()
		}
		c.note(&c.refused, "target: "+err.Error())
		c.gate.options.Logger.Warn("an SSH target could not be used", "session", c.id, "target", c.grant.Target, "error", err)
		return nil, err
	}
	c.all.Go(func() {
		<-c.ctx.Done()
		_ = target.Close()
	})
	c.all.Go(func() { c.keepAlive(target, "the target no longer answers") })
	c.all.Go(func() {
		for r := range requests {
			c.answer(r.Reply(false, nil)) // its questions whether we are there; any answer will do
		}
	})
	c.all.Go(func() {
		for n := range channels {
			c.fromTarget(n)
		}
	})
	return target, nil
}

// openAgent opens a channel to the agent that the client forwards. When the context ends it is closed, or no longer waited for.
func (c *connection) openAgent(ctx context.Context) (ssh.Channel, error) {
	channel, requests, err := c.openWithin(ctx, c.conn, agentChannel, nil)
	if err != nil {
		return nil, err
	}
	go ssh.DiscardRequests(requests)
	context.AfterFunc(ctx, func() { _ = channel.Close() })
	return channel, nil
}

const agentChannel = "auth-agent@openssh.com"

// errUnanswered is why a channel is not there that the other side should have opened or refused.
var errUnanswered = errors.New("it was not answered in time")

// openWithin opens a channel, and gives up when the context ends: the library waits as long as the connection lasts, and so it counts among the session's
// channels until then. What is opened later is closed.
func (c *connection) openWithin(ctx context.Context, conn ssh.Conn, kind string, extra []byte) (ssh.Channel, <-chan *ssh.Request, error) {
	type opened struct {
		channel  ssh.Channel
		requests <-chan *ssh.Request
		err      error
	}
	answer := make(chan opened)
	go func() {
		channel, requests, err := conn.OpenChannel(kind, extra)
		select {
		case answer <- opened{channel, requests, err}:
		case <-ctx.Done():
			if err == nil {
				go ssh.DiscardRequests(requests)
				_ = channel.Close()
			}
			c.channels.Add(-1)
			c.unread.Add(-window)
		}
	}()
	select {
	case o := <-answer:
		return o.channel, o.requests, o.err
	case <-ctx.Done():
		c.channels.Add(1)
		c.unread.Add(window)
		return nil, nil, errUnanswered
	}
}
