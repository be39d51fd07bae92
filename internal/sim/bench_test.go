package sim

import (
	"testing"
)

// BenchmarkSeed plays one seed after another, from the first: the time of one is what a million of them cost.
func BenchmarkSeed(b *testing.B) {
	b.ReportAllocs()
	seed := uint64(0)
	for b.Loop() {
		Play(Generate(seed), Options{})
		seed++
	}
}
