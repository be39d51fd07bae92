package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Times of a Client.
const (
	connectAgain = time.Second     // between two tries to reach the guard
	answerLimit  = 2 * time.Second // after which a guard that has not answered is taken for one that does not work
)

// ClientOptions are what the agent's side works with.
type ClientOptions struct {
	Path   string // of the guard's socket; empty: DefaultSocket
	Logger *slog.Logger
	Told   func(what string) // the guard has silenced this node; must not block
}

// Client is the agent's side. It tells the guard what it needs to know, and waits for it nowhere: the agent works without a guard.
type Client struct {
	ClientOptions
	kick chan struct{} // the addresses are to be sent; holds one

	mu       sync.Mutex
	conn     *os.File // nil: not connected
	deadline int64
	moving   []netip.Addr
	unseen   time.Time // since when a deadline is on its way and not answered; zero: none
	absent   string    // why the guard is not there
	without  string    // what it cannot do
	gone     bool      // goodbye was said, or another process is the agent
	yielding bool      // another process may become the agent at any moment: the end of the connection is no surprise
	once     sync.Once
	replaced chan struct{} // closed when the guard has ended the connection because another process is the agent
}

// NewClient returns a Client that connects once it runs.
func NewClient(o ClientOptions) *Client {
	if o.Path == "" {
		o.Path = DefaultSocket
	}
	if o.Told == nil {
		o.Told = func(string) {}
	}
	return &Client{ClientOptions: o, kick: make(chan struct{}, 1), replaced: make(chan struct{}), absent: "it has not been reached yet"}
}

// Deadline hands over when the right to hold runs out, as a reading of CLOCK_BOOTTIME in nanoseconds: Forever for a right without end,
// 0 for none. It does not block; what cannot be sent now is left for the next one.
func (c *Client) Deadline(at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = at
	c.sendDeadline()
}

// sendDeadline sends it if somebody is there. c.mu is held.
func (c *Client) sendDeadline() {
	if c.conn == nil || c.gone {
		return
	}
	if c.unseen.IsZero() {
		c.unseen = time.Now()
	}
	c.sendNow(message{kind: kindDeadline, deadline: c.deadline})
}

// sendNow sends a message without waiting for room. c.mu is held.
func (c *Client) sendNow(m message) {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Write(func(fd uintptr) bool {
		_ = unix.Sendto(int(fd), m.bytes(), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil) // a guard that does not answer shows in Absent
		return true
	})
}

// Moving hands over the addresses of the cluster that may move, whether this node holds them or not.
func (c *Client) Moving(addresses []netip.Addr) {
	c.mu.Lock()
	c.moving = slices.Clone(addresses)
	c.mu.Unlock()
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// Absent says why there is no guard that works; empty if there is one.
func (c *Client) Absent() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.conn == nil:
		return c.absent
	case !c.unseen.IsZero() && time.Since(c.unseen) > answerLimit:
		return "it is connected and does not answer"
	}
	return ""
}

// Without says what the guard cannot do on this kernel; empty if it can do all.
func (c *Client) Without() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.without
}

// Goodbye says that every moving address is off this node, in an orderly end, and closes the connection. Nothing is handed over later.
func (c *Client) Goodbye() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	if c.conn != nil {
		c.sendNow(message{kind: kindGoodbye})
		_ = c.conn.Close()
		c.conn = nil
	}
}

// Successor names the process that may connect besides this one, to replace it; 0: none may. It reports whether the guard is there to
// hear it.
func (c *Client) Successor(pid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil || c.gone {
		return false
	}
	c.sendNow(message{kind: kindSuccessor, pid: int32(pid)})
	return true
}

// Yield says whether another process may become the agent at any moment.
func (c *Client) Yield(yields bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.yielding = yields
}

func (c *Client) yields() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.yielding
}

// Take says that this process is the agent from now on, in place of the one that named it its successor.
func (c *Client) Take() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.sendNow(message{kind: kindTake})
	}
}

// Leave hands nothing over any more, since another process is the agent, and waits for the guard to say so by ending the connection.
// What ends it before would look like the agent's death.
func (c *Client) Leave(ctx context.Context) {
	c.mu.Lock()
	connected := c.conn != nil
	c.gone = true
	c.mu.Unlock()
	if !connected {
		return
	}
	select {
	case <-c.replaced:
	case <-ctx.Done():
	}
}

// Run keeps up the connection until the context ends. It does not end the connection: the guard would take that for the agent's death.
// Goodbye does.
func (c *Client) Run(ctx context.Context) {
	for ctx.Err() == nil {
		var err error
		if !c.yields() {
			err = c.session(ctx)
		}
		c.mu.Lock()
		if err != nil && c.conn == nil {
			if text := err.Error(); text != c.absent {
				c.absent = text
				c.Logger.Warn("there is no guard", "error", err)
			}
		}
		c.mu.Unlock()
		timer := time.NewTimer(connectAgain)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// session is one connection. It returns nil when the context ended.
func (c *Client) session(ctx context.Context) error {
	conn, err := connect(c.Path)
	if err != nil {
		return fmt.Errorf("reaching the guard at %s: %w; does holdfast-guard.service run on this node?", c.Path, err)
	}
	if err := c.greet(conn); err != nil {
		return errors.Join(err, conn.Close())
	}
	c.mu.Lock()
	if c.gone {
		c.mu.Unlock()
		return conn.Close()
	}
	c.conn, c.unseen = conn, time.Time{}
	if c.deadline != 0 {
		c.sendDeadline()
	}
	c.mu.Unlock()
	c.Logger.Info("the guard is there", "without", c.Without())
	ended := make(chan error, 1)
	go func() { ended <- c.listen(conn) }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return c.lost(conn, err)
		case <-c.kick:
			if err := c.sendMoving(conn); err != nil {
				return c.lost(conn, err)
			}
		}
	}
}

// connectionFD is the least number of the connection's descriptor. When a process dies, the kernel closes its descriptors one after the
// other, the highest first as it happens, and waits some ten milliseconds over each packet socket (synchronize_net). The guard is to
// hear of the death before that.
const connectionFD = 1 << 13

// connect opens the connection.
func connect(path string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	if high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, connectionFD); err == nil { // refused where so many files are not allowed
		_ = unix.Close(fd)
		fd = high
	}
	return os.NewFile(uintptr(fd), path), nil
}

// greet says hello, hands over the addresses, and hears who is there.
func (c *Client) greet(conn *os.File) error {
	if err := conn.SetDeadline(time.Now().Add(answerLimit)); err != nil {
		return err
	}
	if _, err := conn.Write(message{kind: kindHello, version: version}.bytes()); err != nil {
		return fmt.Errorf("greeting the guard: %w", err)
	}
	m, err := receive(conn)
	switch {
	case err != nil:
		return fmt.Errorf("greeting the guard: %w", err)
	case m.kind == kindRefused:
		return fmt.Errorf("the guard refuses this agent: %s", m.text)
	case m.kind != kindWelcome || m.version != version:
		return fmt.Errorf("the guard speaks another version than this agent's %d: run both from one version of holdfast, and start the guard anew", version)
	}
	c.mu.Lock()
	c.without = m.text
	c.mu.Unlock()
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	return c.sendMoving(conn)
}

// sendMoving sends the addresses, waiting for room for a bounded time.
func (c *Client) sendMoving(conn *os.File) error {
	c.mu.Lock()
	list := movingMessages(c.moving)
	c.mu.Unlock()
	if err := conn.SetWriteDeadline(time.Now().Add(answerLimit)); err != nil {
		return err
	}
	for _, m := range list {
		if _, err := conn.Write(m.bytes()); err != nil {
			return fmt.Errorf("handing the addresses to the guard: %w", err)
		}
	}
	return conn.SetWriteDeadline(time.Time{})
}

// listen takes in what the guard says until the connection ends.
func (c *Client) listen(conn *os.File) error {
	for {
		m, err := receive(conn)
		if err != nil {
			return fmt.Errorf("the connection to the guard ended: %w", err)
		}
		switch m.kind {
		case kindSeen:
			c.mu.Lock()
			if m.deadline == c.deadline {
				c.unseen = time.Time{}
			} else {
				c.unseen = time.Now() // it works, and has a later one still to read
			}
			c.mu.Unlock()
		case kindSilenced:
			c.Told(m.text)
		case kindRefused:
			return fmt.Errorf("the guard refuses what this agent says: %s", m.text)
		}
	}
}

func receive(conn *os.File) (message, error) {
	var buffer [maxMessage]byte
	n, err := conn.Read(buffer[:])
	if err != nil {
		return message{}, err
	}
	return parse(buffer[:n])
}

// lost enters the end of a connection.
func (c *Client) lost(conn *os.File, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone || c.yielding {
		if c.conn != nil {
			_ = c.conn.Close()
			c.conn = nil
			c.once.Do(func() { close(c.replaced) })
		}
		return nil
	}
	_ = conn.Close()
	c.conn, c.without = nil, ""
	return err
}
