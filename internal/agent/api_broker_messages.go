package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/broker"
	"github.com/holdfast/holdfast/internal/broker/choice"
	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/poll"
	"github.com/holdfast/holdfast/internal/broker/rules"
	"github.com/holdfast/holdfast/internal/broker/watch"
)

// linkOf reads a link as it was sent.
func linkOf(m *holdfastv1.FleetLink) (broker.Link, error) {
	if m == nil {
		return broker.Link{}, errors.New("no fleet is named")
	}
	ms := func(n int64) time.Duration { return time.Duration(max(-1, min(n, 1<<40))) * time.Millisecond }
	l := broker.Link{Link: watch.Link{
		Fleet: m.Name, Address: m.Address, Central: m.Central, Poll: ms(m.PollMs), Timeout: ms(m.TimeoutMs), Probe: ms(m.ProbeMs), WarnAge: ms(m.WarnAgeMs), HardLimit: ms(m.HardLimitMs),
	}}
	switch m.Mode {
	case "", fleet.Probe.String():
	case fleet.Strict.String():
		l.Mode = fleet.Strict
	default:
		return l, fmt.Errorf("the mode of a fleet is probe or strict, not %.40q", m.Mode)
	}
	if m.Fingerprint != "" {
		var err error
		if l.Fingerprint, err = poll.ParseFingerprint(m.Fingerprint); err != nil {
			return l, err
		}
	}
	for _, s := range m.Services {
		if s.GetPort() < 1 || s.GetPort() > 65535 {
			return l, fmt.Errorf("%d is no port", s.GetPort())
		}
		l.Services = append(l.Services, fleet.Service{Protocol: fleet.Protocol(s.GetProtocol()), Port: uint16(s.GetPort())})
	}
	return l, nil
}

func serviceMessages(services []fleet.Service) (out []*holdfastv1.GatewayService) {
	for _, s := range services {
		out = append(out, &holdfastv1.GatewayService{Protocol: string(s.Protocol), Port: uint32(s.Port)})
	}
	return out
}

func fleetMessage(f *broker.FleetStatus) *holdfastv1.FleetStatus {
	l := &f.Link
	return &holdfastv1.FleetStatus{
		Link: &holdfastv1.FleetLink{
			Name: l.Fleet, Address: l.Address, Fingerprint: l.Fingerprint.String(), Central: l.Central, Mode: l.Mode.String(), PollMs: l.Poll.Milliseconds(),
			TimeoutMs: l.Timeout.Milliseconds(), ProbeMs: l.Probe.Milliseconds(), WarnAgeMs: l.WarnAge.Milliseconds(), HardLimitMs: l.HardLimit.Milliseconds(),
			Services: serviceMessages(l.Services),
		},
		State: f.State.String(), Why: f.Why, Source: f.Source.String(), AgeMs: f.Age.Milliseconds(), AtLeast: f.AtLeast, Old: f.Old, Usable: f.Usable,
		Central: f.Central, Gateways: int32(f.Gateways), Up: int32(f.Up), Hopeless: f.Hopeless,
	}
}

func addressTexts(addresses []netip.Addr) (out []string) {
	for _, a := range addresses {
		out = append(out, a.String())
	}
	return out
}

func gatewayMessage(s *broker.GatewayStatus, now time.Time) *holdfastv1.GatewayStatus {
	g := &s.Gateway
	out := &holdfastv1.GatewayStatus{
		Fleet: s.Fleet, Key: g.Key, Name: g.Name, Addresses: addressTexts(g.Addresses), Roles: g.Roles.Names(), Services: serviceMessages(g.Services),
		Said: g.Status.String(), Takes: s.Takes, Why: s.Why, Launches: s.Launches,
	}
	if g.Health.Known {
		h := &g.Health
		out.Health = &holdfastv1.GatewayHealth{DiskUsed: h.DiskUsed, Load1: h.Load1, Load5: h.Load5, Load15: h.Load15, Cores: int32(h.Cores), Sessions: int32(h.Sessions)}
		out.Fitness = s.Fitness
	}
	if s.Proven > 0 {
		out.Proven = stamp(now.Add(-s.Proven))
	}
	return out
}

// membersOf reads the gateways of a rule.
func membersOf(list []*holdfastv1.RuleMember) (out []rules.Member, err error) {
	for _, m := range list {
		ref, err := refOf(m.GetGateway())
		if err != nil {
			return nil, err
		}
		out = append(out, rules.Member{Ref: ref, Order: int(m.GetOrder()), Weight: int(m.GetWeight())})
	}
	return out, nil
}

func memberMessages(members []rules.Member) (out []*holdfastv1.RuleMember) {
	for _, m := range members {
		out = append(out, &holdfastv1.RuleMember{Gateway: m.Ref.String(), Order: int32(m.Order), Weight: int32(m.Weight)})
	}
	return out
}

// valueOf reads the rule that is to be set.
func valueOf(r *holdfastv1.PutRuleRequest) (rules.Value, error) {
	var v rules.Value
	if a := r.Assignment; a != nil {
		v.Assignment = &rules.Assignment{Target: a.Target, Network: a.Network}
	}
	if p := r.Policy; p != nil {
		v.Policy = &rules.Policy{Name: p.Name, Fleet: p.Fleet}
	}
	if n := r.Network; n != nil {
		members, err := membersOf(n.Gateways)
		if err != nil {
			return v, err
		}
		v.Network = &rules.Network{Name: n.Name, Note: n.Note, Members: members}
		switch n.OnExhausted {
		case "", "error":
		case "default":
			v.Network.Exhausted = rules.UseDefault
		default:
			return v, fmt.Errorf("network %.50s: on-exhausted is error or default, not %.40q", n.Name, n.OnExhausted)
		}
		for _, text := range n.Subnets {
			subnet, err := netip.ParsePrefix(text)
			if err != nil {
				return v, fmt.Errorf("network %.50s: %.60q is no subnet; write an address and a length, as 10.1.0.0/16", n.Name, text)
			}
			v.Network.Subnets = append(v.Network.Subnets, subnet)
		}
	}
	if v.Key() == (rules.Key{}) {
		return v, errors.New("a change is about one network, assignment or policy, and this one is not")
	}
	return v, nil
}

func ruleMessage(e *rules.Entry) *holdfastv1.RuleEntry {
	out := &holdfastv1.RuleEntry{Broker: e.Origin, Operator: e.Operator, Reason: e.Reason, At: stamp(time.UnixMicro(int64(e.Number)))}
	switch v := e.Value; {
	case v.Network != nil:
		n := &holdfastv1.NetworkRule{Name: v.Network.Name, Note: v.Network.Note, Gateways: memberMessages(v.Network.Members), OnExhausted: "error"}
		if v.Network.Exhausted == rules.UseDefault {
			n.OnExhausted = "default"
		}
		for _, subnet := range v.Network.Subnets {
			n.Subnets = append(n.Subnets, subnet.String())
		}
		out.Network = n
	case v.Assignment != nil:
		out.Assignment = &holdfastv1.AssignmentRule{Target: v.Assignment.Target, Network: v.Assignment.Network}
	case v.Policy != nil:
		out.Policy = &holdfastv1.PolicyRule{Name: v.Policy.Name, Fleet: v.Policy.Fleet}
	case v.Override != nil:
		out.Override = &holdfastv1.OverrideRule{Network: v.Override.Network, Gateways: memberMessages(v.Override.Members), Note: v.Override.Note, Until: stamp(v.Override.Until)}
	}
	return out
}

// launchMessage is what a launch came to.
func launchMessage(r *broker.Result, dry bool) *holdfastv1.LaunchResponse {
	out := &holdfastv1.LaunchResponse{Launch: r.Launch, DryRun: dry}
	if refusal := r.Refusal; refusal != nil {
		out.Refusal = &holdfastv1.LaunchRefusal{Code: string(refusal.Code), Text: refusal.Text, Remedy: refusal.Remedy}
		out.LeftOut, out.LeftOutMore = leftOutMessages(refusal.LeftOut, r.At), int32(refusal.LeftOutTo)
		out.Rule = matchMessage(&refusal.Rule)
		return out
	}
	a := &r.Answer
	out.Gateway, out.More, out.LeftOut, out.LeftOutMore = pickMessage(&a.Pick), int32(a.More), leftOutMessages(a.LeftOut, r.At), int32(a.LeftOutTo)
	if len(a.Alternates) > 0 {
		out.Alternates = make([]*holdfastv1.PickedGateway, len(a.Alternates))
	}
	for i := range a.Alternates {
		out.Alternates[i] = pickMessage(&a.Alternates[i])
	}
	if own := a.Gateway.Own; own != nil {
		out.GatewayHostKeys = own.HostKeys
	}
	out.Rule, out.FellBack = matchMessage(&a.Rule), a.FellBack
	out.Source, out.AgeMs, out.AtLeast, out.Old = a.Source.String(), a.Age.Milliseconds(), a.AtLeast, a.Old
	return out
}

func pickMessage(p *choice.Pick) *holdfastv1.PickedGateway {
	out := &holdfastv1.PickedGateway{
		Gateway: p.Ref().String(), Name: p.Gateway.Name, Addresses: addressTexts(p.Gateway.Addresses), Port: uint32(p.Port),
		Order: int32(p.Order), Weight: int32(p.Weight), Revived: p.Revived,
	}
	if p.Known {
		out.Fitness = &p.Fitness
	}
	return out
}

func leftOutMessages(list []choice.LeftOut, at time.Time) (out []*holdfastv1.LeftOutGateway) {
	for i := range list {
		out = append(out, &holdfastv1.LeftOutGateway{Gateway: list[i].Ref.String(), Why: list[i].Says(at)})
	}
	return out
}

// matchMessage is the rule that was used; nil where none was looked for.
func matchMessage(m *rules.Match) *holdfastv1.MatchedRule {
	if m.Network == "" {
		return nil
	}
	out := &holdfastv1.MatchedRule{Network: m.Network, By: m.By.String(), Overridden: m.Override != nil}
	if m.By == rules.BySubnet {
		out.Subnet = m.Subnet.String()
	}
	return out
}
