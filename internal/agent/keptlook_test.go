package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/dns"
	"github.com/holdfast/holdfast/internal/load"
	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/store"
	"github.com/holdfast/holdfast/internal/tenure"
)

// keptConfig has a pool of each kind of which something is kept from look to look; its configurations differ in nodes, members, ranges and in what the answers of pool1 follow.
const keptConfig = `
cluster: {name: test}
nodes:
  - {name: node1, lnn: 1, interfaces: [eth0, eth1], addresses: [10.0.0.11]}
  - {name: node2, lnn: 2, interfaces: [eth0, eth1], addresses: [10.0.0.12]}
  - {name: node3, lnn: 3, interfaces: [eth0], addresses: [10.0.0.13]}%[1]s
groupnets:
  - name: groupnet0
    subnets:
      - name: subnet0
        cidr: 10.0.0.0/24
        sc-service-name: ssip.test
        sc-service-addrs: [10.0.0.4-10.0.0.6]
        pools:
          - {name: pool0, ranges: [10.0.0.100-10.0.0.103], ifaces: ["1:eth0", "1:eth1", "2:eth0", "3:eth0"%[2]s], alloc-method: dynamic, sc-dns-zone: a.test, sc-auto-unsuspend-delay: 3}
          - {name: pool1, ranges: [10.0.0.110-10.0.0.%[3]d], ifaces: ["1:eth0", "2:eth0", "2:eth1", "3:eth0"%[2]s], alloc-method: dynamic, sc-dns-zone: b.test, sc-connect-policy: %[4]s}
          - {name: pool2, ranges: [10.0.0.120-10.0.0.123], ifaces: ["1:eth0", "2:eth0", "3:eth0"], alloc-method: dynamic, rebalance-policy: idle, sc-failover-policy: throughput}
          - {name: pool3, ranges: [10.0.0.130-10.0.0.133], ifaces: ["1:eth0", "2:eth0", "3:eth0"], alloc-method: static, sc-dns-zone: d.test}
`

// keptLook plays a history to two agents: one keeps from look to look what is still so, the other has forgotten all of it each time.
type keptLook struct {
	t         *rapid.T
	now       time.Time
	keeps     *loop
	forgets   *loop
	configs   []string
	revision  int64
	records   map[string]store.Entry
	remainder int // how often something was kept
}

// What an agent keeps from one look to the next is never seen where it is not so any more: whatever happens, worlds, decisions, answers,
// problems and what is shown are what they are to an agent that keeps nothing.
func TestNothingStaleIsSeen(t *testing.T) {
	kept := 0
	dirs := []string{t.TempDir(), t.TempDir()}
	rapid.Check(t, func(rt *rapid.T) {
		k := newKeptLook(rt, t, dirs)
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			k.step()
			k.now = k.now.Add(rapid.SampledFrom([]time.Duration{0, 0, 10 * time.Millisecond, time.Second, 4 * time.Second}).Draw(rt, "passes"))
			k.look()
		}
		kept += k.remainder
	})
	if kept == 0 {
		t.Error("nothing was ever kept")
	}
}

func newKeptLook(rt *rapid.T, t *testing.T, dirs []string) *keptLook {
	k := &keptLook{t: rt, now: time.Unix(1_700_000_000, 0), records: map[string]store.Entry{}}
	for _, policy := range []string{"round_robin", "conn_count"} {
		k.configs = append(k.configs, fmt.Sprintf(keptConfig, "", "", 113, policy),
			fmt.Sprintf(keptConfig, "\n  - {name: node4, lnn: 4, interfaces: [eth0], addresses: [10.0.0.14]}", `, "4:eth0"`, 111, policy))
	}
	config, err := cluster.Parse("test", []byte(k.configs[2]))
	if err != nil {
		rt.Fatal(err)
	}
	clock := func() time.Time { return k.now }
	k.keeps, k.forgets = stillLoop(t, dirs[0], config, clock), stillLoop(t, dirs[1], config, clock)
	for lnn := 1; lnn <= 3; lnn++ {
		away := rapid.IntRange(0, 1).Draw(rt, "away before")
		k.write(memberKey(lnn), memberRecord{Name: fmt.Sprintf("node%d", lnn), Incarnation: 1, Ready: true, OutageMS: int64(5000 * away)})
	}
	held := tenure.Record{}
	for i := range 4 {
		held[netip.AddrFrom4([4]byte{10, 0, 0, byte(100 + i)})] = tenure.Statement{Owner: tenure.Claim{LNN: 1 + i%3, Interface: "eth0", Incarnation: 1}, Epoch: 1}
	}
	k.write(poolKey(config.Pools()[0]), held)
	return k
}

func (k *keptLook) both(do func(l *loop)) {
	do(k.keeps)
	do(k.forgets)
}

// write puts a record into the store, and each agent learns of it.
func (k *keptLook) write(key string, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		k.t.Fatal(err)
	}
	k.revision++
	k.records[key] = store.Entry{Key: key, Value: data, Revision: k.revision}
	k.take(store.Batch{Events: []store.Event{{Entry: k.records[key]}}, Revision: k.revision})
}

func (k *keptLook) remove(key string) {
	k.revision++
	delete(k.records, key)
	k.take(store.Batch{Events: []store.Event{{Entry: store.Entry{Key: key, Revision: k.revision}, Deleted: true}}, Revision: k.revision})
}

func (k *keptLook) take(batch store.Batch) {
	k.both(func(l *loop) { l.take(context.Background(), batch) })
}

// step lets one thing happen.
func (k *keptLook) step() {
	lnn := rapid.IntRange(1, 4).Draw(k.t, "node")
	pool := cluster.PoolID{Groupnet: "groupnet0", Subnet: "subnet0", Pool: fmt.Sprintf("pool%d", rapid.IntRange(0, 4).Draw(k.t, "pool"))}
	address := netip.AddrFrom4([4]byte{10, 0, 0, byte(100 + rapid.IntRange(0, 35).Draw(k.t, "address"))}) // of any pool
	switch rapid.SampledFrom([]string{"nothing", "report", "report", "report", "gone", "over", "drain", "outage", "trust", "record", "record", "record", "no record", "service", "config", "resync", "sample", "sample", "word", "settling"}).Draw(k.t, "what") {
	case "report":
		k.write(memberKey(lnn), k.report(lnn, pool))
	case "gone":
		k.remove(memberKey(lnn))
	case "over":
		report := k.report(lnn, pool)
		report.Over = true
		if rapid.Bool().Draw(k.t, "declared") {
			report.Declared = &declaredRecord{By: "root"}
		}
		k.write(memberKey(lnn), report)
	case "drain":
		k.toggle(drainKey(lnn), drainRecord{By: "root"})
	case "outage":
		k.toggle(outageKey(lnn), outageRecord{Since: time.Now().Add(-time.Hour)})
	case "trust":
		k.write(trustKey(lnn), trustRecord{Incarnation: k.incarnation()})
	case "record":
		record := maps.Clone(k.keeps.replica.pools[pool].record)
		if record == nil {
			record = tenure.Record{}
		}
		record[address] = k.statement()
		k.write(poolKey(pool), record)
	case "no record":
		k.remove(poolKey(pool))
	case "service":
		at := netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(4, 6).Draw(k.t, "service"))})
		k.toggle(serviceKey(steering.ServiceKey{Subnet: pool.SubnetID(), Address: at}), k.statement())
	case "config":
		k.write(keyConfig, configRecord{YAML: rapid.SampledFrom(k.configs).Draw(k.t, "config")})
	case "resync":
		var events []store.Event
		for _, key := range slices.Sorted(maps.Keys(k.records)) {
			events = append(events, store.Event{Entry: k.records[key]})
		}
		k.take(store.Batch{Events: events, Revision: k.revision, Resync: true})
	case "sample":
		k.sample(lnn)
	case "word":
		k.word(lnn, pool, address)
	case "settling":
		ready := k.now.Add(-rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(k.t, "ready for"))
		k.both(func(l *loop) { l.readySince = ready })
	}
}

func (k *keptLook) toggle(key string, value any) {
	if _, there := k.records[key]; there && rapid.Bool().Draw(k.t, "away") {
		k.remove(key)
		return
	}
	k.write(key, value)
}

func (k *keptLook) incarnation() tenure.Incarnation {
	return tenure.Incarnation(rapid.IntRange(1, 3).Draw(k.t, "incarnation"))
}

func (k *keptLook) report(lnn int, pool cluster.PoolID) memberRecord {
	report := memberRecord{
		Name: fmt.Sprintf("node%d", lnn), Incarnation: k.incarnation(), Ready: rapid.IntRange(0, 5).Draw(k.t, "ready") > 0,
		Leaving: rapid.IntRange(0, 9).Draw(k.t, "leaving") == 0, OutageMS: int64(rapid.IntRange(0, 1).Draw(k.t, "outage") * 5000),
		HoldDownMS: int64(rapid.IntRange(0, 1).Draw(k.t, "hold-down") * 2000),
	}
	switch rapid.IntRange(0, 5).Draw(k.t, "fault") {
	case 0:
		report.Faults = map[string]string{"eth0": "no carrier"}
	case 1:
		report.PoolFaults = map[string]string{pool.String(): "it does not answer"}
	}
	return report
}

func (k *keptLook) claim(who string) tenure.Claim {
	lnn := rapid.IntRange(0, 4).Draw(k.t, who)
	if lnn == 0 {
		return tenure.Claim{}
	}
	return tenure.Claim{LNN: lnn, Interface: rapid.SampledFrom([]string{"eth0", "eth0", "eth1"}).Draw(k.t, "interface"), Incarnation: k.incarnation()}
}

func (k *keptLook) statement() tenure.Statement {
	st := tenure.Statement{Owner: k.claim("owner"), Next: k.claim("next"), Epoch: uint64(rapid.IntRange(1, 3).Draw(k.t, "epoch"))}
	switch rapid.IntRange(0, 4).Draw(k.t, "more") {
	case 0:
		st.To = k.claim("to")
		st.Next = st.To
	case 1:
		st.Former = k.claim("former")
	case 2:
		st.Fixed = true
	}
	return st
}

func (k *keptLook) sample(lnn int) {
	connections := map[netip.Addr]int{}
	for last := 100; last <= 133; last++ {
		connections[netip.AddrFrom4([4]byte{10, 0, 0, byte(last)})] = rapid.IntRange(0, 2).Draw(k.t, "connections")
	}
	k.now = k.now.Add(time.Millisecond)
	sample := load.Sample{LNN: lnn, Taken: k.now, Rated: rapid.IntRange(0, 5).Draw(k.t, "rated") > 0, CPU: 0.1, Connections: connections,
		Interfaces: map[string]load.Rate{"eth0": {BytesPerSecond: float64(rapid.IntRange(0, 9).Draw(k.t, "rate")), LinkBytesPerSecond: 10}}}
	k.both(func(l *loop) { l.loads.Put(sample, k.now) })
}

// word lets another node say something of an address, or this one.
func (k *keptLook) word(lnn int, pool cluster.PoolID, address netip.Addr) {
	st := k.keeps.replica.pools[pool].record[address]
	release := steering.Release{Owner: st.Owner, Epoch: st.Epoch}
	whose := rapid.IntRange(0, 3).Draw(k.t, "whose")
	k.both(func(l *loop) {
		switch whose {
		case 0:
			l.releases.add(address, release)
		case 1:
			l.readyWords.add(address, readyWord{lnn, release})
		case 2:
			l.promises.Give(map[netip.Addr]tenure.Statement{address: st})
		default:
			l.promises.Renounce(address)
		}
	})
}

// look has both agents look, and compares all that comes of it.
func (k *keptLook) look() {
	f := k.forgets
	f.seen, f.measured, f.observed, f.ground, f.answers.named = nil, measured{}, observed{}, ground{}, named{}
	f.answers.server = &fakeNames{}
	before := k.keeps.seen
	var worlds [2]*steering.World
	for i, l := range []*loop{k.keeps, f} {
		seen := l.world(k.now)
		worlds[i] = l.read(seen)
		l.observeNodes(worlds[i], k.now)
		l.answers.SetView(worlds[i], k.now)
		l.publish(seen, tenure.Standing{MayHold: true}, 1, applied{}, k.now)
	}
	if worlds[0].SameNodes(before) && worlds[0].SameRecords(before) {
		k.remainder++
	}
	anew, kept := bare(worlds[1]), *worlds[0]
	kept.Nodes, kept.Loads, kept.Planned = agelessNodes(&kept), ageless(kept.Loads), ageless(kept.Planned)
	k.same("world", bare(&kept), anew)
	for _, self := range []tenure.Incarnation{1, 2} {
		for name, decide := range decisions(self, k.now) {
			k.same(name, decide(&kept), decide(anew))
		}
	}
	k.same("answers", viewOf(k.keeps), viewOf(f))
	k.same("problems", problemsOf(k.keeps), problemsOf(f))
	k.sameTimes()
	k.same("reports", k.keeps.reported, f.reported)
	holdings := steering.Desired(worlds[0], 1, true)
	k.same("routes", k.keeps.routes(worlds[0], holdings), f.routes(anew, holdings))
	mine, its := k.keeps.clusterAddress(worlds[0]), f.clusterAddress(anew)
	for last := 100; last < 150; last++ {
		addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(last)})
		k.same("address "+addr.String(), mine(addr), its(addr))
	}
	k.same("ends", k.keeps.moveEnds(worlds[0], holdings), f.moveEnds(anew, holdings))
	k.measured(worlds[0])
}

func (k *keptLook) same(what string, kept, anew any) {
	if !reflect.DeepEqual(kept, anew) {
		k.t.Fatalf("%s: what was kept makes\n%+v\nand anew it is\n%+v", what, kept, anew)
	}
}

// bare is a world of which nothing is known but what it says, with the loads as old as they are to whom they are new.
func bare(w *steering.World) *steering.World {
	return &steering.World{
		Config: w.Config, Self: w.Self, Nodes: agelessNodes(w), Pools: w.Pools, Services: w.Services, Loads: ageless(w.Loads), Planned: ageless(w.Planned),
		PlannedAge: w.PlannedAge, Idle: w.Idle, Released: w.Released, Given: w.Given, Unready: w.Unready, Renounced: w.Renounced, Settling: w.Settling,
	}
}

// agelessNodes are the nodes without the time since when one is away that this agent never saw: it is counted back on the wall clock.
func agelessNodes(w *steering.World) map[int]steering.Node {
	nodes := maps.Clone(w.Nodes)
	for lnn, node := range nodes {
		if !node.AbsentSince.IsZero() {
			node.AbsentSince = time.Unix(1, 0)
		}
		nodes[lnn] = node
	}
	return nodes
}

func ageless(loads steering.Loads) steering.Loads {
	out := steering.Loads{}
	for id, members := range loads {
		out[id] = maps.Clone(members)
		for m, load := range members {
			load.Age = 0
			out[id][m] = load
		}
	}
	return out
}

// decisions are all that is asked of a world at a look, for a node under one incarnation.
func decisions(self tenure.Incarnation, now time.Time) map[string]func(w *steering.World) any {
	on := steering.OnInterfaces{Held: map[netip.Addr]bool{netip.MustParseAddr("10.0.0.100"): true}, Left: map[netip.Addr]bool{netip.MustParseAddr("10.0.0.131"): true}}
	nothing := func(cluster.PoolID, steering.ServiceKey) bool { return false }
	return map[string]func(w *steering.World) any{
		"desired":  func(w *steering.World) any { return steering.Desired(w, self, true) },
		"lapsed":   func(w *steering.World) any { return steering.Desired(w, self, false) },
		"leaving":  func(w *steering.World) any { return steering.Leaving(w, self, true) },
		"ready":    func(w *steering.World) any { return steering.Ready(w, self, true) },
		"letgo":    func(w *steering.World) any { return steering.LetGo(w, self, on, now) },
		"handing":  func(w *steering.World) any { return steering.Handing(w, self, nothing) },
		"services": func(w *steering.World) any { return steering.ProposeServices(w, self, on.Held, now) },
		"pools": func(w *steering.World) any {
			proposals, _ := steering.ProposePools(w, steering.Rests{}, now)
			return proposals
		},
		"given": func(w *steering.World) any {
			var given []any
			for _, id := range w.Config.Pools() {
				given = append(given, steering.GivenMembers(w, id, now), w.Candidates(id, now))
			}
			return given
		},
	}
}

// viewOf is what an agent's names are answered from, with loads of no age.
func viewOf(l *loop) dns.View {
	view := *l.answers.server.(*fakeNames).seen.Load()
	view.Zones = slices.Clone(view.Zones)
	for i := range view.Zones {
		zone := &view.Zones[i]
		zone.Pools = slices.Clone(zone.Pools)
		for j := range zone.Pools {
			pool := &zone.Pools[j]
			pool.Nodes = slices.Clone(pool.Nodes)
			for n := range pool.Nodes {
				pool.Nodes[n].Load.Age = 0
				if len(pool.Nodes[n].Addresses) == 0 {
					pool.Nodes[n].Addresses = nil
				}
			}
		}
	}
	return view
}

func problemsOf(l *loop) []problem.Active { return l.board.List() }

// sameTimes compares since when what is shown is what it is; what the store knows of it is counted back on the wall clock.
func (k *keptLook) sameTimes() {
	kept, anew := k.keeps.view.Load().since, k.forgets.view.Load().since
	for _, entries := range []map[sinceKey]sinceEntry{anew.settled, anew.lately, kept.settled, kept.lately} {
		for key := range entries {
			a, _ := kept.of(key)
			b, _ := anew.of(key)
			if d := a.at.Sub(b.at); a.is != b.is || d > 500*time.Millisecond || d < -500*time.Millisecond {
				k.t.Fatalf("%v: what was kept makes %v, and anew it is %v", key, a, b)
			}
		}
	}
}

// measured compares the loads of a world with the samples themselves.
func (k *keptLook) measured(w *steering.World) {
	interval := w.Config.Settings.SampleInterval
	for _, id := range w.Config.Pools() {
		pool, _, _, _ := w.Config.Pool(id)
		if !byLoad(pool) {
			continue
		}
		for _, m := range w.Config.Members(id) {
			var owned []netip.Addr
			for addr, st := range w.Pools[id] {
				if st.Owner.Member() == m {
					owned = append(owned, addr)
				}
			}
			got, want := w.Loads[id][m], k.keeps.loads.Of(m.LNN, m.Interface, owned, k.now, interval)
			if want.Age-got.Age >= measuredAgain || got.Age > want.Age {
				k.t.Fatalf("the load of %s in %s is %s old, and said to be %s", m, id, want.Age, got.Age)
			}
			if got.Age = want.Age; got != want {
				k.t.Fatalf("the load of %s in %s is %+v, want %+v", m, id, got, want)
			}
		}
	}
	k.idle(w)
}

// idle compares which addresses are said to have no connection with the samples themselves. While an address changes its pool two records
// may have it: it is idle if it is by one of them.
func (k *keptLook) idle(w *steering.World) {
	want := map[netip.Addr]bool{}
	eachPool(w.Config, func(id cluster.PoolID, pool *cluster.Pool) {
		if pool.RebalancePolicy != cluster.RebalanceIdle {
			return
		}
		for addr, st := range w.Pools[id] {
			load := k.keeps.loads.Of(st.Owner.LNN, st.Owner.Interface, []netip.Addr{addr}, k.now, w.Config.Settings.SampleInterval)
			if load.Known && !load.Stale && load.Connections == 0 {
				want[addr] = true
			}
		}
	})
	if !maps.Equal(w.Idle, want) {
		k.t.Fatalf("said to be idle: %v, want %v", w.Idle, want)
	}
}
