package steering

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

// Holding is one address that this node should have on an interface.
type Holding struct {
	Address   netip.Addr
	Interface string
	Kind      Kind
	Epoch     uint64
	Pool      cluster.PoolID   // for pool addresses
	Subnet    cluster.SubnetID // for all
}

// Kind is the kind of an address.
type Kind string

// The kinds. Static addresses have one possible holder: they carry no lifetime and need no tenure.
const (
	Dynamic Kind = "dynamic"
	Static  Kind = "static"
	Service Kind = "service"
)

// Desired lists what this node should have on its interfaces: every address that the records say it owns under its
// present incarnation and that is not asked away, and those whose owner is over and whose next it is, if it may hold at all; static
// ones in any case. The next does not wait for the record to say that it is the owner: the plan was made before.
func Desired(w *World, self tenure.Incarnation, mayHold bool) []Holding {
	w = w.ForReading()
	var holdings []Holding
	for id := range w.Pools {
		concerned := w.concerned(id)
		if len(concerned) == 0 {
			continue
		}
		site, exists := w.poolSite(id)
		if !exists {
			continue
		}
		for _, address := range concerned {
			if !site.has(address) {
				continue
			}
			st := site.record[address]
			holding := Holding{Address: address, Kind: Dynamic, Pool: id, Subnet: id.SubnetID()}
			if site.static && st.Fixed {
				holding.Kind = Static
			}
			if holding.hold(w, st, self, mayHold, w.unfitFor(id, site.static, w.heir(st).Member())) {
				holdings = append(holdings, holding)
			}
		}
	}
	for key, st := range w.Services {
		holding := Holding{Address: key.Address, Kind: Service, Subnet: key.Subnet}
		if slices.Contains(w.Config.ServiceAddresses(key.Subnet), key.Address) && holding.hold(w, st, self, mayHold, w.Unfit(w.heir(st).Member())) {
			holdings = append(holdings, holding)
		}
	}
	slices.SortFunc(holdings, func(a, b Holding) int { return a.Address.Compare(b.Address) })
	return holdings
}

// HoldsService reports whether this node holds a service address, or is about to: it answers there. Like Desired it does not wait for
// the record.
func HoldsService(w *World, key ServiceKey) bool {
	st := w.Services[key]
	holding := Holding{Address: key.Address, Kind: Service, Subnet: key.Subnet}
	return holding.hold(w, st, w.Nodes[w.Self].Incarnation, true, w.Unfit(w.heir(st).Member()))
}

// hold fills in on which interface this node holds an address by a statement, and reports whether it does.
func (h *Holding) hold(w *World, st tenure.Statement, self tenure.Incarnation, mayHold bool, unfit string) bool {
	if mayHold && w.inherits(h.Address, st, self, unfit) {
		h.Interface, h.Epoch = w.heir(st).Interface, st.Epoch+1
		return true
	}
	if mayHold && w.released(h.Address, st, self) {
		h.Interface, h.Epoch = st.To.Interface, st.Epoch+1
		return true
	}
	if st.Owner.LNN != w.Self || st.Owner.IsZero() {
		return false
	}
	h.Interface, h.Epoch = st.Owner.Interface, st.Epoch
	if h.Kind == Static {
		return st.To.IsZero()
	}
	// What is asked away stays until nobody but whom it goes to can take it, and that one is ready to.
	stays := st.To.IsZero() || !w.settled(st) || w.Unready[h.Address]
	return mayHold && st.Owner.Incarnation == self && stays && !w.Given[h.Address].Of(st)
}

// Handing are the moves away from this node whose address it may tell the target of as soon as it is off its interfaces, so that the
// target need not wait for the record. By address.
//
// Nothing is told while this node has a change of the same record under way: it might be one that takes the move back.
func Handing(w *World, self tenure.Incarnation, pending func(cluster.PoolID, ServiceKey) bool) map[netip.Addr]tenure.Statement {
	handing := map[netip.Addr]tenure.Statement{}
	mine := func(address netip.Addr, st tenure.Statement) bool {
		owned := st.Owner.LNN == w.Self && st.Owner.Incarnation == self && !st.Fixed && !w.Unready[address]
		return owned && st.State() == tenure.Moving && st.To.LNN != w.Self && w.settled(st) && !w.Over(st.To) && !w.Silent(st.To)
	}
	for id, record := range w.Pools {
		for _, address := range w.concerned(id) {
			if st := record[address]; mine(address, st) {
				if pending(id, ServiceKey{}) {
					break // with any of the record
				}
				handing[address] = st
			}
		}
	}
	for key, st := range w.Services {
		if mine(key.Address, st) && !pending(cluster.PoolID{}, key) {
			handing[key.Address] = st
		}
	}
	return handing
}

// Letting is a record in which this node has let go of what it was asked for.
type Letting struct {
	Pool      cluster.PoolID
	Record    tenure.Record
	Changed   []netip.Addr
	Renounced []netip.Addr // of which it acknowledges, as their former next, that it will not take them: from now on it must not
	Why       string
}

// OnInterfaces is what was found on this node's interfaces after the present Desired was put into effect; an older reading would
// not do.
type OnInterfaces struct {
	Held map[netip.Addr]bool // as desired
	Left map[netip.Addr]bool // although it should not be there, or not so: it could not be removed or changed
}

// LetGo says which moves away from this node can be completed: those whose address is off its interfaces. It also says of which
// addresses this node, since their pool is no longer static, keeps hold only as long as it has the right to.
func LetGo(w *World, self tenure.Incarnation, on OnInterfaces, now time.Time) []Letting {
	w = w.ForReading()
	var lettings []Letting
	for _, id := range sortedPools(w) {
		if letting := w.letGoOf(id, self, on, now); len(letting.Changed) > 0 {
			lettings = append(lettings, letting)
		}
	}
	return lettings
}

// letGoOf is LetGo for one pool; nothing is changed if nothing can be said.
func (w *World) letGoOf(id cluster.PoolID, self tenure.Incarnation, on OnInterfaces, now time.Time) Letting {
	letting := Letting{Pool: id, Record: w.Pools[id]}
	concerned := w.concerned(id)
	if len(concerned) == 0 {
		return letting
	}
	site, exists := w.poolSite(id)
	dynamic := exists && !site.static
	for _, address := range concerned {
		st, configured, there := letting.Record[address], site.has(address), on.Held[address] || on.Left[address]
		after, changed := letGo(w, address, st, self, there, configured, now)
		if acknowledged, yes := acknowledge(w, address, st, self, there, w.unfitFor(id, site.static, st.Former.Member())); !changed && yes {
			after, changed = acknowledged, true
			letting.Renounced = append(letting.Renounced, address)
		}
		if !changed && dynamic && configured && !on.Left[address] && st.Fixed && st.Owner.LNN == w.Self {
			after.Fixed, changed = false, true
		}
		if !changed {
			continue
		}
		if len(letting.Changed) == 0 {
			letting.Record = maps.Clone(letting.Record)
		}
		if after.Owner.IsZero() && !configured && w.settled(after) {
			delete(letting.Record, address)
		} else {
			letting.Record[address] = after
		}
		letting.Changed = append(letting.Changed, address)
		letting.Why = fmt.Sprintf("let go of %d addresses", len(letting.Changed))
	}
	return letting
}

// letGo completes one move away from this node or, by the owner's word, to it, or abandons an address that is no longer configured.
func letGo(w *World, address netip.Addr, st tenure.Statement, self tenure.Incarnation, held, configured bool, now time.Time) (tenure.Statement, bool) {
	if held && w.released(address, st, self) { // it has come here by its owner's word
		after, outcome := w.step(st, tenure.Change{Action: tenure.Complete, By: st.To, Now: now})
		return after, outcome.Changed
	}
	mine := st.Owner.LNN == w.Self && (st.Owner.Incarnation == self || st.Fixed)
	if !mine || held {
		return st, false
	}
	change := tenure.Change{By: st.Owner, Now: now}
	switch {
	case !configured:
		change.Action, change.Reason = tenure.Abandon, "the address is no longer configured"
	case st.State() == tenure.Moving && (w.Over(st.To) || w.Silent(st.To)):
		return st, false // nobody would take it; the move is about to be called off
	case st.State() == tenure.Moving:
		change.Action = tenure.Complete
	default:
		return st, false
	}
	after, outcome := w.step(st, change)
	return after, outcome.Changed
}

// acknowledge says that this node, which was next, will not take an address any more. One that has taken it, or is about to since its
// owner is over, does not say so; one that has said so once says so again until it is on record.
func acknowledge(w *World, address netip.Addr, st tenure.Statement, self tenure.Incarnation, there bool, unfit string) (tenure.Statement, bool) {
	if st.Former.LNN != w.Self || st.Former.Incarnation != self || there || w.inherits(address, st, self, unfit) {
		return st, false
	}
	after, outcome := w.step(st, tenure.Change{Action: tenure.Acknowledge, By: st.Former})
	return after, outcome.Changed
}
