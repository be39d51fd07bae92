package lab

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// way is how a gateway or a broker goes down.
type way string

// The ways. What is killed refuses connections; what is cut off or black-holed says nothing, and of the latter the own network looks well.
const (
	killed     way = "killed"      // kill -9 of its process; its kernel answers
	cutOff     way = "cut off"     // its cable is pulled
	blackHoled way = "black-holed" // what is sent to it vanishes; it still sends
)

var ways = []way{killed, cutOff, blackHoled}

// down takes a gateway or a broker down.
func (s *sessions) down(member string, w way) error {
	switch {
	case w == cutOff:
		return s.tell(request{Op: "cut", Member: member, Carrier: true})
	case w == blackHoled:
		return s.tell(request{Op: "cut", Member: member, Direction: DirectionIn})
	case slices.Contains(s.brokers, member):
		return s.tell(request{Op: "kill", Member: member, Agent: true, Guard: true})
	}
	return s.tell(request{Op: "kill", Member: member, Service: serviceGateway})
}

// up brings it back.
func (s *sessions) up(ctx context.Context, member string, w way) error {
	switch {
	case w == cutOff || w == blackHoled:
		return s.tell(request{Op: "heal", Member: member})
	case slices.Contains(s.brokers, member):
		if err := s.tell(request{Op: "start", Member: member, Agent: true, Guard: true}); err != nil {
			return err
		}
		return s.answers(ctx, member)
	}
	if err := s.tell(request{Op: "start", Member: member, Service: serviceGateway}); err != nil {
		return err
	}
	return s.listens(ctx, member, gatewayPort)
}

// answers waits until a broker answers.
func (s *sessions) answers(ctx context.Context, broker string) error {
	return s.wait(ctx, "the broker of "+broker+" answers", func() (bool, error) {
		_, err := s.fleetSeen(ctx, broker)
		return err == nil, err
	})
}

// lost waits until brokers have given the central manager up.
func (s *sessions) lost(ctx context.Context, brokers ...string) error {
	for _, broker := range brokers {
		if err := s.wait(ctx, "the broker of "+broker+" has given the central manager up", func() (bool, error) {
			seen, err := s.fleetSeen(ctx, broker)
			return seen.State == "lost", err
		}); err != nil {
			return err
		}
	}
	return nil
}

// fleetSeen is how the fleet stands for a broker.
func (s *sessions) fleetSeen(ctx context.Context, broker string) (fleetReport, error) {
	out, err := s.Output(ctx, broker, "holdfast", "broker", "fleets", "--output", "json")
	if err != nil {
		return fleetReport{}, err
	}
	return parseFleets(out)
}

// known waits until brokers know whether each of some gateways takes sessions, and returns how long that took.
func (s *sessions) known(ctx context.Context, brokers []string, takes bool, gateways ...string) (time.Duration, error) {
	began := time.Now()
	for _, broker := range brokers {
		what := fmt.Sprintf("the broker of %s knows that %v take sessions: %v", broker, gateways, takes)
		if err := s.wait(ctx, what, func() (bool, error) {
			out, err := s.Output(ctx, broker, "holdfast", "broker", "gateways", sessionFleet, "--output", "json")
			if err != nil {
				return false, err
			}
			seen, err := parseGateways(out)
			met := !slices.ContainsFunc(gateways, func(gateway string) bool { return seen[gateway] != takes })
			return met, err
		}); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}
