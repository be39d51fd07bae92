package main

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// crowdSource is how many connections come from one address: half of what a client may have.
const crowdSource = 32

// crowd is many connections at once.
type crowd struct {
	ground   *ground
	count    int
	began    atomic.Int64 // connections
	open     atomic.Int64
	mostOpen atomic.Int64
	ended    chan struct{}
	converse func(net.Conn)
}

func newCrowd(g *ground) *crowd { return &crowd{ground: g, ended: make(chan struct{})} }

// slow has each connection send a query an octet a second.
func (c *crowd) slow() {
	c.count = 1024
	c.converse = func(conn net.Conn) {
		for _, octet := range framed(question(asked("w", 0, false), typeA, 1232, nil)) {
			if _, err := conn.Write([]byte{octet}); err != nil {
				return
			}
			if !c.wait(conn, time.Second) {
				return
			}
		}
	}
}

// stay has each connection ask once, and wait.
func (c *crowd) stay() {
	c.count = 1100
	c.converse = func(conn net.Conn) {
		if _, err := conn.Write(framed(question(asked("w", 0, false), typeA, 1232, nil))); err != nil {
			return
		}
		c.wait(conn, longestFire)
	}
}

// wait reads for a while; false: the server has closed, or the attack is over.
func (c *crowd) wait(conn net.Conn, length time.Duration) bool {
	_ = conn.SetReadDeadline(time.Now().Add(length))
	_, err := io.Copy(io.Discard, conn)
	select {
	case <-c.ended:
		return false
	default:
		return err != nil && isTimeout(err)
	}
}

// run has all of them connect again and again until the time is over.
func (c *crowd) run(behave func(*crowd), length time.Duration) fired {
	behave(c)
	var under sync.WaitGroup
	for i := range c.count {
		under.Go(func() { c.member(c.ground.crowdAddress(i / crowdSource)) })
	}
	time.Sleep(length)
	close(c.ended)
	under.Wait()
	return fired{Sent: int(c.began.Load()), Connected: int(c.mostOpen.Load())}
}

// memberPause is how long a member waits before it connects again.
const memberPause = 100 * time.Millisecond

func (c *crowd) member(from netip.Addr) {
	dialer := net.Dialer{Timeout: honestPatience, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	for {
		if conn, err := dialer.Dial("tcp", c.ground.service.String()); err == nil {
			c.meet(conn)
		}
		select {
		case <-c.ended:
			return
		case <-time.After(memberPause):
		}
	}
}

// meet has one connection behave as it should, until the attack is over.
func (c *crowd) meet(conn net.Conn) {
	c.began.Add(1)
	open := c.open.Add(1)
	for most := c.mostOpen.Load(); open > most && !c.mostOpen.CompareAndSwap(most, open); most = c.mostOpen.Load() {
	}
	done := make(chan struct{})
	go func() {
		select {
		case <-c.ended:
		case <-done:
		}
		conn.Close()
	}()
	c.converse(conn)
	close(done)
	c.open.Add(-1)
}
