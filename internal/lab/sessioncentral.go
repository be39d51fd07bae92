package lab

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Of a lab's fleet the first gateway is the central manager.
const (
	fleetPort          = 8443
	fleetCertificate   = "gateway_fleet.pem" // in the gateway's directory
	beatIntervalMillis = 400
)

// makeCertificates makes what gateways know each other by.
func (s *sessions) makeCertificates(ctx context.Context) error {
	s.fingerprints = map[string]string{}
	for _, gateway := range s.gatewayNames() {
		command := exec.CommandContext(ctx, s.path(binDir, "holdfast"), "gateway", "certificate", filepath.Join(s.node(gateway), fleetCertificate))
		said, err := command.CombinedOutput()
		if err != nil {
			return fmt.Errorf("making the certificate of %s: %w: %s", gateway, err, said)
		}
		s.fingerprints[gateway] = strings.TrimSpace(string(said))
	}
	return nil
}

// fleetYAML is what a gateway's configuration says of the fleet. Whoever asks may read, as with fleets of the vendor's.
func (s *sessions) fleetYAML(gateway gatewayPlan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "fleet:\n  roles: [%s]\n  address: %s\n  listen: 0.0.0.0:%d\n", strings.Join(gateway.roles, ", "), s.address(gateway.name), fleetPort)
	central := s.fleet[0].name
	if gateway.name != central {
		fmt.Fprintf(&b, "  central-manager: https://%s:%d\n  fingerprint: %s\n", s.address(central), fleetPort, s.fingerprints[central])
		return b.String()
	}
	fmt.Fprintf(&b, "  readers: [any]\n  beat-interval-ms: %d\n  members:\n", beatIntervalMillis)
	for _, host := range s.hosts() {
		fmt.Fprintf(&b, "    - {key: %s, fingerprint: %q}\n", host, s.fingerprints[host])
	}
	if len(s.hosts()) == 0 {
		return strings.TrimSuffix(b.String(), "  members:\n")
	}
	return b.String()
}
