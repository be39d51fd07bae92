package steering

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/cluster/clustertest"
	"github.com/holdfast/holdfast/internal/tenure"
)

// largeModel is the largest cluster of docs/benchmarks.md, "Decisions of the largest cluster": 256 nodes, 64 pools, 4,096 addresses, all held.
func largeModel(b *testing.B) *World {
	b.Helper()
	config := clustertest.Large(b)
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
