package agent

import (
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
	"github.com/holdfast/holdfast/internal/steering"
)

// plannedLoads are the measurements on which the plan on record rests. A plan that followed every sample would write records without
// end; so they stay for placement.PlanInterval, and are taken anew before that only when there is something that they do not know: a
// pool or a member that has come, or one whose load was not known.
type plannedLoads struct {
	loads steering.Loads
	taken time.Time
}

// at returns the measurements that count at a moment, and how long ago they were taken.
func (p *plannedLoads) at(now time.Time, config *cluster.Config, last steering.Loads) (steering.Loads, time.Duration) {
	if p.loads == nil || now.Sub(p.taken) >= placement.PlanInterval || p.lacks(config, last) {
		p.loads, p.taken = last, now
	}
	return p.loads, now.Sub(p.taken)
}

// lacks reports whether the last measurements know a member that the planned ones do not.
func (p *plannedLoads) lacks(config *cluster.Config, last steering.Loads) bool {
	for _, id := range config.Pools() {
		planned, now := p.loads[id], last[id]
		for _, m := range config.Members(id) {
			if load, has := planned[m]; !has || !load.Known && now[m].Known {
				return true
			}
		}
	}
	return false
}
