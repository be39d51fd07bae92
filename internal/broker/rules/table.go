package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// By is how a target came to its network.
type By uint8

// The ways, the first that applies counts.
const (
	ByAssignment By = iota
	BySubnet
	ByDefault
)

// String words the way.
func (b By) String() string {
	switch b {
	case ByAssignment:
		return "by assignment"
	case BySubnet:
		return "by subnet"
	default:
		return "by default"
	}
}

// Match is the rule that applies to a target.
type Match struct {
	Network   string // DefaultNetwork if no rule is about the target
	By        By
	Subnet    netip.Prefix // the longest that has the address; only BySubnet
	Members   []Member     // the gateways that may be chosen; nil: all
	Exhausted Exhausted
	Override  *Override // that Members come from; nil: none
	Missing   bool      // the target is assigned to a network that does not exist; nothing may be chosen
}

// Table is a Book made ready for choices.
type Table struct {
	networks    map[string]*Network
	assignments map[string]string
	overrides   map[string]*Override
	policies    map[string]string
	subnets     map[netip.Prefix]*Network
	lengths4    []int // of the subnets that there are, longest first
	lengths6    []int
}

// Fault is something that is wrong among rules that are each right in themselves.
type Fault struct {
	Key     Key
	Message string
}

// String is the key and the message.
func (f Fault) String() string { return f.Key.String() + ": " + f.Message }

// MaxFaults bounds a list of faults; the last one says how many more there are.
const MaxFaults = 200

// Compile makes a Book ready. The faults are what a merge has brought about.
func (b *Book) Compile() (*Table, []Fault) {
	t := &Table{
		networks: map[string]*Network{}, assignments: map[string]string{}, overrides: map[string]*Override{}, policies: map[string]string{},
		subnets: map[netip.Prefix]*Network{},
	}
	var faults faultList
	entries := b.Entries()
	slices.SortStableFunc(entries, rank) // of two networks with one subnet the later change has it
	for i := range entries {
		switch v := entries[i].Value; {
		case v.Network != nil:
			t.networks[v.Network.Name] = v.Network
			for _, subnet := range v.Network.Subnets {
				if other, taken := t.subnets[subnet]; taken {
					faults.add(entries[i].Key, "the subnet %s also belongs to network %s, whose change is the later one and has it; take it out of one of them", subnet, other.Name)
					continue
				}
				t.subnets[subnet] = v.Network
			}
		case v.Assignment != nil:
			t.assignments[v.Assignment.Target] = v.Assignment.Network
		case v.Policy != nil:
			t.policies[v.Policy.Name] = v.Policy.Fleet
		case v.Override != nil:
			t.overrides[v.Override.Network] = v.Override
		}
	}
	for i := range entries {
		network := ""
		switch v := entries[i].Value; {
		case v.Assignment != nil:
			network = v.Assignment.Network
		case v.Override != nil:
			network = v.Override.Network
		}
		if network != "" && network != DefaultNetwork && t.networks[network] == nil {
			faults.add(entries[i].Key, "there is no network %s any more; make it again, or remove this", network)
		}
	}
	t.measure()
	return t, faults.sorted()
}

// measure lists the lengths of the subnets.
func (t *Table) measure() {
	for subnet := range t.subnets {
		lengths := &t.lengths6
		if subnet.Addr().Is4() {
			lengths = &t.lengths4
		}
		if !slices.Contains(*lengths, subnet.Bits()) {
			*lengths = append(*lengths, subnet.Bits())
		}
	}
	slices.SortFunc(t.lengths4, func(a, b int) int { return b - a })
	slices.SortFunc(t.lengths6, func(a, b int) int { return b - a })
}

// Find is the rule for a target by its name and its address, of which either may be missing. The time ends overrides; it is that of the
// wall clock.
func (t *Table) Find(target string, address netip.Addr, now time.Time) Match {
	m := t.lookUp(target, address)
	if o := t.overrides[m.Network]; o != nil && !m.Missing && (o.Until.IsZero() || now.Before(o.Until)) {
		m.Members, m.Override = o.Members, o
	}
	return m
}

func (t *Table) lookUp(target string, address netip.Addr) Match {
	if name, ok := t.assignments[lower(target)]; ok {
		if name == DefaultNetwork {
			return Match{Network: DefaultNetwork, By: ByAssignment}
		}
		n := t.networks[name]
		if n == nil {
			return Match{Network: name, By: ByAssignment, Missing: true}
		}
		return Match{Network: name, By: ByAssignment, Members: n.Members, Exhausted: n.Exhausted}
	}
	if subnet, n := t.longest(address); n != nil {
		return Match{Network: n.Name, By: BySubnet, Subnet: subnet, Members: n.Members, Exhausted: n.Exhausted}
	}
	return Match{Network: DefaultNetwork, By: ByDefault}
}

// lower does not allocate where the name is in lower case, as it mostly is.
func lower(name string) string { return strings.ToLower(name) }

// longest is the subnet with the longest prefix that has the address.
func (t *Table) longest(address netip.Addr) (netip.Prefix, *Network) {
	if !address.IsValid() {
		return netip.Prefix{}, nil
	}
	address = address.Unmap().WithZone("")
	lengths := t.lengths6
	if address.Is4() {
		lengths = t.lengths4
	}
	for _, length := range lengths {
		subnet, err := address.Prefix(length)
		if err != nil {
			panic("rules: " + err.Error()) // lengths are those of subnets of this family
		}
		if n := t.subnets[subnet]; n != nil {
			return subnet, n
		}
	}
	return netip.Prefix{}, nil
}

// FleetOf is the fleet that a policy names; false if there is no such policy.
func (t *Table) FleetOf(policy string) (string, bool) {
	name, ok := t.policies[policy]
	return name, ok
}

// Knows says of a fleet and a gateway whether they are there. A fleet of which there is no view yet knows all gateways, since nobody can
// tell; one whose view is old knows those of the view, so that rules stay valid while a central manager is down.
type Knows func(fleet, gateway string) (linked, known bool)

// Dangling are the rules that name fleets that are not linked or gateways that are not in their fleet's view.
func (b *Book) Dangling(knows Knows) []Fault {
	var faults faultList
	for _, e := range b.Entries() {
		var members []Member
		switch {
		case e.Value.Network != nil:
			members = e.Value.Network.Members
		case e.Value.Override != nil:
			members = e.Value.Override.Members
		case e.Value.Policy != nil:
			if linked, _ := knows(e.Value.Policy.Fleet, ""); !linked {
				faults.add(e.Key, "it names fleet %s, which is not linked", e.Value.Policy.Fleet)
			}
		}
		for _, m := range members {
			if linked, known := knows(m.Fleet, m.Gateway); !linked {
				faults.add(e.Key, "it names gateway %s, and fleet %s is not linked", m.Ref, m.Fleet)
			} else if !known {
				faults.add(e.Key, "it names gateway %s, which is not in its fleet; it may have been removed, or the key is mistyped", m.Ref)
			}
		}
	}
	return faults.sorted()
}

type faultList struct {
	faults []Fault
	more   int
}

func (l *faultList) add(key Key, format string, arguments ...any) {
	if len(l.faults) == MaxFaults-1 {
		l.more++
		return
	}
	l.faults = append(l.faults, Fault{key, fmt.Sprintf(format, arguments...)})
}

func (l *faultList) sorted() []Fault {
	slices.SortStableFunc(l.faults, func(a, b Fault) int { return compareKeys(a.Key, b.Key) })
	if l.more > 0 {
		l.faults = append(l.faults, Fault{Message: fmt.Sprintf("and %d more", l.more)})
	}
	return l.faults
}
