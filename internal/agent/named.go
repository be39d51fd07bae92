package agent

import (
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/dns"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// named is what names are answered from, with what that was made from. It is a value that nobody changes: pools of which nothing has changed
// are in the next one as they are in this.
type named struct {
	view  *dns.View
	world *steering.World
	pools map[cluster.PoolID]*namedPool
}

// namedPool is the nodes of one pool as names are answered with them. Under one configuration they are made from the record, from what is
// known of the nodes and, where the pool's answers depend on it, from measurements, and from nothing else unless they waver.
type namedPool struct {
	record   tenure.Record
	measures *poolMeasures
	nodes    []dns.Node
	wavers   bool // it depends on the time
}

// name makes what names are answered from in a world.
func (s *answers) name(w *steering.World, now time.Time) named {
	config := w.Config
	next := named{world: w, pools: make(map[cluster.PoolID]*namedPool, len(s.named.pools)), view: &dns.View{
		Ready: s.loop.ready(), ServerTTL: config.Settings.ServerTTL, NegativeTTL: config.Settings.NegativeTTL,
		Serial: uint32(s.loop.replica.configRevision),
	}}
	if s.named.view != nil && s.named.world.Config == config { // they are the configuration's
		next.view.Searches, next.view.Reverse = s.named.view.Searches, s.named.view.Reverse
	} else {
		next.view.Searches, next.view.Reverse = searches(config), reverses(config)
	}
	for _, id := range config.Subnets() {
		subnet, _ := config.Subnet(id)
		next.view.Services = append(next.view.Services, dns.Service{Subnet: id, Name: subnet.ServiceName, Addresses: w.ServiceHolders(id), All: config.ServiceAddresses(id)})
	}
	next.view.Zones = s.zones(w, &next, now)
	return next
}

// same reports whether nothing that is answered has changed since an earlier one.
func (n named) same(before named) bool {
	if n.world.Config != before.world.Config || len(n.pools) != len(before.pools) {
		return false
	}
	for id, pool := range n.pools {
		if before.pools[id] != pool {
			return false
		}
	}
	a, b := n.view, before.view
	services := slices.EqualFunc(a.Services, b.Services, func(x, y dns.Service) bool {
		return x.Subnet == y.Subnet && slices.Equal(x.Addresses, y.Addresses) // the rest is the configuration's
	})
	return services && a.Ready == b.Ready && a.Serial == b.Serial
}

// zones gathers the pools under the names that they share.
func (s *answers) zones(w *steering.World, next *named, now time.Time) []dns.Zone {
	var zones []dns.Zone
	byName := map[string]int{}
	names := make(map[int]string, len(w.Config.Nodes))
	for i := range w.Config.Nodes {
		names[w.Config.Nodes[i].LNN] = w.Config.Nodes[i].Name
	}
	for _, id := range w.ConfiguredPools() {
		pool, subnet, groupnet, _ := w.Config.Pool(id)
		if pool.Zone == "" {
			continue
		}
		i, known := byName[pool.Zone]
		if !known {
			i = len(zones)
			byName[pool.Zone] = i
			zones = append(zones, dns.Zone{Name: pool.Zone, Wildcard: groupnet.AllowWildcardSubdomains})
		}
		zone := &zones[i]
		for _, alias := range pool.ZoneAliases {
			if !slices.Contains(zone.Aliases, alias) {
				zone.Aliases = append(zone.Aliases, alias)
			}
		}
		if serviceSubnet, ok := w.Config.ServiceSubnet(id); ok && zone.Service == "" {
			if service, ok := w.Config.Subnet(serviceSubnet); ok {
				zone.Service = service.ServiceName
			}
		}
		next.pools[id] = s.namedPool(w, id, pool, names, now)
		zone.Pools = append(zone.Pools, dns.Pool{
			ID: id, TTL: pool.TTL, Policy: pool.ConnectPolicy, OnNone: pool.OnNone, MaxAnswers: pool.MaxAnswers,
			Affinity: pool.ClientAffinity, Rotation: subnet.Rotation, IPv6: subnet.CIDR.Addr().Is6(), Nodes: next.pools[id].nodes,
		})
	}
	return zones
}

// namedPool is one pool's, the last one if it was made from what is still so.
func (s *answers) namedPool(w *steering.World, id cluster.PoolID, pool *cluster.Pool, names map[int]string, now time.Time) *namedPool {
	var measures *poolMeasures
	if pool.ConnectPolicy != cluster.RoundRobin {
		measures = s.loop.measured.pools[id]
	}
	if last := s.named.pools[id]; last != nil && !last.wavers && w.SameNodes(s.named.world) && last.record.Is(w.Pools[id]) && last.measures == measures {
		return last
	}
	made := &namedPool{record: w.Pools[id], measures: measures, wavers: steering.Withheld(w, id, now)}
	made.nodes = s.nodes(w, id, pool, measures, names, now)
	return made
}

// nodes says for each node of a pool what may be given of it, and if not, why.
func (s *answers) nodes(w *steering.World, id cluster.PoolID, pool *cluster.Pool, measures *poolMeasures, names map[int]string, now time.Time) []dns.Node {
	members := steering.GivenMembers(w, id, now)
	nodes := make([]dns.Node, 0, len(members))
	said := s.saidOf(w.Config, id, len(members))
	for i := range members {
		given := &members[i]
		m, owned, why := given.Member, given.Addresses, given.Why
		if is := inOrOut(why); said[i] != is {
			s.loop.since.note(sinceKey{id, m}, is, time.Time{}, now)
			said[i] = is
		}
		if n := len(nodes); n > 0 && nodes[n-1].LNN == m.LNN {
			// A second interface of the same node: one choice, all its addresses.
			node := &nodes[n-1]
			if why == "" {
				node.Addresses = append(node.Addresses, owned...)
				node.Eligible, node.Why = true, ""
			}
			continue
		}
		node := dns.Node{LNN: m.LNN, Name: names[m.LNN], Weight: w.Weight(pool, m.LNN), Addresses: owned, Eligible: why == "", Why: why}
		if measures != nil {
			node.Load, node.Sampled = measures.loads[m], measures.reading.Sampled(m.LNN)
		}
		nodes = append(nodes, node)
	}
	return nodes
}
