package steering

import (
	"maps"
	"net/netip"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

// Promises are what one node has said about addresses, and what it therefore must not do whatever becomes of its writes: the store may
// have taken one although it did not answer. NewPromises makes them; they belong to their caller.
type Promises struct {
	Given     map[netip.Addr]Release // of which it has told whom they move to that it has let go, or is about to
	Renounced map[netip.Addr]bool    // of which it has said, as their former next, that it will not take them, or is about to
}

// NewPromises are none.
func NewPromises() Promises {
	return Promises{Given: map[netip.Addr]Release{}, Renounced: map[netip.Addr]bool{}}
}

// Give notes of which addresses the node tells others that it has let go. It comes before they are told.
func (p Promises) Give(handing map[netip.Addr]tenure.Statement) {
	for address, st := range handing {
		p.Given[address] = Release{Owner: st.Owner, Epoch: st.Epoch}
	}
}

// Renounce notes that the node will not take addresses, as it acknowledges. It comes before that is written.
func (p Promises) Renounce(addresses ...netip.Addr) {
	for _, address := range addresses {
		p.Renounced[address] = true
	}
}

// Bind puts the promises into a world, after dropping those that its records have gone beyond: a move that is not that move any more, and
// an address whose former next the node is not any more. Which record it is, and what of it is still configured, does not matter: a promise
// is kept until no record asks for it. The world has copies.
func (p Promises) Bind(w *World) {
	if len(p.Given)+len(p.Renounced) > 0 {
		given, asked := map[netip.Addr]bool{}, map[netip.Addr]bool{}
		w.Concerning(func(_ cluster.PoolID, address netip.Addr, st tenure.Statement) bool {
			given[address] = given[address] || p.Given[address].Of(st)
			asked[address] = asked[address] || st.Former.LNN == w.Self
			return true
		})
		maps.DeleteFunc(p.Given, func(address netip.Addr, _ Release) bool { return !given[address] })
		maps.DeleteFunc(p.Renounced, func(address netip.Addr, _ bool) bool { return !asked[address] })
	}
	w.Given, w.Renounced = maps.Clone(p.Given), maps.Clone(p.Renounced)
}

// Outdated drops those releases by others that the records of a world have gone beyond. What a record does not show yet is kept: it is on
// its way.
func Outdated(w *World, released map[netip.Addr]Release) {
	if len(released) == 0 {
		return
	}
	moving := Moving(w)
	maps.DeleteFunc(released, func(address netip.Addr, r Release) bool { return moving[address].Epoch > r.Epoch })
}
