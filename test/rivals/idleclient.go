package main

import (
	"context"
	"errors"
	"time"
)

// idleClient is a TCP connection from the client to the victim, over which nobody sends anything.
type idleClient struct {
	server, client *program
}

// connect makes the connection and returns when the system knows of it.
func (s *session) connect(ctx context.Context, address string) (c *idleClient, err error) {
	c = new(idleClient)
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	if c.server, err = s.lab.start(ctx, victim, s.self, "hold"); err != nil {
		return c, err
	}
	if _, ok := c.server.line(patience); !ok {
		return c, errors.New("the server of the idle client does not listen")
	}
	if c.client, err = s.lab.start(ctx, client, s.self, "idle", address); err != nil {
		return c, err
	}
	far, ok := c.client.line(patience)
	if !ok {
		return c, errors.New("the idle client does not get a connection")
	}
	return c, s.connected(ctx, s.lab, far.text, address+":"+servicePort)
}

// noticed returns how many milliseconds after began the client noticed that its connection is no more; -1 if it does not
// within idlePatience from now.
func (c *idleClient) noticed(began time.Time) float64 {
	ended, ok := c.client.line(idlePatience)
	if !ok {
		return -1
	}
	return float64(ended.at.Sub(began).Round(100*time.Microsecond)) / 1e6
}

func (c *idleClient) stop() {
	for _, p := range []*program{c.client, c.server} {
		if p != nil {
			p.stop()
		}
	}
}
