package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// explainAddress says who holds an address, who is next, and why.
func (s nodeService) explainAddress(v *view, addr netip.Addr) ([]placement.Decision, error) {
	w := v.world
	for _, id := range w.Config.Pools() {
		if !slices.Contains(w.Config.Addresses(id), addr) {
			continue
		}
		decisions := s.onPoolRecord(w, id, addr)
		decisions[0].DataAge = s.now().Sub(v.at)
		pool, _, _, _ := w.Config.Pool(id)
		if planned, ok := placement.Explain(steering.Request(w, id, s.now()), addr); ok && pool.AllocMethod == cluster.AllocDynamic {
			planned.Subject += " in " + id.String()
			return append(decisions, planned), nil
		}
		if pool.AllocMethod == cluster.AllocStatic {
			amongStatic(w, id, &decisions[0])
		}
		return decisions, nil
	}
	for _, subnet := range w.Config.Subnets() {
		if slices.Contains(w.Config.ServiceAddresses(subnet), addr) {
			d := onRecord(w, addr, w.Services[steering.ServiceKey{Subnet: subnet, Address: addr}], w.Nodes)
			d.DataAge = s.now().Sub(v.at)
			amongService(w, subnet, &d)
			return []placement.Decision{d}, nil
		}
	}
	return nil, api.NotFound("%s is neither a pool address nor a service address; `holdfast network interfaces list` lists them", addr)
}

// onRecord puts what the store says about an address into words.
func onRecord(w *steering.World, addr netip.Addr, st tenure.Statement, nodes map[int]steering.Node) placement.Decision {
	message := addressMessage(w, addr, st, 0, "")
	decision := placement.Decision{Subject: addr.String(), At: time.Now()}
	if st.Owner.IsZero() {
		decision.Reason = "Nobody holds it: " + message.Why + "."
		return decision
	}
	decision.Chosen = namedMember(w, st.Owner.Member())
	parts := []string{fmt.Sprintf("%s is its owner under epoch %d and incarnation %d", nameOf(w, st.Owner.LNN), st.Epoch, st.Owner.Incarnation)}
	if st.Reason != "" {
		parts = append(parts, "because "+st.Reason)
	}
	if !st.Since.IsZero() {
		parts = append(parts, "since "+st.Since.Format(time.RFC3339))
	}
	if message.State != holdfastv1.InterfaceAddress_held {
		parts = append(parts, message.Why)
	}
	if st.Next.IsZero() {
		parts = append(parts, "nobody is next")
	} else {
		parts = append(parts, fmt.Sprintf("%s takes it if %s goes down", nameOf(w, st.Next.LNN), nameOf(w, st.Owner.LNN)))
	}
	decision.Reason = strings.Join(parts, "; ") + "."
	return decision
}

// amongService adds which nodes the service addresses of a subnet were chosen among, and which not.
func amongService(w *steering.World, subnet cluster.SubnetID, d *placement.Decision) {
	for _, c := range steering.ServiceCandidates(w, subnet) {
		name := nameOf(w, c.LNN)
		if c.Why != "" {
			d.LeftOut = append(d.LeftOut, placement.Excluded{Name: name, Reason: c.Why})
			continue
		}
		d.Among = append(d.Among, placement.Considered{Name: name + " on " + c.Member.Interface, Weight: 1, Score: float64(c.Holding),
			Note: fmt.Sprintf("has %s of the subnet; who has fewer tries sooner", plural(c.Holding, "service address", "service addresses"))})
	}
}

// amongStatic adds which members of a static pool there are: each has one address, the lowest that is free when it comes.
func amongStatic(w *steering.World, id cluster.PoolID, d *placement.Decision) {
	has := map[cluster.Member]netip.Addr{}
	for addr, st := range w.Pools[id] {
		has[st.Owner.Member()] = addr
	}
	pool, _, _, _ := w.Config.Pool(id)
	for _, m := range w.Config.Members(id) {
		name := nameOf(w, m.LNN) + " on " + m.Interface
		note := "has none"
		if addr, some := has[m]; some {
			note = "has " + addr.String()
		}
		if why := w.UnfitFor(id, m); why != "" {
			d.LeftOut = append(d.LeftOut, placement.Excluded{Name: name, Reason: why + "; it " + note})
			continue
		}
		d.Among = append(d.Among, placement.Considered{Name: name, Weight: w.Weight(pool, m.LNN), Note: note})
	}
}
