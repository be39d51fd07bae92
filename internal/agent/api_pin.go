package agent

import (
	"context"
	"net/netip"
	"slices"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
)

// pin keeps an address on a member, or ends that.
func (s nodeService) pin(ctx context.Context, pool, address, member string, options *holdfastv1.ChangeOptions, on bool) (*holdfastv1.ChangeResult, error) {
	v, err := s.seen()
	if err != nil {
		return nil, err
	}
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return nil, api.Invalid("%q is not an address", address)
	}
	id, err := poolOf(v.world, pool, addr)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(v.world.Config.Addresses(id), addr) {
		return nil, api.NotFound("%s is not an address of %s", addr, id)
	}
	config := v.world.Config.Clone()
	target, _, _, _ := config.Pool(id)
	if !on {
		delete(target.Pins, addr)
		return s.change(ctx, v, config, 0, options)
	}
	where := v.world.Pools[id][addr].Owner.Member()
	if member != "" {
		if where, err = cluster.ParseMember(member); err != nil {
			return nil, api.Invalid("%v", err)
		}
	}
	if where.IsZero() {
		return nil, api.NotNow("nobody holds %s now; say where to pin it: holdfast network pools pin %s %s LNN:INTERFACE", addr, id, addr)
	}
	if target.Pins == nil {
		target.Pins = map[netip.Addr]cluster.Member{}
	}
	target.Pins[addr] = where
	if faults := config.Validate().Errors(); len(faults) > 0 {
		return refusal(faults, options, v)
	}
	return s.change(ctx, v, config, 0, options)
}

// poolOf is the named pool, or the one that an address lies in.
func poolOf(w *steering.World, pool string, addr netip.Addr) (cluster.PoolID, error) {
	if pool != "" {
		id, err := cluster.ParsePoolID(w.Config, pool)
		if err != nil {
			return id, api.NotFound("%v", err)
		}
		return id, nil
	}
	for _, id := range w.Config.Pools() {
		if slices.Contains(w.Config.Addresses(id), addr) {
			return id, nil
		}
	}
	return cluster.PoolID{}, api.NotFound("%s is in no pool", addr)
}
