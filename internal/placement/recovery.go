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

// Permission says whether addresses may leave fit owners now to even out the spread.
type Permission struct {
	May      bool
	Reason   string        // why, or why not
	Wait     time.Duration // how long it takes until time alone changes the answer; 0: only an event can
	Operator bool          // that event is an operator's word
}

// MayRebalance judges one recovery. Delay and hold-down run at the same time.
//
// A request by an operator overrules the policy, the delay and the hold-down.
func MayRebalance(r Recovery, now time.Time) Permission {
	if r.Asked {
		return Permission{May: true, Reason: "an operator asked for it"}
	}
	switch r.Policy {
	case "", cluster.RebalanceAuto, cluster.RebalanceIdle:
	case cluster.RebalanceShortOutage:
		if r.Outage >= ShortOutage {
			return Permission{Operator: true, Reason: "the outage lasted " + r.Outage.Round(time.Second).String() + ", and after " +
				shortOutageText + " or more an operator decides"}
		}
	case cluster.RebalanceManual:
		return Permission{Operator: true, Reason: "the pool's rebalance policy is manual: an operator decides"}
	default:
		return Permission{Operator: true, Reason: "the rebalance policy \"" + string(r.Policy) + "\" is not known here: an operator decides"}
	}
	if r.FitSince.IsZero() {
		return Permission{Reason: "no member has become fit again"}
	}
	// FitSince may lie ahead when it was read from another node's clock; it then counts as now.
	fit := max(now.Sub(r.FitSince), 0)
	if left := r.HoldDown - fit; left > 0 && r.HoldDown >= r.Delay {
		return Permission{Reason: "hold-down of " + r.HoldDown.String() + " after the return", Wait: left}
	}
	if left := r.Delay - fit; left > 0 {
		return Permission{Reason: "rebalance delay of " + r.Delay.String() + " after the return", Wait: left}
	}
	if r.Policy == cluster.RebalanceIdle {
		for _, idle := range r.IdleAddresses {
			if idle {
				return Permission{May: true, Reason: "addresses without connections may return"}
			}
		}
		return Permission{Reason: "no address is without connections"}
	}
	return Permission{May: true, Reason: "the member has been fit for " + fit.Round(time.Second).String()}
}

// shortOutageText is ShortOutage in words.
const shortOutageText = "ten minutes"
