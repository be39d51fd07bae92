package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast/holdfast/internal/api"
	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
)

const testFingerprint = "sha256:3f1c000000000000000000000000000000000000000000000000000000000000"

func (f *fake) Link(_ context.Context, r *pb.LinkRequest) (*pb.LinkResponse, error) {
	if r.Link.Fingerprint == "" {
		return answer(f, r, &pb.LinkResponse{Fingerprint: testFingerprint})
	}
	return answer(f, r, &pb.LinkResponse{Linked: true, Fingerprint: r.Link.Fingerprint, Fleet: cannedFleet(), Warnings: []string{"no gateway of this fleet could ever take a session: cm: it is the search-primary"}})
}

func (f *fake) Unlink(_ context.Context, r *pb.UnlinkRequest) (*pb.UnlinkResponse, error) {
	return answer(f, r, &pb.UnlinkResponse{Warnings: []string{"network lab: it names gateway east/gw1, and fleet east is not linked"}})
}

func cannedFleet() *pb.FleetStatus {
	return &pb.FleetStatus{
		Link:  &pb.FleetLink{Name: "east", Address: "cm.company.com:443", Fingerprint: testFingerprint, Central: "cm", Mode: "probe", Services: []*pb.GatewayService{{Protocol: "ssh", Port: 22}}},
		State: "lost", Why: "GET https://cm.company.com:443/api/cluster/nodes: no whole answer within 3 s", Source: "last-good", AgeMs: 754_000, AtLeast: true, Old: true, Usable: true,
		Central: "cm", Gateways: 3, Up: 1,
	}
}

func (f *fake) Fleets(_ context.Context, r *pb.FleetsRequest) (*pb.FleetsResponse, error) {
	return answer(f, r, &pb.FleetsResponse{Broker: "node1", Fleets: []*pb.FleetStatus{cannedFleet(),
		{Link: &pb.FleetLink{Name: "west", Address: "192.0.2.9:443", Mode: "strict"}, State: "unheard", Source: "none"}}})
}

func (f *fake) Gateways(_ context.Context, r *pb.GatewaysRequest) (*pb.GatewaysResponse, error) {
	return answer(f, r, &pb.GatewaysResponse{Gateways: []*pb.GatewayStatus{
		{Fleet: "east", Key: "cm", Name: "cm.company.com", Addresses: []string{"192.0.2.1"}, Roles: []string{"central-management", "search-primary"}, Said: "available",
			Services: []*pb.GatewayService{{Protocol: "ssh", Port: 22}}, Why: "it is the search-primary, which takes no sessions"},
		{Fleet: "east", Key: "gw1", Addresses: []string{"192.0.2.2"}, Roles: []string{"managed-host", "search-minion"}, Said: "available", Takes: true, Launches: 3, Fitness: 56,
			Services: []*pb.GatewayService{{Protocol: "rdp", Port: 3389}, {Protocol: "ssh", Port: 22}}, Health: &pb.GatewayHealth{DiskUsed: 40, Load5: 1}, Proven: before(time.Second)},
	}})
}

func (f *fake) Rules(_ context.Context, r *pb.RulesRequest) (*pb.RulesResponse, error) {
	entry := func(e *pb.RuleEntry, reason string) *pb.RuleEntry {
		e.Broker, e.Operator, e.Reason, e.At = "node1", "anna", reason, before(2*time.Hour)
		return e
	}
	return answer(f, r, &pb.RulesResponse{Broker: "node1", Digest: "0123456789abcdef", Rules: []*pb.RuleEntry{
		entry(&pb.RuleEntry{Assignment: &pb.AssignmentRule{Target: "db1", Network: "lab"}}, ""),
		entry(&pb.RuleEntry{Network: &pb.NetworkRule{Name: "lab", Subnets: []string{"10.1.0.0/16"}, OnExhausted: "default",
			Gateways: []*pb.RuleMember{{Gateway: "east/gw1", Weight: 2}, {Gateway: "east/gw9", Order: 1, Weight: 1}}}}, "data stays in the east"),
		entry(&pb.RuleEntry{Override: &pb.OverrideRule{Network: "default", Gateways: []*pb.RuleMember{{Gateway: "east/gw1", Weight: 1}}, Until: timestamppb.New(now.Add(90 * time.Minute))}}, "outage"),
		entry(&pb.RuleEntry{Policy: &pb.PolicyRule{Name: "admins", Fleet: "east"}}, ""),
	}, Faults: []string{"network lab: it names gateway east/gw9, which is not in its fleet"}, Contests: []string{"policy admins was changed in 2 places at once"}})
}

func ruleChanged(f *fake, r proto.Message, rule string, warnings ...string) (*pb.RuleChange, error) {
	return answer(f, r, &pb.RuleChange{Rule: rule, Digest: "0123456789abcdef", Warnings: warnings})
}

func (f *fake) PutRule(_ context.Context, r *pb.PutRuleRequest) (*pb.RuleChange, error) {
	return ruleChanged(f, r, "network lab", "it names gateway east/gw9, which is not in its fleet")
}

func (f *fake) RemoveRule(_ context.Context, r *pb.RemoveRuleRequest) (*pb.RuleChange, error) {
	return ruleChanged(f, r, r.Kind+" "+r.Name)
}

func (f *fake) Override(_ context.Context, r *pb.OverrideRequest) (*pb.RuleChange, error) {
	return ruleChanged(f, r, "override "+r.Network)
}

func cannedLaunch(r *pb.LaunchRequest) *pb.LaunchResponse {
	if r.Policy == "none" {
		return &pb.LaunchResponse{DryRun: r.DryRun, Refusal: &pb.LaunchRefusal{Code: "ALL_NODES_DOWN", Text: "the sessions module is down: no gateway of fleet east can take a session: east/gw1: it did not answer this broker (for 12 s)",
			Remedy: "Bring a gateway or the central manager back; this broker goes on looking and notices by itself"},
			Rule:    &pb.MatchedRule{Network: "default", By: "by default"},
			LeftOut: []*pb.LeftOutGateway{{Gateway: "east/gw1", Why: "it did not answer this broker: tcp 192.0.2.2:22: refused (for 12 s)"}}}
	}
	fitness := 56.5
	out := &pb.LaunchResponse{
		Launch: "c0ffee-1", Gateway: &pb.PickedGateway{Gateway: "east/gw1", Name: "gw1.company.com", Addresses: []string{"192.0.2.2"}, Port: 22, Fitness: &fitness, Weight: 2},
		Alternates: []*pb.PickedGateway{{Gateway: "east/gw2", Addresses: []string{"2001:db8::3"}, Port: 22, Order: 1, Weight: 1, Revived: true}}, More: 1,
		LeftOut: []*pb.LeftOutGateway{{Gateway: "east/cm", Why: "it is the search-primary, which takes no sessions"}}, LeftOutMore: 2,
		Rule: &pb.MatchedRule{Network: "lab", By: "by subnet", Subnet: "10.1.0.0/16", Overridden: true}, Source: "last-good", AgeMs: 754_000, AtLeast: true, Old: true,
	}
	if r.DryRun {
		out.Launch, out.DryRun = "", true
	}
	return out
}

func (f *fake) Launch(_ context.Context, r *pb.LaunchRequest) (*pb.LaunchResponse, error) {
	return answer(f, r, cannedLaunch(r))
}

func (f *fake) ExplainLaunch(_ context.Context, r *pb.ExplainLaunchRequest) (*pb.ExplainLaunchResponse, error) {
	return answer(f, r, &pb.ExplainLaunchResponse{Text: "east/gw1: the first of 3 that can take it; fitness 56.5\nrule: network lab, by subnet 10.1.0.0/16\n", Answer: cannedLaunch(r.Request)})
}

// TestBrokerOutput is TestOutput for the commands under broker.
func TestBrokerOutput(t *testing.T) {
	for _, line := range []string{
		"broker link east cm.company.com:443", "broker link east cm.company.com:443 --fingerprint " + testFingerprint, "broker unlink east",
		"broker fleets", "broker gateways east", "broker rules list", "broker rules put lab --subnet 10.1.0.0/16 --gateway east/gw9",
		"broker rules remove policy admins", "broker override default --gateway east/gw1 --for 2h",
		"broker launch db1", "broker launch db1 --dry-run", "broker launch db1 --policy none", "broker explain db1", "broker explain db1 --policy none",
	} {
		name := strings.NewReplacer(" ", "-", "--", "-", ".", "-", ":", "-", "/", "-", testFingerprint, "known").Replace(line)
		t.Run(name, func(t *testing.T) {
			socket := agent(t, &fake{})
			var b strings.Builder
			for _, format := range []string{"table", "json", "yaml"} {
				args := append(strings.Fields(line), "--output", format)
				r := run(t, socket, "", args...)
				fmt.Fprintf(&b, "$ holdfast %s\n%s", strings.Join(args, " "), r.out)
				if r.err != "" {
					fmt.Fprintf(&b, "-- on standard error\n%s", r.err)
				}
				fmt.Fprintf(&b, "-- exit code %d\n\n", r.code)
				if format == "json" {
					checkJSON(t, r.out)
				}
			}
			golden(t, name, b.String())
		})
	}
}

// TestBrokerRequests: what is written on the command line is what is asked.
func TestBrokerRequests(t *testing.T) {
	for line, want := range map[string]proto.Message{
		"broker link east cm:443 --fingerprint x --mode strict --hard-limit 1h --protocol SSH:2222 --protocol rdp:3389 --central cm --replace --even-if-down": &pb.LinkRequest{
			Replace: true, EvenIfDown: true, Link: &pb.FleetLink{Name: "east", Address: "cm:443", Fingerprint: "x", Central: "cm", Mode: "strict", PollMs: 10_000, TimeoutMs: 3000, ProbeMs: 5000,
				WarnAgeMs: 600_000, HardLimitMs: 3_600_000, Services: []*pb.GatewayService{{Protocol: "ssh", Port: 2222}, {Protocol: "rdp", Port: 3389}}}},
		"broker rules put lab --subnet 10.1.0.0/16,10.2.0.0/16 --gateway east/gw1,order=1,weight=3 --on-exhausted default --note n --reason r": &pb.PutRuleRequest{Reason: "r",
			Network: &pb.NetworkRule{Name: "lab", Note: "n", Subnets: []string{"10.1.0.0/16", "10.2.0.0/16"}, OnExhausted: "default", Gateways: []*pb.RuleMember{{Gateway: "east/gw1", Order: 1, Weight: 3}}}},
		"broker rules assign db1 lab":                                                  &pb.PutRuleRequest{Assignment: &pb.AssignmentRule{Target: "db1", Network: "lab"}},
		"broker rules policy admins east":                                              &pb.PutRuleRequest{Policy: &pb.PolicyRule{Name: "admins", Fleet: "east"}},
		"broker rules remove override lab":                                             &pb.RemoveRuleRequest{Kind: "override", Name: "lab"},
		"broker override lab --remove":                                                 &pb.OverrideRequest{Network: "lab", Remove: true},
		"broker override lab --gateway e/g --for 90m":                                  &pb.OverrideRequest{Network: "lab", ForMs: 5_400_000, Gateways: []*pb.RuleMember{{Gateway: "e/g"}}},
		"broker gateways":                                                              &pb.GatewaysRequest{},
		"broker launch db1 --address 10.1.2.3 --who an":                                &pb.LaunchRequest{Target: "db1", Address: "10.1.2.3", Who: "an", Protocol: "ssh"},
		"broker launch db1 --protocol rdp --dry-run --tried east/gw1 --tried east/gw2": &pb.LaunchRequest{Target: "db1", Protocol: "rdp", DryRun: true, Tried: []string{"east/gw1", "east/gw2"}},
	} {
		f := &fake{}
		if r := run(t, agent(t, f), "", strings.Fields(line)...); r.code != 0 {
			t.Errorf("%s: %+v", line, r)
		}
		if diff := cmp.Diff(want, f.asked, protocmp.Transform()); diff != "" {
			t.Errorf("%s asks (-want +got):\n%s", line, diff)
		}
	}
}

func TestBrokerMisuse(t *testing.T) {
	for line, want := range map[string]string{
		"broker link east":                                        "needs NAME HOST:PORT",
		"broker link east cm:443 --protocol ssh":                  "write a protocol and a port, as ssh:22",
		"broker rules put lab --gateway east/gw1,speed=1":         "write FLEET/KEY",
		"broker override lab":                                     "say which gateways serve the network meanwhile",
		"broker override lab --remove --gateway east/gw1":         "contradict each other",
		"broker override lab --gateway east/gw1 --for -1h":        "write a time such as 2h",
		"broker rules assign db1":                                 "needs TARGET NETWORK",
		"broker launch":                                           "needs TARGET",
		"broker rule list":                                        "did you mean rules?",
		"broker launch db1 --dry-run=perhaps":                     "true or false",
		"broker link east cm:443 --poll often":                    "a time such as 10s",
		"broker rules remove network lab --output xml --reason x": "table, json or yaml",
	} {
		r := run(t, agent(t, &fake{}), "", strings.Fields(line)...)
		if r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("holdfast %s: exit code %d, printed\n%s%s", line, r.code, r.out, r.err)
		}
	}
	if r := run(t, agent(t, &fake{refuse: api.NotNow("fleet east is linked already")}), "", "broker", "link", "east", "cm:443", "--fingerprint", "x"); r.code != exitFailed || !strings.Contains(r.err, "is linked already") {
		t.Errorf("refused: %+v", r)
	}
}

// TestAFingerprintIsConfirmedByAPerson: trust on first use is somebody's word, never the command's.
func TestAFingerprintIsConfirmedByAPerson(t *testing.T) {
	for said, want := range map[string]int{"yes\n": 0, "y\n": exitFailed, "": exitFailed} {
		f := &fake{}
		socket := agent(t, f)
		var out, errs bytes.Buffer
		code := Run(t.Context(), Deps{
			In: strings.NewReader(said), InTerminal: true, Out: &out, Err: &errs, Now: func() time.Time { return now },
			Environment: func(string) string { return "" },
		}, []string{"broker", "link", "east", "cm:443", "--socket", socket})
		linked, _ := f.asked.(*pb.LinkRequest)
		if code != want || !strings.Contains(errs.String(), testFingerprint) || (linked.GetLink().GetFingerprint() == testFingerprint) != (want == 0) {
			t.Errorf("%q: exit code %d, asked %v, printed %s%s", said, code, linked, out.String(), errs.String())
		}
	}
}
