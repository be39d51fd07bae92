package sim

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// Break is a rule that is broken on purpose, to see that it is found.
type Break string

// The breaks. The first is one of the protocol between nodes, the others are of what an agent has around it.
const (
	Unbroken      Break = ""
	BreakLease    Break = "lease"    // heartbeats name a span that is one interval shorter than what their sender counts
	BreakWish     Break = "wish"     // a lapse that ends before the loop comes round leaves the wish as it was
	BreakFormer   Break = "former"   // a next that is replaced is forgotten before it has acknowledged
	BreakGiven    Break = "given"    // a look that tells another that it has let go takes the move back at the same time
	BreakRelease  Break = "release"  // an address is given away while it is still on the interface
	BreakRenewal  Break = "renewal"  // a process that goes on after a stall renews before it looks at its right
	BreakGuard    Break = "guard"    // the guard does not silence
	BreakWithheld Break = "withheld" // a wish that was begun without the right is not carried out again when the right is back
	BreakRefused  Break = "refused"  // what was refused for want of the right is tried again after a second, and what somebody else took off meanwhile not at all
	BreakSilent   Break = "silent"   // another incarnation begins before what the last one held has been taken off
	BreakUnderWay Break = "underway" // a former next acknowledges while it may be putting the service address on
	BreakBack     Break = "back"     // an owner that is writing that it has let go of an address takes it back meanwhile
	BreakRetired  Break = "retired"  // a retired address that nobody owns leaves the record before its former next has acknowledged
)

// Two are of what must always hold, as it was written down wrongly once: what is right was found to be wrong.
const (
	BreakStill  Break = "still"  // a machine that stands still is said to have answered until it loses its power
	BreakTarget Break = "target" // a move to a node that has lapsed is said to be one in a cluster in which nothing is wrong
)

// Breaks are the breaks that there are.
func Breaks() []Break {
	return []Break{
		BreakLease, BreakWish, BreakFormer, BreakGiven, BreakRelease, BreakRenewal, BreakGuard, BreakWithheld, BreakRefused, BreakRetired,
		BreakSilent, BreakUnderWay, BreakBack,
		BreakStill, BreakTarget,
	}
}

// takeBack has every address stay that is asked away from a node while its record changes, whether it is still there or not.
func (p *process) takeBack(w *steering.World) {
	w.Concerning(func(id cluster.PoolID, a netip.Addr, st tenure.Statement) bool {
		asked := st.Owner.LNN == p.lnn && st.State() == tenure.Moving && !st.Fixed && st.To.LNN != p.lnn
		if asked && (id != cluster.PoolID{}) && p.changing(id, steering.ServiceKey{}) {
			if w.Unready == nil {
				w.Unready = map[netip.Addr]bool{}
			}
			w.Unready[a] = true
		}
		return true
	})
}

// refusedAgain is when what was refused for want of the right is tried again.
func (s *simulation) refusedAgain() time.Duration {
	if s.broken == BreakRefused {
		return time.Second
	}
	return retryUnlawfulAfter
}

// forgetRetired leaves out of a pool's record what nobody owns and the configuration does not have any more.
func forgetRetired(config *cluster.Config, id cluster.PoolID, record tenure.Record) tenure.Record {
	configured := config.Addresses(id)
	record = maps.Clone(record)
	maps.DeleteFunc(record, func(a netip.Addr, st tenure.Statement) bool {
		return st.Owner.IsZero() && !slices.Contains(configured, a)
	})
	return record
}
