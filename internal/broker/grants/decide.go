package grants

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/broker/token"
)

// Decide finds the first grant that allows a request, by itself and whole.
func Decide(list []Grant, r Request) Decision {
	d := Decision{NoGrant: len(list) == 0}
	for i := range list {
		g := &list[i]
		step, why := g.refuses(r)
		if why != "" {
			d.Passed = append(d.Passed, Passed{g.Name, step, why})
			continue
		}
		d.Grant, d.May = g, g.rights(r)
		d.Reason = fmt.Sprintf("grant %s lets %s %s", g.Name, r.Who, r.what())
		return d
	}
	d.Reason = d.refusal(r)
	return d
}

// rights are what a session may do: what was asked for, or all that the grant has.
func (g *Grant) rights(r Request) token.Channels {
	switch {
	case r.Protocol == TCP:
		return token.Tunnel
	case r.Want != 0:
		return r.Want
	}
	return g.May
}

// what is what is wanted, in words.
func (r Request) what() string {
	if r.Protocol == TCP {
		return "open a tunnel to " + r.Target.String()
	}
	text := "log in as " + r.Account + " on " + r.Target.Host
	if r.Target.Port != 22 {
		text = "log in as " + r.Account + " on " + r.Target.String()
	}
	if r.Want != 0 {
		text += " for " + r.Want.String()
	}
	return text
}

// refusal is why nothing allows a request. Of the grants for this requester the one that goes furthest is named; of those for others nothing is said.
func (d *Decision) refusal(r Request) string {
	text := fmt.Sprintf("no grant lets %s %s", r.Who, r.what())
	if d.NoGrant {
		return text + ": there are no grants"
	}
	var nearest *Passed
	for i := range d.Passed {
		if p := &d.Passed[i]; p.Step > AtWho && (nearest == nil || p.Step > nearest.Step) {
			nearest = p
		}
	}
	if nearest == nil {
		return text + ": none is for " + r.Who
	}
	return fmt.Sprintf("%s: the nearest is %s, and %s", text, nearest.Name, nearest.Why)
}

// refuses tells what a grant lacks for a request, in the order of the steps; empty if nothing.
func (g *Grant) refuses(r Request) (Step, string) {
	switch {
	case r.Who == "" || !anyMatches(g.Who, r.Who):
		return AtWho, "it is not for " + r.Who
	case !g.leadsTo(r.Target.Host):
		return AtTarget, "it does not lead to " + r.Target.Host
	case !slices.Contains(g.Protocols, r.Protocol):
		return AtProtocol, "it is not for the protocol " + r.Protocol
	case !slices.ContainsFunc(g.Ports, func(p Ports) bool { return r.Target.Port >= p.First && r.Target.Port <= p.Last }):
		return AtPort, fmt.Sprintf("it is not for port %d", r.Target.Port)
	}
	if r.Protocol == SSH {
		if r.Account == "" || !g.hasAccount(r.Account, r.Who) {
			return AtAccount, "it is not for the account " + r.Account
		}
		if g.May == 0 || r.Want != 0 && !g.May.Has(r.Want) {
			return AtChannels, "it does not allow " + (r.Want &^ g.May).String()
		}
	} else if r.Account != "" || r.Want&^token.Tunnel != 0 {
		return AtAccount, "a tunnel has no account, and no rights beside it"
	}
	if len(g.Windows) > 0 && !slices.ContainsFunc(g.Windows, func(w Window) bool { return w.Has(r.Now.In(g.zone())) }) {
		return AtTime, fmt.Sprintf("it is for %s (%s), and there it is %s", g.times(), g.zone(), strings.ToLower(r.Now.In(g.zone()).Format("Mon 15:04")))
	}
	return 0, ""
}

func (g *Grant) zone() *time.Location {
	if g.Zone == nil {
		return time.UTC
	}
	return g.Zone
}

func (g *Grant) times() string {
	texts := make([]string, len(g.Windows))
	for i, w := range g.Windows {
		texts[i] = w.String()
	}
	return strings.Join(texts, ", ")
}

func anyMatches(patterns []Pattern, name string) bool {
	return slices.ContainsFunc(patterns, func(p Pattern) bool { return p.Matches(name) })
}

// leadsTo tells whether a target is one of the grant's. A name is never resolved: subnets are for targets that are named by their address.
func (g *Grant) leadsTo(host string) bool {
	if address, err := netip.ParseAddr(host); err == nil {
		return slices.Contains(g.Targets, Any) || slices.ContainsFunc(g.Subnets, func(p netip.Prefix) bool { return p.Contains(address.Unmap()) })
	}
	return host != "" && anyMatches(g.Targets, host)
}

func (g *Grant) hasAccount(account, who string) bool {
	return slices.ContainsFunc(g.Accounts, func(p Pattern) bool { return p == SameAsWho && account == who || p.Matches(account) })
}

// Explain tells the whole of a decision in lines.
func (d *Decision) Explain() string {
	var b strings.Builder
	if d.Grant != nil {
		fmt.Fprintf(&b, "grant: %s (%s)\n", d.Reason, d.May)
	} else {
		fmt.Fprintf(&b, "grant: none: %s\n", d.Reason)
	}
	for _, p := range d.Passed {
		fmt.Fprintf(&b, "not: grant %s: %s\n", p.Name, p.Why)
	}
	return b.String()
}
