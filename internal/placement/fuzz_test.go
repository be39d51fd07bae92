package placement

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/holdfast/holdfast/internal/cluster"
	"pgregory.net/rapid"
)

// byteSource hands out the fuzzer's bytes; zeros when they are used up.
type byteSource []byte

func (b *byteSource) next() int {
	if len(*b) == 0 {
		return 0
	}
	first := (*b)[0]
	*b = (*b)[1:]
	return int(first)
}

// fuzzRequest turns bytes into a request, larger and stranger than those of drawRequest.
func fuzzRequest(data []byte) Request {
	source := byteSource(data)
	flags := source.next()
	req := Request{
		Pool:           cluster.PoolID{Pool: fmt.Sprint(flags)},
		Addresses:      addresses(source.next() % 40),
		FailoverPolicy: []cluster.Policy{"", cluster.RoundRobin, cluster.ConnCount, cluster.Throughput, cluster.CPUUsage, "none"}[source.next()%6],
		Rebalance:      flags&1 > 0,
		Pins:           map[netip.Addr]cluster.Member{},
	}
	if flags&2 > 0 {
		req.Movable = map[netip.Addr]bool{}
	}
	members := []cluster.Member{{}, {LNN: 99, Interface: "gone"}}
	for i := range source.next() % 24 {
		traits := source.next()
		m := cluster.Member{LNN: i/(1+flags>>6) - 2, Interface: fmt.Sprintf("e%d", i)}
		members = append(members, m)
		req.Candidates = append(req.Candidates, Candidate{
			Member: m, Fit: traits&3 > 0, HoldDown: traits&12 == 12, Weight: (source.next() - 5) << (traits >> 6 * 6),
			Load: Load{
				Known: traits&16 > 0, Stale: traits&32 > 0, Connections: source.next() - 1,
				Throughput: 1 / float64(source.next()-1), CPU: -float64(source.next() % 3),
			},
		})
	}
	who := func() cluster.Member { return members[source.next()%len(members)] }
	for i := range req.Addresses {
		what := source.next()
		if what&3 > 0 {
			req.Current = append(req.Current, Statement{Address: addressAt(i), Owner: who(), Next: who()})
		}
		if what&28 == 28 {
			req.Pins[addressAt(i)] = who()
		}
		if req.Movable != nil && what&32 > 0 {
			req.Movable[addressAt(i)] = true
		}
	}
	return req
}

// FuzzAllocate: whatever comes, nothing panics, the invariants hold, and a second proposal changes nothing.
func FuzzAllocate(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x0c\x01\x04\x01\x06\x01\x06\x01\x06\x01\x06"))
	f.Add([]byte("\x01\x08\x02\x05\x11\x06\x09\x01\x00\x11\x07\x00\x02\x01\x1d\x06\x30\x30\x30\x00\x06\x02\x02\x02\x31\xff\x00\x01\x02\x1f\x02\x03\x04\x3f"))
	f.Add([]byte("\xc3\x27\x04\x17zyxwvutsrqponmlkjihgfedcba9876543210zyxwvutsrqponmlkjihgfedcba9876543210ZYXWVUTSRQPONMLKJIHGFEDCBA"))
	f.Fuzz(func(t *testing.T, data []byte) {
		req := fuzzRequest(data)
		result := Allocate(req)
		for _, b := range breaches(req, result) {
			t.Error(b)
		}
		PlanDown(req, 1, 2)
		AllocateStatic(req)
		if len(req.Addresses) > 0 {
			Explain(req, req.Addresses[0])
		}
		req.Current = result.Statements
		if diff := cmp.Diff(show(result.Statements), show(Allocate(req).Statements)); diff != "" {
			t.Errorf("the second proposal differs:\n%s", diff)
		}
	})
}

// FuzzRotation: any sequence of answers, merges, samples and changes; see stepRotation for what must hold.
func FuzzRotation(f *testing.F) {
	f.Add([]byte("a holder of a service address answers, hears of others, and answers again"))
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		var r Rotation
		choices := choicesOf(rapid.IntRange(1, 6).Draw(t, "nodes"))
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			stepRotation(t, &r, choices)
		}
	}))
}
