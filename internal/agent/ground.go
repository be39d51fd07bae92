package agent

import (
	"net/netip"

	"github.com/holdfast/holdfast/internal/cluster"
)

// ground is what a wish needs of a configuration, worked out once for each: a wish lies on the way of a failover. Nobody changes it.
type ground struct {
	config    *cluster.Config
	addresses map[netip.Addr]bool                 // all that are configured
	own       map[cluster.PoolID][]cluster.Member // this node's, of those pools that it is a member of
}

// groundOf is that of a configuration.
func (l *loop) groundOf(config *cluster.Config) *ground {
	if l.ground.config == config {
		return &l.ground
	}
	g := ground{config: config, addresses: map[netip.Addr]bool{}, own: map[cluster.PoolID][]cluster.Member{}}
	for _, id := range config.Pools() {
		for _, addr := range config.Addresses(id) {
			g.addresses[addr] = true
		}
		for _, m := range config.Members(id) {
			if m.LNN == l.self.LNN {
				g.own[id] = append(g.own[id], m)
			}
		}
	}
	for _, id := range config.Subnets() {
		for _, addr := range config.ServiceAddresses(id) {
			g.addresses[addr] = true
		}
	}
	l.ground = g
	return &l.ground
}
