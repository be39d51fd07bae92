package lab

import (
	"context"
	"fmt"
	"time"
)

// How the fleet is watched here: as docs/broker.md says, with all times shorter.
const (
	linkPoll    = 500 * time.Millisecond
	linkTimeout = 400 * time.Millisecond
	linkProbe   = 500 * time.Millisecond
)

// link links the fleet on every broker, and keeps what the last of them said.
func (s *sessions) link(ctx context.Context) error {
	for _, broker := range s.brokers {
		said, err := s.linkOn(ctx, broker)
		if err != nil {
			return err
		}
		s.linked = said
	}
	return nil
}

// linkOn links the fleet on one broker, with more flags, and returns what that said.
func (s *sessions) linkOn(ctx context.Context, broker string, flags ...string) (string, error) {
	central := s.fleet[0].name
	fingerprint, err := s.fingerprint()
	if err != nil {
		return "", err
	}
	argv := append([]string{
		"holdfast", "broker", "link", sessionFleet, fmt.Sprintf("%s:%d", s.address(central), centralPort), "--fingerprint", fingerprint,
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
