package agent

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/cluster/clustertest"
	"github.com/holdfast/holdfast/internal/dns"
	"github.com/holdfast/holdfast/internal/linux/link/linktest"
	"github.com/holdfast/holdfast/internal/linux/neigh/neightest"
	"github.com/holdfast/holdfast/internal/load"
	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/store"
	"github.com/holdfast/holdfast/internal/tenure"
	"github.com/holdfast/holdfast/internal/tenure/datagram/datagramtest"
	"github.com/holdfast/holdfast/internal/verdict"
)

// stillLoop is the loop of the agent of node 1 of which nothing runs: it looks when it is told to.
func stillLoop(t testing.TB, dir string, config *cluster.Config, now func() time.Time) *loop {
	t.Helper()
	self, _ := config.Node(1)
	a := &Agent{
		options: Options{Dir: dir, Version: "test"}, ctx: t.Context(), log: slog.New(slog.DiscardHandler), now: now, started: now(),
		self: self, board: &problem.Board{}, registry: prometheus.NewRegistry(), events: newEventLog(),
		peers: &peers{self: self, connect: func(cluster.Node) (*api.PeerClient, error) { return nil, errCut }},
	}
	if err := a.assemble(config, edges{
		kernel: linktest.New(linktest.Ethernet(2, "eth0")), announcer: neightest.New(), wire: datagramtest.NewNetwork(1).Join(1, now),
		runner: verdict.NewRunner, names: func(func(dns.Told)) names { return &fakeNames{} },
	}); err != nil {
		t.Fatal(err)
	}
	l := a.loop
	l.writer = &writer{log: a.log, done: func() {}, pending: map[string]int64{}, failing: map[string]time.Time{}, now: a.now}
	l.wasReady, l.readySince = true, now().Add(-time.Hour)
	l.replica.config, l.replica.synced = config, true
	return l
}

// largeLoop is that of an agent of the largest cluster of docs/benchmarks.md: 256 nodes, 64 pools, 4,096 addresses, all held.
func largeLoop(b *testing.B) *loop {
	b.Helper()
	config := clustertest.Large(b)
	l := stillLoop(b, b.TempDir(), config, time.Now)
	for _, node := range config.Nodes {
		l.replica.members[node.LNN] = memberEntry{revision: 1, fitSince: time.Now().Add(-time.Hour), record: memberRecord{Name: node.Name, Incarnation: 1, Version: "test", Ready: true}}
		l.loads.Put(load.Sample{LNN: node.LNN, Taken: time.Now(), Rated: true, CPU: 0.1, Interfaces: map[string]load.Rate{"eth0": {BytesPerSecond: 1, LinkBytesPerSecond: 10}}}, time.Now())
	}
	for _, p := range proposed(l) {
		l.replica.pools[p.Pool] = poolEntry{record: p.Record, revision: 1}
	}
	for i, address := range config.ServiceAddresses(config.Subnets()[0]) {
		key := steering.ServiceKey{Subnet: config.Subnets()[0], Address: address}
		owner, next := tenure.Claim{LNN: 1 + i, Interface: "eth0", Incarnation: 1}, tenure.Claim{LNN: 11, Interface: "eth0", Incarnation: 1}
		l.replica.services[key] = serviceEntry{statement: tenure.Statement{Owner: owner, Next: next, Epoch: 1}, revision: 1}
	}
	return l
}

// proposed is what the records should become.
func proposed(l *loop) []steering.PoolProposal {
	proposals, _ := steering.ProposePools(l.world(l.now()), steering.Rests{}, l.now())
	return proposals
}

// BenchmarkLook256x4096 is what an agent of the largest cluster does each time that it looks, when nothing is to be done: all of it, and in
// its parts.
func BenchmarkLook256x4096(b *testing.B) {
	l := largeLoop(b)
	now := l.now()
	w := l.read(l.world(now))
	held := map[netip.Addr]bool{}
	for _, h := range steering.Desired(w, 1, true) {
		held[h.Address] = true
	}
	last := applied{}
	parts := []struct {
		name string
		do   func()
	}{
		{"world", func() { w = l.read(l.world(now)) }},
		{"desired", func() { steering.Desired(w, 1, true) }},
		{"leaving", func() { steering.Leaving(w, 1, true) }},
		{"letgo", func() { steering.LetGo(w, 1, steering.OnInterfaces{Held: held}, now) }},
		{"pools", func() { l.proposePools(b.Context(), w, now) }},
		{"services", func() { steering.ProposeServices(w, 1, held, now) }},
		{"nodes", func() { l.observeNodes(w, now) }},
		{"names", func() { l.answers.SetView(w, now) }},
		{"publish", func() { l.publish(w, tenure.Standing{MayHold: true}, 1, last, now) }},
	}
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, part := range parts {
				part.do()
			}
		}
	})
	for _, part := range parts {
		b.Run(part.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				part.do()
			}
		})
	}
}

// BenchmarkLookAfterDeath256x4096 is what an agent of the largest cluster does when a node was found down of which it is a successor: all but writing
// the records, and of it what comes before the applier has its wish.
func BenchmarkLookAfterDeath256x4096(b *testing.B) {
	l := largeLoop(b)
	look := func(now time.Time) (wished time.Time) {
		seen := l.world(now)
		w := l.read(seen)
		l.want(w, steering.Desired(w, 1, true), steering.Leaving(w, 1, true), 0)
		wished = time.Now()
		_, l.rests = steering.ProposePools(w, l.rests, now)
		steering.ProposeServices(w, 1, nil, now)
		l.observeNodes(w, now)
		l.answers.SetView(w, now)
		l.publish(seen, tenure.Standing{MayHold: true}, 1, applied{}, now)
		return wished
	}
	victim := 0
	for _, entry := range l.replica.pools {
		for _, st := range entry.record {
			if st.Next.LNN == 1 && st.Owner.LNN > 11 {
				victim = st.Owner.LNN
			}
		}
	}
	var wishes, alls []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		incarnation := tenure.Incarnation(len(alls) + 1)
		revive(l, victim, incarnation)
		look(l.now())
		generation := l.generation
		l.tenancy.Recorded(victim, memberRecord{Incarnation: incarnation, Over: true})
		l.replica.bury(victim, l.now())
		b.StartTimer()
		start := time.Now()
		wished := look(l.now())
		wishes, alls = append(wishes, wished.Sub(start)), append(alls, time.Since(start))
		if l.generation == generation {
			b.Fatal("the death of a node changed nothing for its successor")
		}
	}
	for unit, took := range map[string][]time.Duration{"ms-to-wish": wishes, "ms-in-all": alls} {
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, unit)
	}
}

// revive brings a node back under an incarnation, with all that it had.
func revive(l *loop, lnn int, incarnation tenure.Incarnation) {
	delete(l.replica.gone, lnn)
	l.replica.ownMembers()
	l.replica.members[lnn] = memberEntry{revision: 1, record: memberRecord{Name: fmt.Sprintf("node%d", lnn), Incarnation: incarnation, Version: "test", Ready: true}}
	for id, entry := range l.replica.pools {
		record := maps.Clone(entry.record)
		for addr, st := range record {
			if st.Owner.LNN == lnn {
				st.Owner.Incarnation = incarnation
			}
			if st.Next.LNN == lnn {
				st.Next.Incarnation = incarnation
			}
			record[addr] = st
		}
		l.replica.pools[id] = poolEntry{record: record, revision: entry.revision}
	}
}

// BenchmarkLoads256x4096 is what an agent of the largest cluster does when samples of a quarter of the nodes came in on which answers depend:
// those of one pool, or of all.
func BenchmarkLoads256x4096(b *testing.B) {
	for _, measured := range []int{1, 64} {
		b.Run(fmt.Sprintf("pools=%d", measured), func(b *testing.B) {
			l := largeLoop(b)
			for i := range measured {
				l.replica.config.Groupnets[0].Subnets[0].Pools[i].ConnectPolicy = cluster.ConnCount
			}
			taken := time.Now()
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				taken = taken.Add(time.Second)
				for lnn := 1; lnn <= 64; lnn++ {
					l.loads.Put(load.Sample{LNN: lnn, Taken: taken, Rated: true, Interfaces: map[string]load.Rate{"eth0": {BytesPerSecond: 1, LinkBytesPerSecond: 10}}}, l.now())
				}
				b.StartTimer()
				l.refreshLoads()
			}
		})
	}
}

// BenchmarkState256x4096 is what an agent of the largest cluster holds in memory for what it knows of it, garbage apart: all records as they come
// from the store, a sample of each node, the last world and view, and the prepared names. Resident is what the whole process has, of a
// member of the embedded store apart from that store.
func BenchmarkState256x4096(b *testing.B) {
	var before, after runtime.MemStats
	for b.Loop() {
		b.StopTimer()
		all := storedState(b, largeLoop(b))
		debug.FreeOSMemory()
		runtime.ReadMemStats(&before)
		b.StartTimer()
		l := largeLoop(b)
		l.replica = newReplica()
		l.replica.apply(all, l.now())
		look := l.world(l.now())
		w := l.read(look)
		names := dns.NewAnswerer(dns.AnswererOptions{})
		l.answers.SetView(w, l.now())
		names.SetView(l.answers.named.view)
		l.observeNodes(w, l.now())
		l.proposePools(b.Context(), w, l.now())
		l.publish(look, tenure.Standing{MayHold: true}, 1, applied{}, l.now())
		b.StopTimer()
		debug.FreeOSMemory()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(l)
		runtime.KeepAlive(names)
		b.StartTimer()
	}
	b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/(1<<20), "MiB-held")
	b.ReportMetric(resident(b), "MiB-resident")
}

// storedState is all records of a loop as the store would deliver them.
func storedState(b *testing.B, l *loop) store.Batch {
	batch := store.Batch{Revision: 1, Resync: true}
	put := func(key string, value any) {
		data, err := json.Marshal(value)
		if err != nil {
			b.Fatal(err)
		}
		batch.Events = append(batch.Events, store.Event{Entry: store.Entry{Key: key, Value: data, Revision: 1}})
	}
	put(keyConfig, configRecord{YAML: string(cluster.Print(l.replica.config))})
	for lnn, entry := range l.replica.members {
		put(memberKey(lnn), entry.record)
	}
	for id, entry := range l.replica.pools {
		put(poolKey(id), entry.record)
	}
	for key, entry := range l.replica.services {
		put(serviceKey(key), entry.statement)
	}
	return batch
}

// resident is how many MiB of the process lie in memory.
func resident(b *testing.B) float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip("the kernel does not say how much is resident: ", err)
	}
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	kib, err := strconv.ParseFloat(strings.Fields(after)[0], 64)
	if err != nil {
		b.Fatal(err)
	}
	return kib / 1024
}
