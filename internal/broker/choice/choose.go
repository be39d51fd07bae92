package choice

import (
	"cmp"
	"slices"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/rules"
)

// World is what a choice is made from.
type World struct {
	Fleets  []*fleet.Picture // linked fleets, sorted by name
	Rules   *rules.Table     // nil: there are none
	Formula Formula
}

// Choose picks a gateway for a session, or says why there is none.
func Choose(w *World, r *Request) (Answer, *Refusal) {
	c := choosing{world: w, request: r}
	if refusal := c.findFleets(); refusal != nil {
		return Answer{}, refusal
	}
	if w.Rules != nil {
		c.rule = w.Rules.Find(r.Target, r.Address, r.Wall)
	} else {
		c.rule = rules.Match{Network: rules.DefaultNetwork, By: rules.ByDefault}
	}
	c.best = make([]Pick, 0, 1+bounded(r.MaxAlternates, DefaultAlternates))
	if c.gather(); c.candidates == 0 && c.rule.Exhausted == rules.UseDefault && !c.rule.Missing && c.served() {
		c.fellBack = true
		c.gatherAll()
	}
	if c.candidates == 0 {
		return Answer{}, c.refuse()
	}
	return c.answer(), nil
}

// bounded is a bound that may have been left to its default.
func bounded(asked, byDefault int) int {
	if asked <= 0 {
		return byDefault
	}
	return min(asked, MaxListed)
}

// choosing is one choice on its way.
type choosing struct {
	world   *World
	request *Request
	rule    rules.Match
	only    *fleet.Picture // that the policy names; nil: all of world

	best       []Pick // the best so far, in order
	candidates int    // how many there are
	leftOut    []LeftOut
	leftOutTo  int
	out        [fit]int // how many were left out for each reason
	fellBack   bool
}

// findFleets finds the fleets that the policy allows.
func (c *choosing) findFleets() *Refusal {
	if len(c.world.Fleets) == 0 {
		return c.noFleet()
	}
	if c.request.Policy == "" {
		return nil
	}
	name, known := "", false
	if c.world.Rules != nil {
		name, known = c.world.Rules.FleetOf(c.request.Policy)
	}
	if !known {
		return c.noPolicy()
	}
	if c.only = c.picture(name); c.only == nil {
		return c.policyUnlinked(name)
	}
	return nil
}

func (c *choosing) picture(name string) *fleet.Picture {
	i, found := slices.BinarySearchFunc(c.world.Fleets, name, func(p *fleet.Picture, name string) int { return cmp.Compare(p.Fleet, name) })
	if !found {
		return nil
	}
	return c.world.Fleets[i]
}

// allowed are the fleets that may take the session.
func (c *choosing) allowed() []*fleet.Picture {
	if c.only != nil {
		return []*fleet.Picture{c.only}
	}
	return c.world.Fleets
}

// served reports whether the rule names a gateway of a fleet that may take the session; if not, falling back would pass over the policy.
func (c *choosing) served() bool {
	return c.only == nil || c.rule.Members == nil || slices.ContainsFunc(c.rule.Members, func(m rules.Member) bool { return m.Fleet == c.only.Fleet })
}

// gather looks at every gateway of the rule.
func (c *choosing) gather() {
	if c.rule.Missing {
		return
	}
	if c.rule.Members == nil {
		c.gatherAll()
		return
	}
	var p *fleet.Picture
	for i := range c.rule.Members {
		m := &c.rule.Members[i] // sorted by fleet
		if p == nil || p.Fleet != m.Fleet {
			p = c.picture(m.Fleet)
		}
		switch {
		case p == nil:
			c.leave(m.Ref, NotInFleet)
		case c.only != nil && p != c.only:
			c.leave(m.Ref, WrongFleet)
		case !p.Usable(c.request.Now):
			c.leave(m.Ref, NoView)
		default:
			if position, found := p.View.Find(m.Gateway); found {
				c.consider(p, position, m.Order, m.Weight)
			} else {
				c.leave(m.Ref, NotInFleet)
			}
		}
	}
}

// gatherAll looks at every gateway of the fleets that may take the session.
func (c *choosing) gatherAll() {
	if c.only != nil {
		c.gatherFleet(c.only)
		return
	}
	for _, p := range c.world.Fleets {
		c.gatherFleet(p)
	}
}

func (c *choosing) gatherFleet(p *fleet.Picture) {
	if !p.Usable(c.request.Now) {
		return
	}
	for position := range p.View.Gateways {
		c.consider(p, position, 0, 1)
	}
}

// unheard is the standing of a gateway of which this broker has no experience. Nobody changes it.
var unheard fleet.Standing

// consider takes one gateway in or leaves it out. It is the inner loop: what only those need that are picked or listed is made there.
func (c *choosing) consider(p *fleet.Picture, position, order, weight int) {
	g, standing := &p.View.Gateways[position], &unheard
	if position < len(p.Standings) {
		standing = &p.Standings[position]
	}
	why, revived := c.judge(p, g, standing)
	if why != fit {
		if !c.fellBack || !c.named(fleet.Ref{Fleet: p.Fleet, Gateway: g.Key}) {
			c.out[why]++
			if c.room() {
				c.leftOut = append(c.leftOut, leftOut(p, g, standing, why))
			}
		}
		return
	}
	c.candidates++
	fitness, known := c.world.Formula.Fitness(&g.Health, standing.Launches, weight)
	full := len(c.best) == cap(c.best)
	if last := len(c.best) - 1; full && known && fitness < c.best[last].Fitness && c.best[last].Known && c.best[last].Order <= order && !c.best[last].Revived {
		return // as most are
	}
	port, _ := g.Port(c.request.Protocol)
	c.rank(&Pick{
		Fleet: p.Fleet, Position: position, Gateway: g, Port: port, Order: order, Weight: weight,
		Fitness: fitness, Known: known, Revived: revived, Launches: standing.Launches,
	})
}

// named reports whether the rule names a gateway; those have been left out before the default network took over.
func (c *choosing) named(ref fleet.Ref) bool {
	_, found := slices.BinarySearchFunc(c.rule.Members, ref, func(m rules.Member, ref fleet.Ref) int {
		return cmp.Or(cmp.Compare(m.Fleet, ref.Fleet), cmp.Compare(m.Gateway, ref.Gateway))
	})
	return found
}

// leave leaves out a gateway that the rule names and of which nothing more is to be said.
func (c *choosing) leave(ref fleet.Ref, why Why) {
	c.out[why]++
	if c.room() {
		c.leftOut = append(c.leftOut, LeftOut{Ref: ref, Why: why})
	}
}

// room reports whether one more that was left out is listed; if not it is counted.
func (c *choosing) room() bool {
	limit := bounded(c.request.MaxLeftOut, DefaultLeftOut)
	if len(c.leftOut) == limit {
		c.leftOutTo++
		return false
	}
	if c.leftOut == nil {
		c.leftOut = make([]LeftOut, 0, min(limit, DefaultLeftOut))
	}
	return true
}

// rank puts a pick where it belongs among the best, and forgets the last one if there are too many.
func (c *choosing) rank(p *Pick) {
	full := len(c.best) == cap(c.best)
	if full && !before(p, &c.best[len(c.best)-1], &c.world.Formula) {
		return
	}
	if !full {
		c.best = append(c.best, *p)
	}
	i := len(c.best) - 1
	for ; i > 0 && before(p, &c.best[i-1], &c.world.Formula); i-- {
		c.best[i] = c.best[i-1]
	}
	c.best[i] = *p
}

// before reports whether a is the better pick: by the rule's order; one that is known to be up before one that only answered a probe; one
// whose fitness is known before one whose is not; by fitness; by launches, where fitness is not known; by the lowest key.
func before(a, b *Pick, f *Formula) bool {
	switch {
	case a.Order != b.Order:
		return a.Order < b.Order
	case a.Revived != b.Revived:
		return b.Revived
	case a.Known != b.Known:
		return a.Known
	case a.Known && a.Fitness != b.Fitness:
		return a.Fitness > b.Fitness
	case !a.Known && !f.IgnoreLaunches && uint64(a.Launches)*uint64(b.Weight) != uint64(b.Launches)*uint64(a.Weight):
		return uint64(a.Launches)*uint64(b.Weight) < uint64(b.Launches)*uint64(a.Weight)
	case a.Gateway.Key != b.Gateway.Key:
		return a.Gateway.Key < b.Gateway.Key
	default:
		return a.Fleet < b.Fleet
	}
}

func (c *choosing) answer() Answer {
	first := c.best[0]
	p := c.picture(first.Fleet)
	return Answer{
		Pick: first, Alternates: c.best[1:], More: c.candidates - len(c.best), LeftOut: c.leftOut, LeftOutTo: c.leftOutTo,
		Rule: c.rule, FellBack: c.fellBack, Policy: c.request.Policy,
		Source: p.Source, Age: p.Age(c.request.Now), AtLeast: p.AtLeast, Old: p.Old(c.request.Now), At: c.request.Now, Formula: c.world.Formula,
	}
}
