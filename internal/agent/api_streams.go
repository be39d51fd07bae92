package agent

import (
	"context"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
)

// Events streams what happened on and was seen from this node, and with follow what happens.
func (s nodeService) Events(ctx context.Context, r *holdfastv1.EventsRequest, stream *connect.ServerStream[holdfastv1.Event]) error {
	last := r.AfterId
	for {
		events, more := s.events.after(last)
		for _, e := range events {
			last = e.ID
			if r.Since != nil && e.At.Before(r.Since.AsTime()) {
				continue
			}
			if err := stream.Send(eventMessage(e)); err != nil {
				return err
			}
		}
		if len(events) > 0 {
			continue
		}
		if !r.Follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-more:
		}
	}
}

// minTopInterval bounds how often one reader is served.
const minTopInterval = 100 * time.Millisecond

// Top streams the load of every node.
func (s nodeService) Top(ctx context.Context, r *holdfastv1.TopRequest, stream *connect.ServerStream[holdfastv1.TopSample]) error {
	v, err := s.seen()
	if err != nil {
		return err
	}
	interval := v.world.Config.Settings.SampleInterval
	if r.IntervalMs > 0 {
		interval = max(time.Duration(r.IntervalMs)*time.Millisecond, minTopInterval)
	}
	for ctx.Err() == nil {
		if err := stream.Send(s.top(s.view.Load())); err != nil {
			return err
		}
		wait(ctx, interval)
	}
	return nil
}

func (s nodeService) top(v *view) *holdfastv1.TopSample {
	sample := &holdfastv1.TopSample{At: stamp(time.Now())}
	for _, lnn := range slices.Sorted(maps.Keys(v.world.Nodes)) {
		state, _ := nodeState(v.world, v.world.Nodes[lnn])
		node := &holdfastv1.TopNode{Name: nameOf(v.world, lnn), Lnn: int32(lnn), State: nodeStates[state], Load: s.nodeLoad(v, lnn), AnswersPerSecond: s.answers.rateOf(lnn)}
		for _, a := range listAddresses(v) {
			if int(a.Lnn) != lnn || a.State == holdfastv1.InterfaceAddress_orphaned {
				continue
			}
			if a.Kind == holdfastv1.InterfaceAddress_service {
				node.ServiceAddresses = append(node.ServiceAddresses, a.Address)
			} else {
				node.PoolAddresses = append(node.PoolAddresses, a.Address)
			}
		}
		sample.Nodes = append(sample.Nodes, node)
	}
	return sample
}
