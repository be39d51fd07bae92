package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// failover is the scenario while it plays.
type failover struct {
	*stage
	nodes   []string
	probe   *program
	holders map[string]string // of the pool's addresses, while the cluster is even

	services map[string]string // of the service addresses, likewise
}

func runFailover(ctx context.Context, out *transcript, o runOptions) (any, bool, error) {
	result := failoverResult{Scenario: "failover", Pass: true, Cases: []failoverCase{}}
	chosen, err := chosenFaults(o.faults)
	if err != nil {
		return result, false, err
	}
	stage, err := newStageWith(ctx, failoverFile(o), out, o.keep, (*stage).startEcho)
	if err != nil {
		return result, false, err
	}
	f := &failover{stage: stage, nodes: stage.plan.Names(KindNode)}
	err = f.play(ctx, chosen, o, &result)
	if err = errors.Join(err, stage.close()); err != nil {
		return result, false, err
	}
	f.show(result)
	return result, result.Pass, nil
}

// failoverFile is a lab of four nodes, of which the first three host the store. Each has a service address.
func failoverFile(o runOptions) File {
	return File{Nodes: 4, Clients: 1, Resolver: ResolverNone,
		Cluster: fmt.Sprintf("cluster: {name: lab, heartbeat-interval-ms: %d, heartbeat-multiplier: %d}\n", o.intervalMS, o.multiplier) + subnetYAML("", "10.10.0.4-10.10.0.7", "10.10.0.100-10.10.0.111", `"1:eth0", "2:eth0", "3:eth0", "4:eth0"`, "            rebalance-policy: manual\n")}
}

func (f *failover) play(ctx context.Context, chosen []fault, o runOptions, result *failoverResult) error {
	var err error
	if f.holders, err = f.even(ctx, f.nodes); err != nil {
		return err
	}
	if f.services, err = f.evenServices(ctx); err != nil {
		return err
	}
	if f.probe, err = f.startServiceProbe(ctx); err != nil {
		return err
	}
	for _, fault := range chosen {
		f.out.title("%s, %d times", fault.name, o.runs)
		c := o.caseOf(fault)
		var runs []seen
		for run := range o.runs {
			seen, err := f.once(ctx, fault)
			if err != nil {
				return fmt.Errorf("%s, run %d: %w", fault.name, run+1, err)
			}
			runs = append(runs, seen)
			f.out.say("%s", seen)
		}
		c.judge(runs)
		result.Pass = result.Pass && c.Pass
		result.Cases = append(result.Cases, c)
	}
	return nil
}

// caseOf is the case of a fault before it has been done.
func (o runOptions) caseOf(fault fault) failoverCase {
	interval := time.Duration(o.intervalMS) * time.Millisecond
	span := interval * time.Duration(o.multiplier)
	return failoverCase{Fault: fault.name, IntervalMS: o.intervalMS, Multiplier: o.multiplier, BoundMS: milliseconds(fault.bound(span)), bar: fault.bar(interval, span)}
}

// followed is how long the owner of an address may take to tell its successor of a new client (docs/failover.md). One that has only just
// come is not known, and the idle client stands for those that have been there for a while.
const followed = 300 * time.Millisecond

// idlePatience is for how long after the addresses answer again an idle client may go on without having noticed.
const idlePatience = 5 * time.Second

// once does a fault to a cluster that is even, measures, and makes the cluster whole again.
func (f *failover) once(ctx context.Context, fault fault) (s seen, err error) {
	victim := f.nodes[len(f.nodes)-1]
	if fault.storeLeader {
		if victim, err = f.leader(ctx); err != nil {
			return s, err
		}
	}
	if err := f.watch(ctx, f.probe, heldBy(f.holders, victim), heldBy(f.services, victim)); err != nil {
		return s, err
	}
	var before standing
	if fault.stays {
		if before, err = f.standing(ctx); err != nil {
			return s, err
		}
	}
	pause(ctx, followed)
	if _, err := f.gap(ctx, f.probe); err != nil { // from here on it is counted
		return s, err
	}
	if err := fault.begin(ctx, f, victim); err != nil {
		return s, err
	}
	// The client is asked first, and the cluster only when the client is well again: a command that starts takes a processor for
	// milliseconds, and would be seen.
	if s, err = f.look(ctx, victim, fault.stays); err != nil {
		return s, err
	}
	if !fault.stays {
		if err := f.allSettled(ctx, without(f.nodes, victim)); err != nil {
			return s, err
		}
		if s, err = f.look(ctx, victim, fault.stays); err != nil {
			return s, err
		}
	}
	if err := fault.mend(ctx, f, victim); err != nil {
		return s, err
	}
	limited, cancel := context.WithTimeout(ctx, servingPatience)
	defer cancel()
	if err := WaitServing(limited, f.Directory, f.plan, f.nodes, io.Discard); err != nil {
		return s, err
	}
	if fault.stays {
		if s.disturbed, err = f.disturbed(ctx, before); err != nil {
			return s, err
		}
	}
	if f.holders, err = f.even(ctx, f.nodes); err != nil {
		return s, err
	}
	f.services, err = f.evenServices(ctx)
	return s, err
}

// look waits until every address answers and every idle client is connected, to another node than the victim unless the addresses
// stay, and says what was seen since the last reset.
func (f *failover) look(ctx context.Context, victim string, stays bool) (s seen, err error) {
	if err := f.answering(ctx, f.probe); err != nil {
		return s, err
	}
	for began := time.Now(); ; {
		var report probeReport
		if err := f.probe.ask("report", &report); err != nil {
			return s, err
		}
		s = sights(report)
		if report.standing() && (stays || !report.reaches(victim)) {
			return s, nil
		}
		if s.unnoticed = time.Since(began) > idlePatience; s.unnoticed || !pause(ctx, clientPoll) {
			return s, ctx.Err()
		}
	}
}

// clientPoll is how often the client is asked how it is.
const clientPoll = 20 * time.Millisecond

// heldBy are a node's addresses.
func heldBy(holders map[string]string, node string) []string {
	var list []string
	for _, address := range slices.Sorted(maps.Keys(holders)) {
		if holders[address] == node {
			list = append(list, address)
		}
	}
	return list
}

// allSettled waits until every address of either kind is held by one of the nodes.
func (f *failover) allSettled(ctx context.Context, nodes []string) error {
	if _, err := f.settled(ctx, nodes); err != nil {
		return err
	}
	return f.wait(ctx, "every service address is held by one of "+strings.Join(nodes, ", "), func() (bool, error) {
		holders, err := f.heldOf(ctx, nodes[0], kindService)
		return err == nil && len(holders) > 0 && !slices.ContainsFunc(slices.Collect(maps.Values(holders)), func(holder string) bool {
			return !slices.Contains(nodes, holder)
		}), err
	})
}

// evenServices waits until every node has a service address, and asks for that now and then; it returns who holds what.
func (f *failover) evenServices(ctx context.Context) (holders map[string]string, err error) {
	polls := 0
	err = f.wait(ctx, "the service addresses are spread evenly", func() (bool, error) {
		holders, err = f.heldOf(ctx, f.nodes[0], kindService)
		if err != nil || evenly(holders, f.nodes) {
			return err == nil, err
		}
		if polls++; polls%askEvenEvery == 0 {
			err = f.holdfast(ctx, f.nodes[0], "network", "subnets", "rebalance-ssips", labSubnet)
		}
		return false, err
	})
	return holders, err
}

// leader is the node whose member leads the store.
func (f *failover) leader(ctx context.Context) (string, error) {
	var leader string
	err := f.wait(ctx, "the store has a leader", func() (bool, error) {
		data, err := f.Output(ctx, f.nodes[0], "holdfast", "status", "--output", "json")
		if err != nil {
			return false, err
		}
		var status struct {
			Store struct {
				Leader string `json:"leader"`
			} `json:"store"`
		}
		err = json.Unmarshal(data, &status)
		leader = status.Store.Leader
		return slices.Contains(f.nodes, leader), err
	})
	return leader, err
}
