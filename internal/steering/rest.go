package steering

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
	"github.com/holdfast/holdfast/internal/tenure"
)

// PoolProposal is what ProposePools says of one pool.
type PoolProposal struct {
	Proposal
	Wait   time.Duration // when to look again although nothing else happens, zero if never
	Wanted bool          // the record is not as it should be
}

// Rests are the pools that were at rest when they were looked at last, with all that the decisions on them had read: nothing was
// to be done, and nothing but a change of these things makes it otherwise, not even time. The zero Rests know of none. They are a value
// that nobody changes; each look returns its own. They keep the records and measurements of the world that they are of.
type Rests struct {
	config   *cluster.Config
	settling bool
	nodes    *roll
	records  map[cluster.PoolID]tenure.Record
	services map[ServiceKey]tenure.Statement
	pools    map[cluster.PoolID]rest
}

// rest is what else the decision on one pool had read.
type rest struct {
	unowned bool // somebody in another record might own what is unowned in this one
	loads   map[cluster.Member]placement.Load
}

// ProposePools is ProposePool for all pools that are configured, in their order, and then those that only have a record. What was at rest
// when it was looked at before, and of which nothing has changed since, is not decided anew: its proposal is as empty as it was.
func ProposePools(w *World, before Rests, now time.Time) ([]PoolProposal, Rests) {
	w = w.ForReading()
	after := Rests{config: w.Config, settling: w.Settling, nodes: w.roll, records: w.Pools, services: w.Services, pools: map[cluster.PoolID]rest{}}
	still := before.still(after)
	ids := w.allPools()
	var d desk
	proposals := make([]PoolProposal, 0, len(ids))
	for _, id := range ids {
		p := PoolProposal{Proposal: Proposal{Pool: id, Record: w.Pools[id], Rank: -1}}
		if r, rests := before.pools[id]; rests && still.pool(w, id, r) {
			proposals, after.pools[id] = append(proposals, p), r
			continue
		}
		site, exists := w.poolSite(id)
		if !exists {
			p.Proposal, p.Wait, p.Wanted = retirePool(w, id)
		} else if p.Proposal, p.Wait, p.Wanted = proposePool(w, site, &d, false, now); p.rests() {
			if r, settled := w.restOf(site); settled {
				after.pools[id] = r
			}
		}
		proposals = append(proposals, p)
	}
	return proposals, after
}

// allPools are the configured pools, sorted, and then those that only have a record.
func (w *World) allPools() []cluster.PoolID {
	ids := slices.Clone(w.ConfiguredPools())
	for _, id := range sortedPools(w) {
		if _, configured := w.poolSite(id); !configured {
			ids = append(ids, id)
		}
	}
	return ids
}

// rests reports whether nothing is proposed, nothing is foreseen, and nothing waits for time to pass.
func (p *PoolProposal) rests() bool {
	return !p.Wanted && p.Wait == 0 && p.Evenness == Evenness{} && len(p.Decisions) == 0
}

// restOf is what a decision that came to nothing had read of other things than the pool's record, the nodes and the configuration. It
// returns false while an address is moving: then it had also read what this node has told others.
func (w *World) restOf(site poolSite) (r rest, settled bool) {
	for _, address := range site.addresses {
		switch site.record[address].State() {
		case tenure.Moving:
			return rest{}, false
		case tenure.Unowned:
			r.unowned = true
		}
	}
	if site.pool.FailoverPolicy != cluster.RoundRobin {
		r.loads, _ = w.plannedLoads(site.id)
	}
	return r, true
}

// stillness is what has not changed from one look to the next.
type stillness struct {
	around  bool // the nodes, the configuration, and whether the cluster is starting
	records map[cluster.PoolID]bool
	all     bool // every record, those of service addresses too
}

func (r Rests) still(now Rests) stillness {
	s := stillness{around: r.config == now.config && r.settling == now.settling && r.nodes.equal(now.nodes)}
	if !s.around {
		return s
	}
	s.records = make(map[cluster.PoolID]bool, len(now.records))
	s.all = len(r.records) == len(now.records) && maps.Equal(r.services, now.services)
	for id, record := range now.records {
		s.records[id] = record.Is(r.records[id]) || maps.Equal(r.records[id], record)
		s.all = s.all && s.records[id]
	}
	return s
}

// pool reports whether nothing has changed that a decision on a pool had read.
func (s stillness) pool(w *World, id cluster.PoolID, r rest) bool {
	if !s.around || !s.records[id] || r.unowned && !s.all {
		return false
	}
	if r.loads == nil {
		return true
	}
	loads, _ := w.plannedLoads(id)
	return maps.Equal(r.loads, loads)
}

// equal reports whether two rolls say the same of the same nodes.
func (r *roll) equal(other *roll) bool {
	if r == other {
		return r != nil
	}
	if r == nil || other == nil || !slices.Equal(r.numbers, other.numbers) {
		return false
	}
	for i := range r.nodes {
		if !reflect.DeepEqual(&r.nodes[i], &other.nodes[i]) {
			return false
		}
	}
	return true
}
