package agent

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
	"github.com/holdfast/holdfast/internal/steering"
)

// explainPool says how a pool stands, what its name is answered with next, and who has each of its addresses.
func (s nodeService) explainPool(v *view, id cluster.PoolID) []placement.Decision {
	decisions := []placement.Decision{s.poolDecision(v.world, id)}
	pool, subnet, _, _ := v.world.Config.Pool(id)
	qtype := dnsmessage.TypeA
	if subnet.CIDR.Addr().Is6() {
		qtype = dnsmessage.TypeAAAA
	}
	if pool.Zone != "" {
		if next, err := s.answers.server.Explain(pool.Zone, qtype); err == nil && next.Subject != "" {
			decisions = append(decisions, next)
		}
	}
	return append(decisions, s.onPoolRecord(v.world, id, v.world.Config.Addresses(id)...)...)
}

// poolDecision says of a pool which of its members are in the answers and which are not, whether its addresses are even, and what
// that waits for.
func (s nodeService) poolDecision(w *steering.World, id cluster.PoolID) placement.Decision {
	pool, _, _, _ := w.Config.Pool(id)
	d := placement.Decision{Subject: id.String(), At: s.now()}
	members := steering.GivenMembers(w, id, s.now())
	for _, given := range members {
		m, held := given.Member, given.Addresses
		name := nameOf(w, m.LNN) + " on " + m.Interface
		if given.Why != "" {
			d.LeftOut = append(d.LeftOut, placement.Excluded{Name: name, Reason: given.Why})
			continue
		}
		d.Among = append(d.Among, placement.Considered{Name: name, Weight: w.Weight(pool, m.LNN), Score: float64(len(held)), Note: "in the answers with " + firstFew(held)})
	}
	d.Chosen = fmt.Sprintf("%d of %s in the answers", len(d.Among), plural(len(members), "member", "members"))
	parts := []string{fmt.Sprintf("%s, %s", plural(len(w.Config.Addresses(id)), string(pool.AllocMethod)+" address", string(pool.AllocMethod)+" addresses"), spreadText(w, id))}
	if pool.Zone != "" {
		parts = append(parts, answeredBy(pool))
	}
	if len(d.Among) == 0 {
		parts = append(parts, fmt.Sprintf("nobody may be given, so on-none decides: %s", pool.OnNone))
	}
	if fit, _ := fitNodes(w, id); len(fit) == 0 && pool.AllocMethod == cluster.AllocDynamic {
		parts = append(parts, "no node is fit, so addresses stay where they are")
	} else if pool.AllocMethod == cluster.AllocDynamic {
		parts = append(parts, s.evennessText(w, id))
	}
	d.Reason = strings.Join(parts, "; ") + "."
	return d
}

// answeredBy says how a pool's name is answered.
func answeredBy(pool *cluster.Pool) string {
	by := fmt.Sprintf("%s is answered by %s", pool.Zone, pool.ConnectPolicy)
	if pool.ClientAffinity == cluster.AffinityPrefix {
		by = fmt.Sprintf("%s is answered by the client's prefix (client-affinity): each keeps its node, and %s counts for none", pool.Zone, pool.ConnectPolicy)
	}
	if pool.MaxAnswers > 1 {
		by += fmt.Sprintf(", with up to %d addresses (max-answers)", pool.MaxAnswers)
	}
	return by
}

// evennessText is the pool's note on a rebalance, or that it needs none.
func (s nodeService) evennessText(w *steering.World, id cluster.PoolID) string {
	if note := rebalanceNote(w, id, s.now()); note != "" {
		return note
	}
	return "it is as even as it can be"
}

// onPoolRecord is onRecord for addresses of a pool; it adds why an address stays with an owner that is not fit.
func (s nodeService) onPoolRecord(w *steering.World, id cluster.PoolID, addresses ...netip.Addr) []placement.Decision {
	pool, _, _, _ := w.Config.Pool(id)
	kept, why := steering.Kept(w, id, s.now())
	decisions := make([]placement.Decision, 0, len(addresses))
	for _, addr := range addresses {
		st := w.Pools[id][addr]
		if _, pinned := pool.Pins[addr]; !pinned {
			st.Reason = unpinned(st.Reason)
		}
		d := onRecord(w, addr, st, w.Nodes)
		if kept[addr] {
			d.Reason = strings.TrimSuffix(d.Reason, ".") + "; " + why + "."
		}
		decisions = append(decisions, d)
	}
	return decisions
}

// explainSubnet says who answers for a subnet and how its pools stand.
func (s nodeService) explainSubnet(v *view, id cluster.SubnetID) []placement.Decision {
	w := v.world
	subnet, _ := w.Config.Subnet(id)
	d := placement.Decision{Subject: id.String(), Chosen: subnet.ServiceName, At: s.now()}
	all, held := w.Config.ServiceAddresses(id), w.ServiceHolders(id)
	d.Reason = fmt.Sprintf("%s; %d of %s held, each by the node that was ready first.", subnet.CIDR, len(held), plural(len(all), "service address is", "service addresses are"))
	if len(all) == 0 {
		d.Chosen = "no service address"
		d.Reason = fmt.Sprintf("%s; it has no service addresses: its pools are answered for by those of the subnet that their sc-subnet names.", subnet.CIDR)
	}
	if len(all) > 0 {
		d.DataAge = s.now().Sub(v.at)
		amongService(w, id, &d)
	}
	decisions := append([]placement.Decision{d}, serviceDecisions(w, id)...)
	for _, pool := range w.Config.Pools() {
		if pool.SubnetID() == id {
			decisions = append(decisions, s.poolDecision(w, pool))
		}
	}
	return decisions
}

// serviceDecisions say who holds each service address of a subnet.
func serviceDecisions(w *steering.World, id cluster.SubnetID) []placement.Decision {
	var decisions []placement.Decision
	for _, addr := range w.Config.ServiceAddresses(id) {
		decisions = append(decisions, onRecord(w, addr, w.Services[steering.ServiceKey{Subnet: id, Address: addr}], w.Nodes))
	}
	return decisions
}
