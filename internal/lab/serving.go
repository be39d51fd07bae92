package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// servingPoll is how often a node that does not serve yet is asked again.
const servingPoll = 200 * time.Millisecond

// WaitServing returns when every node of names says that it serves and the resolver, if there is one, answers the
// delegated zones. Progress goes to out, one line for each node that has become ready.
func WaitServing(ctx context.Context, dir Directory, plan *Plan, names []string, out io.Writer) error {
	for _, name := range names {
		if err := waitNode(ctx, dir, name); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s serves\n", name)
	}
	if plan.Resolver.Kind == ResolverNone {
		return nil
	}
	for _, delegation := range plan.Resolver.Delegations {
		if err := waitZone(ctx, dir, plan.Resolver.Kind, delegation.Zone); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s answers %s\n", plan.Resolver.Kind, delegation.Zone)
	}
	return nil
}

// waitNode waits until a node serves. An error that it meets on the way is told when time is up.
func waitNode(ctx context.Context, dir Directory, name string) error {
	for {
		report, err := askStatus(ctx, dir, name)
		if err == nil && report.Serving {
			return nil
		}
		if err == nil {
			err = errors.New(firstOf(report.Reason, "it says that it does not serve"))
		}
		if how, ended := agentEnded(dir, name); ended {
			return fmt.Errorf("the agent of %s %s; its log is %s", name, how, dir.path(nodesDir, name, serviceAgent+".log"))
		}
		if !pause(ctx, servingPoll) {
			return fmt.Errorf("%s does not serve: %w; its log is %s", name, err, dir.path(nodesDir, name, serviceAgent+".log"))
		}
	}
}

// agentEnded asks the lab whether a node's agent is no longer running.
func agentEnded(dir Directory, name string) (how string, ended bool) {
	answer, _, err := dir.call(request{Op: "status"})
	if err != nil {
		return err.Error(), true
	}
	for _, member := range answer.Status.Members {
		if member.Name == name && member.Service != serviceAgent+" running" {
			return firstOf(strings.TrimPrefix(member.Service, serviceAgent+" "), "is not running"), true
		}
	}
	return "", false
}

// waitZone waits until the resolver answers for a zone.
func waitZone(ctx context.Context, dir Directory, kind Resolver, zone string) error {
	for {
		_, err := dir.Output(ctx, "resolver", "holdfast", "lab", "resolve", zone)
		if err == nil {
			return nil
		}
		if !pause(ctx, servingPoll) {
			return fmt.Errorf("%s does not answer %s: %w; its log is %s", kind, zone, err, dir.path(nodesDir, "resolver", serviceResolver+".log"))
		}
	}
}

// pause waits, and reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
