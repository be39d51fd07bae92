package cluster

import (
	"cmp"
	"net/netip"
	"path"
	"slices"
)

// Node returns the node with the number lnn.
func (c *Config) Node(lnn int) (Node, bool) {
	for _, n := range c.Nodes {
		if n.LNN == lnn {
			return n, true
		}
	}
	return Node{}, false
}

// NodeNamed returns the node with the name, which compares without case.
func (c *Config) NodeNamed(name string) (Node, bool) {
	for _, n := range c.Nodes {
		if lowerASCII(n.Name) == lowerASCII(name) {
			return n, true
		}
	}
	return Node{}, false
}

// Groupnet returns the groupnet with the name. It points into c and must not be changed.
func (c *Config) Groupnet(name string) (*Groupnet, bool) {
	for i := range c.Groupnets {
		if c.Groupnets[i].Name == name {
			return &c.Groupnets[i], true
		}
	}
	return nil, false
}

// Subnet returns the subnet with the id. It points into c and must not be changed.
func (c *Config) Subnet(id SubnetID) (*Subnet, bool) {
	g, ok := c.Groupnet(id.Groupnet)
	if !ok {
		return nil, false
	}
	for i := range g.Subnets {
		if g.Subnets[i].Name == id.Subnet {
			return &g.Subnets[i], true
		}
	}
	return nil, false
}

// Pool returns the pool with the id, its subnet and its groupnet. They point into c and must not be changed.
func (c *Config) Pool(id PoolID) (*Pool, *Subnet, *Groupnet, bool) {
	g, _ := c.Groupnet(id.Groupnet)
	s, ok := c.Subnet(id.SubnetID())
	if !ok {
		return nil, nil, nil, false
	}
	for i := range s.Pools {
		if s.Pools[i].Name == id.Pool {
			return &s.Pools[i], s, g, true
		}
	}
	return nil, nil, nil, false
}

// Subnets lists the ids of all subnets, sorted.
func (c *Config) Subnets() []SubnetID {
	var out []SubnetID
	for _, g := range c.Groupnets {
		for _, s := range g.Subnets {
			out = append(out, SubnetID{g.Name, s.Name})
		}
	}
	slices.SortFunc(out, SubnetID.compare)
	return out
}

// Pools lists the ids of all pools, sorted.
func (c *Config) Pools() []PoolID {
	var out []PoolID
	for _, g := range c.Groupnets {
		for _, s := range g.Subnets {
			for _, p := range s.Pools {
				out = append(out, PoolID{g.Name, s.Name, p.Name})
			}
		}
	}
	slices.SortFunc(out, func(a, b PoolID) int {
		return cmp.Or(a.SubnetID().compare(b.SubnetID()), cmp.Compare(a.Pool, b.Pool))
	})
	return out
}

func (id SubnetID) compare(o SubnetID) int {
	return cmp.Or(cmp.Compare(id.Groupnet, o.Groupnet), cmp.Compare(id.Subnet, o.Subnet))
}

// Compare orders members by LNN and then by interface.
func (m Member) Compare(o Member) int {
	if m.LNN != o.LNN {
		return cmp.Compare(m.LNN, o.LNN)
	}
	return cmp.Compare(m.Interface, o.Interface)
}

// Members lists the interfaces of a pool: those written in ifaces and those that its rules match, sorted by LNN and then
// interface, without duplicates. It is empty for a pool that does not exist.
func (c *Config) Members(id PoolID) []Member {
	p, _, _, ok := c.Pool(id)
	if !ok {
		return nil
	}
	return c.members(p)
}

func (c *Config) members(p *Pool) []Member {
	out := slices.Clone(p.Interfaces)
	for _, r := range p.Rules {
		for i := range c.Nodes {
			out = append(out, r.matches(&c.Nodes[i])...)
		}
	}
	slices.SortFunc(out, Member.Compare)
	return slices.Compact(out)
}

// AnyClass is the class of a rule that matches every node.
const AnyClass = "any"

// matches lists the interfaces of a node that the rule makes members. A witness hosts nothing.
func (r Rule) matches(n *Node) []Member {
	if n.Witness || r.Class != "" && r.Class != AnyClass && r.Class != n.Class {
		return nil
	}
	var out []Member
	for _, name := range n.Interfaces {
		if ok, err := path.Match(r.Interface, name); ok && err == nil {
			out = append(out, Member{n.LNN, name})
		}
	}
	return out
}

// Addresses lists the addresses of a pool, sorted; at most MaxPoolAddresses, which Validate guards. It is empty for a
// pool that does not exist.
func (c *Config) Addresses(id PoolID) []netip.Addr {
	p, _, _, ok := c.Pool(id)
	if !ok {
		return nil
	}
	return expand(p.Ranges, MaxPoolAddresses)
}

// ServiceAddresses lists the service addresses of a subnet, sorted; at most MaxServiceAddresses, which Validate guards.
func (c *Config) ServiceAddresses(id SubnetID) []netip.Addr {
	s, ok := c.Subnet(id)
	if !ok {
		return nil
	}
	return expand(s.ServiceAddrs, MaxServiceAddresses)
}

// ServiceSubnet is the id of the subnet whose service addresses answer for a pool: its sc-subnet, or its own.
func (c *Config) ServiceSubnet(id PoolID) (SubnetID, bool) {
	p, _, _, ok := c.Pool(id)
	if !ok {
		return SubnetID{}, false
	}
	if p.ServiceSubnet == "" {
		return id.SubnetID(), true
	}
	out := SubnetID{id.Groupnet, p.ServiceSubnet}
	_, ok = c.Subnet(out)
	return out, ok
}

// Weight is the relative capacity of a node in a pool: the pool's word, or else the node's own.
func (c *Config) Weight(p *Pool, lnn int) int {
	if w, ok := p.Weights[lnn]; ok {
		return w
	}
	n, _ := c.Node(lnn)
	return max(1, n.Weight)
}

// Voters lists the nodes that host a member of the embedded store, sorted by LNN: every witness and every node with
// voter true, and of those with voter auto the lowest LNNs, up to one, three or five in all. It is empty with an
// external store.
func (c *Config) Voters() []Node {
	if len(c.Settings.StoreEndpoints) > 0 {
		return nil
	}
	var out, open []Node
	for _, n := range c.Nodes {
		switch {
		case n.Witness || n.Voter == VoterTrue:
			out = append(out, n)
		case n.Voter != VoterFalse:
			open = append(open, n)
		}
	}
	slices.SortFunc(open, byNumber)
	total := min(len(out)+len(open), MaxVoters)
	if total%2 == 0 {
		total--
	}
	if missing := total - len(out); missing > 0 {
		out = append(out, open[:missing]...)
	}
	slices.SortFunc(out, byNumber)
	return out
}

func byNumber(a, b Node) int { return cmp.Compare(a.LNN, b.LNN) }
