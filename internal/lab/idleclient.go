package lab

import (
	"bufio"
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// How an idle client behaves: it sends nothing unless it is told to speak, and when its connection ends it makes another at once. A packet that opens a
// connection and is lost would be sent again by TCP after a second; this client has less patience.
const (
	idleDialPatience = 5 * time.Millisecond
	idleDialPause    = time.Millisecond // after a connection was refused
	idleFirstWord    = 250 * time.Millisecond
)

// idleClient keeps one TCP connection to an address. Safe for concurrent use.
type idleClient struct {
	address netip.Addr

	mu     sync.Mutex
	node   string    // whom it reaches; empty: nobody
	broke  time.Time // when its connection ended, since the last reset; zero: it did not
	stands time.Time // when the present one was made

	connection net.Conn // the present one; nil: none
	answers    int      // to what it said, since the last reset
}

// run connects, and connects again, until the context ends.
func (c *idleClient) run(ctx context.Context) {
	dialer := net.Dialer{Timeout: idleDialPatience, KeepAlive: -1} // or its own keepalive would find out
	for ctx.Err() == nil {
		connection, err := dialer.DialContext(ctx, "tcp4", netip.AddrPortFrom(c.address, echoPort).String())
		if err != nil {
			pause(ctx, idleDialPause)
			continue
		}
		c.keep(ctx, connection)
	}
}

// keep waits until the connection ends. It counts from when it was made if the node then says its name, so that it is one that
// was accepted.
func (c *idleClient) keep(ctx context.Context, connection net.Conn) {
	made := time.Now()
	defer context.AfterFunc(ctx, func() { connection.Close() })()
	defer connection.Close()
	reader := bufio.NewReader(connection)
	_ = connection.SetReadDeadline(made.Add(idleFirstWord))
	node, err := reader.ReadString('\n')
	if err != nil {
		return
	}
	_ = connection.SetReadDeadline(time.Time{})
	c.mu.Lock()
	c.node, c.stands, c.connection = strings.TrimSpace(node), made, connection
	c.mu.Unlock()
	for err == nil { // unless it speaks nothing comes, until its end does
		if _, err = reader.ReadString('\n'); err == nil {
			c.mu.Lock()
			c.answers++
			c.mu.Unlock()
		}
	}
	ended := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.node, c.connection = "", nil
	if c.broke.IsZero() {
		c.broke = ended
	}
}

func (c *idleClient) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broke, c.answers = time.Time{}, 0
}

// speak says a line on its connection, if it has one. Whether it still works shows in the answer.
func (c *idleClient) speak() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connection != nil {
		_, _ = c.connection.Write([]byte("are you there?\n"))
	}
}

// answered counts the answers since the last reset.
func (c *idleClient) answered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answers
}

// state says whom it reaches, and what has become of its connection since the last reset.
func (c *idleClient) state() (node string, broke, stands time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node, c.broke, c.stands
}
