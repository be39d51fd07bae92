package dns

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/holdfast/holdfast/internal/cluster"
)

// TestReservationsAreEven: however many reserve at once, in whatever amounts, while plans are closed under them, each pick is handed out
// once: all together name every node equally often, and every one is counted.
func TestReservationsAreEven(t *testing.T) {
	v := testView()
	a := newTestAnswerer(t, v, AnswererOptions{})
	q := asked{name: "cluster.example.com.", qtype: 1}
	e, _ := a.zones.Load().find(queryFor(t, q.pack(t)))
	p := e.v4
	turn := p.state.of(p.Rotation, testService)
	const reservers, each = 4, 10000
	counts := make([]map[int]int, reservers)
	var running sync.WaitGroup
	for r := range reservers {
		counts[r] = map[int]int{}
		running.Go(func() {
			random := rand.New(rand.NewPCG(uint64(r), 1))
			for left := each; left > 0; {
				for _, pick := range turn.reserve(p, min(left, 1+random.IntN(batchSize))) {
					counts[r][p.options[pick].node]++
					left--
				}
			}
		})
	}
	told := uint32(0)
	reserved := make(chan struct{})
	go func() {
		defer close(reserved)
		running.Wait()
	}()
	for over := false; !over; {
		select {
		case <-reserved:
			over = true
		default:
		}
		told += given(a)
		if _, err := a.Explain("cluster.example.com", 1, testNow); err != nil {
			t.Error(err)
		}
	}
	sum, least, most := 0, reservers*each, 0
	for node := range p.Nodes {
		n := 0
		for r := range reservers {
			n += counts[r][node]
		}
		sum, least, most = sum+n, min(least, n), max(most, n)
	}
	if sum != reservers*each || most-least > 1 || told != reservers*each {
		t.Errorf("%d picks, of each node between %d and %d; told %d", sum, least, most, told)
	}
}

// TestPlansGrowAndShrink: one query at a time reserves one; what is worked out ahead grows while it is used up and shrinks to what was used
// when something comes between, and never beyond its bound.
func TestPlansGrowAndShrink(t *testing.T) {
	a := newTestAnswerer(t, testView(), AnswererOptions{})
	e, _ := a.zones.Load().find(queryFor(t, asked{name: "cluster.example.com.", qtype: 1}.pack(t)))
	turn := e.v4.state.of(cluster.RotationShared, testService)
	for range 5000 {
		if n := len(turn.reserve(e.v4, 1)); n != 1 {
			t.Fatalf("%d picks for one query", n)
		}
		if length := len(turn.plan.Load().picks); length > maxPlan {
			t.Fatalf("a plan of %d", length)
		}
	}
	if length := len(turn.plan.Load().picks); length != maxPlan {
		t.Errorf("a plan of %d after many answers", length)
	}
	for range 3 {
		turn.merge(1, 1)
		turn.reserve(e.v4, 1)
	}
	if length := len(turn.plan.Load().picks); length > 4 {
		t.Errorf("a plan of %d though each is closed after one answer", length)
	}
	turn.merge(1, 1) // so that nothing is left of a plan
	if n := len(turn.reserve(e.v4, maxPlan+100)); n == 0 || n > maxPlan {
		t.Errorf("%d picks for more than a plan has", n)
	}
}

// TestClosedPlansGiveNothing: who took hold of a plan before it was closed, and reserves after, gets nothing, since nobody would count it.
func TestClosedPlansGiveNothing(t *testing.T) {
	a := newTestAnswerer(t, testView(), AnswererOptions{})
	e, _ := a.zones.Load().find(queryFor(t, asked{name: "cluster.example.com.", qtype: 1}.pack(t)))
	turn := e.v4.state.of(cluster.RotationShared, testService)
	for range 2 {
		turn.reserve(e.v4, batchSize)
	}
	held := turn.plan.Load()
	if n := len(held.take(e.v4, 1)); n != 1 {
		t.Fatalf("an open plan gives %d", n)
	}
	turn.merge(1, 1)
	if n := len(held.take(e.v4, 1)); n != 0 {
		t.Errorf("a closed plan gives %d", n)
	}
}

func queryFor(t *testing.T, message []byte) *query {
	t.Helper()
	var q query
	if err := q.read(message); err != nil {
		t.Fatal(err)
	}
	return &q
}
