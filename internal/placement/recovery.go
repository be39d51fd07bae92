package placement

import (
	"net/netip"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

// ShortOutage is the outage below which the policy short_outage lets addresses return by themselves.
const ShortOutage = 10 * time.Minute

// Recovery is what MayRebalance judges: a pool one of whose members became fit again.
type Recovery struct {
	Policy        cluster.RebalancePolicy // empty means auto
	Delay         time.Duration           // sc-rebalance-delay
	Outage        time.Duration           // how long the member was not fit
	FitSince      time.Time               // since when it has been fit without a break; zero: it is not
	HoldDown      time.Duration           // how long it must stay fit first; grows with flapping
	Asked         bool                    // an operator asked for a rebalance
	IdleAddresses map[netip.Addr]bool     // addresses without connections; what to pass on as Request.Movable under idle
}

// MayRebalance says whether addresses may leave fit owners now to even out the spread, and why or why not. A wait above
// zero is how long it takes until time alone changes the answer; zero with false means that only an event can, such as
// an operator's word. Delay and hold-down run at the same time.
//
// A request by an operator overrules the policy, the delay and the hold-down.
func MayRebalance(r Recovery, now time.Time) (ok bool, reason string, wait time.Duration) {
	if r.Asked {
		return true, "an operator asked for it", 0
	}
	switch r.Policy {
	case "", cluster.RebalanceAuto, cluster.RebalanceIdle:
	case cluster.RebalanceShortOutage:
		if r.Outage >= ShortOutage {
			return false, "the outage lasted " + r.Outage.Round(time.Second).String() + ", and after " +
				shortOutageText + " or more an operator decides", 0
		}
	case cluster.RebalanceManual:
		return false, "the pool's rebalance policy is manual: an operator decides", 0
	default:
		return false, "the rebalance policy \"" + string(r.Policy) + "\" is not known here: an operator decides", 0
	}
	if r.FitSince.IsZero() {
		return false, "no member has become fit again", 0
	}
	// FitSince may lie ahead when it was read from another node's clock; it then counts as now.
	fit := max(now.Sub(r.FitSince), 0)
	if left := r.HoldDown - fit; left > 0 && r.HoldDown >= r.Delay {
		return false, "hold-down of " + r.HoldDown.String() + " after the return", left
	}
	if left := r.Delay - fit; left > 0 {
		return false, "rebalance delay of " + r.Delay.String() + " after the return", left
	}
	if r.Policy == cluster.RebalanceIdle {
		for _, idle := range r.IdleAddresses {
			if idle {
				return true, "addresses without connections may return", 0
			}
		}
		return false, "no address is without connections", 0
	}
	return true, "the member has been fit for " + fit.Round(time.Second).String(), 0
}

// shortOutageText is ShortOutage in words.
const shortOutageText = "ten minutes"
