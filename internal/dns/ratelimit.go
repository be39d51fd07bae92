package dns

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"net/netip"
	"sync/atomic"
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
	undecided allowance = iota
	allowed
	slipped // over the limit: send a small response that leads a real client to TCP or to its cookie
	refused // over the limit: silence
)

// bucketWays is how many buckets one prefix may live in. Together they fill half a line of a processor's cache.
const bucketWays = 4

// A bucket is one word, so that it changes without a lock: the mark of its prefix, whether the last response over the limit was kept
// back or slipped, and the time, in responses that have become due since the limiter began, at which it will be full. That is the
// generic cell rate algorithm: a bucket that is full at a time t from now lacks t; full in the past, it lacks nothing.
const (
	bucketDue  = 1<<39 - 1
	bucketSlip = 1 << 39
	bucketMark = 40 // bits below it
)

// rateLimiter is a table of token buckets of fixed size. A prefix may use any of a few buckets; when all of them are
// taken, the fullest one, which forgets least, is given away and counted as an eviction.
//
// There is one table for all processors, so that the limit of a prefix is exact wherever its queries are read. A batch of queries asks once for
// each prefix in it.
type rateLimiter struct {
	limit     RateLimit
	seed      maphash.Seed
	began     atomic.Pointer[time.Time]
	buckets   []atomic.Uint64
	evictions [64]evictions
}

// evictions counts for some of the buckets, apart from the others.
type evictions struct {
	atomic.Uint64
	_ [cacheLine - 8]byte
}

func newRateLimiter(l RateLimit) *rateLimiter {
	l = l.withDefaults()
	if l.Off {
		return nil
	}
	l.PerSecond, l.Burst = min(l.PerSecond, 1e9), min(l.Burst, 1<<36)
	sets := max(l.Prefixes/bucketWays, 1)
	return &rateLimiter{limit: l, seed: maphash.MakeSeed(), buckets: make([]atomic.Uint64, sets*bucketWays)}
}

// take asks for one response to a client.
func (l *rateLimiter) take(client netip.Addr, now time.Time) allowance {
	granted, slip := l.takeMany(l.key(client), 1, l.due(now))
	switch {
	case granted > 0:
		return allowed
	case slip:
		return slipped
	}
	return refused
}

// takeMany asks for some responses to the clients of a prefix. Of those that it does not grant every second one slips, the first of them if
// slip says so. Where two processors meet a new prefix at the same moment, it may have two buckets until one of them is given away.
func (l *rateLimiter) takeMany(key uint64, count int, now uint64) (granted int, slip bool) {
	set := int(key%uint64(len(l.buckets)/bucketWays)) * bucketWays
	mark := max(key>>bucketMark, 1)
	for {
		b, found := l.bucket(l.buckets[set:set+bucketWays], mark, now)
		before := b.Load()
		if found != (before>>bucketMark == mark) {
			continue // it was given to another prefix, or to this one, meanwhile
		}
		level, phase := l.limit.Burst, uint64(0)
		if found {
			level, phase = l.level(before, now), before&bucketSlip
		}
		granted, slip = min(count, level), phase != 0
		if (count-granted)%2 != 0 {
			phase ^= bucketSlip
		}
		full := (now + uint64(l.limit.Burst-level+granted)) & bucketDue
		if !b.CompareAndSwap(before, mark<<bucketMark|phase|full) {
			continue
		}
		if !found && l.level(before, now) < l.limit.Burst {
			l.evictions[set/bucketWays%len(l.evictions)].Add(1)
		}
		return granted, slip
	}
}

// bucket is the prefix's bucket in its set, or the fullest one, to be emptied of its past.
func (l *rateLimiter) bucket(set []atomic.Uint64, mark, now uint64) (b *atomic.Uint64, found bool) {
	fullest, most := 0, -1
	for i := range set {
		word := set[i].Load()
		if word>>bucketMark == mark {
			return &set[i], true
		}
		if have := l.level(word, now); have > most {
			fullest, most = i, have
		}
	}
	return &set[fullest], false
}

// level is how many responses a bucket has now. One that seems to be full later than it can be is from before the clock was set back,
// or so old that its time has come round: it is empty.
func (l *rateLimiter) level(word, now uint64) int {
	if word == 0 {
		return l.limit.Burst // never used
	}
	lacks := int64(((word&bucketDue)-now)<<(64-39)) >> (64 - 39)
	return l.limit.Burst - int(min(max(lacks, 0), int64(l.limit.Burst)))
}

// due is how many responses have become due since the limiter began, for every prefix.
func (l *rateLimiter) due(now time.Time) uint64 {
	began := l.began.Load()
	if began == nil {
		began = l.begin(now)
	}
	elapsed := now.Sub(*began)
	high, low := bits.Mul64(uint64(elapsed.Abs()), uint64(l.limit.PerSecond))
	due, _ := bits.Div64(high, low, uint64(time.Second))
	if elapsed < 0 {
		return -due & bucketDue
	}
	return due & bucketDue
}

// begin starts to count from the first query on.
func (l *rateLimiter) begin(now time.Time) *time.Time {
	l.began.CompareAndSwap(nil, &now)
	return l.began.Load()
}

// key is the hash of a client's prefix. The seed is this process's own, so that nobody can aim at a bucket.
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
	return maphash.Bytes(l.seed, prefix[:])
}

func (l *rateLimiter) evicted() (sum uint64) {
	for i := range l.evictions {
		sum += l.evictions[i].Load()
	}
	return sum
}
