package choice

import (
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
)

// judge says whether a gateway can take the session, and if not why not. What it never can comes before what it cannot now.
func (c *choosing) judge(p *fleet.Picture, s *fleet.Standing, pick *Pick) (out LeftOut, fit bool) {
	g := pick.Gateway
	if refuses := g.Refuses(); refuses != "" {
		return LeftOut{Why: WrongRole, Detail: refuses}, false
	}
	if pick.Port, fit = g.Port(c.request.Protocol); !fit {
		return LeftOut{Why: WrongProtocol}, false
	}
	if len(c.request.Tried) > 0 && slices.Contains(c.request.Tried, pick.Ref()) {
		return LeftOut{Why: AlreadyTried}, false
	}
	if p.CentralDown && g.Key == p.View.Central {
		return LeftOut{Why: CentralGone, Since: p.CentralSince}, false
	}
	stale := p.Source == fleet.LastGood && p.Mode == fleet.Probe
	if stale && proven(s, p.FetchedAt) && (g.Status == fleet.Unavailable || !s.SilentSince.IsZero()) {
		pick.Revived = true
		return LeftOut{}, true
	}
	if g.Status == fleet.Unavailable {
		return LeftOut{Why: SaidDown, Detail: g.Why, Since: s.DownSince}, false
	}
	if !s.SilentSince.IsZero() {
		return LeftOut{Why: Silent, Since: s.SilentSince}, false
	}
	if p.Mode == fleet.Probe && !s.SuspectSince.IsZero() {
		return LeftOut{Why: Suspect, Detail: s.SuspectWhy, Since: s.SuspectSince}, false
	}
	return LeftOut{}, true
}

// proven reports whether a probe or a launch has reached the gateway since the view was fetched, and none has failed since.
func proven(s *fleet.Standing, fetched time.Time) bool {
	return s.SuspectSince.IsZero() && s.ProvenAt.After(fetched)
}
