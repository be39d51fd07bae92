package broker

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/broker/choice"
	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/watch"
)

// FleetStatus is how it stands with a fleet.
type FleetStatus struct {
	Link     Link
	State    watch.State
	Why      string // what the last poll came to, while polls fail
	Source   fleet.Source
	Age      time.Duration
	AtLeast  bool
	Old      bool
	Usable   bool
	Central  string
	Gateways int
	Up       int // that take sessions of some protocol
	Hopeless string
}

// GatewayStatus is how it stands with a gateway.
type GatewayStatus struct {
	Fleet    string
	Gateway  fleet.Gateway
	Takes    bool
	Why      string // it takes none
	Fitness  float64
	Known    bool // the fitness is
	Launches uint32
	Proven   time.Duration // how long ago a probe or a launch reached it; 0: never
}

// Fleets are the linked fleets, sorted by name.
func (b *Broker) Fleets() []FleetStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	out := make([]FleetStatus, 0, len(b.trackers))
	for _, t := range b.trackers {
		p := t.watch.Picture()
		s := FleetStatus{
			Link: t.link, State: t.watch.State(), Why: p.CentralWhy, Source: p.Source, Age: p.Age(now), AtLeast: p.AtLeast, Old: p.Old(now), Usable: p.Usable(now), Central: t.watch.Central(),
		}
		if p.View != nil {
			s.Gateways, s.Hopeless = len(p.View.Gateways), p.View.Hopeless()
			for _, g := range gatewaysOf(p, now) {
				if g.Takes {
					s.Up++
				}
			}
		}
		out = append(out, s)
	}
	return out
}

// Gateways are the gateways of a fleet, or of all, sorted by fleet and key.
func (b *Broker) Gateways(name string) ([]GatewayStatus, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if name != "" {
		t := b.tracker(name)
		if t == nil {
			return nil, fmt.Errorf("%w %.60q; holdfast broker fleets lists them", ErrNoFleet, name)
		}
		return gatewaysOf(t.watch.Picture(), now), nil
	}
	var out []GatewayStatus
	for _, p := range b.pictures {
		out = append(out, gatewaysOf(p, now)...)
	}
	return out, nil
}

// gatewaysOf judges every gateway as choices do, each by a protocol that it has.
func gatewaysOf(p *fleet.Picture, now time.Time) []GatewayStatus {
	if p.View == nil {
		return nil
	}
	out := make([]GatewayStatus, len(p.View.Gateways))
	world := choice.World{Fleets: []*fleet.Picture{p}}
	takes, why := map[string]bool{}, map[string]string{}
	for _, protocol := range protocolsOf(p.View) {
		answer, refusal := choice.Choose(&world, &choice.Request{Protocol: protocol, Now: now, MaxAlternates: choice.MaxListed, MaxLeftOut: choice.MaxListed})
		leftOut := answer.LeftOut
		if refusal != nil {
			leftOut = refusal.LeftOut
		} else {
			takes[answer.Gateway.Key] = true
		}
		for i := range answer.Alternates {
			takes[answer.Alternates[i].Gateway.Key] = true
		}
		for i := range leftOut {
			if key := leftOut[i].Ref.Gateway; why[key] == "" || leftOut[i].Why != choice.WrongProtocol {
				why[key] = leftOut[i].Says(now)
			}
		}
	}
	for i := range p.View.Gateways {
		g, standing := &p.View.Gateways[i], p.Standings[i]
		s := GatewayStatus{Fleet: p.Fleet, Gateway: *g, Takes: takes[g.Key], Launches: standing.Launches}
		if !s.Takes {
			s.Why = whyNot(p, why[g.Key], now)
		}
		s.Fitness, s.Known = choice.Formula{}.Fitness(&g.Health, standing.Launches, 1)
		if !standing.ProvenAt.IsZero() {
			s.Proven = max(1, now.Sub(standing.ProvenAt))
		}
		out[i] = s
	}
	return out
}

func whyNot(p *fleet.Picture, why string, now time.Time) string {
	switch {
	case !p.Usable(now):
		return "the view of its fleet is beyond the hard limit"
	case why == "":
		return "it takes sessions of no protocol"
	}
	return why
}

// protocolsOf are the protocols that gateways of a view have.
func protocolsOf(v *fleet.View) (protocols []fleet.Protocol) {
	for i := range v.Gateways {
		for _, s := range v.Gateways[i].Services {
			if !slices.Contains(protocols, s.Protocol) {
				protocols = append(protocols, s.Protocol)
			}
		}
	}
	return append(protocols, "none") // so that each is judged at least once
}
