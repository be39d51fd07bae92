package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/bubble"
	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/store"
)

// ticking is a Fake whose clock runs ten times as fast and whose leases end although nobody asks.
func ticking(t *testing.T) *Fake {
	start := time.Now()
	fake := New(func() time.Time { return start.Add(10 * time.Since(start)) })
	ticker := time.NewTicker(10 * time.Millisecond)
	t.Cleanup(ticker.Stop)
	go func() {
		for {
			select {
			case <-ticker.C:
				fake.Tick()
			case <-t.Context().Done():
				return
			}
		}
	}()
	return fake
}

func TestFakeKeepsTheContract(t *testing.T) {
	fake := ticking(t)
	Contract(t, func(*testing.T) store.Store { return fake.Connect() })
}

func TestGuardedFakeKeepsTheContract(t *testing.T) {
	fake := ticking(t)
	id, err := store.Found(t.Context(), fake.Connect(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	Contract(t, func(*testing.T) store.Store { return store.Guard(fake.Connect(), id, new(problem.Board)) })
}

// clock is a clock that the test moves.
type clock struct{ now time.Time }

func (c *clock) read() time.Time { return c.now }

// write is a Txn that sets one key, under a lease if one is given.
func write(key, value string, lease store.LeaseID) store.Txn {
	return store.Txn{Then: []store.Op{store.Put{Key: key, Value: []byte(value), Lease: lease}}}
}

func must[T any](t *testing.T) func(value T, err error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func TestLeaseFollowsTheGivenClock(t *testing.T) {
	c := &clock{now: time.Unix(1000, 0)}
	fake := New(c.read)
	s := fake.Connect()
	id, ttl, err := s.Grant(t.Context(), 2500*time.Millisecond)
	if err != nil || ttl != 3*time.Second {
		t.Fatalf("granted %v, %v", ttl, err)
	}
	must[int64](t)(s.Commit(t.Context(), write("a", "1", id)))
	c.now = c.now.Add(3*time.Second - 1)
	must[time.Duration](t)(s.KeepAlive(t.Context(), id))
	c.now = c.now.Add(3*time.Second - 1)
	if _, found, _ := s.Get(t.Context(), "a"); !found {
		t.Error("gone before its time")
	}
	c.now = c.now.Add(1)
	if _, found, _ := s.Get(t.Context(), "a"); found {
		t.Error("there after its time")
	}
	if len(fake.Leases()) != 0 {
		t.Error("the lease is still there")
	}
}

func TestFaults(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx := t.Context()
		fake := New(nil)
		mine, other := fake.Connect(), fake.Connect()
		must[int64](t)(mine.Commit(ctx, write("a", "1", 0)))
		// call says what becomes of a read and a write within a second of the bubble's time.
		call := func(s *Store) (read, write_ error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, _, read = s.Get(ctx, "a")
			_, write_ = s.Commit(ctx, write("a", "2", 0))
			return read, write_
		}
		want := func(what string, s *Store, read, write error) {
			t.Helper()
			gotRead, gotWrite := call(s)
			if !errors.Is(gotRead, read) || (read == nil) != (gotRead == nil) {
				t.Errorf("%s: reading: %v, want %v", what, gotRead, read)
			}
			if !errors.Is(gotWrite, write) || (write == nil) != (gotWrite == nil) {
				t.Errorf("%s: writing: %v, want %v", what, gotWrite, write)
			}
		}
		fake.Stall(true)
		want("stalled", mine, context.DeadlineExceeded, store.ErrUnavailable)
		fake.Stall(false)
		want("thawed", mine, nil, nil)
		mine.Cut(true)
		want("cut off", mine, context.DeadlineExceeded, store.ErrUnavailable)
		want("another node meanwhile", other, nil, nil)
		mine.Cut(false)
		fake.LoseQuorum(true)
		want("no quorum", mine, store.ErrUnavailable, store.ErrUnavailable)
		fake.LoseQuorum(false)
		fake.Fill(true)
		want("full", mine, nil, store.ErrFull)
		fake.Fill(false)
		broken := errors.New("broken")
		mine.FailNext(broken)
		want("one failure", mine, broken, nil)
		mine.LoseAnswers(1)
		want("a lost answer", mine, nil, store.ErrOutcomeUnknown)
		if entry, _, _ := mine.Get(ctx, "a"); string(entry.Value) != "2" {
			t.Error("a commit whose answer is lost must have been made")
		}
		want("nothing any more", mine, nil, nil)
	})
}

// No quorum, no expiry: etcd ends leases by consensus, and a new leader gives every lease its full life again.
func TestLeasesOutliveALostQuorum(t *testing.T) {
	c := &clock{now: time.Unix(1000, 0)}
	fake := New(c.read)
	s := fake.Connect()
	id, _, err := s.Grant(t.Context(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	fake.LoseQuorum(true)
	c.now = c.now.Add(time.Hour)
	fake.Tick()
	fake.LoseQuorum(false)
	if _, err := s.KeepAlive(t.Context(), id); err != nil {
		t.Error(err)
	}
	if !fake.ExpireLease(id) || fake.ExpireLease(id) {
		t.Error("ExpireLease must end it once")
	}
}

func TestWatchResyncs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		fake := New(nil)
		s := fake.Connect()
		for _, key := range []string{"a", "b"} {
			must[int64](t)(s.Commit(t.Context(), write(key, "1", 0)))
		}
		fake.Compact()
		watch := s.Watch(t.Context(), "", 1)
		state := func(batch store.Batch) (keys []string) {
			if !batch.Resync {
				t.Error("not a resync")
			}
			for _, event := range batch.Events {
				keys = append(keys, event.Key)
			}
			return keys
		}
		if diff := cmp.Diff([]string{"a", "b"}, state(<-watch)); diff != "" {
			t.Errorf("after compaction (-want +got):\n%s", diff)
		}
		fake.Wipe()
		if keys := state(<-watch); len(keys) != 0 {
			t.Errorf("after wiping: %v", keys)
		}
	})
}
