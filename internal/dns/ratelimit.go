package dns

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"sync"
	"time"
)

// RateLimit bounds the responses over UDP to one client prefix (/24 of IPv4, /56 of IPv6), so that whoever forges a
// victim's address gains nothing. A client with a valid cookie, and TCP, are not limited: their addresses are proven.
type RateLimit struct {
	Off       bool
	PerSecond int // responses per second in the long run; default 10,000, above what any resolver asks of one name
	Burst     int // responses at once; default twice PerSecond
	Prefixes  int // client prefixes that are remembered; default 16,384
}

func (l RateLimit) withDefaults() RateLimit {
	if l.PerSecond <= 0 {
		l.PerSecond = 10000
	}
	if l.Burst <= 0 {
		l.Burst = 2 * l.PerSecond
	}
	if l.Prefixes <= 0 {
		l.Prefixes = 16384
	}
	return l
}

// allowance is what the limiter says about one response.
type allowance int

const (
	allowed allowance = iota
	slipped           // over the limit: send a small response that leads a real client to TCP or to its cookie
	refused           // over the limit: silence
)

// bucketWays is how many buckets one prefix may live in.
const bucketWays = 4

// rateLimiter is a table of token buckets of fixed size. A prefix may use any of a few buckets; when all of them are
// taken, the fullest one, which forgets least, is given away and counted as an eviction.
type rateLimiter struct {
	limit RateLimit
	seed  maphash.Seed

	mu        sync.Mutex
	buckets   []bucket
	evictions uint64
}

type bucket struct {
	key    uint64 // hash of the prefix; 0: never used
	tokens float64
	filled time.Time
	over   uint32 // responses over the limit; every second one slips
}

func newRateLimiter(l RateLimit) *rateLimiter {
	l = l.withDefaults()
	if l.Off {
		return nil
	}
	sets := max(l.Prefixes/bucketWays, 1)
	return &rateLimiter{limit: l, seed: maphash.MakeSeed(), buckets: make([]bucket, sets*bucketWays)}
}

// take asks for one response to a client.
func (l *rateLimiter) take(client netip.Addr, now time.Time) allowance {
	key := l.key(client)
	set := int(key%uint64(len(l.buckets)/bucketWays)) * bucketWays
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.bucket(l.buckets[set:set+bucketWays], key, now)
	b.tokens = l.level(b, now)
	b.filled = now
	if b.tokens >= 1 {
		b.tokens--
		return allowed
	}
	b.over++
	if b.over%2 == 0 {
		return slipped
	}
	return refused
}

// bucket is the prefix's bucket in its set, or the fullest one, emptied of its past.
func (l *rateLimiter) bucket(set []bucket, key uint64, now time.Time) *bucket {
	fullest, level := 0, -1.0
	for i := range set {
		if set[i].key == key {
			return &set[i]
		}
		if have := l.level(&set[i], now); have > level {
			fullest, level = i, have
		}
	}
	b := &set[fullest]
	if level < float64(l.limit.Burst) {
		l.evictions++
	}
	*b = bucket{key: key, tokens: float64(l.limit.Burst), filled: now}
	return b
}

// level is how many tokens a bucket has now.
func (l *rateLimiter) level(b *bucket, now time.Time) float64 {
	if b.key == 0 {
		return float64(l.limit.Burst)
	}
	earned := now.Sub(b.filled).Seconds() * float64(l.limit.PerSecond)
	return min(b.tokens+max(earned, 0), float64(l.limit.Burst))
}

// key is the hash of a client's prefix, never 0. The seed is this process's own, so that nobody can aim at a bucket.
func (l *rateLimiter) key(client netip.Addr) uint64 {
	var prefix [9]byte
	if client.Is4() {
		four := client.As4()
		copy(prefix[:3], four[:])
		prefix[8] = 4
	} else {
		sixteen := client.As16()
		binary.BigEndian.PutUint64(prefix[:8], binary.BigEndian.Uint64(sixteen[:8])&^0xff)
		prefix[8] = 6
	}
	return max(maphash.Bytes(l.seed, prefix[:]), 1)
}

func (l *rateLimiter) evicted() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.evictions
}
