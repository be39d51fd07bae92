package api

import (
	"net"
	"sync"
	"time"
)

// writeTimeout bounds one write to a connection: a reader that has stopped reading for so long is cut off, so that it
// cannot hold a stream and its memory for ever.
const writeTimeout = 30 * time.Second

// boundedListener accepts at most a number of connections at once and closes those beyond it, which is counted: a caller
// learns at once, and the listener's own queue stays short for the others.
type boundedListener struct {
	net.Listener
	slots chan struct{}
	full  func()
}

func newBoundedListener(inner net.Listener, most int, full func()) *boundedListener {
	return &boundedListener{Listener: inner, slots: make(chan struct{}, most), full: full}
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return &boundedConn{Conn: conn, release: sync.OnceFunc(func() { <-l.slots })}, nil
		default:
			l.full()
			conn.Close()
		}
	}
}

// boundedConn gives back its slot when closed and bounds each write.
type boundedConn struct {
	net.Conn
	release func()
}

func (c *boundedConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *boundedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
