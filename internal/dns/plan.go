package dns

import (
	"net/netip"
	"sync/atomic"
)

// Picks without a lock (docs/decisions/0021-picks-ahead.md): what a turn will give out next is worked out ahead, and whoever answers
// reserves as much of it as its batch of queries needs, with one atomic addition. What was not reserved when something else happens
// (an answer of another holder, a load sample, a new view) is thrown away, and the rotation stands where the last reserved pick left
// it: the answers are the same ones, in the same order, as if each had been picked when it was asked for.

// maxPlan bounds a plan. It starts with what is asked for and doubles as long as plans are used up, so that working ahead costs at most
// about as much again as the picks that were used.
const maxPlan = 512

// planClosed is beyond what is ever taken of a plan.
const planClosed = 1 << 62

// cacheLine keeps what different processors write apart.
const cacheLine = 64

// plan is the next picks of a turn for one pool, one address each. All but taken is immutable.
type plan struct {
	pool  *pool
	picks []uint32 // of pool.options
	_     [cacheLine]byte
	taken atomic.Uint64 // how many are reserved; more than there are, when it is used up or closed
	_     [cacheLine - 8]byte
}

// option is one address that a pool may give out.
type option struct {
	node    int // of pool.Nodes
	address netip.Addr
	wire    [16]byte // the address as record data; IPv4 has four octets
}

// optionsOf lists the addresses of a pool's nodes, node by node; starts says where those of each node begin.
func optionsOf(nodes []Node) (options []option, starts []int) {
	for i := range nodes {
		starts = append(starts, len(options))
		for _, a := range nodes[i].Addresses {
			o := option{node: i, address: a}
			copy(o.wire[:], a.AsSlice())
			options = append(options, o)
		}
	}
	return options, starts
}

// take reserves up to count picks. It returns none when the plan is for another pool, or used up.
func (p *plan) take(of *pool, count int) []uint32 {
	if p == nil || p.pool != of {
		return nil
	}
	end := p.taken.Add(uint64(count))
	start, length := end-uint64(count), uint64(len(p.picks))
	if start >= length {
		return nil
	}
	return p.picks[start:min(end, length)]
}

// reserve hands out the next picks of a pool that has a usable node: at least one, at most count. They are the caller's alone.
func (t *turn) reserve(p *pool, count int) []uint32 {
	if picks := t.plan.Load().take(p, count); len(picks) > 0 {
		return picks
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if picks := t.plan.Load().take(p, count); len(picks) > 0 {
		return picks // of a plan that another has made meanwhile
	}
	t.settle()
	count = min(count, maxPlan)
	next := t.work(p, max(count, t.ahead))
	next.taken.Store(uint64(count))
	t.plan.Store(next)
	return next.picks[:count]
}

// lock takes the turn's lock and brings it to where the picks that were reserved have left it.
func (t *turn) lock() {
	t.mu.Lock()
	t.settle()
}

// work works out the next picks. mu is held, and no plan is open.
func (t *turn) work(p *pool, length int) *plan {
	next := &plan{pool: p, picks: make([]uint32, length)}
	t.after.CopyFrom(&t.rotation)
	counts := t.clearCounts(len(p.Nodes))
	for k := range next.picks {
		i := t.after.Pick(p.Policy, p.choices)
		n := &p.Nodes[i]
		position := t.next[n.LNN] + counts[i]
		counts[i]++
		next.picks[k] = uint32(p.starts[i] + int(position%uint32(len(n.Addresses))))
	}
	return next
}

func (t *turn) clearCounts(nodes int) []uint32 {
	if cap(t.counts) < nodes {
		t.counts = make([]uint32, nodes)
	}
	t.counts = t.counts[:nodes]
	clear(t.counts)
	return t.counts
}

// settle closes the plan, if there is one, and brings the turn to where what was reserved of it leaves it. mu is held.
func (t *turn) settle() {
	closed := t.plan.Swap(nil)
	if closed == nil {
		return
	}
	p, length := closed.pool, len(closed.picks)
	taken := int(min(closed.taken.Swap(planClosed), uint64(length)))
	if taken == length {
		t.rotation, t.after = t.after, t.rotation
		t.ahead = min(2*length, maxPlan)
	} else {
		for range taken {
			t.rotation.Pick(p.Policy, p.choices)
		}
		t.ahead = min(2*taken, maxPlan)
	}
	counts := t.clearCounts(len(p.Nodes))
	for _, k := range closed.picks[:taken] {
		counts[p.options[k].node]++
	}
	for i, answers := range counts {
		if answers == 0 {
			continue
		}
		t.moveOn(p.Nodes[i].LNN, answers)
		if p.shares() {
			t.count(p.Nodes[i].LNN, answers)
		}
	}
}
