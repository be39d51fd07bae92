package lab

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// How the fleet is watched here: as docs/broker.md says, with all times shorter.
const (
	linkPoll    = 500 * time.Millisecond
	linkTimeout = 400 * time.Millisecond
	linkProbe   = 500 * time.Millisecond
)

// link links the fleet on every broker, keeps what the last of them said, and waits until all know every gateway: members may have reported to the
// central manager only after a broker asked it.
func (s *sessions) link(ctx context.Context) error {
	for _, broker := range s.brokers {
		said, err := s.linkOn(ctx, broker)
		if err != nil {
			return err
		}
		s.linked = said
	}
	var takers []string
	for _, gateway := range s.fleet {
		if !slices.Contains(gateway.roles, "search-primary") {
			takers = append(takers, gateway.name)
		}
	}
	_, err := s.known(ctx, s.brokers, true, takers...)
	return err
}

// linkOn links the fleet on one broker, with more flags, and returns what that said.
func (s *sessions) linkOn(ctx context.Context, broker string, flags ...string) (string, error) {
	central := s.fleet[0].name
	argv := append([]string{
		"holdfast", "broker", "link", sessionFleet, fmt.Sprintf("%s:%d", s.address(central), fleetPort), "--fingerprint", s.fingerprints[central],
		"--poll", linkPoll.String(), "--timeout", linkTimeout.String(), "--probe", linkProbe.String(),
	}, flags...)
	command, err := s.Command(ctx, broker, argv...)
	if err != nil {
		return "", err
	}
	said, err := command.CombinedOutput() // warnings are on standard error
	if err != nil {
		return "", fmt.Errorf("linking the fleet on %s: %w: %s", broker, err, said)
	}
	return string(said), nil
}
