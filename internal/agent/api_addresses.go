package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

func (s nodeService) ListInterfaces(_ context.Context, r *holdfastv1.ListInterfacesRequest) (*holdfastv1.ListInterfacesResponse, error) {
	v, err := s.seen()
	if err != nil {
		return nil, err
	}
	only := 0
	if r.Node != "" {
		node, err := findNode(v.world.Config, r.Node)
		if err != nil {
			return nil, err
		}
		only = node.LNN
	}
	outer, err := place(v.world.Config, r.Within)
	if err != nil {
		return nil, err
	}
	response := &holdfastv1.ListInterfacesResponse{}
	for _, a := range listAddresses(v) {
		if (only == 0 || int(a.Lnn) == only) && within(a.Pool, outer) {
			response.Addresses = append(response.Addresses, a)
		}
	}
	return response, nil
}

// place is the whole id of a groupnet, a subnet or a pool; empty for empty, which means everything.
func place(config *cluster.Config, text string) (string, error) {
	if _, ok := config.Groupnet(text); ok || text == "" {
		return text, nil
	}
	subnet, err := cluster.ParseSubnetID(config, text)
	if err == nil {
		return subnet.String(), nil
	}
	if pool, poolErr := cluster.ParsePoolID(config, text); poolErr == nil {
		return pool.String(), nil
	} else if strings.Contains(text, ".") {
		err = poolErr
	}
	return "", api.NotFound("%q is no groupnet, subnet or pool: %v", text, err)
}

// within reports whether a dotted id is or lies in another.
func within(id, outer string) bool {
	return outer == "" || id == outer || strings.HasPrefix(id, outer+".")
}

// listAddresses lists every service and pool address, sorted by place and address.
func listAddresses(v *view) []*holdfastv1.InterfaceAddress {
	w := v.world
	var out []*holdfastv1.InterfaceAddress
	for _, subnet := range w.Config.Subnets() {
		for _, addr := range w.Config.ServiceAddresses(subnet) {
			st := w.Services[steering.ServiceKey{Subnet: subnet, Address: addr}]
			out = append(out, addressMessage(w, addr, st, holdfastv1.InterfaceAddress_service, subnet.String()))
		}
	}
	for _, id := range w.Config.Pools() {
		for _, addr := range w.Config.Addresses(id) {
			out = append(out, poolAddressMessage(w, id, addr))
		}
	}
	slices.SortStableFunc(out, func(a, b *holdfastv1.InterfaceAddress) int { return cmp.Compare(a.Kind, b.Kind) * -1 })
	return out
}

// poolAddressMessage is what is to be said of an address of a pool.
func poolAddressMessage(w *steering.World, id cluster.PoolID, addr netip.Addr) *holdfastv1.InterfaceAddress {
	pool, _, _, _ := w.Config.Pool(id)
	kind := holdfastv1.InterfaceAddress_dynamic
	if pool.AllocMethod == cluster.AllocStatic {
		kind = holdfastv1.InterfaceAddress_static
	}
	message := addressMessage(w, addr, w.Pools[id][addr], kind, id.String())
	_, message.Pinned = pool.Pins[addr]
	if !message.Pinned {
		message.Why = unpinned(message.Why)
	}
	return message
}

// unpinned takes out of the reason on record what it says of a pin that is no longer there: a pin that ends moves nothing, so the
// record stays as it was.
func unpinned(why string) string {
	why, _, _ = strings.Cut(why, "; pinned to ")
	if strings.HasPrefix(why, "pinned to ") {
		return "it was pinned here and has stayed since the pin ended"
	}
	return why
}

func addressMessage(w *steering.World, addr netip.Addr, st tenure.Statement, kind holdfastv1.InterfaceAddress_Kind, within string) *holdfastv1.InterfaceAddress {
	message := &holdfastv1.InterfaceAddress{
		Address: addr.String(), Kind: kind, Pool: within, Node: nameOf(w, st.Owner.LNN), Lnn: int32(st.Owner.LNN), Interface: st.Owner.Interface,
		Since: stamp(st.Since), NextNode: nameOf(w, st.Next.LNN), NextInterface: st.Next.Interface, Epoch: int64(st.Epoch), Why: st.Reason,
	}
	switch {
	case st.Owner.IsZero():
		message.State = holdfastv1.InterfaceAddress_unassigned
		if message.Why == "" {
			message.Why = "nobody has been given it"
		}
	case (w.Over(st.Owner) || w.Silent(st.Owner)) && (st.Fixed || kind == holdfastv1.InterfaceAddress_static):
		message.State = holdfastv1.InterfaceAddress_orphaned
		message.Why = fmt.Sprintf("%s is not up: a static address never moves, and is not given while its node is down", nameOf(w, st.Owner.LNN))
	case w.Over(st.Owner) || w.Silent(st.Owner):
		message.State = holdfastv1.InterfaceAddress_orphaned
		message.Why = fmt.Sprintf("its owner %s is not up, and nobody has taken over yet", nameOf(w, st.Owner.LNN))
	case w.Nodes[st.Owner.LNN].Lapsed != "" && !st.Fixed && kind != holdfastv1.InterfaceAddress_static:
		message.State = holdfastv1.InterfaceAddress_orphaned
		message.Why = fmt.Sprintf("%s is its owner by the last record seen here, and may not hold it now: %s", nameOf(w, st.Owner.LNN), w.Nodes[st.Owner.LNN].Lapsed)
	case st.State() == tenure.Moving:
		message.State = holdfastv1.InterfaceAddress_moving
		message.Why = fmt.Sprintf("on its way to %s: %s", nameOf(w, st.To.LNN), st.Reason)
	default:
		message.State = holdfastv1.InterfaceAddress_held
	}
	return message
}
