package steering

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
	"github.com/holdfast/holdfast/internal/tenure"
)

// restingConfig adds a pool under a measured policy and one with more static addresses than members, in ranges that pool0 can be moved to.
const restingConfig = `, sc-rebalance-delay: 2}
          - {name: pool1, ranges: [10.0.0.120-10.0.0.125], ifaces: ["1:eth0", "2:eth0", "3:eth0"], alloc-method: dynamic, sc-dns-zone: b.model, sc-failover-policy: conn_count}
          - {name: pool2, ranges: [10.0.0.130-10.0.0.135], ifaces: ["1:eth0", "2:eth0", "3:eth0"], alloc-method: static, sc-dns-zone: c.model`

// What is passed over because nothing of it has changed is what would be proposed if it were decided anew, whatever happens in between.
func TestWhatRestsIsDecidedAsIfAnew(t *testing.T) {
	rested := 0
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, 4, 6, restingConfig)
		var rests Rests
		load := 0
		var settling bool
		given := map[netip.Addr]Release{}
		foreign := tenure.Record{}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			who := m.nodes[rapid.IntRange(1, 4).Draw(t, "who")]
			pool := m.config.Pools()[rapid.IntRange(0, 2).Draw(t, "pool")]
			addresses := m.config.Addresses(pool)
			address := addresses[rapid.IntRange(0, len(addresses)-1).Draw(t, "address")]
			switch rapid.SampledFrom([]string{"", "", "", "kill", "start", "drain", "fault", "check", "mend", "hold-down", "load", "settling", "told", "foreign", "lost", "moved"}).Draw(t, "what") {
			case "kill":
				m.kill(who.LNN)
			case "start":
				m.start(who.LNN)
			case "drain":
				who.Draining = !who.Draining
			case "fault":
				who.Faults = map[string]string{"eth0": "no carrier"}
			case "check":
				who.PoolFaults = map[cluster.PoolID]string{pool: "it does not answer"}
			case "mend":
				who.Faults, who.PoolFaults = nil, nil
				who.Mended = map[string]Mend{"eth0": {At: m.now, Lasted: time.Second}}
			case "hold-down":
				who.HoldDown, who.FitSince = 3*time.Second, m.now
			case "load":
				load++
			case "settling":
				settling = !settling
			case "told":
				st := m.pools[pool][address]
				given[address] = Release{Owner: st.Owner, Epoch: st.Epoch}
			case "foreign": // another record, of a pool that is gone, gives an address to somebody
				foreign = tenure.Record{address: {Owner: tenure.Claim{LNN: who.LNN, Interface: "eth0", Incarnation: who.Incarnation}, Epoch: 1}}
			case "lost":
				delete(m.pools[pool], address)
				foreign = tenure.Record{}
			case "moved":
				st := m.pools[pool][address]
				st.Next = tenure.Claim{LNN: who.LNN, Interface: "eth0", Incarnation: who.Incarnation}
				if m.pools[pool] != nil {
					m.pools[pool][address] = st
				}
			}
			w := m.world(1)
			w.Settling, w.Given = settling, given
			w.Pools[cluster.PoolID{Groupnet: "groupnet0", Subnet: "subnet0", Pool: "gone"}] = foreign
			w.Loads = Loads{poolID: {}, pool: {{LNN: who.LNN, Interface: "eth0"}: placement.Load{Known: true, Connections: load}}}
			got, now := ProposePools(w, rests, m.now)
			want, _ := ProposePools(w, Rests{}, m.now)
			for i := range want {
				want[i].static = false // what it was worked out by is not said of what rests
			}
			for i := range got {
				got[i].static = false
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("with what was known: %s\nanew: %s", showProposals(got), showProposals(want))
			}
			rested += len(rests.pools)
			rests = now
			for _, p := range got {
				if p.Wanted && rapid.IntRange(0, 2).Draw(t, "written") > 0 {
					m.pools[p.Pool] = completed(w, p.Record, m.now)
				}
			}
			m.now = m.now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "passes")) * time.Millisecond)
		}
	})
	if rested == 0 {
		t.Error("nothing ever rested")
	}
}

func showProposals(proposals []PoolProposal) (text string) {
	for _, p := range proposals {
		text += fmt.Sprintf("\n  %s wanted %v, wait %s, evenness %+v, moves %v, decisions %v", p.Pool, p.Wanted, p.Wait, p.Evenness, p.Moves, p.Decisions)
	}
	return text
}

// An address that another record gives to somebody waits without being decided on, until that record gives it to nobody.
func TestWhatWaitsForAnotherRecord(t *testing.T) {
	m := newModel(t, 4, 6, restingConfig)
	w := settledWorld(m)
	gone := cluster.PoolID{Groupnet: "groupnet0", Subnet: "subnet0", Pool: "gone"}
	address := m.config.Addresses(poolID)[0]
	w.Pools[poolID], w.Pools[gone] = maps.Clone(w.Pools[poolID]), tenure.Record{address: w.Pools[poolID][address]}
	delete(w.Pools[poolID], address)
	_, rests := ProposePools(w, Rests{}, m.now)
	if _, rest := rests.pools[poolID]; !rest {
		t.Fatal("the pool is not at rest")
	}
	w.Pools = maps.Clone(w.Pools)
	w.Pools[gone] = tenure.Record{}
	proposals, _ := ProposePools(w, rests, m.now)
	if p := proposals[0]; p.Pool != poolID || !p.Wanted || p.Record[address].Owner.IsZero() {
		t.Errorf("nobody is to have it: %+v", p)
	}
}

// A look at a cluster in which nothing has changed since the last decides on no pool.
func TestNothingIsDecidedWhereNothingChanged(t *testing.T) {
	m := newModel(t, 4, 6, restingConfig)
	w := settledWorld(m)
	_, rests := ProposePools(w, Rests{}, m.now)
	if len(rests.pools) != 3 {
		t.Fatalf("%d pools are at rest, want all three", len(rests.pools))
	}
	for id := range rests.pools {
		if !rests.still(Rests{config: w.Config, nodes: newRoll(w), records: w.Pools, services: w.Services}).pool(w, id, rests.pools[id]) {
			t.Errorf("%s would be decided on again", id)
		}
	}
}

// settledWorld is what node 1 sees when all that is proposed has been written.
func settledWorld(m *model) *World {
	w := m.world(1)
	for range 5 {
		for _, p := range first(ProposePools(w, Rests{}, m.now)) {
			w.Pools[p.Pool] = completed(w, p.Record, m.now)
		}
	}
	return w
}

func first[A, B any](a A, _ B) A { return a }
