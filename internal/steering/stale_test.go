package steering

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

// foggy is a cluster in which every node sees the store as it was some time ago, hears late who is over, carries out its wishes late,
// and does not learn what became of some of its writes. What it decides is the real thing.
type foggy struct {
	*model
	random   *rand.Rand
	versions []records // the store, all that it ever was
	sight    map[int]*sight
	story    []string
}

// records is one version of the store.
type records struct {
	pool      tenure.Record
	poolAt    int // the version that changed it last
	services  map[ServiceKey]tenure.Statement
	serviceAt map[ServiceKey]int
}

// sight is what one node sees and is about to do.
type sight struct {
	handing  map[netip.Addr]tenure.Statement // of the last wish
	promises Promises
	released map[netip.Addr]Release
	mail     []func() // releases on their way here
	version  int
	over     map[int]tenure.Incarnation
	wish     map[netip.Addr]bool
	wishes   int // how many there were
	applied  int // the last that is on its interfaces
	writing  []func()
}

func newFoggy(t fataler, seed uint64, nodes, addresses int) *foggy {
	f := &foggy{model: newModel(t, nodes, addresses, ""), random: rand.New(rand.NewPCG(seed, 7)), sight: map[int]*sight{}}
	f.versions = []records{{pool: tenure.Record{}, services: map[ServiceKey]tenure.Statement{}, serviceAt: map[ServiceKey]int{}}}
	for lnn := range f.nodes {
		f.sight[lnn] = f.fresh()
	}
	return f
}

func (f *foggy) fresh() *sight {
	return &sight{version: len(f.versions) - 1, over: map[int]tenure.Incarnation{}, promises: NewPromises(), released: map[netip.Addr]Release{}}
}

func (f *foggy) say(format string, args ...any) {
	f.story = append(f.story, fmt.Sprintf(format, args...))
}

func (f *foggy) tellStory() string { return strings.Join(f.story[max(0, len(f.story)-60):], "\n") }

// seen is the world as one node sees it.
func (f *foggy) seen(lnn int) *World {
	s := f.sight[lnn]
	r := f.versions[s.version]
	w := &World{Config: f.config, Self: lnn, Nodes: map[int]Node{}, Pools: map[cluster.PoolID]tenure.Record{poolID: maps.Clone(r.pool)}, Services: maps.Clone(r.services)}
	for other, n := range f.nodes {
		node := n.Node
		if other != lnn {
			node.Over = max(s.over[other], node.Incarnation-1)
			node.Present = node.Over < node.Incarnation
		}
		w.Nodes[other] = node
	}
	s.promises.Bind(w)
	Outdated(w, s.released)
	w.Released = maps.Clone(s.released)
	return w
}

// look is one round of a node's loop.
func (f *foggy) look(lnn int) {
	n, s := f.nodes[lnn], f.sight[lnn]
	if !n.running {
		return
	}
	w := f.seen(lnn)
	defer func() { f.verify() }()
	want := map[netip.Addr]bool{}
	for _, h := range Desired(w, n.Incarnation, true) {
		want[h.Address] = true
	}
	if s.wish == nil || !maps.Equal(want, s.wish) {
		s.wish = want
		s.wishes++
		s.handing = Handing(w, n.Incarnation, func(cluster.PoolID, ServiceKey) bool { return len(s.writing) > 0 })
		s.promises.Give(s.handing)
		s.promises.Bind(w)
		f.say("node %d/%d wishes %v by version %d", lnn, n.Incarnation, slices.SortedFunc(maps.Keys(want), netip.Addr.Compare), s.version)
	}
	if len(s.writing) > 2 {
		return
	}
	if s.applied == s.wishes {
		if lettings := LetGo(w, n.Incarnation, OnInterfaces{Held: n.held}, f.now); len(lettings) > 0 {
			letting := lettings[0]
			for _, address := range letting.Renounced {
				f.say("node %d/%d renounces %s", lnn, n.Incarnation, address)
				s.promises.Renounce(address)
			}
			f.write(lnn, letting.Record, f.versions[s.version].poolAt)
			return
		}
	}
	if p, _, ok := ProposePool(w, poolID, false, f.now); ok {
		f.write(lnn, p.Record, f.versions[s.version].poolAt)
		return
	}
	held := maps.Clone(n.held)
	if s.applied != s.wishes {
		for key, st := range w.Services {
			if st.Owner.LNN == lnn || st.Former.LNN == lnn {
				held[key.Address] = true
			}
		}
	}
	if proposals := ProposeServices(w, n.Incarnation, held, f.now); len(proposals) > 0 {
		p := proposals[0]
		if p.Renounced {
			s.promises.Renounce(p.Key.Address)
		}
		f.writeLater(lnn, p, f.versions[s.version].serviceAt[p.Key])
	}
}

func (f *foggy) last() records { return f.versions[len(f.versions)-1] }

// write has a pool's record written some time later, if nobody changed it meanwhile.
func (f *foggy) write(lnn int, record tenure.Record, at int) {
	s := f.sight[lnn]
	s.writing = append(s.writing, func() {
		now := f.last()
		if now.poolAt != at {
			return
		}
		next := records{pool: maps.Clone(record), poolAt: len(f.versions), services: now.services, serviceAt: now.serviceAt}
		f.versions = append(f.versions, next)
		for _, address := range slices.SortedFunc(maps.Keys(record), netip.Addr.Compare) {
			if before := now.pool[address]; before != record[address] {
				f.say("version %d by node %d: %s: %s", len(f.versions)-1, lnn, address, brief(record[address]))
			}
		}
	})
}

func (f *foggy) writeLater(lnn int, p ServiceProposal, at int) {
	s := f.sight[lnn]
	s.writing = append(s.writing, func() {
		now := f.last()
		if now.serviceAt[p.Key] != at {
			return
		}
		next := records{pool: now.pool, poolAt: now.poolAt, services: maps.Clone(now.services), serviceAt: maps.Clone(now.serviceAt)}
		next.serviceAt[p.Key] = len(f.versions)
		if p.Statement == (tenure.Statement{}) {
			delete(next.services, p.Key)
		} else {
			next.services[p.Key] = p.Statement
		}
		f.versions = append(f.versions, next)
		f.say("version %d by node %d: %s: %s", len(f.versions)-1, lnn, p.Key.Address, brief(p.Statement))
	})
}

func brief(st tenure.Statement) string {
	claim := func(c tenure.Claim) string { return fmt.Sprintf("%d/%d", c.LNN, c.Incarnation) }
	return fmt.Sprintf("owner %s next %s former %s to %s", claim(st.Owner), claim(st.Next), claim(st.Former), claim(st.To))
}

// apply puts a node's last wish on its interfaces.
func (f *foggy) apply(lnn int) {
	n, s := f.nodes[lnn], f.sight[lnn]
	if n.running && s.wish != nil {
		for address, st := range s.handing {
			if n.held[address] && !s.wish[address] {
				to := f.sight[st.To.LNN]
				to.mail = append(to.mail, func() {
					f.say("node %d is told that node %d let go of %s under %d", st.To.LNN, lnn, address, st.Epoch)
					f.sight[st.To.LNN].released[address] = Release{st.Owner, st.Epoch}
				})
			}
		}
		n.held = maps.Clone(s.wish)
		s.applied = s.wishes
		f.verify()
	}
}

func (f *foggy) verify() {
	where := map[netip.Addr]int{}
	for lnn, n := range f.nodes {
		for address := range n.held {
			if other, taken := where[address]; taken {
				f.t.Fatalf("%s is on node %d and on node %d\n%s", address, other, lnn, f.tellStory())
			}
			where[address] = lnn
		}
	}
}

// act is one random thing.
func (f *foggy) act() {
	lnn := 1 + f.random.IntN(len(f.nodes))
	n, s := f.nodes[lnn], f.sight[lnn]
	switch f.random.IntN(24) {
	case 0:
		if n.running {
			f.say("node %d/%d dies", lnn, n.Incarnation)
			f.kill(lnn)
			s.writing = nil
		}
	case 1, 2:
		if !n.running {
			f.start(lnn)
			f.say("node %d/%d starts", lnn, n.Incarnation)
			mail := s.mail // what is on its way may still arrive
			f.sight[lnn] = f.fresh()
			f.sight[lnn].mail = mail
		}
	case 3:
		n.Draining = !n.Draining && f.random.IntN(3) == 0
	case 4:
		n.PoolFaults = map[cluster.PoolID]string{}
		if f.random.IntN(3) == 0 {
			n.PoolFaults[poolID] = "its check fails"
		}
	case 5, 6, 7:
		other := 1 + f.random.IntN(len(f.nodes))
		if other != lnn && s.over[other] < f.nodes[other].Over {
			s.over[other] = f.nodes[other].Over
			f.say("node %d learns that node %d is over up to %d", lnn, other, s.over[other])
		}
	case 8, 9, 10, 11:
		if s.version < len(f.versions)-1 {
			s.version += 1 + f.random.IntN(len(f.versions)-1-s.version)
			f.say("node %d sees version %d", lnn, s.version)
		}
	case 12, 13:
		f.apply(lnn)
	case 14:
		if len(s.mail) > 0 {
			i := f.random.IntN(len(s.mail))
			s.mail[i]()
			s.mail = slices.Delete(s.mail, i, i+1)
		}
	case 15, 16, 17, 18:
		if len(s.writing) > 0 {
			do := s.writing[0]
			s.writing = s.writing[1:]
			if n.running || f.random.IntN(2) == 0 { // the last word of a dead node may still arrive
				do()
			}
		}
	default:
		f.look(lnn)
	}
}

// settle lifts the fog and lets everybody act until nothing changes.
func (f *foggy) settle() {
	f.say("=== calm")
	for lnn := 1; lnn <= len(f.nodes); lnn++ {
		n := f.nodes[lnn]
		n.Draining, n.PoolFaults = false, nil
		if !n.running && (lnn == 1 || f.random.IntN(3) > 0) {
			f.start(lnn)
			f.sight[lnn] = f.fresh()
		}
	}
	for calm := 0; calm < 3; { // what was decided before may still be written in the first rounds
		before := len(f.versions)
		for lnn := 1; lnn <= len(f.nodes); lnn++ {
			s := f.sight[lnn]
			for other, n := range f.nodes {
				s.over[other] = n.Over
			}
			s.version = len(f.versions) - 1
			f.look(lnn)
			f.apply(lnn)
			f.look(lnn)
			for len(s.writing) > 0 {
				do := s.writing[0]
				s.writing = s.writing[1:]
				do()
			}
		}
		if calm++; len(f.versions) != before {
			calm = 0
		}
		if len(f.versions) > 20_000 {
			f.t.Fatalf("it does not come to rest\n%s", f.tellStory())
		}
	}
}

// TestFoggyHistories: nodes that see the store late, hear late who is over, and do not know what became of what they wrote never have an
// address twice; and when they see clearly again, every address is on the node that the record names.
func TestFoggyHistories(t *testing.T) {
	seeds := uint64(3000)
	if testing.Short() {
		seeds = 300
	}
	for seed := range seeds {
		playFog(t, seed)
	}
}

func playFog(t *testing.T, seed uint64) {
	f := newFoggy(t, seed, 2+int(seed%4), 1+int(seed%3))
	for range 300 + f.random.IntN(900) {
		f.act()
	}
	f.settle()
	for address, st := range f.last().pool {
		if n := f.nodes[st.Owner.LNN]; n == nil || !n.running || !n.held[address] {
			t.Fatalf("seed %d: in calm weather %s is not where the record says: %s\n%s", seed, address, brief(st), f.tellStory())
		}
	}
	for key, st := range f.last().services {
		if n := f.nodes[st.Owner.LNN]; n == nil || !n.running || !n.held[key.Address] {
			t.Fatalf("seed %d: in calm weather %s is not where the record says: %s\n%s", seed, key.Address, brief(st), f.tellStory())
		}
	}
}
