package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
)

// DefaultNetwork is the name of the network of all targets that no rule is about. All gateways serve it. It cannot be written, only
// overridden.
const DefaultNetwork = "default"

// Exhausted is what happens to a launch when all gateways of its network are down.
type Exhausted uint8

// What may happen. The zero Exhausted is Fail, since rules often say where data may be.
const (
	Fail       Exhausted = iota // the launch is an error
	UseDefault                  // the gateways of the default network take it
)

// Member is a gateway that serves a network.
type Member struct {
	fleet.Ref
	Order  int // lower ones are taken first; equal ones by fitness; 0 to MaxOrder, default 0
	Weight int // how much load it carries beside others, 1 to MaxWeight; 0 means 1
}

// Network is a rule: sessions to targets in these subnets go through these gateways.
type Network struct {
	Name      string
	Note      string
	Subnets   []netip.Prefix // may be none: then only assignments lead here
	Members   []Member       // at least one
	Exhausted Exhausted
}

// Assignment says which network a target belongs to, whatever its address.
type Assignment struct {
	Target  string // as launches name it
	Network string
}

// Policy says which fleet the sessions under a policy go through, whatever the network says.
type Policy struct {
	Name  string
	Fleet string
}

// Override replaces the gateways of a network while it is there, as during an outage for those that an operator knows to be up.
type Override struct {
	Network string   // may be DefaultNetwork
	Members []Member // at least one
	Note    string
	Until   time.Time // by the clock of the broker that chooses; zero: until it is removed
}

// Kind is what a change is about.
type Kind string

// The kinds.
const (
	KindNetwork    Kind = "network"
	KindAssignment Kind = "assignment"
	KindPolicy     Kind = "policy"
	KindOverride   Kind = "override"
)

// Key names one thing in a Book.
type Key struct {
	Kind Kind
	Name string // of the network, the target, the policy, the overridden network
}

// String is KIND NAME.
func (k Key) String() string { return string(k.Kind) + " " + k.Name }

// Value is what a Book has under a key: exactly one of the four.
type Value struct {
	Network    *Network
	Assignment *Assignment
	Policy     *Policy
	Override   *Override
}

// Key is the key under which the value is kept. It is the zero Key unless exactly one is set.
func (v Value) Key() (key Key) {
	set := 0
	if v.Network != nil {
		key, set = Key{KindNetwork, v.Network.Name}, set+1
	}
	if v.Assignment != nil {
		key, set = Key{KindAssignment, v.Assignment.Target}, set+1
	}
	if v.Policy != nil {
		key, set = Key{KindPolicy, v.Policy.Name}, set+1
	}
	if v.Override != nil {
		key, set = Key{KindOverride, v.Override.Network}, set+1
	}
	if set != 1 {
		return Key{}
	}
	return key
}

// Bounds of single rules. MaxName and MaxNote are the vendor's.
const (
	MaxName    = 50
	MaxTarget  = 253 // RFC 1035 section 2.3.4
	MaxNote    = 255
	MaxSubnets = 1024
	MaxMembers = 256
	MaxOrder   = 1000
	MaxWeight  = 1000
)

// clean checks one value in itself, brings it to its canonical form and returns a copy. Errors say what to write instead.
func (v Value) clean() (Value, error) {
	switch {
	case v.Key() == Key{}:
		return v, fmt.Errorf("a change is about one network, assignment, policy or override, and this one is not")
	case v.Network != nil:
		n, err := v.Network.clean()
		return Value{Network: n}, err
	case v.Assignment != nil:
		a := *v.Assignment
		a.Target = strings.ToLower(a.Target)
		if err := checkName("target", a.Target, MaxTarget); err != nil {
			return v, err
		}
		return Value{Assignment: &a}, checkName("network", a.Network, MaxName)
	case v.Policy != nil:
		p := *v.Policy
		if err := checkName("policy", p.Name, MaxName); err != nil {
			return v, err
		}
		return Value{Policy: &p}, checkName("fleet", p.Fleet, MaxName)
	default:
		o := *v.Override
		if err := checkName("network", o.Network, MaxName); err != nil {
			return v, err
		}
		if err := checkText("override of "+o.Network, "note", o.Note); err != nil {
			return v, err
		}
		members, err := cleanMembers("override of "+o.Network, o.Members)
		o.Members = members
		o.Until = o.Until.UTC().Truncate(time.Second)
		if y := o.Until.Year(); !o.Until.IsZero() && (y < 1970 || y > 9999) {
			return v, fmt.Errorf("override of %s: it cannot end in the year %d", o.Network, y)
		}
		return Value{Override: &o}, err
	}
}

func (n *Network) clean() (*Network, error) {
	c := *n
	if err := checkName("network", c.Name, MaxName); err != nil {
		return nil, err
	}
	what := "network " + c.Name
	if c.Name == DefaultNetwork {
		return nil, fmt.Errorf("network default: it is there by itself and all gateways serve it; to narrow it for a time, override it")
	}
	if err := checkText(what, "note", c.Note); err != nil {
		return nil, err
	}
	if c.Exhausted > UseDefault {
		return nil, fmt.Errorf("%s: on-exhausted is error or default", what)
	}
	members, err := cleanMembers(what, c.Members)
	if err != nil {
		return nil, err
	}
	c.Members = members
	if len(c.Subnets) > MaxSubnets {
		return nil, fmt.Errorf("%s has %d subnets, at most %d are taken: join neighbours or split the network", what, len(c.Subnets), MaxSubnets)
	}
	c.Subnets = slices.Clone(c.Subnets)
	for i, subnet := range c.Subnets {
		if c.Subnets[i], err = cleanSubnet(subnet); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
	}
	slices.SortFunc(c.Subnets, comparePrefixes)
	for i := 1; i < len(c.Subnets); i++ {
		if c.Subnets[i] == c.Subnets[i-1] {
			return nil, fmt.Errorf("%s: the subnet %s is there twice; leave one out", what, c.Subnets[i])
		}
	}
	return &c, nil
}

// comparePrefixes orders by address and then by length.
func comparePrefixes(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}

// mappedBits is the length of the prefix of IPv4 addresses inside IPv6 (RFC 4291 section 2.5.5.2).
const mappedBits = 96

// cleanSubnet brings a subnet to the form that addresses are looked up in.
func cleanSubnet(p netip.Prefix) (netip.Prefix, error) {
	if !p.IsValid() {
		return p, fmt.Errorf("a subnet is an address and a length, as 10.1.0.0/16 or 2001:db8::/32")
	}
	if p.Addr().Is4In6() {
		if p.Bits() < mappedBits {
			return p, fmt.Errorf("the subnet %s has IPv4 addresses as a part of it; write the IPv4 subnet", p)
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mappedBits)
	}
	if masked := p.Masked(); masked != p {
		return p, fmt.Errorf("the subnet %s has bits set behind its length; was %s meant?", p, masked)
	}
	return p, nil
}

func cleanMembers(what string, members []Member) ([]Member, error) {
	if len(members) == 0 {
		return nil, fmt.Errorf("%s: no gateway is named, so no session could be launched; name at least one", what)
	}
	if len(members) > MaxMembers {
		return nil, fmt.Errorf("%s: %d gateways are named, at most %d are taken; the default network has all without naming them", what, len(members), MaxMembers)
	}
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b Member) int { return compareRefs(a.Ref, b.Ref) })
	for i := range members {
		m := &members[i]
		if m.Weight == 0 {
			m.Weight = 1
		}
		switch {
		case checkName("fleet", m.Fleet, MaxName) != nil:
			return nil, fmt.Errorf("%s: %w", what, checkName("fleet", m.Fleet, MaxName))
		case checkName("gateway", m.Gateway, fleet.MaxKey) != nil:
			return nil, fmt.Errorf("%s: %w", what, checkName("gateway", m.Gateway, fleet.MaxKey))
		case m.Order < 0 || m.Order > MaxOrder:
			return nil, fmt.Errorf("%s: the order of %s is %d; it is 0 to %d", what, m.Ref, m.Order, MaxOrder)
		case m.Weight < 1 || m.Weight > MaxWeight:
			return nil, fmt.Errorf("%s: the weight of %s is %d; it is 1 to %d", what, m.Ref, m.Weight, MaxWeight)
		case i > 0 && m.Ref == members[i-1].Ref:
			return nil, fmt.Errorf("%s: gateway %s is named twice; leave one out", what, m.Ref)
		}
	}
	return members, nil
}

func compareRefs(a, b fleet.Ref) int {
	if c := strings.Compare(a.Fleet, b.Fleet); c != 0 {
		return c
	}
	return strings.Compare(a.Gateway, b.Gateway)
}

// checkName keeps names to what can be written in a command and read in a log.
func checkName(what, name string, longest int) error {
	if name == "" {
		return fmt.Errorf("a %s has no name", what)
	}
	if len(name) > longest {
		return fmt.Errorf("the %s name %.20q… has %d characters, at most %d are taken", what, name, len(name), longest)
	}
	for _, c := range name {
		if c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return fmt.Errorf("the %s name %q has the character %q; printable ASCII without blanks, quotes and backslashes is taken", what, name, c)
		}
	}
	return nil
}

// checkText keeps notes to one printable line.
func checkText(what, field, text string) error {
	if len(text) > MaxNote {
		return fmt.Errorf("%s: the %s has %d bytes, at most %d are taken", what, field, len(text), MaxNote)
	}
	if strings.ToValidUTF8(text, "") != text || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return fmt.Errorf("%s: the %s is one line of text", what, field)
	}
	return nil
}
