package address

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/holdfast/holdfast/internal/linux/tickle"
)

// Connection is one client's connection: the local end is a held address and its port, the remote end the client's.
type Connection = tickle.Connection

// Bounds of what is known of clients' connections. What is beyond is left out and counted: such a client notices a failover at its
// next packet, as without any of this.
const (
	MaxPerAddress = 10_000  // tracked for one address
	MaxPerNode    = 50_000  // tracked for all addresses of this node
	MaxKept       = 100_000 // kept for other nodes' addresses, of which this node is the successor
	MaxPush       = 4_096   // in one message to a successor; the rest follows in the next
)

// Track picks from the connections that were seen those that are followed: what was followed before and is still there goes on, and
// new ones come in as long as there is room, in their order. It returns how many were left out, too. Connections of a host with
// itself, and with hosts of one link, which cannot be woken, do not count.
func Track(before map[Connection]bool, seen []Connection) (tracked map[Connection]bool, omitted int) {
	tracked = make(map[Connection]bool, min(len(seen), MaxPerNode))
	each := map[netip.Addr]int{}
	add := func(c Connection) {
		if !tickle.Fit(c) || tracked[c] {
			return
		}
		if local := c.Local.Addr(); len(tracked) < MaxPerNode && each[local] < MaxPerAddress {
			tracked[c] = true
			each[local]++
			return
		}
		omitted++
	}
	var fresh []Connection
	for _, c := range seen {
		if before[c] {
			add(c)
		} else {
			fresh = append(fresh, c)
		}
	}
	if len(seen) > MaxPerAddress { // otherwise all fit, and their order does not matter
		slices.SortFunc(fresh, compareConnections)
	}
	for _, c := range fresh {
		add(c)
	}
	return tracked, omitted
}

func compareConnections(a, b Connection) int {
	if order := a.Local.Compare(b.Local); order != 0 {
		return order
	}
	return a.Remote.Compare(b.Remote)
}

// Push is one message of an owner to a successor: what changed since the one before, or, if it is full, the beginning of everything.
type Push struct {
	Sequence       uint64
	Full           bool
	Opened, Closed []Connection
}

// Outbox is an owner's side of the stream to one successor. It is a value without a clock; one message is under way at a time. The
// zero Outbox begins with a full message.
type Outbox struct {
	sequence uint64
	based    bool // the successor has everything up to the last message
	known    map[Connection]bool
	sent     *Push // under way
}

// Next returns the message that brings the successor to what is wanted, or its next part; false when there is nothing to say or the
// last one is still under way.
func (o *Outbox) Next(wanted map[Connection]bool) (Push, bool) {
	if o.sent != nil {
		return Push{}, false
	}
	push := Push{Full: !o.based}
	if push.Full {
		o.known = map[Connection]bool{}
	}
	for c := range wanted {
		if !o.known[c] {
			push.Opened = append(push.Opened, c)
		}
	}
	for c := range o.known {
		if !wanted[c] {
			push.Closed = append(push.Closed, c)
		}
	}
	if !push.Full && len(push.Opened)+len(push.Closed) == 0 {
		return Push{}, false
	}
	slices.SortFunc(push.Opened, compareConnections)
	slices.SortFunc(push.Closed, compareConnections)
	push.Closed = push.Closed[:min(len(push.Closed), MaxPush)]
	push.Opened = push.Opened[:min(len(push.Opened), MaxPush-len(push.Closed))]
	o.sequence++
	push.Sequence = o.sequence
	o.sent = &push
	return push, true
}

// Answered enters what became of the message that is under way. One that the successor did not take in for certain, or whose
// successor has lost the thread, makes the next one full.
func (o *Outbox) Answered(taken bool) {
	if o.sent == nil {
		return
	}
	push := o.sent
	o.sent = nil
	if o.based = taken; !taken {
		return
	}
	for _, c := range push.Opened {
		o.known[c] = true
	}
	for _, c := range push.Closed {
		delete(o.known, c)
	}
}

// Idle reports whether the successor has nothing of this node, so that the stream may be forgotten.
func (o *Outbox) Idle() bool { return o.sent == nil && o.based && len(o.known) == 0 }

// addressesOf lists the local addresses of connections, each once, sorted.
func addressesOf(connections []Connection) []netip.Addr {
	all := map[netip.Addr]bool{}
	for _, c := range connections {
		all[c.Local.Addr()] = true
	}
	return slices.SortedFunc(maps.Keys(all), netip.Addr.Compare)
}
