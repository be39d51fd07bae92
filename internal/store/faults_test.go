package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/store"
)

const patience = time.Minute // for what must come; only a broken store exhausts it

func put(key, value string) store.Txn {
	return store.Txn{Then: []store.Op{store.Put{Key: key, Value: []byte(value)}}}
}

// history is what one writer was told about its commits.
type history struct {
	acknowledged map[string]int64 // token -> revision
	unknown      map[string]bool
}

// writeSteadily appends tokens to one shared log record by compare-and-swap until stop is closed: the record's value is the
// list of all tokens, so that a commit that is lost or made twice shows in it.
func writeSteadily(t *testing.T, s store.Store, writer int, stop <-chan struct{}, made *atomic.Int64) history {
	h := history{acknowledged: map[string]int64{}, unknown: map[string]bool{}}
	for n := 0; ; n++ {
		select {
		case <-stop:
			return h
		default:
		}
		token := fmt.Sprintf("%d.%d", writer, n)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		entry, _, err := s.Get(ctx, "log")
		if err == nil {
			var revision int64
			revision, err = s.Commit(ctx, store.Txn{If: []store.Condition{{Key: "log", Revision: entry.Revision}},
				Then: []store.Op{store.Put{Key: "log", Value: append(entry.Value, []byte(token+" ")...)}}})
			switch {
			case err == nil:
				h.acknowledged[token] = revision
				made.Add(1)
			case errors.Is(err, store.ErrOutcomeUnknown):
				h.unknown[token] = true
			}
		}
		cancel()
		if err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("writer %d: %v", writer, err)
			return h
		}
	}
}

// checkLog compares the log with what the writers were told.
func checkLog(t *testing.T, s store.Store, histories []history) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	entry, _, err := s.Get(ctx, "log")
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for token := range strings.FieldsSeq(string(entry.Value)) {
		times[token]++
	}
	for _, h := range histories {
		for token, revision := range h.acknowledged {
			if times[token] != 1 {
				t.Errorf("commit %s was acknowledged at revision %d and made %d times", token, revision, times[token])
			}
			delete(times, token)
		}
		for token := range h.unknown {
			if times[token] > 1 {
				t.Errorf("commit %s of unknown outcome was made %d times", token, times[token])
			}
			delete(times, token)
		}
	}
	for token := range times {
		t.Errorf("commit %s was made though its writer was told that it was not", token)
	}
}

// underFire runs four writers on two clients while faults happen, and checks that no acknowledged commit is lost and none
// is made twice. Between two faults it waits until commits succeed again.
func underFire(t *testing.T, c *cluster, faults ...func(s store.Store)) {
	clients := []store.Store{c.open(), c.open()}
	stop := make(chan struct{})
	var made atomic.Int64
	histories := make([]history, 4)
	var group sync.WaitGroup
	for w := range histories {
		group.Go(func() { histories[w] = writeSteadily(t, clients[w%2], w, stop, &made) })
	}
	progress := func() {
		t.Helper()
		from, deadline := made.Load(), time.After(patience)
		for tick := time.NewTicker(time.Millisecond); made.Load() < from+20; <-tick.C {
			select {
			case <-deadline:
				t.Fatal("no commit succeeds any more")
			default:
			}
		}
	}
	progress()
	for _, fault := range faults {
		fault(clients[0])
		progress()
	}
	close(stop)
	group.Wait()
	checkLog(t, clients[0], histories)
	t.Logf("%d commits acknowledged", made.Load())
}

func TestLeaderDies(t *testing.T) {
	c := startCluster(t, 3)
	var dead int
	underFire(t, c,
		func(s store.Store) { dead = c.leader(s); c.kill(dead) },
		func(store.Store) {
			if said := c.start(dead); said != "listening" { // the data directory of the dead run is taken up
				t.Error(said)
			}
		},
		func(s store.Store) { c.kill(c.leader(s)) })
}

// A frozen process answers nothing and refuses nothing: connections to it stay, and requests in its queues are worked off
// when it thaws, long after their callers went elsewhere. That is when a commit could be made twice.
func TestLeaderFreezesAndThaws(t *testing.T) {
	c := startCluster(t, 3)
	var frozen int
	freeze := func(s store.Store) { frozen = c.leader(s); c.freeze(frozen) }
	thaw := func(store.Store) { c.thaw(frozen) }
	underFire(t, c, freeze, thaw, freeze, thaw)
}

func TestFollowerFreezes(t *testing.T) {
	c := startCluster(t, 3)
	underFire(t, c, func(s store.Store) { c.freeze((c.leader(s) + 1) % 3) })
}

// awaitProblem waits until a problem is, or is no longer, on the board.
func awaitProblem(t *testing.T, board *problem.Board, code string, present bool) {
	t.Helper()
	deadline := time.After(patience)
	for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
		found := false
		for _, active := range board.List() {
			found = found || active.Kind.Code == code
		}
		if found == present {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("problem %s: present %v, want %v", code, found, present)
		default:
		}
	}
}

func TestQuorumIsLostAndComesBack(t *testing.T) {
	c := startCluster(t, 3)
	board := new(problem.Board)
	s := c.open(func(o *store.Options) { o.Board = board })
	watch := s.Watch(t.Context(), "", 0)
	if batch := <-watch; !batch.Resync {
		t.Fatal("no first state")
	}
	lease, _, err := s.Grant(t.Context(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.Commit(t.Context(), store.Txn{Then: []store.Op{store.Put{Key: "a", Value: []byte("1"), Lease: lease}}})
	if err != nil {
		t.Fatal(err)
	}
	c.freeze(0)
	c.kill(1)

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = s.Commit(ctx, put("a", "2"))
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("writing without a quorum: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, _, err := s.Get(ctx, "a"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a read that may be stale was answered without a quorum: %v", err)
	}
	awaitProblem(t, board, "store.unavailable", true)
	health := s.Health(t.Context())
	if health.Writable || health.Members[0].Reachable || health.Members[1].Reachable || !health.Members[2].Reachable {
		t.Errorf("health without a quorum: %+v", health)
	}

	c.thaw(0)
	awaitProblem(t, board, "store.unavailable", false)
	// The watch goes on where it was: first what happened before, then the lease's end or the write of unknown outcome.
	batch := <-watch
	if batch.Resync || len(batch.Events) != 1 || batch.Events[0].Revision != before {
		t.Errorf("the watch goes on with %+v", batch)
	}
	ctx, cancel = context.WithTimeout(t.Context(), patience)
	defer cancel()
	after, err := s.Commit(ctx, put("b", "1"))
	if err != nil {
		t.Fatal(err)
	}
	for batch := range watch {
		if batch.Resync {
			t.Error("a resync although nothing was lost")
		}
		if batch.Revision == after {
			return
		}
	}
}

// All members freeze at once: calls end with their context, nothing is said to have changed, and afterwards everything goes
// on where it was.
func TestWholeStoreStalls(t *testing.T) {
	c := startCluster(t, 3)
	s := c.open()
	watch := s.Watch(t.Context(), "", 0)
	<-watch
	for i := range 3 {
		c.freeze(i)
	}
	for name, call := range map[string]func(context.Context) error{
		"Get":       func(ctx context.Context) error { _, _, err := s.Get(ctx, "a"); return err },
		"List":      func(ctx context.Context) error { _, _, err := s.List(ctx, ""); return err },
		"Commit":    func(ctx context.Context) error { _, err := s.Commit(ctx, put("a", "0")); return err },
		"Grant":     func(ctx context.Context) error { _, _, err := s.Grant(ctx, time.Second); return err },
		"KeepAlive": func(ctx context.Context) error { _, err := s.KeepAlive(ctx, 1); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if err := call(ctx); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	if health := s.Health(t.Context()); health.Writable || health.Leader != "" {
		t.Errorf("health %+v", health)
	}
	select {
	case batch, open := <-watch:
		t.Errorf("the watch says %+v, %v", batch, open)
	default:
	}
	for i := range 3 {
		c.thaw(i)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	revision, err := s.Commit(ctx, put("a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	for batch := range watch {
		if batch.Resync {
			t.Error("a resync although nothing was lost")
		}
		if batch.Revision == revision {
			return
		}
	}
}

// The watch stands on the member that freezes, and nothing but its silence tells.
func TestWatchLeavesAFrozenMember(t *testing.T) {
	c := startCluster(t, 3)
	s, writer := c.open(), c.open()
	watch := s.Watch(t.Context(), "", 0)
	<-watch
	next := func(want string) {
		t.Helper()
		select {
		case batch := <-watch:
			if batch.Resync || len(batch.Events) != 1 || string(batch.Events[0].Value) != want {
				t.Fatalf("batch %+v, want one change to %q", batch, want)
			}
		case <-time.After(patience):
			t.Fatalf("%q never came", want)
		}
	}
	for i := range 3 { // wherever it stands, it has to leave once at least
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		c.freeze(i)
		value := strconv.Itoa(i)
		if _, err := writer.Commit(ctx, put("a", value)); err != nil {
			t.Fatal(err)
		}
		next(value)
		c.thaw(i)
		cancel()
	}
}

// startEmpty kills all members, takes their data away, and starts them again.
func (c *cluster) startEmpty() {
	c.Helper()
	for i := range c.running {
		c.kill(i)
		if err := os.RemoveAll(c.options[i].Dir); err != nil {
			c.Fatal(err)
		}
	}
	for i := range c.running {
		c.start(i)
	}
	c.awaitQuorum()
}

func TestStoreComesBackEmpty(t *testing.T) {
	c := startCluster(t, 3)
	inner, board := c.open(), new(problem.Board)
	id, err := store.Found(t.Context(), inner, "test")
	if err != nil {
		t.Fatal(err)
	}
	s := store.Guard(inner, id, board)
	for i := range 20 {
		if _, err := s.Commit(t.Context(), put("a", strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	watch := s.Watch(t.Context(), "", 0)
	first := <-watch

	c.startEmpty()
	awaitProblem(t, board, "store.empty", true) // raised by the watch, which nobody told
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, _, err := s.Get(ctx, "a"); !errors.Is(err, store.ErrEmpty) {
		t.Errorf("reading: %v", err)
	}
	if _, _, err := s.List(ctx, ""); !errors.Is(err, store.ErrEmpty) {
		t.Errorf("listing: %v", err)
	}
	if _, err := s.Commit(ctx, put("a", "new")); !errors.Is(err, store.ErrEmpty) {
		t.Errorf("writing: %v", err)
	}
	select {
	case batch := <-watch:
		t.Fatalf("the watch believed the empty store: %+v after %+v", batch, first)
	default:
	}

	// Another cluster moves in: still not ours.
	if _, err := store.Found(ctx, inner, "test"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Get(ctx, "a"); !errors.Is(err, store.ErrForeign) {
		t.Errorf("reading another cluster's store: %v", err)
	}
	// The right one is restored.
	record, err := store.PutOp(store.ClusterIDKey, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inner.Commit(ctx, store.Txn{Then: []store.Op{record, store.Put{Key: "a", Value: []byte("restored")}}}); err != nil {
		t.Fatal(err)
	}
	batch := <-watch
	if !batch.Resync || len(batch.Events) != 2 || string(batch.Events[0].Value) != "restored" {
		t.Errorf("after the restore the watch says %+v", batch)
	}
	awaitProblem(t, board, "store.empty", false)
	if _, err := s.Commit(ctx, put("a", "again")); err != nil {
		// The guard remembers the record's old revision; a conflict makes it look again.
		if !errors.Is(err, store.ErrConflict) {
			t.Error(err)
		} else if _, err := s.Commit(ctx, put("a", "again")); err != nil {
			t.Error(err)
		}
	}
}

// One member that lost its data must not vote again as if it had never voted.
func TestMemberWithoutItsDataIsRefused(t *testing.T) {
	c := startCluster(t, 3)
	c.kill(2)
	if err := os.RemoveAll(c.options[2].Dir); err != nil {
		t.Fatal(err)
	}
	if said := c.start(2); !strings.Contains(said, "restore the directory from a backup") {
		t.Errorf("it says %q", said)
	}
	s := c.open()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := s.Commit(ctx, put("a", "1")); err != nil {
		t.Errorf("the two others: %v", err)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	id, stranger := newIdentity(t), newIdentity(t)
	options := memberOptions(t, id, 1)[0]
	startEmbedded(t, options)
	s := openClient(t, stranger, options.ListenClient)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, _, err := s.Get(ctx, "a")
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "authority") {
		t.Errorf("another authority's client: %v", err)
	}
	// A client that believes the server but shows nothing itself.
	naked := openClient(t, id, options.ListenClient, func(o *store.Options) {
		o.TLS = id.ClientTLS()
		o.TLS.Certificates = nil
	})
	if _, _, err := naked.Get(ctx, "a"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a client without certificate: %v", err)
	}
}

func TestClosedClientLeavesNothingBehind(t *testing.T) {
	c := startCluster(t, 1)
	before := goleak.IgnoreCurrent()
	s := c.open()
	watch := s.Watch(t.Context(), "", 0)
	<-watch
	if _, err := s.Commit(t.Context(), put("a", "1")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for range watch { // until it is closed
	}
	goleak.VerifyNone(t, before)
}
