package store

import (
	"errors"
	"fmt"
	"slices"
)

// Client is a Store over the network, whose members may change.
type Client interface {
	Store
	// SetEndpoints exchanges the members that are spoken to, the nearest first. What is under way at a member that is left goes
	// on at another one: calls try again, and watches resume without a gap. The members that stay keep their connections.
	SetEndpoints(endpoints []string) error
}

var _ Client = (*client)(nil)

// SetEndpoints implements Client.
func (c *client) SetEndpoints(endpoints []string) error {
	if len(endpoints) == 0 || len(endpoints) > maxEndpoints {
		return fmt.Errorf("opening the store: %d endpoints, expected 1 to %d", len(endpoints), maxEndpoints)
	}
	var addresses []string
	for _, endpoint := range endpoints {
		address, err := hostPort(endpoint)
		if err != nil {
			return err
		}
		if !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	c.known.Lock()
	defer c.known.Unlock()
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	before := c.members()
	now := make([]*member, 0, len(addresses))
	for _, address := range addresses {
		i := slices.IndexFunc(before, func(m *member) bool { return m.endpoint == address })
		if i >= 0 {
			now = append(now, before[i])
			continue
		}
		m, err := c.dial(address)
		if err != nil {
			return errors.Join(err, closeMembers(now, before))
		}
		now = append(now, m)
	}
	c.all.Store(&now)
	if !slices.Contains(now, c.current.Load()) {
		c.current.Store(now[0])
	}
	for _, m := range before {
		if !slices.Contains(now, m) {
			m.leave()
		}
	}
	return closeMembers(before, now)
}

// closeMembers closes the connections of those members that are not among the others.
func closeMembers(members, but []*member) error {
	var errs []error
	for _, m := range members {
		if !slices.Contains(but, m) {
			errs = append(errs, m.conn.Close())
		}
	}
	return errors.Join(errs...)
}

// members are the members as of now. The slice is never changed.
func (c *client) members() []*member {
	if all := c.all.Load(); all != nil {
		return *all
	}
	return nil
}

// preferred returns the member that calls try first.
func (c *client) preferred() *member { return c.current.Load() }

// avoid makes another member the first choice, if m still is it.
func (c *client) avoid(m *member) { c.current.CompareAndSwap(m, after(c.members(), m, 1)) }

// after is the member some places after m, or the first if m has been left.
func after(members []*member, m *member, places int) *member {
	i := slices.Index(members, m)
	if i < 0 {
		return members[0]
	}
	return members[(i+places)%len(members)]
}
