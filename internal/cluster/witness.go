package cluster

import (
	"cmp"
	"net/netip"
	"slices"
)

// NoWitness reports whether no-witness is in effect: there are just two nodes, and it is set.
func (c *Config) NoWitness() bool { return c.Settings.NoWitness && len(c.Nodes) == 2 }

// Gateway is one that a node asks whether it is cut off.
type Gateway struct {
	Subnet    SubnetID
	Address   netip.Addr
	Interface string // on which the node asks it
}

// Gateways lists the gateways that a node asks: of each subnet where it may host an address that moves, on each interface that may, sorted.
func (c *Config) Gateways(lnn int) []Gateway {
	var out []Gateway
	for _, id := range c.Pools() {
		_, subnet, _, _ := c.Pool(id)
		if !c.moves(id) || !subnet.Gateway.IsValid() {
			continue
		}
		for _, m := range c.Members(id) {
			if m.LNN == lnn {
				out = append(out, Gateway{Subnet: id.SubnetID(), Address: subnet.Gateway, Interface: m.Interface})
			}
		}
	}
	slices.SortFunc(out, func(a, b Gateway) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Interface, b.Interface), cmp.Compare(a.Subnet.String(), b.Subnet.String()))
	})
	return slices.Compact(out)
}

// moves reports whether addresses on the interfaces of a pool move: its own, or its subnet's service addresses.
func (c *Config) moves(id PoolID) bool {
	pool, subnet, _, ok := c.Pool(id)
	return ok && (pool.AllocMethod == AllocDynamic || len(subnet.ServiceAddrs) > 0)
}

// noWitness says where the setting has no effect, and what it takes where it has one.
func (v *validator) noWitness() {
	at := place{"cluster", "cluster"}.field("no-witness")
	if !v.c.Settings.NoWitness || v.broken(place{"nodes", "nodes"}) {
		return
	}
	if n := len(v.c.Nodes); n != 2 {
		v.warn(at, "has no effect with %d nodes: it is for two, of which each goes on without the other", n)
		return
	}
	v.warn(at, "both nodes hold the same addresses while only the link between them is cut; a witness, or a third node, prevents that")
	for _, s := range v.subnets {
		if s.subnet.Gateway.IsValid() || v.broken(s.field("gateway")) {
			continue
		}
		for i := range s.subnet.Pools {
			if v.c.moves(PoolID{s.id.Groupnet, s.id.Subnet, s.subnet.Pools[i].Name}) {
				v.fault(s.place, "cluster.no-witness has each node ask the gateway of its subnets whether it may go on without the other, and this subnet has none; set its gateway, or no-witness to false")
				break
			}
		}
	}
}
