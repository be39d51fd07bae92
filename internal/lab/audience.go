package lab

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// startClients opens connections from a member to the cluster's zone and waits until all stand.
func (s *stage) startClients(ctx context.Context, member string, count int) (*program, clientReport, error) {
	p, err := s.start(ctx, member, "holdfast", "lab", "connect", s.plan.Resolver.Delegations[0].Zone, "--count", strconv.Itoa(count))
	if err != nil {
		return nil, clientReport{}, err
	}
	s.programs = append(s.programs, p)
	var first clientReport
	err = p.read(&first)
	return p, first, err
}

// startProbe begins to measure for how long addresses do not answer.
func (s *stage) startProbe(ctx context.Context, member string, addresses []string) (*program, error) {
	return s.startProbeOf(ctx, member, addresses)
}

// startServiceProbe does the same for all addresses of the cluster, with the service addresses.
func (f *failover) startServiceProbe(ctx context.Context) (*program, error) {
	services := slices.Sorted(maps.Keys(f.services))
	return f.startProbeOf(ctx, "client1", slices.Sorted(maps.Keys(f.holders)), "--service", strings.Join(services, ","), "--name", f.plan.Resolver.Delegations[0].Zone)
}

func (s *stage) startProbeOf(ctx context.Context, member string, addresses []string, more ...string) (*program, error) {
	p, err := s.start(ctx, member, slices.Concat([]string{"holdfast", "lab", "probe"}, more, addresses)...)
	if err != nil {
		return nil, err
	}
	s.programs = append(s.programs, p)
	var ready probeReport
	if err := p.read(&ready); err != nil {
		return nil, err
	}
	err = s.answering(ctx, p)
	if err == nil {
		err = p.ask("reset", &ready)
	}
	return p, err
}

// answering waits until every probed address has answered just now.
func (s *stage) answering(ctx context.Context, probe *program) error {
	return s.wait(ctx, "every address answers", func() (bool, error) {
		var report probeReport
		err := probe.ask("report", &report)
		for _, silence := range report.LastMS {
			if silence > 100 {
				return false, err
			}
		}
		for _, one := range report.Services {
			if one.LastMS > 100 {
				return false, err
			}
		}
		return err == nil, err
	})
}

// gap waits until every address answers and returns the longest silence of any since the last time it was asked.
func (s *stage) gap(ctx context.Context, probe *program) (float64, error) {
	if err := s.answering(ctx, probe); err != nil {
		return 0, err
	}
	var report, ignored probeReport
	if err := probe.ask("report", &report); err != nil {
		return 0, err
	}
	return report.longest(), probe.ask("reset", &ignored)
}

// longest is the longest silence of any address.
func (r probeReport) longest() float64 {
	longest := 0.0
	for _, silence := range r.LongestMS {
		longest = max(longest, silence)
	}
	return longest
}

// watch makes the probe look closely at some addresses and service addresses, and waits until their echoes come and their idle clients are connected.
func (s *stage) watch(ctx context.Context, probe *program, addresses, services []string) error {
	var report probeReport
	if err := probe.ask("watch "+strings.Join(slices.Concat(addresses, services), " "), &report); err != nil {
		return err
	}
	return s.wait(ctx, "the addresses that are watched are echoed, and idle clients are connected to them", func() (bool, error) {
		err := probe.ask("report", &report)
		return err == nil && len(report.Watched) == len(addresses) && report.standing(), err
	})
}

// standing says whether every watched address is echoed now and its idle client has a connection.
func (r probeReport) standing() bool {
	for _, one := range r.Watched {
		if one.Node == "" || one.LastMS > 100 {
			return false
		}
	}
	return true
}

// reaches says whether an idle client is connected to a node, as far as it knows.
func (r probeReport) reaches(node string) bool {
	for _, one := range r.Watched {
		if one.Node == node {
			return true
		}
	}
	return false
}

// reconnected waits until all connections stand again, and one more round of requests went well.
func (s *stage) reconnected(ctx context.Context, clients *program, count int, nodes []string) (clientReport, error) {
	var report clientReport
	settled := 0
	err := s.wait(ctx, "all clients are connected", func() (bool, error) {
		before := report.Requests
		err := clients.ask("report", &report)
		if err != nil || report.Connections < count || report.reaching(nodes) < count {
			settled = 0
			return false, err
		}
		settled += report.Requests - before
		return settled > 2*count, nil // every client has asked since
	})
	return report, err
}
