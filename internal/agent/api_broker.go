package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/broker"
	"github.com/holdfast/holdfast/internal/broker/choice"
	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/rules"
)

// brokerService answers the calls about sessions that are about to start.
type brokerService struct {
	*brokerRoom
	requesters bool // it answers requesters, who may only launch what grants let them, and say what came of it
}

// refusedByBroker words an error of the broker as the contract has it.
func refusedByBroker(err error) error {
	var refused *broker.Refused
	switch {
	case err == nil:
		return nil
	case errors.Is(err, broker.ErrClosed):
		return api.Unavailable("%v", err)
	case errors.Is(err, broker.ErrNoFleet), errors.Is(err, broker.ErrNoRule):
		return api.NotFound("%v", err)
	case errors.As(err, &refused):
		return api.NotNow("%v", err)
	}
	return api.Invalid("%v", err)
}

// operator is who calls, by name where this machine knows one.
func operator(ctx context.Context) string {
	caller, ok := api.Caller(ctx)
	if !ok {
		return "unknown"
	}
	uid := strconv.FormatUint(uint64(caller.UID), 10)
	if found, err := user.LookupId(uid); err == nil {
		return found.Username
	}
	return "uid " + uid
}

// callerText is who calls, without a question to anybody.
func callerText(ctx context.Context) string {
	if proved, remote := api.Proved(ctx); remote {
		return proved.Says
	}
	caller, ok := api.Caller(ctx)
	if !ok {
		return ""
	}
	return "uid " + strconv.FormatUint(uint64(caller.UID), 10) + " pid " + strconv.Itoa(caller.PID)
}

func (s brokerService) Link(ctx context.Context, r *holdfastv1.LinkRequest) (*holdfastv1.LinkResponse, error) {
	b, err := s.use()
	if err != nil {
		return nil, err
	}
	link, err := linkOf(r.Link)
	if err != nil {
		return nil, api.Invalid("%v", err)
	}
	linked, err := b.Link(ctx, link, r.Replace, r.EvenIfDown)
	if err != nil {
		return nil, refusedByBroker(err)
	}
	out := &holdfastv1.LinkResponse{Linked: linked.Done, Fingerprint: linked.Fingerprint.String(), Warnings: linked.Warnings}
	for _, f := range b.Fleets() {
		if linked.Done && f.Link.Fleet == link.Fleet {
			out.Fleet = fleetMessage(&f)
		}
	}
	return out, nil
}

func (s brokerService) Unlink(_ context.Context, r *holdfastv1.UnlinkRequest) (*holdfastv1.UnlinkResponse, error) {
	b, err := s.use()
	if err != nil {
		return nil, err
	}
	warnings, err := b.Unlink(r.Name)
	if err != nil {
		return nil, refusedByBroker(err)
	}
	return &holdfastv1.UnlinkResponse{Warnings: warnings}, nil
}

func (s brokerService) Fleets(context.Context, *holdfastv1.FleetsRequest) (*holdfastv1.FleetsResponse, error) {
	b, err := s.use()
	if err != nil {
		return nil, err
	}
	out := &holdfastv1.FleetsResponse{Broker: b.Name()}
	for _, f := range b.Fleets() {
		out.Fleets = append(out.Fleets, fleetMessage(&f))
	}
	return out, nil
}

func (s brokerService) Gateways(_ context.Context, r *holdfastv1.GatewaysRequest) (*holdfastv1.GatewaysResponse, error) {
	b, err := s.use()
	if err != nil {
		return nil, err
	}
	gateways, err := b.Gateways(r.Fleet)
	if err != nil {
		return nil, refusedByBroker(err)
	}
	out, now := &holdfastv1.GatewaysResponse{}, time.Now()
	for i := range gateways {
		out.Gateways = append(out.Gateways, gatewayMessage(&gateways[i], now))
	}
	return out, nil
}

func (s brokerService) Rules(context.Context, *holdfastv1.RulesRequest) (*holdfastv1.RulesResponse, error) {
	b, err := s.use()
	if err != nil {
		return nil, err
	}
	book, digest := b.Rules()
	out := &holdfastv1.RulesResponse{Broker: b.Name(), Digest: shortDigest(digest)}
	for _, e := range book.Entries() {
		out.Rules = append(out.Rules, ruleMessage(&e))
	}
	for _, fault := range b.RuleFaults() {
		out.Faults = append(out.Faults, fault.String())
	}
	for _, contest := range book.Contests() {
		out.Contests = append(out.Contests, contest.String())
	}
	return out, nil
}

func (s brokerService) PutRule(ctx context.Context, r *holdfastv1.PutRuleRequest) (*holdfastv1.RuleChange, error) {
	value, err := valueOf(r)
	if err != nil {
		return nil, api.Invalid("%v", err)
	}
	return s.put(ctx, value, r.Reason)
}

func (s brokerService) put(ctx context.Context, value rules.Value, reason string) (*holdfastv1.RuleChange, error) {
	b, err := s.use()
	if err != nil {
		return nil, err
	}
	faults, err := b.Put(value, operator(ctx), reason)
	if err != nil {
		return nil, refusedByBroker(err)
	}
	out := changeMessage(b, value.Key())
	for _, fault := range faults {
		out.Warnings = append(out.Warnings, fault.Message)
	}
	return out, nil
}

func changeMessage(b *broker.Broker, key rules.Key) *holdfastv1.RuleChange {
	_, digest := b.Rules()
	return &holdfastv1.RuleChange{Rule: key.String(), Digest: shortDigest(digest)}
}

// shortDigest is as much of a digest as tells rules apart.
func shortDigest(d broker.Digest) string { return fmt.Sprintf("%x", d[:8]) }

func (s brokerService) RemoveRule(ctx context.Context, r *holdfastv1.RemoveRuleRequest) (*holdfastv1.RuleChange, error) {
	key := rules.Key{Kind: rules.Kind(r.Kind), Name: r.Name}
	switch key.Kind {
	case rules.KindNetwork, rules.KindAssignment, rules.KindPolicy, rules.KindOverride:
	default:
		return nil, api.Invalid("a rule is a network, an assignment, a policy or an override, not %.40q", r.Kind)
	}
	b, err := s.use()
	if err != nil {
		return nil, err
	}
	if err := b.Remove(key, operator(ctx), r.Reason); err != nil {
		return nil, refusedByBroker(err)
	}
	return changeMessage(b, key), nil
}

// maxOverride bounds for how long an override can be set; without an end it is until it is removed.
const maxOverride = 365 * 24 * time.Hour

func (s brokerService) Override(ctx context.Context, r *holdfastv1.OverrideRequest) (*holdfastv1.RuleChange, error) {
	if r.Remove {
		return s.RemoveRule(ctx, &holdfastv1.RemoveRuleRequest{Kind: string(rules.KindOverride), Name: r.Network, Reason: r.Reason})
	}
	members, err := membersOf(r.Gateways)
	if err != nil {
		return nil, api.Invalid("%v", err)
	}
	override := &rules.Override{Network: r.Network, Members: members, Note: r.Note}
	if r.ForMs < 0 || r.ForMs > maxOverride.Milliseconds() {
		return nil, api.Invalid("an override is set for a time of at most a year, or until it is removed")
	}
	if r.ForMs > 0 {
		override.Until = time.Now().Add(time.Duration(r.ForMs)*time.Millisecond + time.Second) // it is kept in whole seconds
	}
	return s.put(ctx, rules.Value{Override: override}, r.Reason)
}

func (s brokerService) Launch(ctx context.Context, r *holdfastv1.LaunchRequest) (*holdfastv1.LaunchResponse, error) {
	b, err := s.use()
	if err != nil {
		return nil, err
	}
	request, err := s.admitted(ctx, b, r)
	if err != nil {
		return nil, err
	}
	result, err := b.Launch(request)
	if err != nil {
		return nil, refusedByBroker(err)
	}
	return grantedMessage(launchMessage(&result, r.DryRun), &request, &result), nil
}

func (s brokerService) Outcome(ctx context.Context, r *holdfastv1.OutcomeRequest) (*holdfastv1.OutcomeResponse, error) {
	b, err := s.use()
	if err != nil {
		return nil, err
	}
	if r.Request == nil || r.Request.DryRun {
		return nil, api.Invalid("an outcome is that of a launch: it has the request as it was asked, which was no dry run")
	}
	request, err := s.admitted(ctx, b, r.Request)
	if err != nil {
		return nil, err
	}
	gateway, err := refOf(r.Gateway)
	if err != nil {
		return nil, api.Invalid("%v", err)
	}
	result, err := b.Outcome(request, gateway, r.Reached, r.Evidence)
	if err != nil {
		return nil, refusedByBroker(err)
	}
	if r.Reached {
		return &holdfastv1.OutcomeResponse{}, nil
	}
	return &holdfastv1.OutcomeResponse{Next: grantedMessage(launchMessage(&result, false), &request, &result)}, nil
}

func (s brokerService) ExplainLaunch(ctx context.Context, r *holdfastv1.ExplainLaunchRequest) (*holdfastv1.ExplainLaunchResponse, error) {
	b, err := s.use()
	if err != nil {
		return nil, err
	}
	request, err := launchOf(ctx, r.Request)
	if err != nil {
		return nil, api.Invalid("%v", err)
	}
	request.DryRun, request.MaxLeftOut = true, choice.MaxListed
	if request.MaxAlternates == 0 {
		request.MaxAlternates = choice.MaxListed
	}
	result, err := b.Launch(request)
	if err != nil {
		return nil, refusedByBroker(err)
	}
	out := &holdfastv1.ExplainLaunchResponse{Answer: launchMessage(&result, true)}
	if wantsToken(r.Request) {
		decision, err := s.decide(ctx, r.Request, &request)
		if err != nil {
			return nil, err
		}
		out.Grants = decision.Explain()
	}
	if result.Refusal != nil {
		out.Text = result.Refusal.Error() + "\n"
	} else {
		out.Text = result.Answer.Explain()
	}
	return out, nil
}

// launchOf reads a request as it was sent.
func launchOf(ctx context.Context, r *holdfastv1.LaunchRequest) (broker.Request, error) {
	if r == nil {
		return broker.Request{}, errors.New("neither a target nor its address is named; name one")
	}
	out := broker.Request{
		Launch: r.Launch, Target: r.Target, Protocol: fleet.Protocol(strings.ToLower(r.Protocol)), Policy: r.Policy, Who: r.Who, Caller: callerText(ctx), DryRun: r.DryRun,
		MaxAlternates: int(r.MaxAlternates),
	}
	if r.Address != "" {
		address, err := netip.ParseAddr(r.Address)
		if err != nil {
			return out, fmt.Errorf("%.60q is not an address", r.Address)
		}
		out.Address = address
	}
	if len(r.Tried) > 0 {
		out.Tried = make([]fleet.Ref, len(r.Tried))
	}
	for i, text := range r.Tried {
		ref, err := refOf(text)
		if err != nil {
			return out, err
		}
		out.Tried[i] = ref
	}
	return out, nil
}

// refOf reads FLEET/KEY.
func refOf(text string) (fleet.Ref, error) {
	name, key, found := strings.Cut(text, "/")
	if !found || name == "" || key == "" || len(name) > rules.MaxName || len(key) > fleet.MaxKey {
		return fleet.Ref{}, fmt.Errorf("a gateway is named as FLEET/KEY, not %.120q; holdfast broker gateways lists them", text)
	}
	return fleet.Ref{Fleet: name, Gateway: key}, nil
}
