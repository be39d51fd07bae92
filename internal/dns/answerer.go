package dns

import (
	"crypto/rand"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

// AnswererOptions configure an Answerer. The zero value is complete.
type AnswererOptions struct {
	// CookieSecrets make and check server cookies (RFC 9018). The first makes them; further ones, from before a change,
	// are still accepted. All nodes of a cluster should have the same. Default: one of this process's own.
	CookieSecrets []CookieSecret
	RateLimit     RateLimit
	// Given is called, if set, after each answer that the other holders of service addresses have to hear of. It must
	// return at once; TakeGiven says what there is to tell.
	Given func()
}

// Answerer turns queries into responses from the last view it was given. Until then it answers SERVFAIL.
type Answerer struct {
	zones   atomic.Pointer[zones]
	cookies cookieJar
	limiter *rateLimiter
	given   func()

	mu    sync.Mutex // guards pools, and keeps views in order
	pools map[cluster.PoolID]*poolState
}

// NewAnswerer returns an Answerer that has no view yet.
func NewAnswerer(o AnswererOptions) *Answerer {
	a := &Answerer{
		cookies: cookieJar{secrets: slices.Clone(o.CookieSecrets)},
		limiter: newRateLimiter(o.RateLimit),
		given:   o.Given,
		pools:   map[cluster.PoolID]*poolState{},
	}
	if len(a.cookies.secrets) == 0 {
		a.cookies.secrets = make([]CookieSecret, 1)
		rand.Read(a.cookies.secrets[0][:]) // never fails (crypto/rand)
	}
	a.zones.Store(&zones{})
	return a
}

// SetView makes v what queries are answered from. Where a pool's rotation stands is kept; that of pools which are no
// longer in the view is forgotten. The faults are names that had to be left out, which a validated configuration never has.
func (a *Answerer) SetView(v *View) (faults []error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	seen := map[cluster.PoolID]*poolState{}
	prepared, faults := prepare(v, func(p *Pool) *poolState {
		s := a.pools[p.ID]
		if s == nil {
			s = &poolState{id: p.ID}
		}
		seen[p.ID] = s
		return s
	})
	a.pools = seen
	a.zones.Store(prepared)
	// Only now, so that no answer is made from old loads with the own answers since then forgotten.
	for i := range v.Zones {
		for j := range v.Zones[i].Pools {
			if p := &v.Zones[i].Pools[j]; seen[p.ID] != nil {
				seen[p.ID].noteSamples(p.Nodes)
			}
		}
	}
	return faults
}

// TakeGiven returns what the other holders have not been told, and forgets it; in no order.
func (a *Answerer) TakeGiven() Told {
	a.mu.Lock()
	defer a.mu.Unlock()
	var told Told
	for id, s := range a.pools {
		told = s.shared.takeGiven(id, told)
	}
	return told
}

// Release forgets the independent rotation of a service address that this node no longer serves.
func (a *Answerer) Release(service netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.pools {
		s.forget(service)
	}
}

// Request is one query as it arrived.
type Request struct {
	Message []byte        // without the length that TCP puts before it
	TCP     bool          // whether it came over TCP, which lifts the size limit and proves the client's address
	Idle    time.Duration // over TCP: how long the connection may wait for its next query
	Client  netip.Addr    // where it came from
	Service netip.Addr    // the service address that it came to
	Now     time.Time
}
