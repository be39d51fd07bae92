package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/identity"
	"github.com/holdfast/holdfast/internal/store"
)

// company is up to five members in this process, of which some are wanted, and what an agent does for them.
type company struct {
	t       *testing.T
	id      *identity.Identity
	peers   map[string]string // name -> peer address
	clients map[string]string // name -> client address
	dir     string
	running map[string]*store.Member
	client  store.Client // what the reconciliation asks by
	others  []store.Client
	taken   []string // the steps
}

func newCompany(t *testing.T) *company {
	c := &company{t: t, id: newIdentity(t), peers: map[string]string{}, clients: map[string]string{}, dir: t.TempDir(), running: map[string]*store.Member{}}
	for i := 1; i <= 5; i++ {
		name := fmt.Sprintf("node%d", i)
		c.peers[name], c.clients[name] = freeAddress(t), freeAddress(t)
	}
	t.Cleanup(func() {
		for _, member := range c.running {
			_ = member.Close()
		}
	})
	return c
}

func (c *company) options(name string) store.MemberOptions {
	return store.MemberOptions{Name: name, Dir: filepath.Join(c.dir, name), Cluster: "test", ListenClient: []string{c.clients[name]}, Files: files(c.id),
		Peers: map[string]string{name: c.peers[name]}}
}

func (c *company) start(options store.MemberOptions) {
	c.t.Helper()
	member, err := store.StartMember(options)
	if err != nil {
		c.t.Fatal(err)
	}
	c.running[options.Name] = member
}

func (c *company) open() store.Client {
	return openClient(c.t, c.id, []string{c.clients["node1"]}).(store.Client)
}

func (c *company) nameOf(peer string) string {
	for name, address := range c.peers {
		if address == peer {
			return name
		}
	}
	return peer
}

// reach takes steps until the members are the wanted ones.
func (c *company) reach(ctx context.Context, names ...string) {
	c.t.Helper()
	var wanted []store.Wanted
	for _, name := range names {
		wanted = append(wanted, store.Wanted{Name: name, Peer: c.peers[name], Up: true})
	}
	for ctx.Err() == nil {
		step, err := c.step(ctx, wanted)
		if err == nil && step.Kind == store.Settled {
			return
		}
		if err != nil && !errors.Is(err, store.ErrNotYet) {
			c.t.Log(err) // such as a leader that is just being elected
		}
		time.Sleep(20 * time.Millisecond) // as the agent, which looks again after a while
	}
	c.t.Fatalf("the members did not become %v; steps: %v", names, c.taken)
}

func (c *company) step(ctx context.Context, wanted []store.Wanted) (store.Step, error) {
	for _, member := range c.running {
		if !member.Leads() {
			continue
		}
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		present, err := member.Members(try)
		if err != nil {
			return store.Step{}, err
		}
		c.follow(present)
		step := store.NextStep(wanted, store.WithHealth(present, c.client.Health(try)))
		if err := member.Take(try, step); err != nil {
			return step, err
		}
		if step.Acts() {
			c.taken = append(c.taken, fmt.Sprint(step.Kind, step.Name))
		}
		if present, err = member.Members(try); err == nil {
			c.follow(present)
		}
		return step, err
	}
	return store.Step{}, errors.New("nobody leads")
}

// follow does what agents do when the members have changed.
func (c *company) follow(present []store.Present) {
	var endpoints []string
	peers := map[string]string{}
	for _, p := range present {
		peers[c.nameOf(p.Peer)] = p.Peer
		endpoints = append(endpoints, c.clients[c.nameOf(p.Peer)])
	}
	for _, client := range append(c.others, c.client) {
		if err := client.SetEndpoints(endpoints); err != nil {
			c.t.Fatal(err)
		}
	}
	for name := range peers {
		if c.running[name] == nil {
			options := c.options(name)
			options.Peers, options.Joining = peers, true
			c.start(options)
		}
	}
	for name, member := range maps.Clone(c.running) {
		if peers[name] == "" {
			c.leave(name, member)
		}
	}
}

func (c *company) leave(name string, member *store.Member) {
	if err := member.Close(); err != nil {
		c.t.Error(err)
	}
	delete(c.running, name)
	dir := c.options(name).Dir
	aside, err := store.SetAside(dir, time.Now())
	if err != nil || store.HasData(dir) || !store.HasData(aside) {
		c.t.Errorf("setting aside %s: %q, %v", dir, aside, err)
	}
}

// writers write under keys of their own until stopped, and give back how many writes each made. A write must not fail.
func (c *company) writers(count int) (stop func() []int) {
	ctx, cancel := context.WithCancel(context.Background())
	made := make([]int, count)
	var group sync.WaitGroup
	for i := range count {
		client := c.open()
		c.others = append(c.others, client)
		group.Go(func() {
			revision := int64(0)
			for ; ctx.Err() == nil; made[i]++ {
				key, value := fmt.Sprintf("counter/%d", i), fmt.Sprint(made[i])
				txn := store.Txn{If: []store.Condition{{Key: key, Revision: revision}}, Then: []store.Op{store.Put{Key: key, Value: []byte(value)}}}
				var err error
				if revision, err = client.Commit(context.Background(), txn); err != nil {
					c.t.Errorf("write %d of writer %d: %v", made[i], i, err)
					return
				}
			}
		})
	}
	return func() []int {
		cancel()
		group.Wait()
		return made
	}
}

// watcher counts the changes of each counter and complains of a gap or a resync.
func (c *company) watcher(ctx context.Context) (seen func(counter, writes int) error) {
	client := c.open()
	c.others = append(c.others, client)
	var mu sync.Mutex
	next, faults := map[string]int{}, []string{}
	batches := client.Watch(ctx, "counter/", 0)
	<-batches
	go func() {
		for batch := range batches {
			mu.Lock()
			if batch.Resync {
				faults = append(faults, "a resync although nothing was lost")
			}
			for _, event := range batch.Events {
				if want := fmt.Sprint(next[event.Key]); string(event.Value) != want {
					faults = append(faults, fmt.Sprintf("%s became %s after %s", event.Key, event.Value, want))
				}
				next[event.Key]++
			}
			mu.Unlock()
		}
	}()
	return func(counter, writes int) error {
		mu.Lock()
		defer mu.Unlock()
		if len(faults) > 0 {
			return errors.New(strings.Join(faults[:min(3, len(faults))], "; "))
		}
		if n := next[fmt.Sprintf("counter/%d", counter)]; n != writes {
			return fmt.Errorf("%d of %d writes seen: %w", n, writes, store.ErrUnavailable)
		}
		return nil
	}
}

// A store grows from one member to three and to five, moves away from its first, and shrinks to three, while others write and
// watch: every write is made once and seen once. The clients learn of the members one after the other and are never opened anew.
func TestStoreGrowsAndShrinksUnderWrites(t *testing.T) {
	c := newCompany(t)
	c.start(c.options("node1"))
	c.client = c.open()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if _, err := c.client.Commit(ctx, put("a", "first")); err != nil {
		t.Fatal(err)
	}
	seen := c.watcher(ctx)
	stop := c.writers(3)
	c.reach(ctx, "node1", "node2", "node3")
	c.reach(ctx, "node1", "node2", "node3", "node4", "node5")
	c.reach(ctx, "node3", "node4", "node5")
	made := stop()
	t.Logf("writes: %v; steps: %v", made, c.taken)
	for i, writes := range made {
		for {
			err := seen(i, writes)
			if err == nil {
				break
			}
			if !errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	if names := slices.Sorted(maps.Keys(c.running)); !slices.Equal(names, []string{"node3", "node4", "node5"}) {
		t.Errorf("at last %v run", names)
	}
	if entry, _, err := c.client.Get(ctx, "a"); err != nil || string(entry.Value) != "first" {
		t.Errorf("the first record: %q, %v", entry.Value, err)
	}
	// The three that are left bear the loss of one.
	if err := c.running["node3"].Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.client.Commit(ctx, put("a", "last")); err != nil {
		t.Errorf("with one of three: %v", err)
	}
}

// A member whose data was lost must not come back under its old number: it is removed and added anew.
func TestMemberWithoutItsDataIsAddedAnew(t *testing.T) {
	c := newCompany(t)
	c.start(c.options("node1"))
	c.client = c.open()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c.reach(ctx, "node1", "node2", "node3")
	lost := c.running["node2"].ID()
	if err := c.running["node2"].Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(c.options("node2").Dir); err != nil {
		t.Fatal(err)
	}
	wanted := []store.Wanted{}
	for _, name := range []string{"node1", "node2", "node3"} {
		wanted = append(wanted, store.Wanted{Name: name, Peer: c.peers[name], Up: true})
	}
	removed := func() error {
		for name, member := range c.running {
			if name == "node2" || !member.Leads() {
				continue
			}
			present, err := member.Members(ctx)
			if err != nil {
				return err
			}
			present = store.WithHealth(present, c.client.Health(ctx))
			for i := range present {
				present[i].Lost = present[i].ID == lost
				present[i].Healthy = present[i].Healthy && !present[i].Lost
			}
			return member.Take(ctx, store.NextStep(wanted, present))
		}
		return errors.New("nobody leads")
	}
	for err := removed(); err != nil; err = removed() {
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	delete(c.running, "node2")
	c.reach(ctx, "node1", "node2", "node3")
	if now := c.running["node2"].ID(); now == lost {
		t.Errorf("it came back as %x", now)
	}
}

// A client may be given new members, all of them, while its watch stands and while calls are under way.
func TestEndpointsAreExchanged(t *testing.T) {
	id := newIdentity(t)
	options := memberOptions(t, id, 1)[0]
	options.ListenClient = append(options.ListenClient, net.JoinHostPort("127.0.0.1", strings.Split(freeAddress(t), ":")[1]))
	startEmbedded(t, options)
	client := openClient(t, id, options.ListenClient[:1]).(store.Client)
	watch := client.Watch(t.Context(), "", 0)
	<-watch
	for i := range 10 {
		if err := client.SetEndpoints(options.ListenClient[i%2 : i%2+1]); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Commit(t.Context(), put("a", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		if batch := <-watch; batch.Resync || string(batch.Events[0].Value) != fmt.Sprint(i) {
			t.Fatalf("after exchange %d the watch says %+v", i, batch)
		}
	}
	if err := client.SetEndpoints(nil); err == nil {
		t.Error("a client without members")
	}
	if health := client.Health(t.Context()); len(health.Members) != 1 || health.Members[0].ID == 0 {
		t.Errorf("health %+v", health)
	}
}
