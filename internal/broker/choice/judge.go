package choice

import (
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
)

// judge says why a gateway cannot take the session, or that it is fit; and whether that is only because a probe reached it. What it never
// can comes before what it cannot now.
func (c *choosing) judge(p *fleet.Picture, g *fleet.Gateway, s *fleet.Standing) (why Why, revived bool) {
	if g.Refuses() != "" {
		return WrongRole, false
	}
	if _, takes := g.Port(c.request.Protocol); !takes {
		return WrongProtocol, false
	}
	if len(c.request.Tried) > 0 && slices.Contains(c.request.Tried, fleet.Ref{Fleet: p.Fleet, Gateway: g.Key}) {
		return AlreadyTried, false
	}
	if p.CentralDown && g.Key == p.View.Central {
		return CentralGone, false
	}
	if said := g.Status == fleet.Unavailable; said || !s.SilentSince.IsZero() {
		switch {
		case p.Source == fleet.LastGood && p.Mode == fleet.Probe && proven(s, p.FetchedAt):
			return fit, true
		case said:
			return SaidDown, false
		default:
			return Silent, false
		}
	}
	if p.Mode == fleet.Probe && !s.SuspectSince.IsZero() {
		return Suspect, false
	}
	return fit, false
}

// proven reports whether a probe or a launch has reached the gateway since the view was fetched, and none has failed since.
func proven(s *fleet.Standing, fetched time.Time) bool {
	return s.SuspectSince.IsZero() && s.ProvenAt.After(fetched)
}

// leftOut has what is known about why a gateway was left out.
func leftOut(p *fleet.Picture, g *fleet.Gateway, s *fleet.Standing, why Why) LeftOut {
	l := LeftOut{Ref: fleet.Ref{Fleet: p.Fleet, Gateway: g.Key}, Why: why}
	switch why {
	case WrongRole:
		l.Detail = g.Refuses()
	case CentralGone:
		l.Since = p.CentralSince
	case SaidDown:
		l.Detail, l.Since = g.Why, s.DownSince
	case Silent:
		l.Since = s.SilentSince
	case Suspect:
		l.Detail, l.Since = s.SuspectWhy, s.SuspectSince
	case NotInFleet, NoView, WrongFleet, WrongProtocol, AlreadyTried, fit:
	}
	return l
}
