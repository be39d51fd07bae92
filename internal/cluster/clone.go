package cluster

import (
	"maps"
	"slices"
)

// Clone returns a copy that shares nothing with c.
func (c *Config) Clone() *Config {
	out := *c
	out.Settings.StoreEndpoints = slices.Clone(c.Settings.StoreEndpoints)
	out.Settings.ClientPorts = slices.Clone(c.Settings.ClientPorts)
	out.Settings.Hooks = cloneEach(c.Settings.Hooks, func(h *Hook) { h.Command = slices.Clone(h.Command) })
	out.Nodes = cloneEach(c.Nodes, func(n *Node) {
		n.Interfaces = slices.Clone(n.Interfaces)
		n.Addresses = slices.Clone(n.Addresses)
	})
	out.Groupnets = cloneEach(c.Groupnets, func(g *Groupnet) {
		g.DNSServers = slices.Clone(g.DNSServers)
		g.DNSSearch = slices.Clone(g.DNSSearch)
		g.Subnets = cloneEach(g.Subnets, func(s *Subnet) {
			s.ServiceAddrs = slices.Clone(s.ServiceAddrs)
			s.ReverseZones = slices.Clone(s.ReverseZones)
			s.Pools = cloneEach(s.Pools, clonePool)
		})
	})
	return &out
}

func cloneEach[T any](list []T, deepen func(*T)) []T {
	out := slices.Clone(list)
	for i := range out {
		deepen(&out[i])
	}
	return out
}

func clonePool(p *Pool) {
	p.Ranges = slices.Clone(p.Ranges)
	p.Interfaces = slices.Clone(p.Interfaces)
	p.Rules = slices.Clone(p.Rules)
	p.ZoneAliases = slices.Clone(p.ZoneAliases)
	p.SuspendedNodes = slices.Clone(p.SuspendedNodes)
	p.Weights = maps.Clone(p.Weights)
	p.StaticRoutes = slices.Clone(p.StaticRoutes)
	p.Pins = maps.Clone(p.Pins)
	p.Checks = cloneEach(p.Checks, func(c *Check) {
		c.Status = slices.Clone(c.Status)
		c.Command = slices.Clone(c.Command)
	})
}
