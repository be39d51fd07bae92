package address

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/tenure"
)

// TableGrace is how long a table is kept although, as far as this node knows, it will not be needed: what the records say may reach
// this node later than the table did, and a table must not be gone before its address was taken.
const TableGrace = 5 * time.Second

// Source is who said which connections there are: a node in one life. The tables of an earlier life stay beside those of a later one:
// a node that starts anew and owns nothing does not erase what its successor needs.
type Source struct {
	LNN         int
	Incarnation tenure.Incarnation
}

// Tables are the clients' connections to addresses of other nodes, as their owners told. It is a value without a clock; the zero
// Tables is empty.
type Tables struct {
	sources map[Source]uint64 // the last message of each
	of      map[netip.Addr]map[Source]*table
	total   int
	omitted uint64 // left out at the bound, ever
}

type table struct {
	connections map[Connection]bool
	unneeded    time.Time // since when; zero: needed
}

// Take takes in a message and returns the connections that are new. lost says that a message before it is
// missing: it changed nothing, and the source has to begin anew.
func (t *Tables) Take(from Source, push Push) (fresh []Connection, lost bool) {
	last, known := t.sources[from]
	if !push.Full && (!known || push.Sequence != last+1) {
		delete(t.sources, from)
		return nil, true
	}
	if t.sources == nil {
		t.sources, t.of = map[Source]uint64{}, map[netip.Addr]map[Source]*table{}
	}
	t.sources[from] = push.Sequence
	if push.Full {
		for _, addr := range slices.Collect(maps.Keys(t.of)) {
			t.drop(addr, from)
		}
	}
	for _, c := range push.Closed {
		t.remove(from, c)
	}
	for _, c := range push.Opened {
		if t.total >= MaxKept {
			t.omitted++
		} else if t.add(from, c) {
			fresh = append(fresh, c)
		}
	}
	return fresh, false
}

func (t *Tables) add(from Source, c Connection) bool {
	addr := c.Local.Addr()
	if t.of[addr] == nil {
		t.of[addr] = map[Source]*table{}
	}
	if t.of[addr][from] == nil {
		t.of[addr][from] = &table{connections: map[Connection]bool{}}
	}
	list := t.of[addr][from].connections
	if list[c] {
		return false
	}
	list[c] = true
	t.total++
	return true
}

func (t *Tables) remove(from Source, c Connection) {
	addr := c.Local.Addr()
	if held := t.of[addr][from]; held != nil && held.connections[c] {
		delete(held.connections, c)
		t.total--
		if len(held.connections) == 0 {
			t.drop(addr, from)
		}
	}
}

func (t *Tables) drop(addr netip.Addr, from Source) {
	if held := t.of[addr][from]; held != nil {
		t.total -= len(held.connections)
		delete(t.of[addr], from)
	}
	if len(t.of[addr]) == 0 {
		delete(t.of, addr)
	}
}

// Of lists the connections to an address, sorted.
func (t *Tables) Of(addr netip.Addr) []Connection {
	all := map[Connection]bool{}
	for _, held := range t.of[addr] {
		maps.Copy(all, held.connections)
	}
	return slices.SortedFunc(maps.Keys(all), compareConnections)
}

// Forget drops what is known of an address: it was taken, and its clients were woken.
func (t *Tables) Forget(addr netip.Addr) {
	for _, from := range slices.Collect(maps.Keys(t.of[addr])) {
		t.drop(addr, from)
	}
}

// Prune drops the tables that have not been needed for TableGrace, and forgets sources that have none and are over.
func (t *Tables) Prune(now time.Time, needed func(netip.Addr, Source) bool) {
	present := map[Source]bool{}
	for addr, tables := range maps.Clone(t.of) {
		for from, held := range maps.Clone(tables) {
			switch {
			case needed(addr, from):
				held.unneeded = time.Time{}
			case held.unneeded.IsZero():
				held.unneeded = now
			case now.Sub(held.unneeded) >= TableGrace:
				t.drop(addr, from)
				continue
			}
			present[from] = true
		}
	}
	latest := map[int]tenure.Incarnation{}
	for from := range t.sources {
		latest[from.LNN] = max(latest[from.LNN], from.Incarnation)
	}
	maps.DeleteFunc(t.sources, func(from Source, _ uint64) bool { return !present[from] && from.Incarnation < latest[from.LNN] })
}

// Len is how many connections are kept.
func (t *Tables) Len() int { return t.total }

// Omitted is how many were left out at the bound so far.
func (t *Tables) Omitted() uint64 { return t.omitted }
