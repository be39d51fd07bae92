package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
)

const refusalsText = `If there is no gateway, nothing is launched, and the command ends with exit code 1 and the reason:

  NO_CLUSTER_INFO              of no fleet that may take the session is anything known
  NO_SESSION_CAPABLE_NODE      no gateway of the fleet ever takes sessions, by its roles
  ALL_NODES_DOWN               the sessions module is down: no gateway can take the session
  NETWORK_EXHAUSTED            the gateways of the target's network are out, while others are not
  POLICY_FLEET_MISMATCH        the policy names another fleet than the rules do, or one that is not linked
  NO_PROTOCOL_CAPABILITY       no gateway takes sessions of the protocol
  LAUNCH_FAILED_ON_STALE_VIEW  the gateways that the last good view has did not answer`

// requestFlags are the flags of a launch, and of asking about one.
func requestFlags(cmd *cobra.Command, r *pb.LaunchRequest) {
	f := cmd.Flags()
	f.StringVar(&r.Address, "address", "", "address of the target, by which rules for subnets find it")
	f.StringVar(&r.Protocol, "protocol", "ssh", "protocol of the session")
	f.StringVar(&r.Policy, "policy", "", "policy under which the session is granted, if rules tell fleets apart by it")
	f.StringVar(&r.Account, "account", "", "account on the target; it asks for a session token, which a grant has to allow")
	f.Uint32Var(&r.Port, "port", 0, "port of the target, for a session token (default: 22 for ssh)")
	f.StringSliceVar(&r.Channels, "channels", nil, "what is to be done in the session, for a session token (default: all that the grant allows)")
	f.StringArrayVar(&r.Tried, "tried", nil, "gateway that this launch did not get through to, as FLEET/KEY; it is left out")
	completeWords(cmd, "protocol", "ssh", "tcp", "rdp", "vnc", "telnet")
}

func (s *session) launchCommand() *cobra.Command {
	request := &pb.LaunchRequest{}
	cmd := &cobra.Command{
		Use: "launch TARGET", Short: "Choose the gateway of a session, and count it", Args: arguments("TARGET"),
		Long: `Choose the gateway that a session to TARGET is launched on, count it, and print where it is. TARGET is a name or an address; rules for
subnets apply if it is an address or --address is given. The next best are printed after it, and who was left out and why.

` + refusalsText,
		Example: "  holdfast broker launch db1 --address 10.1.2.3\n  holdfast broker launch 10.1.2.3 --protocol rdp --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			request.Target = args[0]
			answer, err := ask(s, cmd, "asking the broker", askTimeout, func(ctx context.Context, c Client) (*pb.LaunchResponse, error) {
				return c.Launch(ctx, request)
			})
			if err != nil {
				return err
			}
			if err := s.show(answer, func(p *page) { layLaunch(p, answer) }); err != nil {
				return err
			}
			return refusedLaunch(answer)
		},
	}
	requestFlags(cmd, request)
	cmd.Flags().StringVar(&request.Who, "who", "", "for whom the session is; kept in the audit")
	cmd.Flags().BoolVar(&request.DryRun, "dry-run", false, "only say which it would be: nothing is counted or kept")
	return cmd
}

// refusedLaunch is the error of a launch for which there is no gateway.
func refusedLaunch(r *pb.LaunchResponse) error {
	if r.GetRefusal() == nil {
		return nil
	}
	return failed("%s: %s. %s.", r.Refusal.Code, r.Refusal.Text, r.Refusal.Remedy)
}

func layLaunch(p *page, r *pb.LaunchResponse) {
	if g := r.GetGateway(); g != nil {
		launch := r.Launch
		if r.DryRun {
			launch = "none: a dry run, nothing was counted"
		}
		p.facts([2]string{"gateway", g.Gateway}, [2]string{"name", g.Name}, [2]string{"connect to", endpoint(g)}, [2]string{"fitness", fitnessText(g)},
			[2]string{"rule", matchText(r)}, [2]string{"view", viewText(r.Source, r.AgeMs, r.AtLeast, r.Old)}, [2]string{"launch", launch})
	}
	if g := r.GetGranted(); g != nil {
		p.facts([2]string{"grant", g.Grant}, [2]string{"session", g.Who + " to " + strings.TrimPrefix(g.Account+"@"+g.Target, "@")}, [2]string{"allows", strings.Join(g.Channels, ", ")})
	}
	if r.Token != "" {
		p.facts([2]string{"token", r.Token})
	}
	if len(r.Alternates) > 0 {
		p.title("Next best")
		rows := make([][]string, len(r.Alternates))
		for i, g := range r.Alternates {
			rows[i] = []string{g.Gateway, endpoint(g), fitnessText(g)}
		}
		p.table([]string{"GATEWAY", "CONNECT TO", "FITNESS"}, rows)
		if r.More > 0 {
			p.linef("and %d more", r.More)
		}
	}
	if len(r.LeftOut) > 0 {
		p.title("Left out")
		rows := make([][]string, len(r.LeftOut))
		for i, l := range r.LeftOut {
			rows[i] = []string{l.Gateway, l.Why}
		}
		p.table([]string{"GATEWAY", "WHY"}, rows)
		if r.LeftOutMore > 0 {
			p.linef("and %d more", r.LeftOutMore)
		}
	}
}

func fitnessText(g *pb.PickedGateway) string {
	text := "not known"
	if g.Fitness != nil {
		text = fmt.Sprintf("%.4g", *g.Fitness)
	}
	if g.Order > 0 {
		text += fmt.Sprintf(", order %d", g.Order)
	}
	if g.Weight > 1 {
		text += fmt.Sprintf(", weight %d", g.Weight)
	}
	if g.Revived {
		text += ", answers this broker though it was down"
	}
	return text
}

func matchText(r *pb.LaunchResponse) string {
	m := r.GetRule()
	if m == nil {
		return ""
	}
	text := "network " + m.Network + ", " + m.By
	if m.Subnet != "" {
		text += " " + m.Subnet
	}
	if m.Overridden {
		text += ", overridden"
	}
	if r.FellBack {
		text += "; its gateways are all out, and those of the default network take over"
	}
	return text
}

func (s *session) explainLaunchCommand() *cobra.Command {
	request := &pb.LaunchRequest{}
	cmd := &cobra.Command{
		Use: "explain TARGET", Short: "Say in full which gateway a session would get, and why", Args: arguments("TARGET"),
		Long: `Say in full which gateway a session to TARGET would be launched on now, by which rule and what view, who would be next, and of every
other gateway why not. Nothing is counted. If there is none, the command ends with exit code 1.`,
		Example: "  holdfast broker explain db1 --address 10.1.2.3",
		RunE: func(cmd *cobra.Command, args []string) error {
			request.Target = args[0]
			answer, err := ask(s, cmd, "asking the broker", askTimeout, func(ctx context.Context, c Client) (*pb.ExplainLaunchResponse, error) {
				return c.ExplainLaunch(ctx, &pb.ExplainLaunchRequest{Request: request})
			})
			if err != nil {
				return err
			}
			refusal := refusedLaunch(answer.GetAnswer())
			err = s.show(answer, func(p *page) {
				if refusal != nil {
					layLaunch(p, answer.Answer)
					return
				}
				for line := range strings.Lines(answer.Text + answer.Grants) {
					p.line(strings.TrimSuffix(line, "\n"))
				}
			})
			if err != nil {
				return err
			}
			return refusal
		},
	}
	requestFlags(cmd, request)
	cmd.Flags().StringVar(&request.Who, "who", "", "for whom the session would be (default: you), by which grants are looked up")
	return cmd
}
