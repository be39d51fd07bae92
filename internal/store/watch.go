package store

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// batchesAhead is how many batches may wait for a slow reader before its stream is no longer read; the member then holds
// back too (HTTP/2 flow control), and what it no longer keeps by the time the reader goes on becomes a Resync.
const batchesAhead = 16

// errLost: the member has not kept, or never had, the revision that the watch needs: the whole state must be read.
var errLost = errors.New("the revision is not kept any more")

// watcher is one running watch.
type watcher struct {
	client *client
	prefix string
	next   int64 // the first revision not delivered yet; zero: the whole state must be delivered first
	out    chan Batch
}

// Watch implements Store.
func (c *client) Watch(ctx context.Context, prefix string, from int64) <-chan Batch {
	w := &watcher{client: c, prefix: prefix, next: max(from, 0), out: make(chan Batch, batchesAhead)}
	if c.watches.Add(1) > MaxWatches || c.ctx.Err() != nil {
		c.watches.Add(-1)
		c.log.Error("a watch was refused", "prefix", prefix, "most", MaxWatches)
		close(w.out)
		return w.out
	}
	go func() {
		defer c.watches.Add(-1)
		defer close(w.out)
		w.run(ctx)
	}()
	return w.out
}

// run follows one member after the other until the context or the client ends.
func (w *watcher) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.client.ctx, cancel)()
	pause := pauseMin
	for ctx.Err() == nil {
		m := w.client.preferred()
		began := time.Now()
		err := w.follow(ctx, m)
		if ctx.Err() != nil {
			return
		}
		w.client.metrics.resumed()
		if errors.Is(err, errLost) {
			w.next = 0
			continue
		}
		w.client.log.Debug("a watch looks for another member", "prefix", w.prefix, "member", m.endpoint, "err", err)
		w.client.avoid(m)
		if time.Since(began) > pauseMax {
			pause = pauseMin // it had worked
		}
		if !sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, pauseMax)
	}
}

// follow delivers what one member has to say, and returns why it ended.
func (w *watcher) follow(ctx context.Context, m *member) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	m.watches.Add(1) // from now on the member is looked after, and the stream ended if it is frozen
	defer m.watches.Add(-1)
	ctx, cancel := context.WithCancel(requireLeader(ctx))
	defer cancel()
	defer context.AfterFunc(m.generation(), cancel)()

	stream, err := m.watch.Watch(ctx)
	if err != nil {
		return err
	}
	key := w.client.data(w.prefix)
	// A send that fails says only that the stream is over; Recv says why.
	_ = stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
		CreateRequest: &etcdserverpb.WatchCreateRequest{Key: key, RangeEnd: rangeEnd(key), StartRevision: w.next}}})
	for {
		response, err := stream.Recv()
		switch {
		case err != nil:
			return err
		case response.CompactRevision != 0:
			return errLost
		case response.Canceled:
			return errors.New("the member ended the watch: " + response.CancelReason)
		}
		if err := w.deliver(ctx, response.Events); err != nil {
			return err
		}
	}
}

// begin reads where the store stands. A store behind what was already delivered has lost its end, by a restored backup or
// by coming back empty; etcd would accept the watch and be silent until it got there again.
func (w *watcher) begin(ctx context.Context) error {
	if w.next == 0 {
		entries, revision, err := w.client.List(ctx, w.prefix)
		if err != nil {
			return err
		}
		w.client.metrics.resynced()
		batch := Batch{Resync: true, Revision: revision}
		for _, entry := range entries {
			batch.Events = append(batch.Events, Event{Entry: entry})
		}
		return w.send(ctx, batch)
	}
	revision, err := w.client.revision(ctx)
	if err == nil && revision < w.next-1 {
		return errLost
	}
	return err
}

// deliver passes on the changes of one response, of which etcd guarantees that it holds revisions whole and in order.
func (w *watcher) deliver(ctx context.Context, events []*mvccpb.Event) error {
	if len(events) == 0 {
		return nil
	}
	batch := Batch{Revision: events[len(events)-1].Kv.ModRevision}
	for _, event := range events {
		entry := w.client.entry(event.Kv)
		batch.Events = append(batch.Events, Event{Entry: entry, Deleted: event.Type == mvccpb.DELETE})
	}
	return w.send(ctx, batch)
}

func (w *watcher) send(ctx context.Context, batch Batch) error {
	select {
	case w.out <- batch:
		w.next = batch.Revision + 1
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// revision reads the store's present revision, linearizably.
func (c *client) revision(ctx context.Context) (int64, error) {
	var revision int64
	err := c.try(ctx, "reading the revision", func(ctx context.Context, m *member) error {
		response, err := m.kv.Range(ctx, c.cheapRead())
		if err == nil {
			revision = response.Header.Revision
		}
		return err
	})
	return revision, err
}

// cheapRead is a linearizable read that brings nothing back.
func (c *client) cheapRead() *etcdserverpb.RangeRequest {
	return &etcdserverpb.RangeRequest{Key: c.data(ClusterIDKey), CountOnly: true}
}
