package address

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/holdfast/holdfast/internal/linux/link"
)

// Reasons for which an address is not held, besides those of the kernel. Callers tell them apart with errors.Is.
var (
	ErrInUse       = errors.New("a host outside the cluster has it")
	ErrConfigured  = errors.New("it is on this node with another prefix, put there by something else")
	ErrNotEthernet = errors.New("the interface is not an Ethernet device, so the address could not be announced")
	ErrTwice       = errors.New("it is desired twice")
	ErrNotUnicast  = errors.New("it is not an address that a host can hold")
	ErrSilenced    = errors.New("the node was silenced meanwhile")
	ErrNoRight     = errors.New("the node has no right to hold moving addresses at this moment")
	ErrProbing     = errors.New("the link is still being asked whether a stranger has it")
)

// state is what the kernel has.
type state struct {
	interfaces []link.Interface
	addresses  []link.Address
	rules      []link.Rule  // Holdfast's own
	routes     []link.Route // Holdfast's own
}

// situation is all that a plan depends on.
type situation struct {
	desired  Desired
	mine     map[netip.Addr]string // what was put on an interface earlier: address to interface
	heldBack map[netip.Addr]error  // desired, but not to be added now
	actual   state
	routing  bool // whether rules and routes are to be looked at; actual has them then
}

// plan is what is to be done, in order, and what cannot be done.
type plan struct {
	operations []link.Operation
	refused    map[netip.Addr]error
	conflicts  []found // between the routes that are desired
}

// makePlan decides how to get from the actual state to the desired one. It is pure. The order: addresses go; then
// rules and routes change, rules only while their tables are complete; then addresses come, those that move first.
func makePlan(s situation) plan {
	p := plan{refused: map[netip.Addr]error{}}
	wanted := p.accept(s)
	p.removeAddresses(s, wanted)
	if s.routing {
		p.changeRouting(s)
	}
	p.addAddresses(s, wanted)
	return p
}

// accept sorts out what cannot be held, whatever the kernel says.
func (p *plan) accept(s situation) map[netip.Addr]Holding {
	interfaces := map[string]link.Interface{}
	for _, i := range s.actual.interfaces {
		interfaces[i.Name] = i
	}
	wanted := make(map[netip.Addr]Holding, len(s.desired.Holdings))
	for _, h := range s.desired.Holdings {
		device, present := interfaces[h.Interface]
		_, twice := wanted[h.Address]
		a := h.Address
		switch {
		case !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.Is4In6() || a.Zone() != "":
			p.refused[a] = fmt.Errorf("%v: %w", a, ErrNotUnicast)
		case twice:
			p.refused[a] = fmt.Errorf("%v: %w", a, ErrTwice)
		case !present:
			p.refused[a] = fmt.Errorf("%v on %s: %w", a, h.Interface, link.ErrNoInterface)
		case !device.Ethernet:
			p.refused[a] = fmt.Errorf("%v on %s: %w", a, h.Interface, ErrNotEthernet)
		default:
			wanted[a] = h
		}
	}
	for a := range p.refused {
		delete(wanted, a)
	}
	return wanted
}

// removeAddresses takes off what was put on earlier and is not wanted there any more, and what is wanted on another
// interface. Only host prefixes: those are what this package adds.
func (p *plan) removeAddresses(s situation, wanted map[netip.Addr]Holding) {
	for _, a := range s.actual.addresses {
		address := a.Prefix.Addr()
		if !a.Prefix.IsSingleIP() {
			continue
		}
		h, isWanted := wanted[address]
		misplaced := isWanted && h.Interface != a.Interface
		dropped := !isWanted && (s.mine[address] == a.Interface || s.desired.Managed != nil && s.desired.Managed(address))
		if misplaced || dropped {
			p.operations = append(p.operations, link.Operation{Verb: link.Remove, Object: a})
		}
	}
	slices.SortFunc(p.operations, func(a, b link.Operation) int {
		return a.Object.(link.Address).Prefix.Addr().Compare(b.Object.(link.Address).Prefix.Addr())
	})
}

// addAddresses puts on what is missing, and corrects lifetimes.
func (p *plan) addAddresses(s situation, wanted map[netip.Addr]Holding) {
	there := map[netip.Addr]link.Address{} // host prefixes in their place
	for _, a := range s.actual.addresses {
		address := a.Prefix.Addr()
		h, isWanted := wanted[address]
		switch {
		case !isWanted:
		case !a.Prefix.IsSingleIP():
			p.refused[address] = fmt.Errorf("%v on %s: %w: %v on %s", address, h.Interface, ErrConfigured, a.Prefix, a.Interface)
		case h.Interface == a.Interface:
			there[address] = a
		}
	}
	for _, moving := range []bool{true, false} {
		for _, address := range slices.SortedFunc(maps.Keys(wanted), netip.Addr.Compare) {
			h := wanted[address]
			if h.Lifetime != moving || p.refused[address] != nil {
				continue
			}
			want := addressOf(h)
			have, present := there[address]
			switch {
			case present && (have.Valid == link.Forever) == (want.Valid == link.Forever):
				// as it should be; renewing is the work of the background
			case present:
				p.operations = append(p.operations, link.Operation{Verb: link.Renew, Object: want})
			case s.heldBack[address] != nil:
				p.refused[address] = s.heldBack[address]
			default:
				p.operations = append(p.operations, link.Operation{Verb: link.Add, Object: want})
			}
		}
	}
}

// addressOf is a holding as the kernel is to have it.
func addressOf(h Holding) link.Address {
	a := link.Address{Interface: h.Interface, Prefix: link.Host(h.Address), Valid: link.Forever, Preferred: link.Forever}
	if h.Lifetime {
		a.Valid, a.Preferred = ValidLifetime, PreferredLifetime
		if h.Address.Is6() {
			a.Preferred = 0
		}
	}
	return a
}
