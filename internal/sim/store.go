package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

// What becomes of a request that is not done.
var (
	errConflict = errors.New("a condition does not hold")
	errSilent   = errors.New("the store does not answer; whether it was done is not known")
)

// store is the store of the cluster, in the way of etcd: one log of changes, each with its revision; transactions under conditions;
// watches that see the log in order, late. Its members run on nodes, or it is outside of the cluster and as reachable from each node as
// that node's link.
type store struct {
	s        *simulation
	chance   *random
	revision int64
	entries  map[string]entry
	log      []change
	voters   []int // the nodes that have a member; none if it is outside
	leader   int   // the node whose member leads; 0: none does
	electAt  time.Duration
	away     int    // faults that take its quorum
	headless int    // faults that keep it without a leader
	slow     int    // milliseconds that a write may take longer
	writer   string // whose transaction is carried out, for the timeline
}

type entry struct {
	value    any
	revision int64
}

// change is one entry of the log.
type change struct {
	revision int64
	key      string
	value    any // nil: the key was deleted
}

// condition is what must hold for a transaction: the key was last changed at the revision; 0: it is not there.
type condition struct {
	key      string
	revision int64
}

// operation puts a value, or deletes the key if there is none.
type operation struct {
	key   string
	value any
}

// storeLook is how often the members look at who leads.
const storeLook = 50 * time.Millisecond

func newStore(s *simulation) *store {
	return &store{s: s, chance: newRandom(s.Seed, 2), entries: map[string]entry{}}
}

// found puts the configuration into the store and elects a first leader.
func (st *store) found(config *cluster.Config) {
	if _, err := st.do(nil, []operation{{keyConfig, config}}); err != nil {
		panic("sim: an empty store refuses its first record")
	}
	if !st.s.External {
		for _, node := range config.Voters() {
			st.voters = append(st.voters, node.LNN)
		}
		st.look()
	}
}

// hosts reports whether the member of a node runs: a machine's member goes with its agent.
func (st *store) hosts(lnn int) bool { return st.s.node(lnn).works() }

// leads reports whether a member has a quorum around it.
func (st *store) leads(lnn int) bool {
	if !st.hosts(lnn) {
		return false
	}
	with := 0
	for _, other := range st.voters {
		if other == lnn || st.hosts(other) && st.s.connected(lnn, other) {
			with++
		}
	}
	return with > len(st.voters)/2
}

// look has the members notice that their leader is gone, and elect another after a while.
func (st *store) look() {
	st.s.after(storeLook, st.look)
	if st.leader != 0 && (st.headless > 0 || !st.leads(st.leader)) {
		st.s.say("store: node%d does not lead any more", st.leader)
		st.leader = 0
		st.electAt = st.s.now + st.chance.between(200*time.Millisecond, 2*time.Second)
		if st.s.calm {
			st.electAt = st.s.now + time.Second
		}
	}
	if st.leader != 0 || st.headless > 0 || st.s.now < st.electAt {
		return
	}
	var able []int
	for _, lnn := range st.voters {
		if st.leads(lnn) {
			able = append(able, lnn)
		}
	}
	if len(able) > 0 {
		st.leader = able[st.chance.below(len(able))]
		st.s.say("store: node%d leads", st.leader)
	}
}

// writes reports whether the store can take a change now.
func (st *store) writes() bool {
	return st.away == 0 && (st.s.External && st.headless == 0 || st.leader != 0 && st.leads(st.leader))
}

// reaches reports whether a node has a way to a member that serves.
func (st *store) reaches(lnn int) bool {
	if st.away > 0 {
		return false
	}
	if st.s.External {
		return st.s.outside(lnn)
	}
	return st.leader != 0 && slices.ContainsFunc(st.voters, func(v int) bool {
		return st.hosts(v) && st.s.connected(lnn, v) && st.s.connected(v, st.leader)
	})
}

// outside reports whether a node reaches what is not of the cluster: its link is not cut from all.
func (s *simulation) outside(lnn int) bool {
	for k := range s.Networks {
		if s.network.passes(k, lnn, 0) && s.network.passes(k, 0, lnn) {
			return true
		}
	}
	return false
}

// do carries a transaction out, or finds that a condition does not hold.
func (st *store) do(conditions []condition, operations []operation) (int64, error) {
	for _, c := range conditions {
		if st.entries[c.key].revision != c.revision {
			return 0, errConflict
		}
	}
	st.revision++
	for _, o := range operations {
		if _, there := st.entries[o.key]; o.value == nil && !there {
			continue
		}
		st.s.written(o)
		st.log = append(st.log, change{st.revision, o.key, o.value})
		if o.value == nil {
			delete(st.entries, o.key)
		} else {
			st.entries[o.key] = entry{o.value, st.revision}
		}
	}
	for _, n := range st.s.nodes {
		if n.process != nil {
			n.process.watch()
		}
	}
	return st.revision, nil
}

// commit has a process ask for a transaction. The answer may be that none came in time, and the transaction may be carried out all the
// same, also later.
func (st *store) commit(p *process, limit time.Duration, conditions []condition, operations []operation, answer func(int64, error)) {
	var revision int64
	st.request(p, limit, true, func() (err error) {
		st.writer = p.name
		revision, err = st.do(conditions, operations)
		st.writer = ""
		return err
	}, func(err error) { answer(revision, err) })
}

// get has a process ask for what is on record under a key.
func (st *store) get(p *process, limit time.Duration, key string, answer func(entry, error)) {
	var e entry
	st.request(p, limit, false, func() error { e = st.entries[key]; return nil }, func(err error) { answer(e, err) })
}

// tryTimeout is how long a try gets before another one is made (internal/store/client.go).
const tryTimeout = 200 * time.Millisecond

// request carries a request to the store and the answer back, in as many tries as there is time for. However many arrive, it is done
// once; what was on its way when the time was over may still be done.
func (st *store) request(p *process, limit time.Duration, write bool, do func() error, answer func(error)) {
	settled, done := false, false
	var outcome error
	settle := func(err error) {
		if !settled {
			settled = true
			answer(err)
		}
	}
	once := func() error {
		if !done {
			done, outcome = true, do()
		}
		return outcome
	}
	p.later(limit, func() { settle(errSilent) })
	lnn := p.lnn
	back := func(err error) {
		if p.silent == 0 && st.reaches(lnn) {
			st.s.after(st.way(), func() { p.when(func() { settle(err) }) })
		}
	}
	until := st.s.now + limit
	var try func()
	try = func() {
		if settled || st.s.now >= until {
			return
		}
		st.s.after(st.way()+p.lag(), func() { st.arrive(lnn, write, 3, once, back) })
		p.later(tryTimeout, try)
	}
	try()
}

// handOver has the member of a node that is stopped in an orderly way leave the lead to another.
func (st *store) handOver(lnn int) {
	if st.leader == lnn {
		st.s.say("store: node%d hands over the lead", lnn)
		st.leader, st.electAt = 0, st.s.now
	}
}

// way is how long something takes between a node and the store.
func (st *store) way() time.Duration { return st.chance.between(st.s.Delay/4, st.s.Delay) }

// arrive is a request at the store. While nobody can serve it, it waits for a while or is lost.
func (st *store) arrive(lnn int, write bool, tries int, do func() error, answer func(error)) {
	if tries == 0 || st.chance.chance(300) && !st.reaches(lnn) {
		return
	}
	if !st.reaches(lnn) || !st.writes() {
		st.s.after(st.chance.between(50*time.Millisecond, 500*time.Millisecond), func() { st.arrive(lnn, write, tries-1, do, answer) })
		return
	}
	disk := time.Duration(0)
	if write {
		disk = st.chance.between(500*time.Microsecond, 4*time.Millisecond) + st.chance.between(0, time.Duration(st.slow)*time.Millisecond)
	}
	st.s.after(disk, func() {
		if !st.writes() {
			if st.chance.chance(500) { // it was not in the log of those who go on
				return
			}
			st.s.after(st.chance.between(50*time.Millisecond, 500*time.Millisecond), func() { st.arrive(lnn, write, tries-1, do, answer) })
			return
		}
		answer(do())
	})
}

// state is everything that is on record, sorted by key.
func (st *store) state() []change {
	var all []change
	for key, e := range st.entries {
		all = append(all, change{e.revision, key, e.value})
	}
	slices.SortFunc(all, func(a, b change) int {
		switch {
		case a.key < b.key:
			return -1
		case a.key > b.key:
			return 1
		}
		return 0
	})
	return all
}
