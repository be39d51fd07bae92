package placement

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

// bigPools is the cluster of the scale bar: 256 nodes, each a member of all 64 pools, 4,096 addresses in all.
func bigPools(nodes, pools, addressesEach int) []Request {
	requests := make([]Request, pools)
	for p := range requests {
		req := &requests[p]
		req.Pool = cluster.PoolID{Groupnet: "groupnet0", Subnet: "subnet0", Pool: fmt.Sprintf("pool%d", p)}
		for a := range addressesEach {
			req.Addresses = append(req.Addresses, netip.AddrFrom4([4]byte{10, byte(p), byte(a >> 8), byte(a)}))
		}
		for n := 1; n <= nodes; n++ {
			req.Candidates = append(req.Candidates, Candidate{
				Member: cluster.Member{LNN: n, Interface: "ext-1"}, Node: fmt.Sprintf("n%d", n), Weight: 1, Fit: true,
				Load: Load{Known: true, Connections: 100 + n*7%13, Age: time.Second},
			})
		}
		req.Current = Allocate(*req).Statements
	}
	return requests
}

// BenchmarkPlanDown256x4096 is the plan for a death over all pools; the bar is 20 ms at most (docs/benchmarks.md, "Placement").
func BenchmarkPlanDown256x4096(b *testing.B) {
	requests := bigPools(256, 64, 64)
	down := requests[0].Current[0].Owner.LNN
	b.ReportAllocs()
	for b.Loop() {
		for _, req := range requests {
			PlanDown(req, down)
		}
	}
}

// BenchmarkPlanDownByLoad is the same under a measured failover policy.
func BenchmarkPlanDownByLoad(b *testing.B) {
	requests := bigPools(256, 64, 64)
	for i := range requests {
		requests[i].FailoverPolicy = cluster.ConnCount
		requests[i].Current = Allocate(requests[i]).Statements
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, req := range requests {
			PlanDown(req, 7)
		}
	}
}

// BenchmarkAllocateSteady is what every node does when anything changes: to find that nothing has to.
func BenchmarkAllocateSteady(b *testing.B) {
	requests := bigPools(256, 64, 64)
	b.ReportAllocs()
	for b.Loop() {
		for _, req := range requests {
			Allocate(req)
		}
	}
}

// BenchmarkAllocateRebalance evens out all pools after a node returned.
func BenchmarkAllocateRebalance(b *testing.B) {
	requests := bigPools(256, 64, 64)
	for i := range requests {
		requests[i].Current = PlanDown(requests[i], 7).Statements
		requests[i].Rebalance = true
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, req := range requests {
			Allocate(req)
		}
	}
}

// BenchmarkAllocateOnePool4096 is one pool of the largest size that a configuration may have.
func BenchmarkAllocateOnePool4096(b *testing.B) {
	requests := bigPools(256, 1, 4096)
	b.ReportAllocs()
	for b.Loop() {
		PlanDown(requests[0], 7)
	}
}

func BenchmarkAllocateFromNothing(b *testing.B) {
	requests := bigPools(256, 64, 64)
	for i := range requests {
		requests[i].Current = nil
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, req := range requests {
			Allocate(req)
		}
	}
}

func BenchmarkPick(b *testing.B) {
	for _, policy := range []cluster.Policy{cluster.RoundRobin, cluster.ConnCount, cluster.Throughput} {
		for _, nodes := range []int{7, 50, 256} {
			b.Run(fmt.Sprintf("%s/%d", policy, nodes), func(b *testing.B) {
				choices := make([]Choice, nodes)
				for i := range choices {
					choices[i] = Choice{LNN: i + 1, Name: "n", Weight: 1, Eligible: true, Load: Load{Known: true, Connections: i % 5}}
				}
				var rotation Rotation
				b.ReportAllocs()
				for b.Loop() {
					rotation.Pick(policy, choices)
				}
			})
		}
	}
}
