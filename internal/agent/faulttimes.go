package agent

import (
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
)

// faultTimes is since when a node's faults last and which ended lately, by this node's clock. It is a value: next makes another.
// There is an entry for each interface and each pool at the most, as faults have no other subjects.
type faultTimes struct {
	interfaces, pools map[string]faultTime
}

// faultTime is one fault that lasts, or the last one if none does.
type faultTime struct {
	began time.Time // zero: it is over
	mend  steering.Mend
}

// maxFaultTimes bounds the subjects that are remembered; beyond it those without a fault are forgotten.
const maxFaultTimes = 256

// next takes in a node's newest report. What the node's earlier life reported counts: a restart mends a failing check too, but
// only when the node is ready again is it known to have done so.
func (f faultTimes) next(report memberRecord, now time.Time) faultTimes {
	return faultTimes{nextTimes(f.interfaces, report.Faults, report.Ready, now), nextTimes(f.pools, report.PoolFaults, report.Ready, now)}
}

func nextTimes(before map[string]faultTime, faults map[string]string, ready bool, now time.Time) map[string]faultTime {
	after := map[string]faultTime{}
	for subject, was := range before {
		if ready && !was.began.IsZero() && faults[subject] == "" {
			was = faultTime{mend: steering.Mend{At: now, Lasted: now.Sub(was.began)}}
		}
		if len(before) <= maxFaultTimes || !was.began.IsZero() {
			after[subject] = was
		}
	}
	for subject := range faults {
		if was := after[subject]; was.began.IsZero() {
			was.began = now
			after[subject] = was
		}
	}
	return after
}

// mended are the faults that are over, for the decisions; nil where there are none.
func (f faultTimes) mended() (interfaces map[string]steering.Mend, pools map[cluster.PoolID]steering.Mend) {
	for name, fault := range f.interfaces {
		if fault.mend.At.IsZero() {
			continue
		}
		if interfaces == nil {
			interfaces = map[string]steering.Mend{}
		}
		interfaces[name] = fault.mend
	}
	for name, fault := range f.pools {
		id, err := cluster.NewPoolID(name)
		if err != nil || fault.mend.At.IsZero() {
			continue
		}
		if pools == nil {
			pools = map[cluster.PoolID]steering.Mend{}
		}
		pools[id] = fault.mend
	}
	return interfaces, pools
}
