package choice

import (
	"slices"

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
	obstacle, revived := p.Obstacle(g, s)
	return whyNow[obstacle], revived
}

// whyNow has the reasons that are obstacles.
var whyNow = [...]Why{
	fleet.Nothing: fit, fleet.CentralGone: CentralGone, fleet.SaidDown: SaidDown, fleet.Silent: Silent, fleet.Suspect: Suspect,
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
