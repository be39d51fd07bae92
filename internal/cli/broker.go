package cli

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
)

func (s *session) brokerCommand() *cobra.Command {
	broker := group("broker", "Session gateways: which one a session is launched on", `Session gateways: which one a session is launched on, and by which rules.

This node's broker watches the fleets that are linked to it and answers from what it knows, also while a fleet's central manager, other
brokers or the cluster's store are down.`)
	broker.AddCommand(s.linkCommand(), s.unlinkCommand(), s.fleetsCommand(), s.gatewaysCommand(), s.brokerRulesCommand(), s.launchCommand(), s.explainLaunchCommand(),
		s.overrideCommand(), s.connectCommand())
	return broker
}

func (s *session) linkCommand() *cobra.Command {
	link, request := &pb.FleetLink{}, &pb.LinkRequest{}
	var protocols []string
	var every, timeout, probe, warn, limit time.Duration
	cmd := &cobra.Command{
		Use: "link NAME HOST:PORT", Short: "Watch a fleet of session gateways, by its central manager", Args: arguments("NAME", "HOST:PORT"),
		Long: `Watch a fleet of session gateways, by its central manager at HOST:PORT. NAME is what the fleet is called here and in rules.

The central manager is known by the SHA-256 of its certificate alone. Give it with --fingerprint. Without that nothing is linked before a
person has compared the fingerprint that is shown with the central manager's own; where nobody can be asked, the command ends with it.

A fleet of which no gateway could ever take a session is linked, with a warning.`,
		Example: "  holdfast broker link east cm.company.com:443\n  holdfast broker link east cm.company.com:443 --fingerprint sha256:3f1c… --protocol ssh:22 --protocol rdp:3389",
	}
	f := cmd.Flags()
	f.StringVar(&link.Fingerprint, "fingerprint", "", "SHA-256 of the central manager's certificate")
	f.StringVar(&link.Central, "central", "", "key of the central manager (default: that of its first answer)")
	f.StringVar(&link.Mode, "mode", "probe", "probe: what does not answer this broker is left out; strict: the central manager's word counts, also an old one")
	f.StringArrayVar(&protocols, "protocol", nil, "protocol and port that gateways take sessions of, as ssh:22 (default), if they do not say it themselves")
	f.DurationVar(&every, "poll", 10*time.Second, "from one poll of the central manager to the next")
	f.DurationVar(&timeout, "timeout", 3*time.Second, "within which the central manager answers")
	f.DurationVar(&probe, "probe", 5*time.Second, "from one probe of a gateway to the next")
	f.DurationVar(&warn, "warn-age", 10*time.Minute, "from which age on what is known is called old")
	f.DurationVar(&limit, "hard-limit", 0, "from which age on what is known is not used (default: none)")
	f.BoolVar(&request.Replace, "replace", false, "take the place of a link of the same name")
	f.BoolVar(&request.EvenIfDown, "even-if-down", false, "link although the central manager does not answer now")
	completeWords(cmd, "mode", "probe", "strict")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		link.Name, link.Address = args[0], args[1]
		link.PollMs, link.TimeoutMs, link.ProbeMs = every.Milliseconds(), timeout.Milliseconds(), probe.Milliseconds()
		link.WarnAgeMs, link.HardLimitMs = warn.Milliseconds(), limit.Milliseconds()
		services, err := parseServices(protocols)
		if err != nil {
			return err
		}
		link.Services, request.Link = services, link
		return s.link(cmd, request)
	}
	return cmd
}

// link links a fleet, and has a person look at a fingerprint that nobody has given.
func (s *session) link(cmd *cobra.Command, request *pb.LinkRequest) error {
	call := func() (*pb.LinkResponse, error) {
		return ask(s, cmd, "asking the central manager", askTimeout, func(ctx context.Context, c Client) (*pb.LinkResponse, error) { return c.Link(ctx, request) })
	}
	answer, err := call()
	if err != nil {
		return err
	}
	if !answer.Linked {
		if !s.InTerminal {
			if err := s.show(answer, func(p *page) { layLink(p, answer) }); err != nil {
				return err
			}
			return failed("nothing was linked: compare the fingerprint with the central manager's own, and repeat with --fingerprint %s", answer.Fingerprint)
		}
		fmt.Fprintf(s.Err, "%s shows the certificate %s\nIs that the central manager's own? Type yes to link it: ", clean(request.Link.Address), answer.Fingerprint)
		line, _ := bufio.NewReader(s.In).ReadString('\n')
		if strings.TrimSpace(line) != "yes" {
			return failed("nothing was linked")
		}
		request.Link.Fingerprint = answer.Fingerprint
		if answer, err = call(); err != nil {
			return err
		}
	}
	if err := s.show(answer, func(p *page) { layLink(p, answer) }); err != nil {
		return err
	}
	s.warn(answer.Warnings)
	return nil
}

func (s *session) warn(warnings []string) {
	for _, w := range warnings {
		fmt.Fprintf(s.Err, "warning: %s\n", clean(w))
	}
}

func layLink(p *page, r *pb.LinkResponse) {
	if !r.Linked {
		p.facts([2]string{"fingerprint", r.Fingerprint})
		return
	}
	f := r.GetFleet()
	p.linef("fleet %s is linked: central manager %s, %s, %d of them up", f.GetLink().GetName(), orDash(f.GetCentral()), count(f.GetGateways(), "gateway"), f.GetUp())
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// parseServices reads protocols as ssh:22.
func parseServices(texts []string) (services []*pb.GatewayService, err error) {
	for _, text := range texts {
		protocol, port, found := strings.Cut(text, ":")
		n, err := strconv.ParseUint(port, 10, 16)
		if !found || protocol == "" || err != nil || n == 0 {
			return nil, misused("--protocol %q: write a protocol and a port, as ssh:22", text)
		}
		services = append(services, &pb.GatewayService{Protocol: strings.ToLower(protocol), Port: uint32(n)})
	}
	return services, nil
}

func (s *session) unlinkCommand() *cobra.Command {
	return &cobra.Command{
		Use: "unlink FLEET", Short: "Watch a fleet no more, and forget what was known of it", Args: arguments("FLEET"), ValidArgsFunction: s.complete(0, fleetNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			answer, err := ask(s, cmd, "unlinking", askTimeout, func(ctx context.Context, c Client) (*pb.UnlinkResponse, error) {
				return c.Unlink(ctx, &pb.UnlinkRequest{Name: args[0]})
			})
			if err != nil {
				return err
			}
			if err := s.show(answer, func(p *page) { p.linef("fleet %s is not linked any more", args[0]) }); err != nil {
				return err
			}
			s.warn(answer.Warnings)
			return nil
		},
	}
}

func fleetNames(ctx context.Context, c Client) (names []string, err error) {
	answer, err := c.Fleets(ctx, &pb.FleetsRequest{})
	if err != nil {
		return nil, err
	}
	for _, f := range answer.Fleets {
		names = append(names, f.GetLink().GetName())
	}
	return names, nil
}

func (s *session) fleetsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "fleets", Short: "List the linked fleets, and how old what is known of them is", Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := ask(s, cmd, "asking the broker", askTimeout, func(ctx context.Context, c Client) (*pb.FleetsResponse, error) {
				return c.Fleets(ctx, &pb.FleetsRequest{})
			})
			if err != nil {
				return err
			}
			return s.show(answer, func(p *page) { layFleets(p, answer) })
		},
	}
}

func layFleets(p *page, r *pb.FleetsResponse) {
	if len(r.Fleets) == 0 {
		p.linef("no fleet is linked to the broker of %s; link one with 'holdfast broker link'", r.Broker)
		return
	}
	rows := make([][]string, len(r.Fleets))
	for i, f := range r.Fleets {
		rows[i] = []string{f.GetLink().GetName(), f.GetLink().GetAddress(), f.State, viewText(f.Source, f.AgeMs, f.AtLeast, f.Old), fmt.Sprintf("%d/%d", f.Up, f.Gateways), f.GetLink().GetMode()}
	}
	p.table([]string{"FLEET", "CENTRAL MANAGER", "STATE", "VIEW", "UP", "MODE"}, rows)
	for _, f := range r.Fleets {
		name := f.GetLink().GetName()
		if f.Why != "" {
			p.linef("%s: %s", name, f.Why)
		}
		if f.Hopeless != "" {
			p.linef("%s: no gateway could ever take a session: %s", name, f.Hopeless)
		}
		if !f.Usable && f.Source != "none" {
			p.linef("%s: what is known is beyond the hard limit, so it is not used", name)
		}
	}
}

// viewText is what a choice rests on, and how old it is.
func viewText(source string, ageMs int64, atLeast, old bool) string {
	if source == "none" || source == "" {
		return "none"
	}
	text := source + ", "
	if atLeast {
		text += "at least "
	}
	text += milliseconds(ageMs) + " old"
	if old {
		text += ", older than it should be"
	}
	return text
}

func (s *session) gatewaysCommand() *cobra.Command {
	return &cobra.Command{
		Use: "gateways [FLEET]", Short: "List the gateways, and why each takes sessions or does not", Args: arguments("[FLEET]"), ValidArgsFunction: s.complete(0, fleetNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := &pb.GatewaysRequest{}
			if len(args) > 0 {
				request.Fleet = args[0]
			}
			answer, err := ask(s, cmd, "asking the broker", askTimeout, func(ctx context.Context, c Client) (*pb.GatewaysResponse, error) {
				return c.Gateways(ctx, request)
			})
			if err != nil {
				return err
			}
			return s.show(answer, func(p *page) { layGateways(p, answer) })
		},
	}
}

func layGateways(p *page, r *pb.GatewaysResponse) {
	rows := make([][]string, len(r.Gateways))
	for i, g := range r.Gateways {
		fitness, services := "-", make([]string, len(g.Services))
		if g.Health != nil {
			fitness = fmt.Sprintf("%.4g", g.Fitness)
		}
		for j, service := range g.Services {
			services[j] = fmt.Sprintf("%s:%d", service.Protocol, service.Port)
		}
		address := "-"
		if len(g.Addresses) > 0 {
			address = g.Addresses[0]
		}
		rows[i] = []string{g.Fleet + "/" + g.Key, address, strings.Join(g.Roles, ","), strings.Join(services, ","), yesNo(g.Takes), fitness, number(int64(g.Launches)), orDash(g.Why)}
	}
	p.table([]string{"GATEWAY", "ADDRESS", "ROLES", "TAKES", "UP", "FITNESS", "LAUNCHES", "WHY NOT"}, rows)
}

// endpoint is where a gateway is called.
func endpoint(g *pb.PickedGateway) string {
	host := g.GetName()
	if len(g.GetAddresses()) > 0 {
		host = g.Addresses[0]
	}
	return net.JoinHostPort(host, strconv.Itoa(int(g.GetPort())))
}
