package agent

import (
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/dns"
	"github.com/holdfast/holdfast/internal/linux/link/linktest"
	"github.com/holdfast/holdfast/internal/linux/neigh/neightest"
	"github.com/holdfast/holdfast/internal/load"
	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
	"github.com/holdfast/holdfast/internal/tenure/datagram/datagramtest"
	"github.com/holdfast/holdfast/internal/verdict"
)

// largeLoop is the loop of an agent of the largest cluster of docs/benchmarks.md: 256 nodes, 64 pools, 4,096 addresses, all held. Nothing
// of it runs.
func largeLoop(b *testing.B) *loop {
	b.Helper()
	config := largeConfig(b)
	self, _ := config.Node(1)
	a := &Agent{
		options: Options{Dir: b.TempDir(), Version: "test"}, ctx: b.Context(), log: slog.New(slog.DiscardHandler), now: time.Now, started: time.Now(),
		self: self, board: &problem.Board{}, registry: prometheus.NewRegistry(), events: newEventLog(),
		peers: &peers{self: self, connect: func(cluster.Node) (*api.PeerClient, error) { return nil, errCut }},
	}
	if err := a.assemble(config, edges{
		kernel: linktest.New(linktest.Ethernet(2, "eth0")), announcer: neightest.New(), wire: datagramtest.NewNetwork(1).Join(1, time.Now),
		runner: verdict.NewRunner, names: func(func(dns.Told)) names { return &fakeNames{} },
	}); err != nil {
		b.Fatal(err)
	}
	l := a.loop
	l.wasReady, l.readySince = true, time.Now().Add(-time.Hour)
	l.replica.config, l.replica.synced = config, true
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

// largeConfig is its configuration.
func largeConfig(b *testing.B) *cluster.Config {
	var text strings.Builder
	text.WriteString("cluster: {name: large}\nnodes:\n")
	var ifaces []string
	for lnn := 1; lnn <= 256; lnn++ {
		fmt.Fprintf(&text, "  - {name: node%d, lnn: %d, interfaces: [eth0], addresses: [10.0.%d.%d], voter: %v}\n", lnn, lnn, lnn/250, 1+lnn%250, lnn <= 5)
		ifaces = append(ifaces, fmt.Sprintf("%q", fmt.Sprintf("%d:eth0", lnn)))
	}
	text.WriteString("groupnets:\n  - name: groupnet0\n    subnets:\n      - name: subnet0\n        cidr: 10.0.0.0/16\n        sc-service-name: ssip.large\n        sc-service-addrs: [10.0.250.4-10.0.250.6]\n        pools:\n")
	for pool := range 64 {
		fmt.Fprintf(&text, "          - {name: pool%d, ranges: [10.0.%d.1-10.0.%d.64], ifaces: [%s], alloc-method: dynamic, sc-dns-zone: pool%d.large}\n",
			pool, 100+pool, 100+pool, strings.Join(ifaces, ", "), pool)
	}
	config, err := cluster.Parse("large", []byte(text.String()))
	if err != nil {
		b.Fatal(err)
	}
	return config
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
	w := l.world(now)
	held := map[netip.Addr]bool{}
	for _, h := range steering.Desired(w, 1, true) {
		held[h.Address] = true
	}
	last := applied{}
	parts := []struct {
		name string
		do   func()
	}{
		{"world", func() { w = l.world(now).ForReading() }},
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

// BenchmarkLoads256x4096 is what an agent of the largest cluster does when samples came in on which answers depend.
func BenchmarkLoads256x4096(b *testing.B) {
	l := largeLoop(b)
	l.replica.config.Groupnets[0].Subnets[0].Pools[0].ConnectPolicy = cluster.ConnCount
	b.ReportAllocs()
	for b.Loop() {
		l.refreshLoads()
	}
}

// BenchmarkState256x4096 is what an agent of the largest cluster holds in memory for what it knows of it, garbage apart.
func BenchmarkState256x4096(b *testing.B) {
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		l := largeLoop(b)
		w := l.world(l.now())
		l.answers.SetView(w.ForReading(), l.now())
		l.proposePools(b.Context(), w, l.now())
		l.publish(w, tenure.Standing{MayHold: true}, 1, applied{}, l.now())
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(l)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB-held")
}
