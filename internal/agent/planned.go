package agent

import (
	"reflect"
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
func (p *plannedLoads) at(now time.Time, last steering.Loads) (steering.Loads, time.Duration) {
	if p.loads == nil || now.Sub(p.taken) >= placement.PlanInterval || p.lacks(last) {
		p.loads, p.taken = last, now
	}
	return p.loads, now.Sub(p.taken)
}

// lacks reports whether the last measurements know a member that the planned ones do not.
func (p *plannedLoads) lacks(last steering.Loads) bool {
	for id, now := range last {
		planned := p.loads[id]
		if sameLoads(planned, now) {
			continue
		}
		for m, load := range now {
			if was, has := planned[m]; !has || load.Known && !was.Known {
				return true
			}
		}
	}
	return false
}

// sameLoads reports whether two measurements of a pool are the very same ones.
func sameLoads(a, b map[cluster.Member]placement.Load) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}
