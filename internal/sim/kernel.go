package sim

import (
	"time"

	"github.com/holdfast/holdfast/internal/address"
)

// lifetime is after how long without renewal a kernel takes a moving address off by itself.
const lifetime = address.ValidLifetime

// forEver is the end of what has no lifetime.
const forEver = time.Duration(1<<63 - 1)

// kernel is the addresses of one machine. It answers for them whatever the processes do, as long as the machine runs and the guard's
// filter lets it.
type kernel struct {
	until    []time.Duration // by address: when its lifetime ends; 0: it is not there
	filtered bool            // the guard's filter is on
	expiring []bool          // by address: the calendar has its end
}

func newKernel(addresses int) kernel {
	return kernel{until: make([]time.Duration, addresses), expiring: make([]bool, addresses)}
}

// has reports whether an address is there.
func (k *kernel) has(a int) bool { return k.until[a] != 0 }

// put puts an address on, or renews its lifetime.
func (n *node) put(a int, moves bool) {
	k := &n.kernel
	fresh := !k.has(a)
	if k.until[a] = forEver; moves {
		k.until[a] = n.s.now + lifetime
		n.expire(a)
	}
	if fresh && n.visible(a) {
		n.seen(a)
	}
}

// expire has the kernel look at the end of an address's lifetime.
func (n *node) expire(a int) {
	if n.kernel.expiring[a] {
		return
	}
	n.kernel.expiring[a] = true
	n.s.at(n.kernel.until[a], func() {
		n.kernel.expiring[a] = false
		switch until := n.kernel.until[a]; {
		case until == 0 || until == forEver || n.suspended > 0:
		case until > n.s.now:
			n.expire(a)
		default:
			n.s.say("%s the kernel drops %s, whose lifetime has ended", n, n.s.addresses[a])
			n.off(a)
			n.kernelChanged()
		}
	})
}

// off takes an address off.
func (n *node) off(a int) {
	if !n.kernel.has(a) {
		return
	}
	if n.visible(a) {
		n.unseen(a)
	}
	n.kernel.until[a] = 0
}

// kernelChanged tells the agent's process that somebody else changed its addresses.
func (n *node) kernelChanged() {
	if p := n.process; p != nil {
		p.later(n.chance.between(50*time.Microsecond, time.Millisecond), p.reread)
	}
}

// visible reports whether a machine answers for an address.
func (n *node) visible(a int) bool {
	return n.kernel.has(a) && !n.kernel.filtered && n.suspended == 0 && n.unpowered == 0
}

// resumeKernel has the kernel's clock stand still with the machine: what is left of a lifetime then is left when it goes on.
func (n *node) resumeKernel(stood time.Duration) {
	for a, until := range n.kernel.until {
		if until != 0 && until != forEver {
			n.kernel.until[a] = until + stood
			n.expire(a)
		}
	}
}
