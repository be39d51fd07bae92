package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/store"
)

// patience is how long the contract waits for what must come; only a broken store exhausts it.
const patience = 30 * time.Second

// Contract runs what every Store must do. open returns a Store on the same data each time it is called; the contract
// works under keys of its own, so that one set of members serves all of it.
func Contract(t *testing.T, open func(t *testing.T) store.Store) {
	for _, c := range []struct {
		name string
		run  func(*harness)
	}{
		{"ReadYourWrites", readYourWrites},
		{"Conditions", conditions},
		{"AllOrNothing", allOrNothing},
		{"ListIsOneState", listIsOneState},
		{"Bounds", bounds},
		{"WatchDeliversEverythingInOrder", watchInOrder},
		{"WatchFromZeroBeginsWithTheState", watchFromZero},
		{"WatchSeesOnlyItsPrefix", watchPrefix},
		{"SlowWatchLosesNothing", slowWatch},
		{"WatchEndsWithItsContext", watchEnds},
		{"LeaseTakesItsKeysAlong", leaseRevoke},
		{"LeaseRunsOut", leaseRunsOut},
		{"LeaseThatIsGone", leaseGone},
		{"CountersLoseNothing", counters},
		{"GivenUpByTheCaller", givenUp},
		{"Closed", closedStore},
		{"Health", health},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			h := &harness{T: t, ctx: ctx, open: open, Store: open(t), under: "contract/" + c.name + "/"}
			c.run(h)
			if err := h.Store.Close(); err != nil {
				t.Errorf("closing: %v", err)
			}
		})
	}
}

type harness struct {
	*testing.T
	store.Store
	ctx   context.Context
	open  func(t *testing.T) store.Store
	under string
}

func (h *harness) commit(conditions []store.Condition, ops ...store.Op) int64 {
	h.Helper()
	revision, err := h.Commit(h.ctx, store.Txn{If: conditions, Then: ops})
	if err != nil {
		h.Fatalf("commit: %v", err)
	}
	return revision
}

func (h *harness) put(key, value string) int64 {
	h.Helper()
	return h.commit(nil, store.Put{Key: h.under + key, Value: []byte(value)})
}

// get returns the value, or "-" when the key is absent.
func (h *harness) get(key string) (string, int64) {
	h.Helper()
	entry, found, err := h.Get(h.ctx, h.under+key)
	if err != nil {
		h.Fatalf("get: %v", err)
	}
	if !found {
		return "-", 0
	}
	return string(entry.Value), entry.Revision
}

func (h *harness) wantErr(err, want error) {
	h.Helper()
	if !errors.Is(err, want) {
		h.Errorf("error %v, want %v", err, want)
	}
}

// wantGets waits for no one: the store must show this now.
func (h *harness) wantGets(want map[string]string) {
	h.Helper()
	got := map[string]string{}
	for key := range want {
		got[key], _ = h.get(key)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		h.Errorf("state (-want +got):\n%s", diff)
	}
}

// follow collects what a watch says, one line for each event, until n lines are there.
func (h *harness) follow(watch <-chan store.Batch, n int) []string {
	h.Helper()
	var lines []string
	for len(lines) < n {
		select {
		case batch, open := <-watch:
			if !open {
				h.Fatalf("the watch ended after %q", lines)
			}
			if batch.Resync {
				lines = append(lines, "resync")
			}
			for _, event := range batch.Events {
				line := strings.TrimPrefix(event.Key, h.under) + "=" + string(event.Value)
				if event.Deleted {
					line = strings.TrimPrefix(event.Key, h.under) + " gone"
				}
				lines = append(lines, line)
				if event.Revision > batch.Revision {
					h.Errorf("event at revision %d in a batch up to %d", event.Revision, batch.Revision)
				}
			}
		case <-h.ctx.Done():
			h.Fatalf("the watch brought only %q", lines)
		}
	}
	return lines
}

func (h *harness) wantLines(got []string, want ...string) {
	h.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		h.Errorf("watch (-want +got):\n%s", diff)
	}
}

func readYourWrites(h *harness) {
	h.wantGets(map[string]string{"a": "-"})
	first := h.put("a", "1")
	if _, revision := h.get("a"); revision != first {
		h.Errorf("the entry is at revision %d, the commit said %d", revision, first)
	}
	second := h.put("a", "")
	if second <= first {
		h.Errorf("revision %d after %d", second, first)
	}
	h.wantGets(map[string]string{"a": ""}) // an empty value is a value
	other := h.open(h.T)
	entry, found, err := other.Get(h.ctx, h.under+"a")
	if err != nil || !found || entry.Revision != second {
		h.Errorf("another client reads %+v, %v, %v", entry, found, err)
	}
	if err := other.Close(); err != nil {
		h.Error(err)
	}
	h.commit(nil, store.Delete{Key: h.under + "a"})
	h.wantGets(map[string]string{"a": "-"})
	h.commit(nil, store.Delete{Key: h.under + "never"}) // no error
}

func conditions(h *harness) {
	key := h.under + "a"
	try := func(revision int64, value string) (int64, error) {
		return h.Commit(h.ctx, store.Txn{If: []store.Condition{{Key: key, Revision: revision}},
			Then: []store.Op{store.Put{Key: key, Value: []byte(value)}}})
	}
	first, err := try(0, "made")
	if err != nil {
		h.Fatal(err)
	}
	_, err = try(0, "made twice")
	h.wantErr(err, store.ErrConflict)
	second, err := try(first, "changed")
	if err != nil {
		h.Fatal(err)
	}
	for _, stale := range []int64{first, second + 1000} {
		_, err = try(stale, "stale")
		h.wantErr(err, store.ErrConflict)
	}
	h.wantGets(map[string]string{"a": "changed"})
	h.commit([]store.Condition{{Key: key, Revision: second}}, store.Delete{Key: key})
	_, err = try(second, "after deletion")
	h.wantErr(err, store.ErrConflict)
	if _, err = try(0, "anew"); err != nil {
		h.Error(err)
	}
}

func allOrNothing(h *harness) {
	revision := h.put("a", "1")
	together := h.commit([]store.Condition{{Key: h.under + "a", Revision: revision}, {Key: h.under + "c"}},
		store.Put{Key: h.under + "a", Value: []byte("2")}, store.Put{Key: h.under + "b", Value: []byte("2")})
	for _, key := range []string{"a", "b"} {
		if _, revision := h.get(key); revision != together {
			h.Errorf("%q is at revision %d, not %d like the whole transaction", key, revision, together)
		}
	}
	_, err := h.Commit(h.ctx, store.Txn{If: []store.Condition{{Key: h.under + "a", Revision: together}, {Key: h.under + "b", Revision: revision}},
		Then: []store.Op{store.Put{Key: h.under + "a", Value: []byte("3")}, store.Delete{Key: h.under + "b"}}})
	h.wantErr(err, store.ErrConflict)
	h.wantGets(map[string]string{"a": "2", "b": "2"})
}

func listIsOneState(h *harness) {
	const count = 1234 // more than a page
	var want []string
	for i := 0; i < count; i += store.MaxTxnOps {
		var ops []store.Op
		for k := i; k < min(i+store.MaxTxnOps, count); k++ {
			key := fmt.Sprintf("%slist/%05d", h.under, k)
			want = append(want, key)
			ops = append(ops, store.Put{Key: key, Value: []byte(strconv.Itoa(k))})
		}
		h.commit(nil, ops...)
	}
	h.put("list", "outside")
	last := h.put("lisu", "outside")
	entries, revision, err := h.List(h.ctx, h.under+"list/")
	if err != nil {
		h.Fatal(err)
	}
	if revision < last {
		h.Errorf("listed at revision %d, before the last commit %d", revision, last)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Key)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		h.Errorf("keys (-want +got):\n%s", diff)
	}
	entries, _, err = h.List(h.ctx, h.under+"nothing/")
	if err != nil || len(entries) != 0 {
		h.Errorf("an empty prefix lists %v, %v", entries, err)
	}
}

func bounds(h *harness) {
	ctx := h.ctx
	long := strings.Repeat("k", store.MaxKeyBytes+1)
	var many []store.Op
	for i := range store.MaxTxnOps + 1 {
		many = append(many, store.Put{Key: h.under + strconv.Itoa(i)})
	}
	for name, txn := range map[string]store.Txn{
		"nothing to do":   {},
		"an empty key":    {Then: []store.Op{store.Put{}}},
		"a long key":      {Then: []store.Op{store.Put{Key: long}}},
		"not text":        {Then: []store.Op{store.Delete{Key: "\xff"}}},
		"NUL":             {Then: []store.Op{store.Put{Key: "a\x00b"}}},
		"a key twice":     {Then: []store.Op{store.Put{Key: "a"}, store.Delete{Key: "a"}}},
		"too many":        {Then: many},
		"too large":       {Then: []store.Op{store.Put{Key: "a", Value: make([]byte, store.MaxTxnBytes)}}},
		"a past too far":  {If: []store.Condition{{Key: "a", Revision: -1}}, Then: []store.Op{store.Put{Key: "a"}}},
		"an empty keyed?": {If: []store.Condition{{}}, Then: []store.Op{store.Put{Key: "a"}}},
	} {
		if _, err := h.Commit(ctx, txn); !errors.Is(err, store.ErrInvalid) {
			h.Errorf("%s: error %v", name, err)
		}
	}
	if _, _, err := h.Get(ctx, long); !errors.Is(err, store.ErrInvalid) {
		h.Errorf("reading a long key: error %v", err)
	}
	largest := store.MaxTxnBytes - len(h.under+"large")
	h.commit(nil, store.Put{Key: h.under + "large", Value: bytes.Repeat([]byte("x"), largest)})
	if value, _ := h.get("large"); len(value) != largest {
		h.Errorf("the largest value came back with %d bytes of %d", len(value), largest)
	}
	h.commit(nil, many[:store.MaxTxnOps]...)
}

func watchInOrder(h *harness) {
	from := h.put("a", "before")
	watch := h.Watch(h.ctx, h.under, from+1)
	h.put("a", "1")
	h.put("b", "2")
	h.commit(nil, store.Delete{Key: h.under + "a"})
	third := h.commit(nil, store.Put{Key: h.under + "c", Value: []byte("3")}, store.Put{Key: h.under + "d", Value: []byte("3")})
	h.wantLines(h.follow(watch, 5), "a=1", "b=2", "a gone", "c=3", "d=3")
	// A second watch from the middle sees the rest, and nothing twice.
	h.put("e", "4")
	h.wantLines(h.follow(watch, 1), "e=4")
	h.wantLines(h.follow(h.Watch(h.ctx, h.under, third), 3), "c=3", "d=3", "e=4")
}

func watchFromZero(h *harness) {
	h.put("b", "1")
	h.put("a", "1")
	watch := h.Watch(h.ctx, h.under, 0)
	h.wantLines(h.follow(watch, 3), "resync", "a=1", "b=1")
	h.put("c", "2")
	h.wantLines(h.follow(watch, 1), "c=2")
	h.wantLines(h.follow(h.Watch(h.ctx, h.under+"none/", 0), 1), "resync") // also when there is nothing
}

func watchPrefix(h *harness) {
	from := h.put("zone", "1")
	watch := h.Watch(h.ctx, h.under+"pool/", from+1)
	h.put("poo", "x")
	h.put("pool", "x")
	h.put("pool/1", "1")
	h.put("pool0", "x")
	h.put("pool/2", "2")
	h.wantLines(h.follow(watch, 2), "pool/1=1", "pool/2=2")
}

func slowWatch(h *harness) {
	from := h.put("n", "start")
	watch := h.Watch(h.ctx, h.under, from+1)
	const count = 300
	var want []string
	for i := range count { // nobody reads the watch meanwhile
		h.put("n", strconv.Itoa(i))
		want = append(want, "n="+strconv.Itoa(i))
	}
	h.wantLines(h.follow(watch, count), want...)
}

func watchEnds(h *harness) {
	ctx, cancel := context.WithCancel(h.ctx)
	watch := h.Watch(ctx, h.under, 0)
	h.follow(watch, 1)
	cancel()
	h.drain(watch)
}

func (h *harness) drain(watch <-chan store.Batch) {
	h.Helper()
	for {
		select {
		case _, open := <-watch:
			if !open {
				return
			}
		case <-h.ctx.Done():
			h.Fatal("the watch did not end")
		}
	}
}

func leaseRevoke(h *harness) {
	id, ttl, err := h.Grant(h.ctx, time.Minute)
	if err != nil || ttl < time.Minute {
		h.Fatalf("granted %v, %v", ttl, err)
	}
	from := h.commit(nil, store.Put{Key: h.under + "mine", Value: []byte("1"), Lease: id}, store.Put{Key: h.under + "all", Value: []byte("1")})
	entry, _, err := h.Get(h.ctx, h.under+"mine")
	if err != nil || entry.Lease != id {
		h.Errorf("the entry has lease %x, %v", entry.Lease, err)
	}
	if left, err := h.KeepAlive(h.ctx, id); err != nil || left != ttl {
		h.Errorf("kept alive for %v, %v; granted was %v", left, err, ttl)
	}
	watch := h.Watch(h.ctx, h.under, from+1)
	for range 2 { // the second time there is nothing left to do
		if err := h.Revoke(h.ctx, id); err != nil {
			h.Error(err)
		}
	}
	h.wantLines(h.follow(watch, 1), "mine gone")
	h.wantGets(map[string]string{"mine": "-", "all": "1"})
}

// leaseRunsOut asserts that it ends, not when. A Fake with a clock of its own is helped by whoever runs the contract.
func leaseRunsOut(h *harness) {
	id, ttl, err := h.Grant(h.ctx, 300*time.Millisecond)
	if err != nil {
		h.Fatal(err)
	}
	if ttl != time.Second {
		h.Errorf("asked for 300 ms, granted %v: the shortest life is 1 s", ttl)
	}
	from := h.commit(nil, store.Put{Key: h.under + "mine", Lease: id})
	h.wantLines(h.follow(h.Watch(h.ctx, h.under, from+1), 1), "mine gone")
	_, err = h.KeepAlive(h.ctx, id)
	h.wantErr(err, store.ErrLeaseGone)
}

func leaseGone(h *harness) {
	id, _, err := h.Grant(h.ctx, time.Minute)
	if err != nil {
		h.Fatal(err)
	}
	if err := h.Revoke(h.ctx, id); err != nil {
		h.Fatal(err)
	}
	_, err = h.KeepAlive(h.ctx, id)
	h.wantErr(err, store.ErrLeaseGone)
	_, err = h.Commit(h.ctx, store.Txn{Then: []store.Op{store.Put{Key: h.under + "all"}, store.Put{Key: h.under + "mine", Lease: id}}})
	h.wantErr(err, store.ErrLeaseGone)
	h.wantGets(map[string]string{"all": "-", "mine": "-"})
	h.put("all", "1") // the store goes on
}

func counters(h *harness) {
	const writers, each = 6, 15
	h.put("counter", "0")
	var group sync.WaitGroup
	revisions := make([][]int64, writers)
	for w := range writers {
		group.Go(func() {
			for len(revisions[w]) < each {
				entry, _, err := h.Get(h.ctx, h.under+"counter")
				if err != nil {
					h.Error(err)
					return
				}
				n, _ := strconv.Atoi(string(entry.Value))
				revision, err := h.Commit(h.ctx, store.Txn{If: []store.Condition{{Key: entry.Key, Revision: entry.Revision}},
					Then: []store.Op{store.Put{Key: entry.Key, Value: []byte(strconv.Itoa(n + 1))}}})
				if err == nil {
					revisions[w] = append(revisions[w], revision)
				} else if !errors.Is(err, store.ErrConflict) {
					h.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	h.wantGets(map[string]string{"counter": strconv.Itoa(writers * each)})
	all := slices.Concat(revisions...)
	slices.Sort(all)
	if len(slices.Compact(all)) != writers*each {
		h.Error("two commits returned the same revision")
	}
}

func givenUp(h *harness) {
	ctx, cancel := context.WithCancel(h.ctx)
	cancel()
	_, _, err := h.Get(ctx, h.under+"a")
	h.wantErr(err, context.Canceled)
	_, _, err = h.List(ctx, h.under)
	h.wantErr(err, context.Canceled)
	_, err = h.Commit(ctx, store.Txn{Then: []store.Op{store.Put{Key: h.under + "a"}}})
	h.wantErr(err, context.Canceled)
	_, _, err = h.Grant(ctx, time.Second)
	h.wantErr(err, context.Canceled)
}

func closedStore(h *harness) {
	other := h.open(h.T)
	watch := other.Watch(h.ctx, h.under, 0)
	h.follow(watch, 1)
	for range 2 {
		if err := other.Close(); err != nil {
			h.Error(err)
		}
	}
	h.drain(watch)
	h.drain(other.Watch(h.ctx, h.under, 0))
	_, _, err := other.Get(h.ctx, h.under+"a")
	h.wantErr(err, store.ErrClosed)
	_, err = other.Commit(h.ctx, store.Txn{Then: []store.Op{store.Put{Key: h.under + "a"}}})
	h.wantErr(err, store.ErrClosed)
	_, err = other.KeepAlive(h.ctx, 1)
	h.wantErr(err, store.ErrClosed)
	h.put("a", "1") // others are not concerned
}

func health(h *harness) {
	revision := h.put("a", "1")
	got := h.Health(h.ctx)
	if !got.Writable || got.Leader == "" || got.Full || got.Revision < revision || len(got.Members) == 0 {
		h.Errorf("health %+v", got)
	}
	for _, member := range got.Members {
		if !member.Reachable || member.Name == "" || member.Problem != "" {
			h.Errorf("member %+v", member)
		}
	}
}
