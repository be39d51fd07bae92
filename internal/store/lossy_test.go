package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast/holdfast/internal/identity"
)

// lossyKV stands between a client and a member and does to transactions what a network and a frozen leader do: loses the
// request, loses the answer, or delivers the request some time later, when its sender has long gone on.
type lossyKV struct {
	etcdserverpb.KVClient
	t *testing.T

	mu      sync.Mutex
	random  *rand.Rand
	healthy bool
	delayed []*etcdserverpb.TxnRequest
}

var errLostOnTheWay = status.Error(codes.DeadlineExceeded, "context deadline exceeded")

func (l *lossyKV) Txn(ctx context.Context, request *etcdserverpb.TxnRequest, options ...grpc.CallOption) (*etcdserverpb.TxnResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.healthy {
		return l.KVClient.Txn(ctx, request, options...)
	}
	for len(l.delayed) > 0 && l.random.IntN(3) == 0 {
		l.deliverOne()
	}
	switch l.random.IntN(5) {
	case 0:
		return nil, errLostOnTheWay
	case 1:
		l.delayed = append(l.delayed, request)
		return nil, errLostOnTheWay
	case 2:
		_, _ = l.KVClient.Txn(ctx, request, options...)
		return nil, errLostOnTheWay
	}
	return l.KVClient.Txn(ctx, request, options...)
}

// deliverOne makes one of the late requests arrive, in any order.
func (l *lossyKV) deliverOne() {
	i := l.random.IntN(len(l.delayed))
	late := l.delayed[i]
	l.delayed = append(l.delayed[:i], l.delayed[i+1:]...)
	if _, err := l.KVClient.Txn(l.t.Context(), late); err != nil {
		l.t.Error(err)
	}
}

func (l *lossyKV) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.healthy = true
	for len(l.delayed) > 0 {
		l.deliverOne()
	}
}

// startOne starts an embedded member and returns a client of it.
func startOne(t *testing.T) *client {
	t.Helper()
	dir := t.TempDir()
	if err := identity.Init(dir, "test"); err != nil {
		t.Fatal(err)
	}
	if err := identity.Issue(dir, dir, "node1", nil, nil); err != nil {
		t.Fatal(err)
	}
	id, err := identity.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	addresses := make([]string, 2)
	for i := range addresses {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addresses[i] = listener.Addr().String()
		_ = listener.Close()
	}
	member, err := StartMember(MemberOptions{Name: "node1", Dir: filepath.Join(dir, "data"), Cluster: "test",
		Peers: map[string]string{"node1": addresses[0]}, ListenClient: addresses[1:],
		Files: Files{id.Paths.AuthorityCert, id.Paths.NodeCert, id.Paths.NodeKey, identity.ServerName}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = member.Close() })
	s, err := Open(Options{Endpoints: addresses[1:], TLS: id.ClientTLS(), Cluster: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.(*client)
}

// A commit that was acknowledged has been made exactly once, one that met a conflict never, one of unknown outcome at
// most once; whatever is lost or late. Conditions on absence are the hard case: they come true again.
func TestCommitsOverALossyNetwork(t *testing.T) {
	c := startOne(t)
	if err := c.ensureLease(t.Context()); err != nil {
		t.Fatal(err)
	}
	honest := c.members()[0].kv
	rival, err := Open(c.options)
	if err != nil {
		t.Fatal(err)
	}
	defer rival.Close()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			lossy := &lossyKV{KVClient: honest, t: t, random: rand.New(rand.NewPCG(seed, 1))}
			c.members()[0].kv = lossy
			defer func() { c.members()[0].kv = honest }()
			playLossy(t, c, rival, lossy, fmt.Sprint("lossy/", seed, "/"))
		})
	}
}

func playLossy(t *testing.T, c *client, rival Store, lossy *lossyKV, under string) {
	from, err := c.revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(lossy.random.Uint64(), 2))
	told := map[string]error{} // token -> what the caller was told
	at := map[string]int64{}
	for n := range 25 {
		token := fmt.Sprint(n)
		key := under + string(rune('a'+random.IntN(2)))
		entry, _, err := c.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		// Create if absent, change if unchanged, delete if unchanged, or blindly overwrite. Each leaves its token.
		txn := Txn{Then: []Op{Put{Key: under + "token", Value: []byte(token)}}}
		if random.IntN(4) > 0 {
			txn.If = []Condition{{Key: key, Revision: entry.Revision * int64(random.IntN(2))}}
		}
		if random.IntN(3) == 0 {
			txn.Then = append(txn.Then, Delete{Key: key})
		} else {
			txn.Then = append(txn.Then, Put{Key: key, Value: []byte(token)})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(5+random.IntN(200))*time.Millisecond)
		at[token], told[token] = c.Commit(ctx, txn)
		cancel()
		// Another writer makes conditions on absence come true again.
		if _, err := rival.Commit(t.Context(), Txn{Then: []Op{Delete{Key: key}}}); err != nil {
			t.Fatal(err)
		}
		if random.IntN(2) == 0 {
			if _, err := rival.Commit(t.Context(), Txn{Then: []Op{Put{Key: key}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	lossy.flush()
	made := tokensMade(t, c, under, from)
	for token, err := range told {
		revisions := made[token]
		switch {
		case err == nil && (len(revisions) != 1 || revisions[0] != at[token]):
			t.Errorf("commit %s: acknowledged at revision %d, made at %v", token, at[token], revisions)
		case errors.Is(err, ErrOutcomeUnknown) && len(revisions) > 1:
			t.Errorf("commit %s: of unknown outcome, made at %v", token, revisions)
		case err != nil && !errors.Is(err, ErrOutcomeUnknown) && len(revisions) > 0:
			t.Errorf("commit %s: %v, and made at %v", token, err, revisions)
		}
	}
}

// tokensMade reads the store's own history.
func tokensMade(t *testing.T, c *client, under string, from int64) map[string][]int64 {
	t.Helper()
	end, err := c.Commit(t.Context(), Txn{Then: []Op{Put{Key: under + "token", Value: []byte("end")}}})
	if err != nil {
		t.Fatal(err)
	}
	made := map[string][]int64{}
	for batch := range c.Watch(t.Context(), under+"token", from+1) {
		for _, event := range batch.Events {
			made[string(event.Value)] = append(made[string(event.Value)], event.Revision)
		}
		if batch.Revision >= end {
			return made
		}
	}
	t.Fatal("the history ended early")
	return nil
}

// A writer that was stopped for longer than its lease lives finds its slots gone, and goes on with new ones.
func TestWriterLeaseIsLost(t *testing.T) {
	c := startOne(t)
	one := Txn{Then: []Op{Put{Key: "a", Value: []byte("1")}}}
	if _, err := c.Commit(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := c.Revoke(t.Context(), c.slots.currentLease()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Commit(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	// The caller's lease is gone, not the writer's.
	lease, _, err := c.Grant(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	writer := c.slots.currentLease()
	_, err = c.Commit(t.Context(), Txn{Then: []Op{Put{Key: "a", Lease: lease}}})
	if !errors.Is(err, ErrLeaseGone) {
		t.Errorf("error %v", err)
	}
	if c.slots.currentLease() != writer {
		t.Error("the writer's lease was given up for the caller's")
	}
}

func TestSlotsVanishWithTheirWriter(t *testing.T) {
	c := startOne(t)
	var group sync.WaitGroup
	for i := range 3 * maxSlots { // more than may run at once
		group.Go(func() {
			if _, err := c.Commit(t.Context(), Txn{Then: []Op{Put{Key: fmt.Sprint("k", i)}}}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	other, err := Open(c.options)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	slotsLeft := func() int {
		under := []byte("/holdfast/test/writers/")
		response, err := other.(*client).members()[0].kv.Range(t.Context(), &etcdserverpb.RangeRequest{Key: under, RangeEnd: rangeEnd(under)})
		if err != nil {
			t.Fatal(err)
		}
		return len(response.Kvs)
	}
	if n := slotsLeft(); n < 1 || n > maxSlots {
		t.Errorf("%d slots, expected 1 to %d", n, maxSlots)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if n := slotsLeft(); n != 0 {
		t.Errorf("%d slots are left behind", n)
	}
}

// A watch whose place was compacted away says the whole state anew.
func TestWatchAfterCompaction(t *testing.T) {
	c := startOne(t)
	first, err := c.Commit(t.Context(), Txn{Then: []Op{Put{Key: "a", Value: []byte("1")}}})
	if err != nil {
		t.Fatal(err)
	}
	last := first
	for range 5 {
		if last, err = c.Commit(t.Context(), Txn{Then: []Op{Put{Key: "b", Value: []byte("2")}}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.members()[0].kv.Compact(t.Context(), &etcdserverpb.CompactionRequest{Revision: last}); err != nil {
		t.Fatal(err)
	}
	batch := <-c.Watch(t.Context(), "", first+1)
	if !batch.Resync || batch.Revision != last || len(batch.Events) != 2 || batch.Events[0].Key != "a" || batch.Events[1].Key != "b" {
		t.Errorf("batch %+v", batch)
	}
}

func TestWatchesAreBounded(t *testing.T) {
	c := startOne(t)
	for range MaxWatches {
		if batch, open := <-c.Watch(t.Context(), "", 0); !open || !batch.Resync {
			t.Fatal("a watch within the bound was refused")
		}
	}
	if _, open := <-c.Watch(t.Context(), "", 0); open {
		t.Errorf("watch %d was not refused", MaxWatches+1)
	}
}

func TestEndpoints(t *testing.T) {
	for endpoint, want := range map[string]string{
		"10.0.0.1:2379":               "10.0.0.1:2379",
		"https://etcd.example.com:1/": "etcd.example.com:1",
		"https://[fd00::1]:2379":      "[fd00::1]:2379",
		"http://10.0.0.1:2379":        "", "10.0.0.1": "", "https://10.0.0.1": "", "https://a:1/b": "", "https://u@a:1": "", "": "", ":1": "", "://": "",
	} {
		got, err := hostPort(endpoint)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", endpoint, got, err)
		}
	}
}

func FuzzEndpoint(f *testing.F) {
	for _, seed := range []string{"10.0.0.1:2379", "https://[fd00::1]:2379", "http://a:1", "https://a:1/b", "[::", "https://%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, endpoint string) {
		got, err := hostPort(endpoint)
		if err != nil {
			return
		}
		if again, err := hostPort(got); err != nil || again != got || strings.Contains(got, "/") {
			t.Errorf("%q became %q, which became %q, %v", endpoint, got, again, err)
		}
	})
}

func TestRangeEnd(t *testing.T) {
	for prefix, want := range map[string]string{"a": "b", "pool/": "pool0", "a\xff": "b", "\xff\xff": "\x00"} {
		if got := string(rangeEnd([]byte(prefix))); got != want {
			t.Errorf("after %q comes %q, want %q", prefix, got, want)
		}
	}
}

// slowKV answers every transaction only after a while.
type slowKV struct {
	etcdserverpb.KVClient
	delay time.Duration
	tries int
}

func (s *slowKV) Txn(ctx context.Context, request *etcdserverpb.TxnRequest, options ...grpc.CallOption) (*etcdserverpb.TxnResponse, error) {
	s.tries++
	response, err := s.KVClient.Txn(context.WithoutCancel(ctx), request, options...)
	if !sleep(ctx, s.delay) {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return response, err
}

// A store that takes longer for every answer than a first try waits is slow, not unavailable; and what its first try wrote
// is found, not written again.
func TestSlowStoreIsUsable(t *testing.T) {
	c := startOne(t)
	if err := c.ensureLease(t.Context()); err != nil {
		t.Fatal(err)
	}
	slow := &slowKV{KVClient: c.members()[0].kv, delay: 4 * tryTimeoutMin}
	c.members()[0].kv = slow
	first, err := c.Commit(t.Context(), Txn{If: []Condition{Absent("a")}, Then: []Op{Put{Key: "a"}}})
	if err != nil {
		t.Fatalf("after %d tries: %v", slow.tries, err)
	}
	if slow.tries < 2 {
		t.Errorf("%d try: the test tests nothing", slow.tries)
	}
	entry, _, err := c.Get(t.Context(), "a")
	if err != nil || entry.Revision != first {
		t.Errorf("entry %+v, %v; the commit said revision %d", entry, err, first)
	}
}
