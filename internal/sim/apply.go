package sim

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/address"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// This file mirrors internal/agent/apply.go and what internal/address does with a wish: removals before additions, each addition,
// renewal and announcement only with the right to it, and all of them ended by a silence.

const retryUnlawfulAfter = 20 * time.Millisecond

// wish is what a look of the loop wants on the interfaces.
type wish struct {
	generation uint64
	silences   uint64
	holdings   []steering.Holding
	handing    map[netip.Addr]tenure.Statement // whose new owners are told as soon as they are off
}

// applied is what became of a wish.
type applied struct {
	generation uint64
	held, left map[netip.Addr]bool
	failed     bool
}

func (a applied) there() map[netip.Addr]bool {
	all := make(map[netip.Addr]bool, len(a.held)+len(a.left))
	maps.Copy(all, a.held)
	maps.Copy(all, a.left)
	return all
}

// applying is the state of the applier and the reconciler.
type applying struct {
	wish      wish
	inHand    bool // one is being carried out
	again     bool // and once more after it
	last      applied
	desired   map[int]steering.Holding // by address, as the reconciler has it
	silences  uint64
	renewedAt time.Time
}

// want hands a wish over when it differs from the last, or when the node was silenced since.
func (p *process) want(w *steering.World, holdings []steering.Holding, silences uint64) {
	moving := slices.ContainsFunc(holdings, func(h steering.Holding) bool { return h.Kind != steering.Static })
	same := p.silenced == silences || p.s.broken == BreakWish
	if p.generation > 0 && slices.Equal(holdings, p.wanted) && p.routesOf == w.Config && (!moving || same) {
		return
	}
	p.generation++
	p.changed(ofWish)
	p.wanted, p.routesOf, p.silenced = holdings, w.Config, silences
	handing := steering.Handing(w, p.incarnation(), p.changing)
	if p.promises.Give(handing); len(handing) > 0 {
		p.changed(ofPromises)
	}
	if p.s.broken != BreakGiven {
		p.promises.Bind(w) // what is told is not taken back by what is decided next
	}
	p.wish = wish{p.generation, silences, holdings, handing}
	p.carryOutSoon()
}

func (p *process) carryOutSoon() {
	if p.closing || p.generation == 0 {
		return
	}
	if p.inHand {
		p.again = true
		return
	}
	p.inHand = true
	p.later(p.chance.between(20*time.Microsecond, 200*time.Microsecond), func() { p.carryOut(p.wish) })
}

// kernelTime is how long the kernel takes for something.
func (p *process) kernelTime() time.Duration {
	return p.chance.between(30*time.Microsecond, 2*time.Millisecond) + p.chance.between(0, time.Duration(p.sluggish)*time.Millisecond)
}

// carryOut puts one wish into effect and remembers what really came of it.
func (p *process) carryOut(w wish) {
	holdings := w.holdings
	withheld := !p.permitted()
	if withheld {
		holdings = slices.DeleteFunc(slices.Clone(holdings), func(h steering.Holding) bool { return h.Kind != steering.Static })
	}
	silenced := p.silences != w.silences
	clear(p.desired)
	for _, h := range holdings {
		if !silenced || h.Kind == steering.Static {
			p.desired[p.s.number[h.Address]] = h
		}
	}
	p.later(p.kernelTime(), func() {
		if p.closing {
			return
		}
		var off []netip.Addr
		for a, address := range p.s.addresses {
			if _, wanted := p.desired[a]; !wanted && p.kernel.has(a) {
				p.releasing(a)
				p.off(a)
				off = append(off, address)
			}
		}
		p.later(p.kernelTime(), func() { p.add(w, withheld, off) })
	})
}

// add puts on what is missing, and ends a wish, of which what moves may have been withheld. Off is what it has taken off.
func (p *process) add(w wish, withheld bool, off []netip.Addr) {
	if p.closing {
		return
	}
	failed := false
	for a := range p.s.addresses {
		h, wanted := p.desired[a]
		if !wanted || p.kernel.has(a) {
			continue
		}
		if moves := h.Kind != steering.Static; !moves || p.permitted() && p.silences == w.silences {
			p.acquire(a, moves)
		} else {
			failed = true
		}
	}
	p.handed(w, off)
	switch mayHold := p.permitted(); {
	case !mayHold:
		p.silence("the right to hold ran out meanwhile")
	case withheld && p.s.broken != BreakWithheld:
		p.again = true
	}
	p.last = applied{generation: w.generation, failed: failed}
	p.refresh()
	p.inHand = false
	p.note()
	if failed {
		p.later(p.s.refusedAgain(), p.carryOutSoon)
	}
	if p.again {
		p.again = false
		p.carryOutSoon()
	}
}

// acquire puts one address on and announces it, now and some times later.
func (p *process) acquire(a int, moves bool) {
	p.put(a, moves)
	p.announce(a)
	for _, repeat := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second} {
		p.later(repeat, func() {
			if h, wanted := p.desired[a]; wanted && p.kernel.has(a) && (h.Kind == steering.Static || p.permitted()) {
				p.announce(a)
			}
		})
	}
}

// refresh takes in what is on the interfaces.
func (p *process) refresh() {
	held, left := p.last.held, p.last.left
	p.last.held, p.last.left = map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for a, address := range p.s.addresses {
		if _, wanted := p.desired[a]; p.kernel.has(a) && wanted {
			p.last.held[address] = true
		} else if p.kernel.has(a) {
			p.last.left[address] = true
		}
	}
	if !maps.Equal(held, p.last.held) || !maps.Equal(left, p.last.left) {
		p.changed(ofWish)
	}
}

// reread is the reconciler's look at a kernel that something else has changed.
func (p *process) reread() {
	if p.inHand || p.closing {
		return
	}
	unlawful := false
	for a := range p.s.addresses {
		h, wanted := p.desired[a]
		switch {
		case !wanted || p.kernel.has(a):
		case h.Kind == steering.Static || p.permitted():
			p.acquire(a, h.Kind != steering.Static)
		default:
			unlawful = true
		}
	}
	if unlawful && p.s.broken != BreakRefused {
		p.later(retryUnlawfulAfter, p.carryOutSoon)
	}
	p.refresh()
	p.note()
}

// silence drops what moves, and the wish for it; also what a wish that is being carried out is about to take off, for which a silence of the
// agent waits.
func (p *process) silence(reason string) {
	p.silences++
	p.changed(ofWish)
	off := 0
	for a, address := range p.s.addresses {
		if isStatic(address) {
			continue
		}
		if delete(p.desired, a); p.kernel.has(a) {
			p.off(a)
			off++
		}
	}
	p.note() // the right may be back already
	p.s.say("%s silences itself, %d addresses: %s", p, off, reason)
}

// renew renews the lifetimes of what is held.
func (p *process) renew() {
	if p.closing {
		return
	}
	p.later(address.RenewInterval, p.renew)
	now := p.time()
	stalled := !p.renewedAt.IsZero() && now.Sub(p.renewedAt) >= address.ValidLifetime
	if p.renewedAt = now; stalled {
		p.reread()
	}
	if !p.permitted() && p.s.broken != BreakRenewal {
		return
	}
	for a := range p.s.addresses {
		if h, wanted := p.desired[a]; wanted && h.Kind != steering.Static && p.kernel.has(a) {
			p.renewing(a)
			p.put(a, true)
		}
	}
}
