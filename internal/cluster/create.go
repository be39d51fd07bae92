package cluster

import (
	"fmt"
	"slices"
)

// New returns a configuration with every default and no node.
func New(name string) *Config {
	c := configTable.fresh()
	c.Settings.Name = name
	return &c
}

// NewNode returns a node with every default.
func NewNode(name string, lnn int) Node {
	n := nodeTable.fresh()
	n.Name, n.LNN = name, lnn
	return n
}

// NewGroupnet returns a groupnet with every default.
func NewGroupnet(name string) Groupnet {
	g := groupnetTable.fresh()
	g.Name = name
	return g
}

// NewSubnet returns a subnet with every default. It needs a CIDR to be valid.
func NewSubnet(name string) Subnet {
	s := subnetTable.fresh()
	s.Name = name
	return s
}

// NewPool returns a pool with every default.
func NewPool(name string) Pool {
	p := poolTable.fresh()
	p.Name = name
	return p
}

// NewCheck returns a health check with every default. It needs what its kind needs to be valid.
func NewCheck(name string, kind CheckKind) Check {
	c := checkTable.fresh()
	c.Name, c.Kind = name, kind
	return c
}

// AddNode returns c with a node more. Errors of all the Add and Delete functions are Faults. c itself is never changed.
func AddNode(c *Config, name string, lnn int, edits []Edit) (*Config, error) {
	n := NewNode(name, lnn)
	out := c.Clone()
	faults := applyEdits(nodeTable, &n, edits, "nodes."+name, true)
	out.Nodes = append(out.Nodes, n)
	return finished(out, faults)
}

// AddGroupnet returns c with a groupnet more.
func AddGroupnet(c *Config, name string, edits []Edit) (*Config, error) {
	g := NewGroupnet(name)
	out := c.Clone()
	faults := applyEdits(groupnetTable, &g, edits, name, true)
	out.Groupnets = append(out.Groupnets, g)
	return finished(out, faults)
}

// AddSubnet returns c with a subnet more; the edits must set its cidr.
func AddSubnet(c *Config, id SubnetID, edits []Edit) (*Config, error) {
	out := c.Clone()
	g, ok := out.Groupnet(id.Groupnet)
	if !ok {
		return nil, missing("groupnet", id.Groupnet, namesOf(c.Groupnets, func(g Groupnet) string { return g.Name }))
	}
	s := NewSubnet(id.Subnet)
	faults := applyEdits(subnetTable, &s, edits, id.String(), true)
	g.Subnets = append(g.Subnets, s)
	return finished(out, faults)
}

// AddPool returns c with a pool more.
func AddPool(c *Config, id PoolID, edits []Edit) (*Config, error) {
	out := c.Clone()
	s, ok := out.Subnet(id.SubnetID())
	if !ok {
		return nil, missing("subnet", id.SubnetID().String(), idTexts(c.Subnets()))
	}
	p := NewPool(id.Pool)
	faults := applyEdits(poolTable, &p, edits, id.String(), true)
	s.Pools = append(s.Pools, p)
	return finished(out, faults)
}

// AddRule returns c with a rule more; the edits must set its interface.
func AddRule(c *Config, id PoolID, name string, edits []Edit) (*Config, error) {
	out := c.Clone()
	p, _, _, ok := out.Pool(id)
	if !ok {
		return nil, missing("pool", id.String(), idTexts(c.Pools()))
	}
	r := ruleTable.fresh()
	r.Name = name
	faults := applyEdits(ruleTable, &r, edits, id.String()+".rules."+name, true)
	p.Rules = append(p.Rules, r)
	return finished(out, faults)
}

// AddCheck returns c with a health check more; the edits must set its kind.
func AddCheck(c *Config, id PoolID, name string, edits []Edit) (*Config, error) {
	out := c.Clone()
	p, _, _, ok := out.Pool(id)
	if !ok {
		return nil, missing("pool", id.String(), idTexts(c.Pools()))
	}
	k := checkTable.fresh()
	k.Name = name
	faults := applyEdits(checkTable, &k, edits, id.String()+".checks."+name, true)
	p.Checks = append(p.Checks, k)
	return finished(out, faults)
}

// DeleteNode returns c without a node, and without everything in the pools that names it.
func DeleteNode(c *Config, name string) (*Config, error) {
	n, ok := c.NodeNamed(name)
	if !ok {
		return nil, missing("node", name, namesOf(c.Nodes, func(n Node) string { return n.Name }))
	}
	out := c.Clone()
	out.Nodes = emptied(slices.DeleteFunc(out.Nodes, func(o Node) bool { return o.LNN == n.LNN }))
	for _, id := range out.Pools() {
		p, _, _, _ := out.Pool(id)
		p.forget(n.LNN)
	}
	return finished(out, nil)
}

// forget removes a node from a pool.
func (p *Pool) forget(lnn int) {
	p.Interfaces = emptied(slices.DeleteFunc(p.Interfaces, func(m Member) bool { return m.LNN == lnn }))
	p.SuspendedNodes = emptied(slices.DeleteFunc(p.SuspendedNodes, func(n int) bool { return n == lnn }))
	delete(p.Weights, lnn)
	for a, m := range p.Pins {
		if m.LNN == lnn {
			delete(p.Pins, a)
		}
	}
	if len(p.Weights) == 0 {
		p.Weights = nil
	}
	if len(p.Pins) == 0 {
		p.Pins = nil
	}
}

// emptied is nil for an empty list, as after parsing.
func emptied[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}

// DeleteGroupnet returns c without a groupnet. One that still has subnets is refused.
func DeleteGroupnet(c *Config, name string) (*Config, error) {
	g, ok := c.Groupnet(name)
	if !ok {
		return nil, missing("groupnet", name, namesOf(c.Groupnets, func(g Groupnet) string { return g.Name }))
	}
	if len(g.Subnets) > 0 {
		return nil, inUse(name, "subnets", namesOf(g.Subnets, func(s Subnet) string { return name + "." + s.Name }))
	}
	out := c.Clone()
	out.Groupnets = emptied(slices.DeleteFunc(out.Groupnets, func(g Groupnet) bool { return g.Name == name }))
	return finished(out, nil)
}

// DeleteSubnet returns c without a subnet. One that still has pools, or whose service addresses answer for the pools of
// another subnet, is refused.
func DeleteSubnet(c *Config, id SubnetID) (*Config, error) {
	s, ok := c.Subnet(id)
	if !ok {
		return nil, missing("subnet", id.String(), idTexts(c.Subnets()))
	}
	if len(s.Pools) > 0 {
		return nil, inUse(id.String(), "pools", namesOf(s.Pools, func(p Pool) string { return id.String() + "." + p.Name }))
	}
	out := c.Clone()
	g, _ := out.Groupnet(id.Groupnet)
	g.Subnets = emptied(slices.DeleteFunc(g.Subnets, func(s Subnet) bool { return s.Name == id.Subnet }))
	return finished(out, nil)
}

// DeletePool returns c without a pool.
func DeletePool(c *Config, id PoolID) (*Config, error) {
	out := c.Clone()
	_, s, _, ok := out.Pool(id)
	if !ok {
		return nil, missing("pool", id.String(), idTexts(c.Pools()))
	}
	s.Pools = emptied(slices.DeleteFunc(s.Pools, func(p Pool) bool { return p.Name == id.Pool }))
	return finished(out, nil)
}

// DeleteRule returns c without a rule of a pool.
func DeleteRule(c *Config, id PoolID, name string) (*Config, error) {
	out := c.Clone()
	p, _, _, ok := out.Pool(id)
	if !ok {
		return nil, missing("pool", id.String(), idTexts(c.Pools()))
	}
	names := namesOf(p.Rules, func(r Rule) string { return r.Name })
	if !slices.Contains(names, name) {
		return nil, missing("rule", name, names)
	}
	p.Rules = emptied(slices.DeleteFunc(p.Rules, func(r Rule) bool { return r.Name == name }))
	return finished(out, nil)
}

// DeleteCheck returns c without a health check of a pool.
func DeleteCheck(c *Config, id PoolID, name string) (*Config, error) {
	out := c.Clone()
	p, _, _, ok := out.Pool(id)
	if !ok {
		return nil, missing("pool", id.String(), idTexts(c.Pools()))
	}
	names := namesOf(p.Checks, func(k Check) string { return k.Name })
	if !slices.Contains(names, name) {
		return nil, missing("check", name, names)
	}
	p.Checks = emptied(slices.DeleteFunc(p.Checks, func(k Check) bool { return k.Name == name }))
	return finished(out, nil)
}

func inUse(path, what string, names []string) error {
	return Faults{{Path: path, Message: fmt.Sprintf("still has %s; delete them first: %s", what, listed(names, "and"))}}
}
