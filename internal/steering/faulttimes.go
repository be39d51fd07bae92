package steering

import (
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

// FaultTimes is since when a node's faults last and which ended lately, by this node's clock. It is a value: Next makes another; the zero
// one knows of none.
// There is an entry for each interface and each pool at the most, as faults have no other subjects.
type FaultTimes struct {
	interfaces, pools map[string]faultTime
}

// faultTime is one fault that lasts, or the last one if none does.
type faultTime struct {
	began time.Time // zero: it is over
	mend  Mend
}

// maxFaultTimes bounds the subjects that are remembered; beyond it those without a fault are forgotten.
const maxFaultTimes = 256

// Next takes in a node's newest report: what is wrong with its interfaces and, by dotted id, with its pools, and whether it is ready. What the node's earlier life reported counts: a restart mends a failing check too, but
// only when the node is ready again is it known to have done so.
func (f FaultTimes) Next(interfaces, pools map[string]string, ready bool, now time.Time) FaultTimes {
	return FaultTimes{nextTimes(f.interfaces, interfaces, ready, now), nextTimes(f.pools, pools, ready, now)}
}

func nextTimes(before map[string]faultTime, faults map[string]string, ready bool, now time.Time) map[string]faultTime {
	if len(before) == 0 && len(faults) == 0 {
		return nil
	}
	after := map[string]faultTime{}
	for subject, was := range before {
		if ready && !was.began.IsZero() && faults[subject] == "" {
			was = faultTime{mend: Mend{At: now, Lasted: now.Sub(was.began)}}
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

// Mended are the faults that are over, for the decisions; nil where there are none.
func (f FaultTimes) Mended() (interfaces map[string]Mend, pools map[cluster.PoolID]Mend) {
	for name, fault := range f.interfaces {
		if fault.mend.At.IsZero() {
			continue
		}
		if interfaces == nil {
			interfaces = map[string]Mend{}
		}
		interfaces[name] = fault.mend
	}
	for name, fault := range f.pools {
		id, err := cluster.NewPoolID(name)
		if err != nil || fault.mend.At.IsZero() {
			continue
		}
		if pools == nil {
			pools = map[cluster.PoolID]Mend{}
		}
		pools[id] = fault.mend
	}
	return interfaces, pools
}
