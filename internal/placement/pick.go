package placement

import "math"

// key orders seats by who should be given the next address: least first. What one more address would add to the sum of
// n*n/weight is (2n+1)/weight; taking the least each time gives the least sum. The quotients are exact enough to
// compare: two different ones differ by at least 1/MaxWeight², far above the rounding of a float64.
type key struct {
	seat    float64 // (2n+1)/weight of the seat
	node    float64 // (2n+1)/weight of its node: among equal seats, those of the emptier node first
	dealt   int32   // addresses of the one dead owner that it is to get: so that they go to different ones
	wants   int32   // addresses that are on record for it and not yet its own: those first, as it saves a move
	crowd   int32   // tie-break by what else it is charged with
	scatter uint32  // last tie-break, different for each pool, so that remainders do not pile up on one node
}

// less reports whether a comes before b.
func (a *key) less(b *key) bool {
	if a.node != b.node {
		return a.node < b.node
	}
	if a.dealt != b.dealt {
		return a.dealt < b.dealt
	}
	if (a.wants > 0) != (b.wants > 0) {
		return a.wants > 0
	}
	if a.crowd != b.crowd {
		return a.crowd < b.crowd
	}
	return a.scatter < b.scatter
}

// resetKeys computes the keys from what seats and nodes hold now.
func (t *table) resetKeys() {
	if len(t.keys) == 0 {
		t.keys = zeroed(t.keys, len(t.seats))
		pool := scatterString(scatterSeed, t.req.Pool.Groupnet)
		pool = scatterString(pool, t.req.Pool.Subnet)
		pool = scatterString(pool, t.req.Pool.Pool)
		for i := range t.keys {
			member := t.seats[i].Member
			t.keys[i].scatter = scatterEnd(scatterString(pool^uint32(member.LNN)*scatterPrime, member.Interface))
			t.keys[i].crowd = int32(min(t.req.Elsewhere[member], math.MaxInt32))
		}
	}
	for i := range t.keys {
		t.setKey(i, 0, 0)
		t.keys[i].wants, t.keys[i].dealt = 0, 0
	}
}

// setKey computes the key of a seat that is to hold extra more addresses than now, on a node that is to hold nodeExtra
// more.
func (t *table) setKey(i, extra, nodeExtra int) {
	s := &t.seats[i]
	n := &t.nodes[s.node]
	t.keys[i].seat = float64(2*(s.held+extra)+1) / s.weight
	t.keys[i].node = float64(2*(n.held+nodeExtra)+1) / n.weight
}

// lightest finds the seat of list with the least key, leaving out the seats from skip up to but without end.
func (t *table) lightest(list []int, skip, end int) int {
	best := nobody
	var least *key
	for _, i := range list {
		if i >= skip && i < end {
			continue
		}
		k := &t.keys[i]
		if best == nobody || k.seat < least.seat || k.seat == least.seat && k.less(least) {
			best, least = i, k
		}
	}
	return best
}

// The scatter is FNV-1a with a final mix, so that similar names scatter too. Its values are part of what nodes of
// different versions must agree on: a change moves nothing, but lets proposals of mixed versions differ.
const (
	scatterSeed  = 2166136261
	scatterPrime = 16777619
)

func scatterString(hash uint32, text string) uint32 {
	for i := range len(text) {
		hash = (hash ^ uint32(text[i])) * scatterPrime
	}
	return (hash ^ 0xff) * scatterPrime
}

func scatterEnd(hash uint32) uint32 {
	hash ^= hash >> 16
	hash *= 0x85ebca6b
	hash ^= hash >> 13
	hash *= 0xc2b2ae35
	return hash ^ hash>>16
}
