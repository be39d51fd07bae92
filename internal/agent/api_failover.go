package agent

import (
	"context"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
)

// explainFailover puts together what all nodes that answer know of one failover, which is named by itself or by one of its events on
// this node.
func (s nodeService) explainFailover(ctx context.Context, v *view, name string) (*holdfastv1.ExplainResponse, error) {
	id, err := s.failoverNamed(name)
	if err != nil {
		return nil, err
	}
	said, unanswered := askOthers(ctx, s, v, func(ctx context.Context, lnn int) ([]*holdfastv1.Event, error) {
		return s.edges.inside.Failover(ctx, lnn, id)
	})
	events := s.ownFailover(id)
	for _, others := range said {
		events = append(events, others...)
	}
	if len(events) == 0 {
		return nil, api.NotFound("no node that answered remembers a failover %s; each knows its own last %d events, since its agent started. "+
			"`holdfast events` shows which failovers this node knows", id, maxEvents)
	}
	failover := failoverOf(id, v.world.Config, events)
	failover.Unanswered = unanswered
	return &holdfastv1.ExplainResponse{Failover: failover, Text: failoverText(failover)}, nil
}

// failoverNamed is the failover that an operator means.
func (s nodeService) failoverNamed(name string) (string, error) {
	name = strings.TrimSpace(name)
	if _, _, ok := parseFailover(name); ok {
		return name, nil
	}
	number, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		return "", api.Invalid("%q is neither the number of an event nor a failover such as 2.17 (a node's number and its incarnation); `holdfast events` shows both", name)
	}
	events, _ := s.events.after(number - 1)
	if len(events) == 0 || events[0].ID != number {
		return "", api.NotFound("this node remembers no event %d; `holdfast events --output json` shows their numbers", number)
	}
	if id := events[0].Fields[fieldFailover]; id != "" {
		return id, nil
	}
	return "", api.NotFound("event %d (%s) is part of no failover: %s", number, events[0].Kind, events[0].Message)
}

// ownFailover is what this node remembers of a failover.
func (a *Agent) ownFailover(id string) []*holdfastv1.Event {
	var out []*holdfastv1.Event
	events, _ := a.events.after(0)
	for _, e := range events {
		if e.Fields[fieldFailover] == id {
			out = append(out, eventMessage(e))
		}
	}
	return out
}

// Failover asks a node what it remembers of a failover.
func (p *peers) Failover(ctx context.Context, lnn int, id string) ([]*holdfastv1.Event, error) {
	client, err := p.of(lnn)
	if err != nil {
		return nil, err
	}
	answer, err := client.Failover(ctx, &holdfastv1.FailoverRequest{Id: id})
	if err != nil {
		return nil, err
	}
	return answer.Events, nil
}

// Failover tells another node what this one remembers of a failover.
func (s peerService) Failover(ctx context.Context, r *holdfastv1.FailoverRequest) (*holdfastv1.FailoverResponse, error) {
	if _, err := s.caller(ctx); err != nil {
		return nil, err
	}
	if _, _, ok := parseFailover(r.Id); !ok {
		return nil, api.Invalid("%q is no failover", r.Id)
	}
	return &holdfastv1.FailoverResponse{Events: s.ownFailover(r.Id)}, nil
}
