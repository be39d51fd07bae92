package agent

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// What a change would move, before it moves: the decisions of steering, played on the world as the change would make it.

// movesUnder says what would move if this were the configuration. The same decisions make it happen.
func (s nodeService) movesUnder(v *view, config *cluster.Config) []*holdfastv1.Move {
	w := *v.world
	w.Config = config
	w.Settling = false
	w.Pools, w.Services = settled(v.world, config)
	var moves []*holdfastv1.Move
	pools := config.Pools()
	for _, id := range slices.SortedFunc(maps.Keys(v.world.Pools), func(a, b cluster.PoolID) int { return cmp.Compare(a.String(), b.String()) }) {
		if !slices.Contains(pools, id) {
			pools = append(pools, id)
		}
	}
	for _, id := range pools {
		moves = append(moves, moveMessages(&w, id, steering.Foresee(&w, id, false, s.now()).Moves)...)
		for _, addr := range slices.SortedFunc(maps.Keys(v.world.Pools[id]), netip.Addr.Compare) {
			st := v.world.Pools[id][addr]
			if !slices.Contains(config.Addresses(id), addr) && !st.Owner.IsZero() {
				moves = append(moves, moveMessage(&w, id.String(), placement.Move{Address: addr, From: st.Owner.Member(), Reason: "the address is no longer configured"}))
			}
		}
	}
	moves = append(moves, serviceMoveMessages(&w, unconfiguredServices(v.world, config))...)
	return append(moves, serviceMoveMessages(&w, steering.ForeseeServices(&w, s.now()).Moves)...)
}

// unconfiguredServices are the service addresses that somebody would have to let go of under a configuration.
func unconfiguredServices(w *steering.World, config *cluster.Config) []steering.ServiceMove {
	var moves []steering.ServiceMove
	for key, st := range w.Services {
		if !slices.Contains(config.ServiceAddresses(key.Subnet), key.Address) && !st.Owner.IsZero() {
			moves = append(moves, steering.ServiceMove{Subnet: key.Subnet, Move: placement.Move{
				Address: key.Address, From: st.Owner.Member(), Reason: "the service address is no longer configured"}})
		}
	}
	slices.SortFunc(moves, func(a, b steering.ServiceMove) int {
		return cmp.Or(cmp.Compare(a.Subnet.String(), b.Subnet.String()), a.Address.Compare(b.Address))
	})
	return moves
}

// settled is what the records will be when everybody has let go of what a configuration no longer gives: only then an address
// that changes its pool comes to its new owner.
func settled(w *steering.World, config *cluster.Config) (map[cluster.PoolID]tenure.Record, map[steering.ServiceKey]tenure.Statement) {
	pools, services := map[cluster.PoolID]tenure.Record{}, maps.Clone(w.Services)
	for id, record := range w.Pools {
		addresses := config.Addresses(id)
		pools[id] = maps.Clone(record)
		maps.DeleteFunc(pools[id], func(addr netip.Addr, _ tenure.Statement) bool { return !slices.Contains(addresses, addr) })
	}
	maps.DeleteFunc(services, func(key steering.ServiceKey, _ tenure.Statement) bool {
		return !slices.Contains(config.ServiceAddresses(key.Subnet), key.Address)
	})
	return pools, services
}

// movesIfDrained says what would move if a node were drained, or no longer.
func (s nodeService) movesIfDrained(v *view, lnn int, on bool) []*holdfastv1.Move {
	w := *v.world
	w.Nodes = maps.Clone(w.Nodes)
	node := w.Nodes[lnn]
	node.Draining = on
	w.Nodes[lnn] = node
	var moves []*holdfastv1.Move
	for _, id := range w.Config.Pools() {
		moves = append(moves, moveMessages(&w, id, steering.Foresee(&w, id, false, s.now()).Moves)...)
	}
	return append(moves, serviceMoveMessages(&w, steering.ForeseeServices(&w, s.now()).Moves)...)
}
