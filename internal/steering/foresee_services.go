package steering

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
	"github.com/holdfast/holdfast/internal/tenure"
)

// ServiceMove is one move of a service address that is foreseen.
type ServiceMove struct {
	Subnet cluster.SubnetID
	placement.Move
	Race bool // the quickest ready node takes it: To is who waits least, the lowest number among equals
}

// ServiceForesight is what will become of the service addresses if nothing else happens.
type ServiceForesight struct {
	Moves     []ServiceMove // in their order; an address may move more than once
	Services  map[ServiceKey]tenure.Statement
	Unsettled bool // more may follow: it did not come to rest within the bound
}

// ForeseeServices plays what every node decides on service addresses to its end: first what their holders do, then, one at a time,
// the tries for free ones, in the order of the time that each waits.
func ForeseeServices(w *World, now time.Time) ServiceForesight {
	ahead := *w.ForReading()
	ahead.Settling = false
	ahead.Services = maps.Clone(w.Services)
	if ahead.Services == nil {
		ahead.Services = map[ServiceKey]tenure.Statement{}
	}
	f := ServiceForesight{Services: ahead.Services, Unsettled: true}
	for range foreseenRounds + 8*len(ahead.serviceKeys()) { // giving away and naming a successor takes less than eight rounds
		if f.holders(&ahead, now) || f.taker(&ahead, now) {
			continue
		}
		f.Unsettled = false
		break
	}
	return f
}

// ForeseeServicesDown is ForeseeServices for nodes that die now, all at once.
func ForeseeServicesDown(w *World, down []int, now time.Time) ServiceForesight {
	return ForeseeServices(without(w, down, now), now)
}

// ForeseeSpread is what rebalance-ssips does to a subnet: one move after the other, each completed.
func ForeseeSpread(w *World, subnet cluster.SubnetID, now time.Time) []ServiceMove {
	ahead := *w
	ahead.Services = maps.Clone(w.Services)
	var moves []ServiceMove
	for range w.Config.ServiceAddresses(subnet) {
		p, ok := SpreadService(&ahead, subnet, now)
		if !ok {
			break
		}
		moves = append(moves, ServiceMove{Subnet: subnet, Move: placement.Move{
			Address: p.Key.Address, From: p.Statement.Owner.Member(), To: p.Statement.To.Member(), Reason: p.Why}})
		ahead.Services[p.Key], _ = ahead.step(acknowledged(p.Statement), tenure.Change{Action: tenure.Complete, By: p.Statement.Owner, Now: now})
	}
	return moves
}

// holders lets every node that has a service address do what it decides on it, and reports whether one did anything.
func (f *ServiceForesight) holders(w *World, now time.Time) bool {
	nodes := map[int]bool{}
	for _, st := range f.Services {
		if w.Nodes[st.Owner.LNN].Present {
			nodes[st.Owner.LNN] = true
		}
	}
	changed := false
	for _, lnn := range slices.Sorted(maps.Keys(nodes)) {
		w.Self = lnn
		self := w.Nodes[lnn].Incarnation
		held := map[netip.Addr]bool{}
		for _, h := range Desired(w, self, true) {
			held[h.Address] = true
		}
		for _, p := range ProposeServices(w, self, held, now) {
			if before := f.Services[p.Key]; !before.Owner.IsZero() && !w.Over(before.Owner) {
				changed = f.carryOut(p, false) || changed
			}
		}
	}
	return changed
}

// taker lets the node that waits least take one free service address, and reports whether there is one.
func (f *ServiceForesight) taker(w *World, now time.Time) bool {
	var best ServiceProposal
	found, race := false, false
	for _, subnet := range w.Config.Subnets() {
		nodes, ready := w.takers(subnet)
		for _, lnn := range nodes {
			w.Self = lnn
			p, ok := trySubnet(w, subnet, now)
			if !ok || found && p.After >= best.After {
				continue
			}
			before := f.Services[p.Key]
			best, found = p, true
			race = ready > 1 && (before.Next != p.Statement.Owner || !w.Over(before.Owner))
			if race {
				best.Why = fmt.Sprintf("the quickest ready node takes it, probably %s", w.nodeName(lnn))
				if !before.Owner.IsZero() {
					best.Why = fmt.Sprintf("%s went down; %s", w.nodeName(before.Owner.LNN), best.Why)
				}
			}
		}
	}
	return found && f.carryOut(best, race)
}

// takers are the nodes of which one takes the next free service address of a subnet, if one does: the successors on record, who do
// not wait, and then whoever holds fewest, of whom the others wait as long. Ready is how many could.
func (w *World) takers(subnet cluster.SubnetID) (lnns []int, ready int) {
	free := false
	for _, address := range w.Config.ServiceAddresses(subnet) {
		st := w.Services[ServiceKey{subnet, address}]
		if free = free || st.Owner.IsZero() || w.Over(st.Owner); !st.Next.IsZero() && w.Over(st.Owner) {
			lnns = append(lnns, st.Next.LNN)
		}
	}
	if !free {
		return nil, 0
	}
	counts := w.serviceCounts(subnet)
	nodes := slices.SortedFunc(maps.Keys(counts), func(a, b int) int { return cmp.Or(counts[a]-counts[b], a-b) })
	return append(lnns, nodes[:min(len(nodes), 1)]...), len(nodes)
}

// carryOut puts a proposal into effect, and notes the move.
func (f *ServiceForesight) carryOut(p ServiceProposal, race bool) bool {
	before := f.Services[p.Key]
	if p.Statement == before {
		return false
	}
	f.Services[p.Key] = acknowledged(p.Statement)
	if p.Statement == (tenure.Statement{}) {
		delete(f.Services, p.Key)
	}
	if from, to := finalOwner(before), finalOwner(p.Statement); from != to {
		f.Moves = append(f.Moves, ServiceMove{Subnet: p.Key.Subnet, Race: race,
			Move: placement.Move{Address: p.Key.Address, From: from, To: to, Reason: p.Why}})
	}
	return true
}
