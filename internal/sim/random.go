package sim

import "time"

// random is a source of chance of its own (splitmix64), so that a seed means the same with every version of the compiler.
type random uint64

// newRandom is one of many independent streams of a seed.
func newRandom(seed, stream uint64) *random {
	r := random(seed*0x9e3779b97f4a7c15 + stream*0xd1342543de82ef95 + 0x632be59bd9b4e019)
	r.next()
	return &r
}

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	x := uint64(*r)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// below is a number from 0 to n-1; 0 for an n of 0.
func (r *random) below(n int) int {
	if n <= 0 {
		return 0
	}
	return int(r.next() % uint64(n))
}

// between is a duration from low to high.
func (r *random) between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(r.next()%uint64(high-low))
}

// chance is true so many times in a thousand.
func (r *random) chance(perMille int) bool { return perMille > 0 && r.below(1000) < perMille }

// pick is one of several.
func pick[T any](r *random, of ...T) T { return of[r.below(len(of))] }
