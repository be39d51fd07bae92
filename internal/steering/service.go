package steering

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

// How long a node waits before it tries for a free service address. Whoever holds fewer tries sooner, so that the race
// spreads them; the successor on record does not wait.
const (
	tryAfterEach = 150 * time.Millisecond // for each service address that the node holds already
	tryAfterNext = 60 * time.Millisecond  // for those who are not the successor of a dead holder
)

// ServiceProposal is a new statement for one service address. An empty statement removes the record.
type ServiceProposal struct {
	Key       ServiceKey
	Statement tenure.Statement
	After     time.Duration // how long to wait before trying, counted from when the need arose
	Renounced bool          // this node acknowledges, as the former next, that it will not take it: from now on it must not
	Why       string
}

// ProposeServices says what this node should try to write for service addresses (ARCHITECTURE.md, "Service addresses"): what it does
// with those that it holds, and at most one try in each subnet for one that is free, so that a node that is quick does not
// take all of them before the others have looked. Held is what is on the interfaces now.
func ProposeServices(w *World, self tenure.Incarnation, held map[netip.Addr]bool, now time.Time) []ServiceProposal {
	var proposals []ServiceProposal
	ahead := *w.ForReading() // with what is proposed put into effect, so that two addresses of one node do not both go to the same other one
	ahead.Services = map[ServiceKey]tenure.Statement{}
	maps.Copy(ahead.Services, w.Services)
	w = &ahead
	for _, key := range w.serviceKeys() {
		st := w.Services[key]
		mine := st.Owner.LNN == w.Self && st.Owner.Incarnation == self
		var p ServiceProposal
		var ok bool
		if acknowledged, yes := acknowledge(w, key.Address, st, self, held[key.Address], w.Unfit(st.Former.Member())); yes {
			p, ok = ServiceProposal{Key: key, Statement: acknowledged, Renounced: true, Why: "it is not next any more"}, true
		} else if !w.isServiceAddress(key) {
			p, ok = retireService(w, key, st, mine, held[key.Address], now)
		} else if mine {
			p, ok = keepService(w, key, st, held[key.Address], now)
		}
		if ok {
			proposals = append(proposals, p)
			ahead.Services[key] = p.Statement
		}
	}
	for _, subnet := range w.Config.Subnets() {
		if p, ok := trySubnet(w, subnet, now); ok {
			proposals = append(proposals, p)
		}
	}
	return proposals
}

// trySubnet picks the free service address that this node should try for: one whose successor it is, else the one that its
// number points at, so that two nodes seldom try for the same.
func trySubnet(w *World, subnet cluster.SubnetID, now time.Time) (ServiceProposal, bool) {
	var free []ServiceKey
	for _, address := range w.Config.ServiceAddresses(subnet) {
		key := ServiceKey{subnet, address}
		st := w.Services[key]
		heir := w.heir(st)
		switch {
		case w.inherits(address, st, w.Nodes[w.Self].Incarnation, w.Unfit(heir.Member())):
			return inheritService(w, key, st, heir, now) // it has taken it already
		case !heir.IsZero() && (w.canTake(subnet, heir) || !w.settled(st)):
		case st.Owner.IsZero() && !w.ownedElsewhere(address, cluster.PoolID{}, subnet) || !st.Owner.IsZero() && w.Over(st.Owner):
			free = append(free, key)
		}
	}
	if len(free) == 0 {
		return ServiceProposal{}, false
	}
	key := free[w.Self%len(free)]
	return tryService(w, key, w.Services[key], now)
}

// serviceKeys are all service addresses that are configured or on record, sorted.
func (w *World) serviceKeys() []ServiceKey {
	keys := map[ServiceKey]bool{}
	for key := range w.Services {
		keys[key] = true
	}
	for _, subnet := range w.Config.Subnets() {
		for _, address := range w.Config.ServiceAddresses(subnet) {
			keys[ServiceKey{subnet, address}] = true
		}
	}
	return slices.SortedFunc(maps.Keys(keys), func(a, b ServiceKey) int {
		return cmp.Or(cmp.Compare(a.Subnet.String(), b.Subnet.String()), a.Address.Compare(b.Address))
	})
}

func (w *World) isServiceAddress(key ServiceKey) bool {
	return slices.Contains(w.Config.ServiceAddresses(key.Subnet), key.Address)
}

// retireService removes the record of an address that is no longer configured, once nobody can hold it.
func retireService(w *World, key ServiceKey, st tenure.Statement, mine, held bool, now time.Time) (ServiceProposal, bool) {
	p := ServiceProposal{Key: key, Why: "the service address is no longer configured"}
	switch heir := w.heir(st); {
	case mine && !held:
		p.Statement, _ = w.step(st, tenure.Change{Action: tenure.Abandon, By: st.Owner, Now: now})
		if w.settled(p.Statement) && p.Statement.Owner.IsZero() {
			p.Statement = tenure.Statement{}
		}
	case !heir.IsZero(): // it may have it, as long as it has not read that the address is no longer configured
		p.Statement, _ = w.step(st, tenure.Change{Action: tenure.FailOver, To: heir, Reason: p.Why, Now: now})
	case !st.Owner.IsZero() && w.Over(st.Owner), st.Owner.IsZero() && w.settled(st):
	default:
		return ServiceProposal{}, false
	}
	return p, p.Statement != st
}

// inheritService puts this node on record as the owner of a service address that it has taken, since its owner is over.
func inheritService(w *World, key ServiceKey, st tenure.Statement, heir tenure.Claim, now time.Time) (ServiceProposal, bool) {
	next, outcome := w.step(st, tenure.Change{Action: tenure.FailOver, To: heir, Now: now,
		Reason: fmt.Sprintf("%s went down; %s is its successor on record", w.nodeName(st.Owner.LNN), w.nodeName(w.Self))})
	counts := w.serviceCounts(key.Subnet)
	counts[w.Self]++
	next, _ = w.step(next, tenure.Change{Action: tenure.Name, To: w.serviceSuccessor(key.Subnet, counts, w.Self)})
	return ServiceProposal{Key: key, Statement: next, Why: outcome.Reason}, outcome.Changed
}

// tryService is the race for a free service address. One that has an heir is not free, unless that one cannot take it: then this node
// names itself next instead, and takes when the other has acknowledged.
func tryService(w *World, key ServiceKey, st tenure.Statement, now time.Time) (ServiceProposal, bool) {
	counts := w.serviceCounts(key.Subnet)
	mine, ready := counts[w.Self]
	if !ready {
		return ServiceProposal{}, false
	}
	if mine > 0 && (w.Settling || len(counts) >= len(w.Config.ServiceAddresses(key.Subnet))) {
		return ServiceProposal{}, false // there are, or are about to be, enough ready nodes for one each
	}
	claim := w.Claim(w.serviceInterface(key.Subnet, w.Self))
	change := tenure.Change{Action: tenure.Assign, To: claim, Now: now,
		Reason: fmt.Sprintf("the quickest ready node: %s", w.nodeName(w.Self))}
	after := time.Duration(mine) * tryAfterEach
	if !st.Owner.IsZero() {
		after += tryAfterNext
		change.Action = tenure.FailOver
		change.Reason = fmt.Sprintf("%s went down; %s was the quickest ready node", w.nodeName(st.Owner.LNN), w.nodeName(w.Self))
		if !w.heir(st).IsZero() {
			change.Action, change.Reason = tenure.Name, "its successor cannot take it"
		}
	}
	next, outcome := w.step(st, change)
	if !outcome.Changed {
		return ServiceProposal{}, false
	}
	if change.Action != tenure.Name {
		counts[w.Self]++
		next, _ = w.step(next, tenure.Change{Action: tenure.Name, To: w.serviceSuccessor(key.Subnet, counts, w.Self)})
	}
	return ServiceProposal{Key: key, Statement: next, After: after, Why: outcome.Reason}, true
}

// keepService is what the holder does with what it has: give it away when it is unfit, complete a move, name a successor.
func keepService(w *World, key ServiceKey, st tenure.Statement, held bool, now time.Time) (ServiceProposal, bool) {
	counts := w.serviceCounts(key.Subnet)
	unfit := w.Unfit(st.Owner.Member())
	if w.Silent(st.Owner) {
		unfit = "" // its report is not in the store, and it writes it again: it keeps what it has
	}
	successor := w.serviceSuccessor(key.Subnet, counts, w.Self)
	target := successor
	if own := w.serviceInterface(key.Subnet, w.Self); target.IsZero() && w.Unfit(own) == "" {
		target = w.Claim(own) // nobody else can, but another interface of this node
	}
	p := ServiceProposal{Key: key, Statement: st}
	var outcome tenure.Outcome
	switch {
	case st.State() == tenure.Moving && (w.Over(st.To) || w.Silent(st.To) && !w.Given[key.Address].Of(st)):
		p.Statement, outcome = w.step(st, tenure.Change{Action: tenure.Cancel, By: st.Owner, Reason: "the node it was moving to is gone", Now: now})
	case st.State() == tenure.Moving && !held:
		if p.Statement, outcome = w.step(st, tenure.Change{Action: tenure.Complete, By: st.Owner, Now: now}); outcome.Changed {
			p.Statement, _ = w.step(p.Statement, tenure.Change{Action: tenure.Name, To: w.serviceSuccessor(key.Subnet, counts, st.To.LNN)})
		}
	case st.State() == tenure.Moving:
	case unfit != "" && !target.IsZero():
		p.Statement, outcome = w.step(st, tenure.Change{Action: tenure.BeginMove, To: target, Now: now,
			Reason: fmt.Sprintf("%s cannot host it: %s", w.nodeName(w.Self), unfit)})
	case st.Next != successor && (st.Next.IsZero() || !w.canTake(key.Subnet, st.Next) || counts[st.Next.LNN] > counts[successor.LNN]):
		p.Statement, outcome = w.step(st, tenure.Change{Action: tenure.Name, To: successor, Reason: "its successor changed"})
	}
	p.Why = outcome.Reason
	return p, outcome.Changed
}

// SpreadService is the one move that evens out the service addresses of a subnet, if one does (rebalance-ssips).
func SpreadService(w *World, subnet cluster.SubnetID, now time.Time) (ServiceProposal, bool) {
	counts := w.serviceCounts(subnet)
	if len(counts) < 2 {
		return ServiceProposal{}, false
	}
	nodes := slices.SortedFunc(maps.Keys(counts), func(a, b int) int { return cmp.Or(counts[a]-counts[b], a-b) })
	fewest, most := nodes[0], nodes[len(nodes)-1]
	if counts[most]-counts[fewest] < 2 {
		return ServiceProposal{}, false
	}
	for _, address := range w.Config.ServiceAddresses(subnet) {
		key := ServiceKey{subnet, address}
		st := w.Services[key]
		if st.State() != tenure.Held || st.Owner.LNN != most {
			continue
		}
		after, outcome := w.step(st, tenure.Change{Action: tenure.BeginMove, To: w.Claim(w.serviceInterface(subnet, fewest)), Now: now,
			Reason: fmt.Sprintf("evening out: %s has %d, %s has %d", w.nodeName(most), counts[most], w.nodeName(fewest), counts[fewest])})
		if outcome.Changed {
			return ServiceProposal{Key: key, Statement: after, Why: outcome.Reason}, true
		}
	}
	return ServiceProposal{}, false
}

// serviceCounts says how many service addresses of a subnet each ready node has; nodes that are not ready are missing.
func (w *World) serviceCounts(subnet cluster.SubnetID) map[int]int {
	counts := map[int]int{}
	for lnn, interfaces := range w.serviceInterfaces(subnet) {
		if m := w.firstFit(interfaces); w.Unfit(m) == "" {
			counts[lnn] = 0
		}
	}
	for _, address := range w.Config.ServiceAddresses(subnet) {
		st := w.Services[ServiceKey{subnet, address}]
		owner := finalOwner(st)
		if _, ready := counts[owner.LNN]; ready && !w.Over(st.Owner) {
			counts[owner.LNN]++
		}
	}
	return counts
}

// serviceInterface is the interface on which a node hosts service addresses of a subnet: the first fit one of those on which it may,
// the first of them if none is fit, none if there is none.
func (w *World) serviceInterface(subnet cluster.SubnetID, lnn int) cluster.Member {
	return w.firstFit(w.serviceInterfaces(subnet)[lnn])
}

// serviceInterfaces are the interfaces on which each node may host service addresses of a subnet: those that belong to a pool of the
// subnet; in a subnet without pools all of the node's interfaces. Nodes that have none are missing.
func (w *World) serviceInterfaces(subnet cluster.SubnetID) map[int][]cluster.Member {
	if w.laid() {
		if hosts, found := w.notes.hosts[subnet]; found {
			return hosts
		}
	}
	if w.roll == nil {
		return findServiceInterfaces(w.Config, subnet)
	}
	hosts, found := w.roll.hosts[subnet]
	if !found {
		if w.roll.hosts == nil {
			w.roll.hosts = map[cluster.SubnetID]map[int][]cluster.Member{}
		}
		hosts = findServiceInterfaces(w.Config, subnet)
		w.roll.hosts[subnet] = hosts
	}
	return hosts
}

func findServiceInterfaces(config *cluster.Config, subnet cluster.SubnetID) map[int][]cluster.Member {
	interfaces := map[int][]cluster.Member{}
	pools := false
	for _, id := range config.Pools() {
		if id.SubnetID() != subnet {
			continue
		}
		pools = true
		for _, m := range config.Members(id) {
			interfaces[m.LNN] = append(interfaces[m.LNN], m)
		}
	}
	for _, node := range config.Nodes {
		for _, name := range node.Interfaces {
			if !pools {
				interfaces[node.LNN] = append(interfaces[node.LNN], cluster.Member{LNN: node.LNN, Interface: name})
			}
		}
		if node.Witness {
			delete(interfaces, node.LNN)
		}
	}
	maps.DeleteFunc(interfaces, func(lnn int, _ []cluster.Member) bool {
		return !slices.ContainsFunc(config.Nodes, func(n cluster.Node) bool { return n.LNN == lnn })
	})
	return interfaces
}

// firstFit is the first member that may hold something, else the first; none of none.
func (w *World) firstFit(members []cluster.Member) cluster.Member {
	if len(members) == 0 {
		return cluster.Member{}
	}
	if fit := slices.IndexFunc(members, func(m cluster.Member) bool { return w.Unfit(m) == "" }); fit >= 0 {
		return members[fit]
	}
	return members[0]
}

// canTake reports whether a successor on record would be allowed to take a service address of a subnet.
func (w *World) canTake(subnet cluster.SubnetID, next tenure.Claim) bool {
	return !w.Over(next) && w.Unfit(next.Member()) == "" && w.serviceInterface(subnet, next.LNN) == next.Member()
}

// serviceSuccessor is the ready node with the fewest service addresses, other than one; nobody if there is none.
func (w *World) serviceSuccessor(subnet cluster.SubnetID, counts map[int]int, except int) tenure.Claim {
	best := 0
	for lnn, count := range counts {
		if lnn != except && (best == 0 || count < counts[best] || count == counts[best] && lnn < best) {
			best = lnn
		}
	}
	if best == 0 {
		return tenure.Claim{}
	}
	return w.Claim(w.serviceInterface(subnet, best))
}

// ServiceHolders are the nodes that hold a service address of a subnet now, sorted by address.
func (w *World) ServiceHolders(subnet cluster.SubnetID) []netip.Addr {
	var held []netip.Addr
	for _, address := range w.Config.ServiceAddresses(subnet) {
		st := w.Services[ServiceKey{subnet, address}]
		if !w.Holder(st).IsZero() {
			held = append(held, address)
		}
	}
	return held
}

// FreeServices are the service addresses that nobody holds although a node is ready to.
func (w *World) FreeServices() []ServiceKey {
	var free []ServiceKey
	for _, subnet := range w.Config.Subnets() {
		ready := len(w.serviceCounts(subnet)) > 0
		for _, address := range w.Config.ServiceAddresses(subnet) {
			key := ServiceKey{subnet, address}
			if owner := w.Services[key].Owner; ready && (owner.IsZero() || w.Over(owner)) {
				free = append(free, key)
			}
		}
	}
	return free
}
