package agent

import (
	"errors"
	"maps"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/store"
	"github.com/holdfast/holdfast/internal/tenure"
)

// apply puts a configuration into the store, as an operator would: the test configuration with some texts replaced.
func (c *testCluster) apply(replace ...string) {
	c.t.Helper()
	c.applyText(strings.NewReplacer(replace...).Replace(testConfig))
}

func (c *testCluster) applyText(yaml string) {
	c.t.Helper()
	config, err := cluster.Parse("test", []byte(yaml))
	if err != nil {
		c.t.Fatal(err)
	}
	put, err := store.PutOp(keyConfig, configRecord{YAML: string(cluster.Print(config)), By: "test", At: time.Now()}, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	c.config = config
	c.commit(put)
}

// commit writes without conditions, as a person with a shell would.
func (c *testCluster) commit(ops ...store.Op) {
	c.t.Helper()
	s := c.store.Connect()
	defer s.Close()
	if _, err := s.Commit(c.t.Context(), store.Txn{Then: ops}); err != nil {
		c.t.Fatal(err)
	}
}

// restartAlone ends the agent of a node at once and starts another on the same kernel, with what is in its directory.
func (c *testCluster) restartAlone(lnn int) {
	c.t.Helper()
	n := c.nodes[lnn]
	n.store.Cut(true)
	n.power()
	<-n.ended
	c.startAlone(lnn)
}

func (c *testCluster) startAlone(lnn int) {
	c.t.Helper()
	onDisk, err := readConfig(filepath.Join(c.nodes[lnn].dir, configFile))
	if err != nil {
		c.t.Fatal(err)
	}
	now := c.config
	c.config = onDisk
	c.start(lnn)
	c.config = now
}

// drain asks a node to give away what it holds, or no longer.
func (c *testCluster) drain(lnn int, on bool) {
	c.t.Helper()
	if !on {
		c.commit(store.Delete{Key: drainKey(lnn)})
		return
	}
	put, err := store.PutOp(drainKey(lnn), drainRecord{By: "test", At: time.Now()}, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	c.commit(put)
}

var errKernel = errors.New("the kernel does not do it")

// keepsAddresses makes a kernel refuse to take addresses off.
func keepsAddresses(o link.Operation) error {
	if _, isAddress := o.Object.(link.Address); isAddress && o.Verb == link.Remove {
		return errKernel
	}
	return nil
}

// A node that cannot take an address off its interface has not let go of it.
func TestAnAddressThatCannotBeRemovedIsNotGivenAway(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.nodes[2].kernel.Fail(keepsAddresses)
		c.drain(2, true)
		c.pass(10 * time.Second) // the invariant is checked all the time
		c.nodes[2].kernel.Fail(nil)
		c.eventually("it has given everything away", func() bool { return c.spreadIs(4, 0, 4, 4) && len(c.onKernel(2)) == 0 })
	})
}

const twoPools = `          - {name: pool0, ranges: [10.0.0.100-10.0.0.105], ifaces: ["1:eth0", "2:eth0", "3:eth0", "4:eth0"],
             alloc-method: dynamic, sc-dns-zone: cluster.test}
          - {name: pool1, ranges: [10.0.0.106-10.0.0.111], ifaces: ["1:eth0", "2:eth0", "3:eth0", "4:eth0"],
             alloc-method: dynamic, sc-dns-zone: other.test}
`

// An address that goes from one pool to another in one change of the configuration belongs to the new pool's nodes only when the
// old pool's owner has let go: it may not have heard of the change.
func TestAnAddressThatChangesItsPoolWaitsForItsOwner(t *testing.T) {
	for _, test := range []struct {
		name string
		yaml string
		want int // addresses under it
	}{
		{"to another pool", testConfig[:strings.Index(testConfig, "          - {name: pool0")] + twoPools, 15},
		{"to a pool of another name", strings.ReplaceAll(testConfig, "pool0", "pool9"), 15},
		{"to a subnet of another name", strings.ReplaceAll(testConfig, "subnet0", "subnet9"), 15},
		{"to service addresses", strings.NewReplacer("10.0.0.4-10.0.0.6", "10.0.0.109-10.0.0.111", "10.0.0.100-10.0.0.111", "10.0.0.4-10.0.0.6").Replace(testConfig), 6},
	} {
		t.Run(test.name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *testCluster) {
				c.nodes[1].store.Cut(true) // it holds by the word of the others and hears nothing
				c.pass(3 * time.Second)
				c.applyText(test.yaml)
				c.pass(10 * time.Second)
				c.nodes[1].store.Cut(false)
				c.eventually("everything is held", func() bool { return len(c.snapshot()) == test.want && c.everybodyServes() })
			})
		})
	}
}

const (
	fourAddresses = "10.0.0.100-10.0.0.103"
	membersBut4   = `"1:eth0", "2:eth0", "3:eth0"]`
	membersBut3   = `"1:eth0", "2:eth0", "4:eth0"]`
	allMembers    = `"1:eth0", "2:eth0", "3:eth0", "4:eth0"]`
)

// A static address needs no right to hold, so nobody may conclude from its owner's silence that it is free.
func TestAStaticAddressIsNotTakenFromANodeThatIsCutOff(t *testing.T) {
	for _, test := range []struct {
		name          string
		ranges        string
		before, after []string // of the configuration
	}{
		{"the pool becomes dynamic", fourAddresses, []string{"alloc-method: dynamic", "alloc-method: static"}, nil},
		{
			"its member leaves the pool and another comes", "10.0.0.100-10.0.0.102",
			[]string{"alloc-method: dynamic", "alloc-method: static", allMembers, membersBut3},
			[]string{"alloc-method: dynamic", "alloc-method: static", allMembers, membersBut4},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *testCluster) {
				ranges := []string{"10.0.0.100-10.0.0.111", test.ranges}
				c.apply(append(test.before, ranges...)...)
				c.eventually("one on each member", func() bool { return c.pool(1) == 1 && c.pool(2) == 1 && c.pool(4) == 1 })
				c.pass(2 * time.Second)
				c.isolate(4, true)
				c.pass(5 * time.Second)
				c.apply(append(test.after, ranges...)...)
				c.pass(10 * time.Second)
				c.isolate(4, false)
				if test.after == nil {
					c.eventually("one each", func() bool { return c.spreadIs(1, 1, 1, 1) })
				} else {
					c.eventually("one on each new member", func() bool { return c.spreadIs(1, 1, 1, 0) })
				}
			})
		})
	}
}

// What a stopped agent left on its interface for good is not its own any more when it comes back to another configuration.
func TestAStaticAddressOfAnEarlierConfigurationGoesAtStart(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		static := []string{"10.0.0.100-10.0.0.111", "10.0.0.100-10.0.0.103"}
		c.apply(append([]string{"alloc-method: dynamic", "alloc-method: static"}, static...)...)
		c.eventually("one each", func() bool { return c.spreadIs(1, 1, 1, 1) })
		c.pass(2 * time.Second)
		c.nodes[4].stop()
		<-c.nodes[4].ended
		if c.pool(4) != 1 {
			t.Fatal("a static address stays at a stop")
		}
		c.apply("10.0.0.100-10.0.0.111", "10.0.0.120-10.0.0.131")
		c.pass(3 * time.Second)
		c.startAlone(4)
		c.eventually("three each", func() bool { return c.spreadIs(3, 3, 3, 3) })
	})
}

// An agent that ends says that its incarnation is over only when nothing is on its interfaces any more.
func TestTheEndIsSaidLast(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		for _, lnn := range []int{1, 2, 4} {
			c.drain(lnn, true) // nobody can take what node 3 has
		}
		c.eventually("node 3 has everything", func() bool { return c.spreadIs(0, 0, 12, 0) })
		c.nodes[3].names.closing = 2 * time.Second // its servers take their time
		c.nodes[3].stop()
		s, over := c.store.Connect(), false
		for range 1000 {
			c.pass(5 * time.Millisecond)
			report, _, err := store.GetRecord[memberRecord](t.Context(), s, memberKey(3))
			if err != nil {
				t.Fatal(err)
			}
			if left := c.onKernel(3); report.Value.Over && len(left) > 0 {
				t.Fatalf("its report says that it is over, and it still has %v", left)
			}
			if over = report.Value.Over; over {
				break
			}
		}
		if !over {
			t.Error("its report does not say that it is over")
		}
	})
}

// A release that is decided under one configuration and written late does not take an address away that a later configuration
// gave back: its owner has it again.
func TestALateReleaseUnderAnOldConfiguration(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.pass(5 * time.Second) // nothing is under way any more
		var mine netip.Addr
		for addr, lnn := range c.snapshot() {
			if lnn == 1 && addr.As4()[3] >= 100 && (!mine.IsValid() || addr.Compare(mine) > 0) {
				mine = addr
			}
		}
		a := c.nodes[1].agent
		v := a.view.Load()
		id := v.world.Config.Pools()[0]
		record := maps.Clone(v.world.Pools[id])
		st, _ := record[mine].Step(tenure.Change{Action: tenure.Abandon, By: record[mine].Owner, Now: time.Now()})
		record[mine] = st
		// This is what letGo writes when the address is not configured; the change of the configuration back overtakes it.
		c.apply("sc-dns-zone: cluster.test", "sc-dns-zone: cluster.test, sc-ttl: 7")
		c.pass(time.Second)
		done := make(chan error, 1)
		l := &loop{replica: newReplica(), Agent: &Agent{writer: &writer{
			store: c.store.Connect(), log: a.log, now: time.Now, pending: map[string]int64{}, failing: map[string]time.Time{},
			done: func() { done <- nil },
		}}}
		l.replica.configSeen = v.configRevision
		l.replica.pools[id] = poolEntry{record: v.world.Pools[id], revision: v.poolRevisions[id]}
		l.writeRecord(t.Context(), id, record, nil)
		<-done
		synctest.Wait()
		now, _, err := store.GetRecord[tenure.Record](t.Context(), c.store.Connect(), poolKey(id))
		if err != nil {
			t.Fatal(err)
		}
		if now.Value[mine].Epoch != v.world.Pools[id][mine].Epoch {
			t.Error("the release was written although the configuration is another by now")
		}
	})
}

// A start that needs several numbers because the store's answers are lost is one start: the node is not held down as if it flapped.
func TestLostAnswersAreNoStarts(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.kill(2)
		c.pass(10 * time.Second)
		c.start(2)
		c.nodes[2].store.LoseAnswers(7)
		c.pass(20 * time.Second)
		a := c.nodes[2].agent
		a.historyMu.Lock()
		got := a.history.HoldDown
		a.historyMu.Unlock()
		if got != steering.HoldDownBase {
			t.Errorf("after one death it is held down for %s, incarnation %d", got, a.tenancy.Incarnation())
		}
	})
}
