package steering

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

// movingWorld is how a node sees one address of a cluster of three that moves from node 1 to node 2, and that address.
func movingWorld(t *testing.T, self int, change func(*tenure.Statement)) (*World, netip.Addr, cluster.PoolID) {
	m := newModel(t, 3, 3, "")
	m.settle()
	w := m.world(self)
	for id, record := range w.Pools {
		for address, st := range record {
			if st.Owner.LNN != 1 {
				continue
			}
			st.To, st.Next = w.Claim(cluster.Member{LNN: 2, Interface: st.Owner.Interface}), tenure.Claim{}
			st.Former = tenure.Claim{}
			st.Epoch++
			if change != nil {
				change(&st)
			}
			w.Pools = map[cluster.PoolID]tenure.Record{id: {address: st}}
			return w, address, id
		}
	}
	t.Fatal("node 1 owns nothing")
	return nil, netip.Addr{}, cluster.PoolID{}
}

func holds(w *World, address netip.Addr) bool {
	desired := Desired(w, w.Nodes[w.Self].Incarnation, true)
	return slices.ContainsFunc(desired, func(h Holding) bool { return h.Address == address })
}

// An owner keeps what is asked away until its target says that it could take it, by just that statement; or until it has waited for long.
func TestAnOwnerKeepsAnAddressUntilItsTargetIsReady(t *testing.T) {
	now := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	move := func(w *World, address netip.Addr, id cluster.PoolID) Release {
		st := w.Pools[id][address]
		return Release{Owner: st.Owner, Epoch: st.Epoch}
	}
	for _, c := range []struct {
		name   string
		change func(*tenure.Statement)
		hear   func(Readiness, netip.Addr, Release)
		later  time.Duration
		keeps  bool
	}{
		{name: "nobody has said anything", keeps: true},
		{name: "the target has", hear: func(r Readiness, a netip.Addr, m Release) { r.Hear(2, a, m) }},
		{name: "another node has", hear: func(r Readiness, a netip.Addr, m Release) { r.Hear(3, a, m) }, keeps: true},
		{name: "the target has, by an earlier statement", hear: func(r Readiness, a netip.Addr, m Release) { m.Epoch--; r.Hear(2, a, m) }, keeps: true},
		{name: "the target has, of another life of the owner", hear: func(r Readiness, a netip.Addr, m Release) { m.Owner.Incarnation++; r.Hear(2, a, m) }, keeps: true},
		{name: "nobody, for a little less than the limit", later: ReadyLimit - 1, keeps: true},
		{name: "nobody, for the limit", later: ReadyLimit},
		{name: "it goes to another interface of the same node", change: func(st *tenure.Statement) { st.To = st.Owner; st.To.Interface = "eth1" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, address, id := movingWorld(t, 1, c.change)
			readiness := NewReadiness()
			if left := readiness.Bind(w, now, unchanged); holds(w, address) != (left > 0) {
				t.Fatalf("at first it is held: %v, and waited for for %v", holds(w, address), left)
			}
			if c.hear != nil {
				c.hear(readiness, address, move(w, address, id))
			}
			readiness.Bind(w, now.Add(c.later), unchanged)
			if got := holds(w, address); got != c.keeps {
				t.Errorf("it keeps the address: %v", got)
			}
			handing := Handing(w, w.Nodes[1].Incarnation, func(cluster.PoolID, ServiceKey) bool { return false })
			if _, told := handing[address]; told == c.keeps && c.change == nil {
				t.Errorf("the target is told that it has let go: %v", told)
			}
		})
	}
}

// unchanged says that no change of a record is under way.
func unchanged(cluster.PoolID, ServiceKey) bool { return false }

// While a change of the same record is under way, whom an address goes to cannot be told that it has it: it stays, however ready that one is.
// A change of another record does not keep it.
func TestAnOwnerKeepsAnAddressWhileItsRecordChanges(t *testing.T) {
	now := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	service := netip.MustParseAddr("10.9.0.1")
	for _, c := range []struct {
		name    string
		service bool
		pending func(pool cluster.PoolID, key ServiceKey) bool
		keeps   bool
	}{
		{name: "nothing changes", pending: unchanged},
		{name: "the pool's record changes", pending: func(pool cluster.PoolID, key ServiceKey) bool { return key == ServiceKey{} }, keeps: true},
		{name: "a service address's record changes", pending: func(_ cluster.PoolID, key ServiceKey) bool { return key != ServiceKey{} }},
		{name: "its own record changes, and it is a service address", service: true, pending: func(_ cluster.PoolID, key ServiceKey) bool { return key.Address == service }, keeps: true},
		{name: "another record changes, and it is a service address", service: true, pending: func(_ cluster.PoolID, key ServiceKey) bool { return key.Address != service }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, address, id := movingWorld(t, 1, nil)
			st := w.Pools[id][address]
			if c.service {
				w.Pools, w.Services = nil, map[ServiceKey]tenure.Statement{{Subnet: id.SubnetID(), Address: service}: st}
				address = service
			}
			readiness := NewReadiness()
			readiness.Hear(2, address, Release{Owner: st.Owner, Epoch: st.Epoch})
			if left := readiness.Bind(w, now, c.pending); left != 0 {
				t.Errorf("it waits for its target for %v", left)
			}
			if w.Unready[address] != c.keeps {
				t.Errorf("it keeps the address: %v", w.Unready[address])
			}
			if told := len(Handing(w, w.Nodes[1].Incarnation, c.pending)) > 0; told == c.keeps {
				t.Errorf("the target is told that it has let go: %v", told)
			}
			readiness.Bind(w, now, unchanged)
			if w.Unready[address] {
				t.Error("it keeps the address although nothing changes any more")
			}
			// What changes from here on may be that it lets go of the address: that must not come back.
			readiness.Bind(w, now, func(cluster.PoolID, ServiceKey) bool { return true })
			if w.Unready[address] {
				t.Error("it takes an address back of which it may be writing that it has let go")
			}
		})
	}
}

// A move that replaces another waits anew, and nothing is remembered of what the records have gone beyond.
func TestReadinessForgets(t *testing.T) {
	now := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	w, address, id := movingWorld(t, 1, nil)
	readiness := NewReadiness()
	readiness.Bind(w, now, unchanged)
	st := w.Pools[id][address]
	readiness.Hear(2, address, Release{Owner: st.Owner, Epoch: st.Epoch})
	st.Epoch++
	w.Pools[id][address] = st
	if readiness.Bind(w, now.Add(ReadyLimit), unchanged) != ReadyLimit || !w.Unready[address] {
		t.Error("the word for one move counted for the next")
	}
	st.Owner, st.To = st.To, tenure.Claim{}
	w.Pools[id][address] = st
	st.Epoch++
	w.Pools[id][address] = st
	readiness.Bind(w, now, unchanged)
	if len(readiness.heard)+len(readiness.since)+len(readiness.free) > 0 {
		t.Errorf("it remembers %v, %v, %v", readiness.heard, readiness.since, readiness.free)
	}
}

// Whom an address moves to says so when it could take it: not while it may not hold, is not fit, or has begun a new life.
func TestReady(t *testing.T) {
	for _, c := range []struct {
		name    string
		mayHold bool
		change  func(*World, *tenure.Statement)
		ready   bool
	}{
		{name: "it could", mayHold: true, ready: true},
		{name: "it has lapsed"},
		{name: "its interface has a fault", mayHold: true, change: func(w *World, st *tenure.Statement) {
			node := w.Nodes[2]
			node.Faults = map[string]string{st.To.Interface: "no carrier"}
			w.Nodes[2] = node
		}},
		{name: "it was asked in an earlier life", mayHold: true, change: func(_ *World, st *tenure.Statement) { st.To.Incarnation-- }},
		{name: "the address moves to another", mayHold: true, change: func(w *World, st *tenure.Statement) { st.To = w.Claim(cluster.Member{LNN: 3, Interface: "eth0"}) }},
		{name: "it does not move", mayHold: true, change: func(_ *World, st *tenure.Statement) { st.To = tenure.Claim{} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, address, id := movingWorld(t, 2, nil)
			st := w.Pools[id][address]
			if c.change != nil {
				c.change(w, &st)
				w.Pools[id][address] = st
			}
			want := map[netip.Addr]Release{}
			if c.ready {
				want[address] = Release{Owner: st.Owner, Epoch: st.Epoch}
			}
			if got := Ready(w, w.Nodes[2].Incarnation, c.mayHold); !maps.Equal(got, want) {
				t.Errorf("it says %v, want %v", got, want)
			}
		})
	}
}

// An owner is told once, and again when that may have been lost, until it has let go.
func TestToldReady(t *testing.T) {
	now := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	w, address, id := movingWorld(t, 2, nil)
	move := Release{Owner: w.Pools[id][address].Owner, Epoch: w.Pools[id][address].Epoch}
	ready, told := map[netip.Addr]Release{address: move}, ToldReady{}
	due := func(after time.Duration) bool {
		due, again := told.Due(ready, w, now.Add(after))
		if again <= 0 && len(ready) > 0 && w.Released == nil {
			t.Errorf("after %v it is not looked at again", after)
		}
		return len(due) == 1
	}
	if !due(0) || due(readyAgain-1) || !due(readyAgain) {
		t.Error("it is not told at once and again after a while")
	}
	next := move
	next.Epoch++
	if ready[address] = next; !due(readyAgain + 1) {
		t.Error("another move is not told at once")
	}
	w.Released = map[netip.Addr]Release{address: next}
	if due(3 * readyAgain) {
		t.Error("an owner that has let go is told")
	}
	clear(ready)
	if due(0); len(told) > 0 {
		t.Errorf("it remembers %v", told)
	}
}
