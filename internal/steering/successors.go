package steering

import (
	"net/netip"
	"slices"

	"github.com/holdfast/holdfast/internal/tenure"
)

// Moving are the statements about the addresses that move: those of dynamic pools, and service addresses. An address that changes its pool may
// be in two records. Then it is the statement with an owner, as no other record gives an address to anybody meanwhile (see ownedElsewhere);
// where none has one, the first pool's.
func Moving(w *World) map[netip.Addr]tenure.Statement {
	all := map[netip.Addr]tenure.Statement{}
	note := func(address netip.Addr, st tenure.Statement) {
		if was, noted := all[address]; !noted || was.Owner.IsZero() && !st.Owner.IsZero() {
			all[address] = st
		}
	}
	for _, id := range sortedPools(w) {
		if site, exists := w.poolSite(id); exists && !site.static {
			for address, st := range site.record {
				note(address, st)
			}
		}
	}
	for _, key := range w.serviceKeys() {
		if st, recorded := w.Services[key]; recorded {
			note(key.Address, st)
		}
	}
	return all
}

// Behind is the statement about the address of a holding, as Moving has it.
func (w *World) Behind(h Holding) tenure.Statement {
	if h.Kind == Service {
		return w.Services[ServiceKey{Subnet: h.Subnet, Address: h.Address}]
	}
	if site, exists := w.poolSite(h.Pool); exists && !site.static {
		return site.record[h.Address]
	}
	return tenure.Statement{}
}

// Successors are the nodes that may come to take an address from this node, which owns it under its present incarnation; none
// if it does not.
func Successors(st tenure.Statement, lnn int, self tenure.Incarnation) []int {
	if st.Owner.LNN != lnn || st.Owner.Incarnation != self || st.Owner.IsZero() {
		return nil
	}
	var list []int
	for _, claim := range []tenure.Claim{st.Next, st.To} {
		if claim.LNN != 0 && claim.LNN != lnn && !slices.Contains(list, claim.LNN) {
			list = append(list, claim.LNN)
		}
	}
	return list
}

// Expects reports whether a node may come to take an address from a node in one of its incarnations, or has been named its owner, so
// that it needs to know that one's clients.
func Expects(st tenure.Statement, lnn, from int, incarnation tenure.Incarnation) bool {
	if st.Owner.LNN == lnn {
		return true
	}
	return st.Owner.LNN == from && st.Owner.Incarnation == incarnation && (st.Next.LNN == lnn || st.To.LNN == lnn)
}

// Leaving are the addresses that this node is asked to let go of, and that will not be on another of its interfaces: its clients
// there are to be told. A node that may not hold is asked for nothing: a lapse tells no client.
func Leaving(w *World, self tenure.Incarnation, mayHold bool) map[netip.Addr]bool {
	leaving := map[netip.Addr]bool{}
	if !mayHold {
		return leaving
	}
	mark := func(address netip.Addr, st tenure.Statement, configured bool) {
		mine := st.Owner.LNN == w.Self && st.Owner.Incarnation == self
		if mine && (!configured || !st.To.IsZero() && st.To.LNN != w.Self) {
			leaving[address] = true
		}
	}
	for id, record := range w.Pools {
		concerned := w.concerned(id)
		if len(concerned) == 0 {
			continue
		}
		site, _ := w.poolSite(id)
		for _, address := range concerned {
			mark(address, record[address], site.has(address))
		}
	}
	for key, st := range w.Services {
		mark(key.Address, st, slices.Contains(w.Config.ServiceAddresses(key.Subnet), key.Address))
	}
	return leaving
}
