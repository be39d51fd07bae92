package fleet

// Obstacle is what keeps a gateway from taking a session now that could take it otherwise.
type Obstacle uint8

// The obstacles, in the order in which they are looked for. The zero Obstacle is that there is none.
const (
	Nothing     Obstacle = iota
	CentralGone          // it is the central manager, which cannot be reached
	SaidDown             // the central manager says that it is down
	Silent               // it no longer reports to the central manager
	Suspect              // a probe or a launch found it dead
)

// Obstacle says what keeps a gateway of the view from taking sessions now; and where nothing does, whether that is only because a probe or
// a launch has reached it since the view was fetched, which has it down. Choices and alarms both rest on it. It knows nothing of roles.
func (p *Picture) Obstacle(g *Gateway, s *Standing) (o Obstacle, revived bool) {
	if g.Status != Unavailable && s.SilentSince.IsZero() && s.SuspectSince.IsZero() && !p.CentralDown {
		return Nothing, false // as it mostly is, and choices ask this of every gateway
	}
	if p.CentralDown && g.Key == p.View.Central {
		return CentralGone, false
	}
	if said := g.Status == Unavailable; said || !s.SilentSince.IsZero() {
		switch {
		case p.Source == LastGood && p.Mode == Probe && s.SuspectSince.IsZero() && s.ProvenAt.After(p.FetchedAt):
			return Nothing, true
		case said:
			return SaidDown, false
		default:
			return Silent, false
		}
	}
	if p.Mode == Probe && !s.SuspectSince.IsZero() {
		return Suspect, false
	}
	return Nothing, false
}
