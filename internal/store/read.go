package store

import (
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// pageSize is how many entries one request of a List asks for: at 1 KiB each, a megabyte.
const pageSize = 1000

// Get implements Store.
func (c *client) Get(ctx context.Context, key string) (Entry, bool, error) {
	if err := ValidateKey(key); err != nil {
		return Entry{}, false, err
	}
	var response *etcdserverpb.RangeResponse
	err := c.try(ctx, "reading", func(ctx context.Context, m *member) (err error) {
		response, err = m.kv.Range(ctx, &etcdserverpb.RangeRequest{Key: c.data(key)})
		return err
	})
	if err != nil {
		return Entry{}, false, fmt.Errorf("record %q: %w", key, err)
	}
	if len(response.Kvs) == 0 {
		return Entry{}, false, nil
	}
	return c.entry(response.Kvs[0]), true, nil
}

// List implements Store. The first page fixes the revision for the others, so that the whole is one state; should that
// revision be compacted in between, it begins again.
func (c *client) List(ctx context.Context, prefix string) ([]Entry, int64, error) {
	const attempts = 3
	var entries []Entry
	var revision int64
	var err error
	for range attempts {
		entries, revision, err = c.list(ctx, prefix)
		if err == nil || !isCompacted(err) {
			break
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("records under %q: %w", prefix, err)
	}
	return entries, revision, nil
}

func (c *client) list(ctx context.Context, prefix string) ([]Entry, int64, error) {
	from, end := c.data(prefix), rangeEnd(c.data(prefix))
	var entries []Entry
	var revision int64
	for {
		var page *etcdserverpb.RangeResponse
		err := c.try(ctx, "listing", func(ctx context.Context, m *member) (err error) {
			page, err = m.kv.Range(ctx, &etcdserverpb.RangeRequest{Key: from, RangeEnd: end, Limit: pageSize, Revision: revision})
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		if revision == 0 {
			revision = page.Header.Revision
		}
		for _, kv := range page.Kvs {
			entries = append(entries, c.entry(kv))
		}
		if len(entries) > MaxListEntries || len(entries) == MaxListEntries && page.More {
			return nil, 0, fmt.Errorf("%w: more than %d", ErrTooMany, MaxListEntries)
		}
		if !page.More || len(page.Kvs) == 0 {
			return entries, revision, nil
		}
		from = append(page.Kvs[len(page.Kvs)-1].Key, 0)
	}
}

func (c *client) entry(kv *mvccpb.KeyValue) Entry {
	return Entry{Key: strings.TrimPrefix(string(kv.Key), c.prefix), Value: kv.Value, Revision: kv.ModRevision, Lease: LeaseID(kv.Lease)}
}

func isCompacted(err error) bool {
	return strings.Contains(err.Error(), rpctypes.ErrorDesc(rpctypes.ErrGRPCCompacted))
}
