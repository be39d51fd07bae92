package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The cast of the scenarios about sessions, besides the three nodes, whose brokers choose the gateways.
const (
	sessionUser  = "desk"
	sessionWho   = "anna"
	sessionFleet = "east"

	serviceGateway = "gateway"
	serviceSSHD    = "sshd"

	gatewayPort = 2222
	brokerPort  = 2223 // where users of other machines ask
)

var sessionTargets = []string{"db1", "db2"}

// gatewayPlan is one gateway of a fleet.
type gatewayPlan struct {
	name  string
	roles []string
}

// usualFleet is a central manager that takes sessions, and three hosts.
func usualFleet() []gatewayPlan {
	plan := []gatewayPlan{{"gw1", []string{"central-management", "search-local"}}}
	for i := 2; i <= 4; i++ {
		plan = append(plan, gatewayPlan{fmt.Sprintf("gw%d", i), []string{"managed-host", "search-local"}})
	}
	return plan
}

// sessions is a lab in which a user opens sessions on servers: through a fleet of session gateways, which the brokers of three nodes
// choose from. Gateways are `holdfast gateway`, servers OpenSSH's sshd, and the user has OpenSSH's ssh.
type sessions struct {
	*stage
	fleet   []gatewayPlan // the central manager first
	brokers []string      // the nodes
	keys    sessionKeys
	// fingerprints are those of the gateways' certificates.
	fingerprints map[string]string
	linked       string // what the first broker said when the fleet was linked
}

// sessionKeys are what those who take part know each other by.
type sessionKeys struct {
	userCA  sshKey            // of the fleet: targets let in whom it signs
	user    sshKey            // of the user
	brokers map[string]sshKey // they sign tokens
	hosts   map[string]sshKey // of gateways, targets and brokers
}

// sessionTools are the programs that these scenarios need beyond those of every lab, and their Debian packages.
var sessionTools = []struct{ program, packageName string }{{"sshd", "openssh-server"}, {"ssh", "openssh-client"}, {"ssh-keygen", "openssh-client"}, {"unshare", "util-linux"}}

// missingForSessions names what this machine lacks; "" if nothing.
func missingForSessions() string {
	var missing []string
	for _, tool := range sessionTools {
		if _, err := findProgram(tool.program); err != nil {
			missing = append(missing, fmt.Sprintf("%s (Debian package %s)", tool.program, tool.packageName))
		}
	}
	return strings.Join(missing, ", ")
}

// newSessions starts a lab with a fleet, and returns when its gateways and servers take connections.
func newSessions(ctx context.Context, fleet []gatewayPlan, out *transcript, keep bool) (*sessions, error) {
	if missing := missingForSessions(); missing != "" {
		return nil, fmt.Errorf("scenarios about sessions need programs that are not installed: %s", missing)
	}
	file := File{Nodes: 3, Resolver: ResolverNone, Machines: []string{sessionUser}}
	for _, gateway := range fleet {
		file.Machines = append(file.Machines, gateway.name)
	}
	file.Machines = append(file.Machines, sessionTargets...)
	stage, err := newStageWith(ctx, file, out, keep, func(*stage, context.Context, string) error { return nil })
	if err != nil {
		return nil, err
	}
	s := &sessions{stage: stage, fleet: fleet, brokers: stage.plan.Names(KindNode)}
	for _, step := range []func(context.Context) error{s.makeKeys, s.makeCertificates, s.configureBrokers, s.startTargets, s.startGateways, s.openDoors} {
		if err == nil {
			err = step(ctx)
		}
	}
	if err != nil {
		return nil, errors.Join(err, stage.close())
	}
	return s, nil
}

// makeKeys makes the keys of all who take part, each in the directory of whom it belongs to.
func (s *sessions) makeKeys(context.Context) error {
	var faults []error
	pair := func(member, name string) sshKey {
		key, err := newSSHKey(filepath.Join(s.node(member), name), name+" of "+member)
		faults = append(faults, err)
		return key
	}
	s.keys = sessionKeys{userCA: pair(s.fleet[0].name, "user_ca"), user: pair(sessionUser, "user"), brokers: map[string]sshKey{}, hosts: map[string]sshKey{}}
	for _, broker := range s.brokers {
		s.keys.brokers[broker] = pair(broker, "broker_key")
	}
	for _, host := range slices.Concat(s.gatewayNames(), sessionTargets, s.brokers) {
		s.keys.hosts[host] = pair(host, "host_key")
	}
	return errors.Join(faults...)
}

func (s *sessions) gatewayNames() []string {
	var names []string
	for _, gateway := range s.fleet {
		names = append(names, gateway.name)
	}
	return names
}

// hosts are the gateways besides the central manager.
func (s *sessions) hosts() []string { return s.gatewayNames()[1:] }

// address is where a member is reached.
func (s *sessions) address(member string) string {
	m, _ := s.plan.Member(member)
	return m.Interfaces[0].Addresses[0].Addr().String()
}

// configureBrokers tells the brokers by what they sign, whom they know, and what they grant, and the user by what they are known.
func (s *sessions) configureBrokers(context.Context) error {
	var faults []error
	var known strings.Builder
	for _, broker := range s.brokers {
		text := fmt.Sprintf(`signing-key: broker_key
listen: 0.0.0.0:%d
host-key: host_key
requesters:
  - {name: %s, keys: [%q]}
grants:
  - name: operators
    who: [%s]
    targets: ["*"]
    accounts: [%s]
    protocols: [ssh]
`, brokerPort, sessionWho, s.keys.user.public, sessionWho, machineAccount)
		faults = append(faults, os.WriteFile(filepath.Join(s.node(broker), "broker.yaml"), []byte(text), 0o600))
		fmt.Fprintf(&known, "[%s]:%d,[%s]:%d %s\n", broker, brokerPort, s.address(broker), brokerPort, s.keys.hosts[broker].public)
	}
	return errors.Join(append(faults, os.WriteFile(s.brokerKeys(), []byte(known.String()), 0o644), s.configureUser())...)
}

// configureUser writes the user's configuration of ssh: by what the brokers know the user, and that sessions on the servers are opened by them.
func (s *sessions) configureUser() error {
	home := s.node(sessionUser)
	text := fmt.Sprintf(`Host %s
    Port %d
    IdentityFile %s
    IdentitiesOnly yes
    UserKnownHostsFile %s
    ConnectTimeout %d
Host %s
    ProxyCommand holdfast broker connect %%r@%%h:%%p
    KnownHostsCommand %s broker connect --known-host %%H
`, strings.Join(s.brokers, " "), brokerPort, s.keys.user.file, s.brokerKeys(), gatewayPatience, strings.Join(sessionTargets, " "), s.path(binDir, "holdfast"))
	return errors.Join(os.MkdirAll(filepath.Join(home, ".ssh"), 0o700), os.WriteFile(filepath.Join(home, ".ssh", "config"), []byte(text), 0o600))
}

// asUser is the command line of a program that the user runs: who is not root, is at home, and has all brokers to ask.
func (s *sessions) asUser(argv ...string) []string {
	var brokers []string
	for _, broker := range s.brokers {
		brokers = append(brokers, "ssh://"+sessionWho+"@"+broker)
	}
	return slices.Concat(asAccount(), []string{"env", "HOME=" + s.node(sessionUser), "HOLDFAST_BROKER=" + strings.Join(brokers, ",")}, argv)
}

// brokerKeys is the user's file with the brokers' host keys.
func (s *sessions) brokerKeys() string { return filepath.Join(s.node(sessionUser), "known_brokers") }

// openDoors waits until the brokers take requesters. They look at their settings every other second.
func (s *sessions) openDoors(ctx context.Context) error {
	for _, broker := range s.brokers {
		if err := s.listens(ctx, broker, brokerPort); err != nil {
			return err
		}
	}
	return nil
}

// place is where a broker is asked.
func (s *sessions) place(broker string) brokerPlace {
	return brokerPlace{Name: broker, Address: s.address(broker), Port: brokerPort}
}

// startTargets runs sshd on the servers. It lets in the account of the machine, to whoever shows a certificate of the fleet.
func (s *sessions) startTargets(ctx context.Context) error {
	sshd, err := findProgram("sshd")
	if err != nil {
		return err
	}
	for _, target := range sessionTargets {
		directory := s.node(target)
		config := filepath.Join(directory, "sshd_config")
		lines := []string{
			"Port 22", "HostKey " + s.keys.hosts[target].file, "TrustedUserCAKeys " + filepath.Join(directory, "fleet_ca.pub"), "AuthorizedKeysFile none",
			"PasswordAuthentication no", "UsePAM no", "StrictModes no", "PidFile none", "PrintMotd no", "PrintLastLog no", "UseDNS no",
			"MaxStartups 100:30:200", "LogLevel VERBOSE", "Subsystem sftp internal-sftp",
		}
		err := errors.Join(
			os.WriteFile(filepath.Join(directory, "fleet_ca.pub"), []byte(s.keys.userCA.public+"\n"), 0o644),
			os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o644),
		)
		if err == nil {
			err = s.host(target, serviceSSHD, append(asAccount(), sshd, "-D", "-e", "-f", config)...)
		}
		if err == nil {
			err = s.listens(ctx, target, 22)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// startGateways writes what the gateways need and runs them.
func (s *sessions) startGateways(ctx context.Context) error {
	var brokers, known strings.Builder
	for _, broker := range s.brokers {
		fmt.Fprintln(&brokers, s.keys.brokers[broker].public)
	}
	for _, target := range sessionTargets {
		fmt.Fprintf(&known, "%s,%s %s\n", target, s.address(target), s.keys.hosts[target].public)
	}
	ca, err := os.ReadFile(s.keys.userCA.file)
	if err != nil {
		return fmt.Errorf("reading the fleet's own key: %w", err)
	}
	for _, gateway := range s.fleet {
		directory := s.node(gateway.name)
		err := errors.Join(
			os.WriteFile(filepath.Join(directory, "brokers"), []byte(brokers.String()), 0o644),
			os.WriteFile(filepath.Join(directory, "known_hosts"), []byte(known.String()), 0o644),
			os.WriteFile(filepath.Join(directory, "user_ca"), ca, 0o600),
			os.WriteFile(filepath.Join(directory, "gateway.yaml"), []byte(s.gatewayYAML(gateway)), 0o644),
		)
		if err == nil {
			err = s.host(gateway.name, serviceGateway, s.path(binDir, "holdfast"), "gateway", "--config", filepath.Join(directory, "gateway.yaml"))
		}
		if err != nil {
			return err
		}
	}
	for _, gateway := range s.fleet {
		if err := s.listens(ctx, gateway.name, gatewayPort); err != nil {
			return err
		}
	}
	return s.listens(ctx, s.fleet[0].name, fleetPort)
}

// gatewayYAML is a gateway's configuration.
func (s *sessions) gatewayYAML(gateway gatewayPlan) string {
	return fmt.Sprintf(`name: %s
listen: 0.0.0.0:%d
host-keys: [host_key]
user-ca: user_ca
brokers: brokers
known-hosts: [known_hosts]
audit: sessions.jsonl
recordings: {directory: recordings, min-free-mib: 16}
limits: {dial-timeout-ms: 3000, drain-timeout-ms: 100}
`, gateway.name, gatewayPort) + s.fleetYAML(gateway)
}

// host runs a program as a service of a machine.
func (s *sessions) host(member, service string, argv ...string) error {
	program, err := findProgram(argv[0])
	if err != nil {
		return err
	}
	argv = append([]string{program}, argv[1:]...)
	return s.tell(request{Op: "run", Member: member, Service: service, Argv: argv})
}

// listens waits until a machine takes TCP connections on a port.
func (s *sessions) listens(ctx context.Context, member string, port int) error {
	pattern := fmt.Sprintf(":%04X .* 0A ", port)
	return s.wait(ctx, fmt.Sprintf("%s listens on port %d (its logs are in %s)", member, port, s.node(member)), func() (bool, error) {
		_, err := s.Output(ctx, member, "grep", "-q", pattern, "/proc/net/tcp", "/proc/net/tcp6")
		return err == nil, nil
	})
}
