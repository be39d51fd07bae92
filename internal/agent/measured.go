package agent

import (
	"net/netip"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/load"
	"github.com/holdfast/holdfast/internal/placement"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// measured are the last measurements of those pools of which something is decided by them. It is a value that nobody changes: next makes
// another one, which shares with it the pools of which no sample has come and that are what they were. The zero one knows of none.
type measured struct {
	config  *cluster.Config
	reading load.Reading
	pools   map[cluster.PoolID]*poolMeasures
}

// poolMeasures are the measurements of one pool, with what they were made from.
type poolMeasures struct {
	record  tenure.Record
	reading load.Reading
	made    time.Time // by which the ages count
	loads   map[cluster.Member]placement.Load
	idle    []netip.Addr // without a connection; where the pool is evened out by that
}

// measuredAgain is when the measurements of a pool are made anew although no sample has come: their ages are as old as they are.
const measuredAgain = lookAgain

// byLoad reports whether something of a pool is decided by how busy its members are.
func byLoad(pool *cluster.Pool) bool {
	return pool.ConnectPolicy != cluster.RoundRobin || pool.FailoverPolicy != cluster.RoundRobin
}

// next are the measurements that count for a world now.
func (m measured) next(w *steering.World, reading load.Reading, now time.Time) measured {
	next := measured{config: w.Config, reading: reading, pools: map[cluster.PoolID]*poolMeasures{}}
	var changed map[int]bool
	eachPool(w.Config, func(id cluster.PoolID, pool *cluster.Pool) {
		if !byLoad(pool) && pool.RebalancePolicy != cluster.RebalanceIdle {
			return
		}
		if changed == nil {
			changed = reading.Changed(m.reading)
		}
		members := w.Members(id)
		known := m.pools[id]
		if known == nil || m.config != w.Config || !known.record.Is(w.Pools[id]) || now.Sub(known.made) >= measuredAgain || changedAny(members, known, changed) {
			known = measure(pool, members, w.Pools[id], reading, now)
		}
		next.pools[id] = known
	})
	return next
}

// eachPool goes through the pools of a configuration, in its order.
func eachPool(config *cluster.Config, each func(id cluster.PoolID, pool *cluster.Pool)) {
	for i := range config.Groupnets {
		g := &config.Groupnets[i]
		for j := range g.Subnets {
			s := &g.Subnets[j]
			for k := range s.Pools {
				each(cluster.PoolID{Groupnet: g.Name, Subnet: s.Name, Pool: s.Pools[k].Name}, &s.Pools[k])
			}
		}
	}
}

// changedAny reports whether something is measured anew of a member of a pool, or of an owner that is none any more.
func changedAny(members []cluster.Member, known *poolMeasures, changed map[int]bool) bool {
	if len(changed) == 0 {
		return false
	}
	if slices.ContainsFunc(members, func(m cluster.Member) bool { return changed[m.LNN] }) {
		return true
	}
	for _, st := range known.record {
		if changed[st.Owner.LNN] {
			return true
		}
	}
	return false
}

// measure makes the measurements of one pool. Connections are those to the addresses of the pool that a member owns.
func measure(pool *cluster.Pool, members []cluster.Member, record tenure.Record, reading load.Reading, now time.Time) *poolMeasures {
	made := &poolMeasures{record: record, reading: reading, made: now, loads: make(map[cluster.Member]placement.Load, len(members))}
	for _, m := range members {
		made.loads[m] = reading.Of(m.LNN, m.Interface)
	}
	for addr, st := range record {
		owner := st.Owner.Member()
		connections := reading.Connections(owner.LNN, addr)
		if load, member := made.loads[owner]; member && load.Known && connections > 0 {
			load.Connections += connections
			made.loads[owner] = load
		}
		if pool.RebalancePolicy != cluster.RebalanceIdle || connections > 0 {
			continue
		}
		if load := reading.Of(owner.LNN, owner.Interface); load.Known && !load.Stale {
			made.idle = append(made.idle, addr)
		}
	}
	return made
}

// addLoads puts the last measurements into the world.
func (l *loop) addLoads(w *steering.World, now time.Time) {
	l.measured = l.measured.next(w, l.loads.Read(now, w.Config.Settings.SampleInterval), now)
	w.Loads = make(steering.Loads, len(l.measured.pools))
	for id, pool := range l.measured.pools {
		w.Loads[id] = pool.loads
		for _, addr := range pool.idle {
			w.Idle[addr] = true
		}
	}
	w.Planned, w.PlannedAge = l.planned.at(now, w.Loads)
}
