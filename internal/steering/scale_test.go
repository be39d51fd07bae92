package steering

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

// largeModel is the largest cluster of docs/benchmarks.md, "Decisions of the largest cluster": 256 nodes, 64 pools, 4,096 addresses, all held.
func largeModel(b *testing.B) *World {
	b.Helper()
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
	w := &World{Config: config, Self: 1, Nodes: map[int]Node{}, Pools: map[cluster.PoolID]tenure.Record{}, Services: map[ServiceKey]tenure.Statement{}}
	for lnn := 1; lnn <= 256; lnn++ {
		w.Nodes[lnn] = Node{LNN: lnn, Name: fmt.Sprintf("node%d", lnn), Present: true, Ready: true, Incarnation: 1}
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, id := range config.Pools() {
		if p, _, ok := ProposePool(w, id, false, now); ok {
			w.Pools[id] = p.Record
		}
	}
	return w
}

// BenchmarkSteadyLook256x4096 is one look at all pools when nothing is to be done, and nothing has changed since the last.
func BenchmarkSteadyLook256x4096(b *testing.B) {
	w := largeModel(b)
	_, rests := ProposePools(w, Rests{}, time.Time{})
	b.ReportAllocs()
	for b.Loop() {
		_, rests = ProposePools(w, rests, time.Time{})
	}
}

// BenchmarkFirstLook256x4096 is one look at all pools when nothing is to be done, but nothing is known of the last.
func BenchmarkFirstLook256x4096(b *testing.B) {
	w := largeModel(b)
	b.ReportAllocs()
	for b.Loop() {
		ProposePools(w, Rests{}, time.Time{})
	}
}

// BenchmarkDeath256x4096 is the proposals of all pools after the death of a node.
func BenchmarkDeath256x4096(b *testing.B) {
	w := largeModel(b)
	_, rests := ProposePools(w, Rests{}, time.Time{})
	died := without(w, []int{7}, time.Time{})
	b.ReportAllocs()
	for b.Loop() {
		ProposePools(died, rests, time.Time{})
	}
}
