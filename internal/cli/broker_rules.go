package cli

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
)

func (s *session) brokerRulesCommand() *cobra.Command {
	rules := group("rules", "By which rules gateways are chosen", `By which rules gateways are chosen. A network has the targets of its subnets, and those that are assigned to it by name; it is served by
the gateways that it names. Of all subnets that have a target's address the longest counts. Targets that no rule is about are in the network
"default", which all gateways serve. A policy says which fleet its sessions go through.

Rules can be changed on any broker, whoever else is down. They reach the others when those are up; what was changed in several places
at once is listed as contested until somebody sets it once more.`)
	rules.AddCommand(s.listRulesCommand(), s.putNetworkCommand(), s.assignCommand(), s.policyCommand(), s.removeRuleCommand())
	return rules
}

func (s *session) listRulesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the rules, who made them, and what is wrong with them", Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := ask(s, cmd, "asking the broker", askTimeout, func(ctx context.Context, c Client) (*pb.RulesResponse, error) {
				return c.Rules(ctx, &pb.RulesRequest{})
			})
			if err != nil {
				return err
			}
			return s.show(answer, func(p *page) { layRules(p, answer) })
		},
	}
}

func layRules(p *page, r *pb.RulesResponse) {
	if len(r.Rules) == 0 {
		p.line("there are no rules: every gateway of every fleet may take any session")
	} else {
		rows := make([][]string, len(r.Rules))
		for i, e := range r.Rules {
			kind, name, what := ruleText(p, e)
			rows[i] = []string{kind, name, what, e.Operator + " on " + e.Broker, p.ago(e.At), orDash(e.Reason)}
		}
		p.table([]string{"KIND", "NAME", "RULE", "SET BY", "AGO", "WHY"}, rows)
	}
	if len(r.Contests) > 0 {
		p.title("Contested")
		for _, c := range r.Contests {
			p.line(c)
		}
	}
	if len(r.Faults) > 0 {
		p.title("What is wrong")
		for _, f := range r.Faults {
			p.line(f)
		}
	}
}

// ruleText is a rule in words.
func ruleText(p *page, e *pb.RuleEntry) (kind, name, what string) {
	switch {
	case e.Network != nil:
		n := e.Network
		what = "targets that are assigned to it"
		if len(n.Subnets) > 0 {
			what = strings.Join(n.Subnets, " ")
		}
		what += " through " + membersText(n.Gateways)
		if n.OnExhausted == "default" {
			what += ", then all others"
		}
		return "network", n.Name, what
	case e.Assignment != nil:
		return "assignment", e.Assignment.Target, "in network " + e.Assignment.Network
	case e.Policy != nil:
		return "policy", e.Policy.Name, "through fleet " + e.Policy.Fleet
	case e.Override != nil:
		until := "until it is removed"
		if e.Override.Until != nil {
			until = "for another " + span(e.Override.Until.AsTime().Sub(p.now))
			if !e.Override.Until.AsTime().After(p.now) {
				until = "over"
			}
		}
		return "override", e.Override.Network, "through " + membersText(e.Override.Gateways) + ", " + until
	}
	return "unknown", "-", "of a newer broker"
}

func membersText(members []*pb.RuleMember) string {
	texts := make([]string, len(members))
	for i, m := range members {
		texts[i] = m.Gateway
		if m.Order > 0 {
			texts[i] += ",order=" + number(m.Order)
		}
		if m.Weight > 1 {
			texts[i] += ",weight=" + number(m.Weight)
		}
	}
	return strings.Join(texts, " ")
}

// parseMembers reads gateways as FLEET/KEY,order=N,weight=N.
func parseMembers(texts []string) (members []*pb.RuleMember, err error) {
	for _, text := range texts {
		m := &pb.RuleMember{}
		words := strings.Split(text, ",")
		m.Gateway = words[0]
		for _, word := range words[1:] {
			name, value, _ := strings.Cut(word, "=")
			n, err := strconv.ParseInt(value, 10, 32)
			switch {
			case err == nil && name == "order":
				m.Order = int32(n)
			case err == nil && name == "weight":
				m.Weight = int32(n)
			default:
				return nil, misused("--gateway %q: write FLEET/KEY, and behind it if you like ,order=N and ,weight=N", text)
			}
		}
		members = append(members, m)
	}
	return members, nil
}

const gatewayHelp = "gateway that serves it, as FLEET/KEY; with ,order=N lower ones come first, with ,weight=N it carries more load"

// changeRule completes a command that changes one rule.
func (s *session) changeRule(cmd *cobra.Command, reason *string, request func(args []string) (func(context.Context, Client) (*pb.RuleChange, error), error)) *cobra.Command {
	cmd.Flags().StringVar(reason, "reason", "", "why; kept with the rule")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		call, err := request(args)
		if err != nil {
			return err
		}
		answer, err := ask(s, cmd, "changing the rules", askTimeout, call)
		if err != nil {
			return err
		}
		if err := s.show(answer, func(p *page) { p.linef("done: %s; the rules are now %s", answer.Rule, answer.Digest) }); err != nil {
			return err
		}
		s.warn(answer.Warnings)
		return nil
	}
	return cmd
}

type ruleChanger = func(context.Context, Client) (*pb.RuleChange, error)

func (s *session) putRule(r *pb.PutRuleRequest) ruleChanger {
	return func(ctx context.Context, c Client) (*pb.RuleChange, error) { return c.PutRule(ctx, r) }
}

func (s *session) putNetworkCommand() *cobra.Command {
	r := &pb.PutRuleRequest{Network: &pb.NetworkRule{}}
	var gateways []string
	cmd := &cobra.Command{
		Use: "put NETWORK", Short: "Set a network: its subnets and the gateways that serve it", Args: arguments("NETWORK"), ValidArgsFunction: s.complete(0, networkNames),
		Long: `Set a network of targets, or set it anew: its subnets and the gateways that serve it. A subnet is in one network; larger and smaller
ones may overlap it. What is not given is not kept from before.`,
		Example: "  holdfast broker rules put lab --subnet 10.1.0.0/16 --gateway east/gw1 --gateway east/gw2,order=1 --on-exhausted default",
	}
	f := cmd.Flags()
	f.StringSliceVar(&r.Network.Subnets, "subnet", nil, "subnet of targets; may be given several times")
	f.StringArrayVar(&gateways, "gateway", nil, gatewayHelp)
	f.StringVar(&r.Network.OnExhausted, "on-exhausted", "error", "error or default: whether all other gateways take over when these are all out")
	f.StringVar(&r.Network.Note, "note", "", "one line for whoever reads it")
	completeWords(cmd, "on-exhausted", "error", "default")
	return s.changeRule(cmd, &r.Reason, func(args []string) (ruleChanger, error) {
		members, err := parseMembers(gateways)
		r.Network.Name, r.Network.Gateways = args[0], members
		return s.putRule(r), err
	})
}

func (s *session) assignCommand() *cobra.Command {
	r := &pb.PutRuleRequest{}
	cmd := &cobra.Command{
		Use: "assign TARGET NETWORK", Short: "Assign a target to a network by its name, whatever its address", Args: arguments("TARGET", "NETWORK"),
		ValidArgsFunction: s.inOrder(nothing, networkNames),
	}
	return s.changeRule(cmd, &r.Reason, func(args []string) (ruleChanger, error) {
		r.Assignment = &pb.AssignmentRule{Target: args[0], Network: args[1]}
		return s.putRule(r), nil
	})
}

func (s *session) policyCommand() *cobra.Command {
	r := &pb.PutRuleRequest{}
	cmd := &cobra.Command{
		Use: "policy POLICY FLEET", Short: "Say which fleet the sessions under a policy go through", Args: arguments("POLICY", "FLEET"),
		ValidArgsFunction: s.inOrder(nothing, fleetNames),
	}
	return s.changeRule(cmd, &r.Reason, func(args []string) (ruleChanger, error) {
		r.Policy = &pb.PolicyRule{Name: args[0], Fleet: args[1]}
		return s.putRule(r), nil
	})
}

func (s *session) removeRuleCommand() *cobra.Command {
	r := &pb.RemoveRuleRequest{}
	cmd := &cobra.Command{
		Use: "remove KIND NAME", Short: "Remove a network, an assignment, a policy or an override", Args: arguments("KIND", "NAME"),
		ValidArgsFunction: s.inOrder(func(context.Context, Client) ([]string, error) {
			return []string{"network", "assignment", "policy", "override"}, nil
		}, networkNames),
	}
	return s.changeRule(cmd, &r.Reason, func(args []string) (ruleChanger, error) {
		r.Kind, r.Name = args[0], args[1]
		return func(ctx context.Context, c Client) (*pb.RuleChange, error) { return c.RemoveRule(ctx, r) }, nil
	})
}

func networkNames(ctx context.Context, c Client) (names []string, err error) {
	answer, err := c.Rules(ctx, &pb.RulesRequest{})
	if err != nil {
		return nil, err
	}
	for _, e := range answer.Rules {
		if e.Network != nil {
			names = append(names, e.Network.Name)
		}
	}
	return append(names, "default"), nil
}

func (s *session) overrideCommand() *cobra.Command {
	r := &pb.OverrideRequest{}
	var gateways []string
	var lasts time.Duration
	cmd := &cobra.Command{
		Use: "override NETWORK", Short: "Let other gateways serve a network for a time, as during an outage", Args: arguments("NETWORK"), ValidArgsFunction: s.complete(0, networkNames),
		Long: `Let other gateways serve a network for a time, as during an outage those that are known to be up. NETWORK may be "default". The rule of
the network stays as it is, and counts again when the override is over or is removed.`,
		Example: "  holdfast broker override default --gateway east/gw2 --for 2h --reason \"the central manager is down\"\n  holdfast broker override default --remove",
	}
	f := cmd.Flags()
	f.StringArrayVar(&gateways, "gateway", nil, gatewayHelp)
	f.DurationVar(&lasts, "for", 0, "how long it lasts (default: until it is removed)")
	f.StringVar(&r.Note, "note", "", "one line for whoever reads it; explanations have it")
	f.BoolVar(&r.Remove, "remove", false, "end it")
	cmd.MarkFlagsMutuallyExclusive("remove", "gateway")
	cmd.MarkFlagsMutuallyExclusive("remove", "for")
	return s.changeRule(cmd, &r.Reason, func(args []string) (ruleChanger, error) {
		members, err := parseMembers(gateways)
		if err == nil && !r.Remove && len(members) == 0 {
			err = misused("say which gateways serve the network meanwhile, with --gateway FLEET/KEY, or end the override with --remove")
		}
		if err == nil && lasts < 0 {
			err = misused("--for %s: write a time such as 2h", lasts)
		}
		r.Network, r.Gateways, r.ForMs = args[0], members, lasts.Milliseconds()
		return func(ctx context.Context, c Client) (*pb.RuleChange, error) { return c.Override(ctx, r) }, err
	})
}
