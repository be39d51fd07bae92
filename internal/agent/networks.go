package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/tenure"
)

// How it is judged whether one of this node's networks is cut although its carrier is there.
const (
	fewestEars  = 2 // observers that are heard at all: one alone may be the one that is cut off
	cutSpans    = 1 // a network is cut when it has not worked for so many spans, besides the one for which an acknowledgement counts
	askSpans    = 1 // for so many more the other nodes may say that theirs is, too
	healedSpans = 4 // and is well again when it has worked for so many
)

// networkState is how one of this node's networks stands. The zero state is that of a network that has not been looked at.
type networkState struct {
	worked time.Time // while it is not cut: when it last worked, or could not be judged
	cut    bool      // few of the others are heard over it
	since  time.Time // while it is cut: since when
	back   time.Time // while it is cut: since when it works again; zero: it does not
	fault  bool      // it is cut for this node, and not for the most of the others
}

// next is the state after a look at which heard of so many observers were heard over the network. Those count that are heard over any:
// a node that is dead says nothing of a network. It works while half of them are heard, so that the few that are cut off notice it
// and the many do not.
func (s networkState) next(heard, of int, span time.Duration, now time.Time) networkState {
	judged, works := of >= fewestEars, heard >= tenure.Need(of)
	switch {
	case !s.cut && (!judged || works || s.worked.IsZero()):
		return networkState{worked: now}
	case !s.cut:
		if now.Sub(s.worked) >= cutSpans*span {
			s.cut, s.since = true, now
		}
		return s
	case !judged || !works:
		s.back = time.Time{}
		return s
	case s.back.IsZero():
		s.back = now
	}
	if now.Sub(s.back) >= healedSpans*span {
		return networkState{worked: now}
	}
	return s
}

// blame says whether a cut is this node's fault, by how many of the others say that theirs is cut, too: where at least half of them
// do, the network itself is broken, and addresses would be no better off elsewhere. Once said, it stays until the network works.
func (s networkState) blame(cut, others int, span time.Duration, now time.Time) networkState {
	if s.cut && now.Sub(s.since) >= askSpans*span && 2*cut < others {
		s.fault = true
	}
	return s
}

// heardOver counts the observers that have acknowledged over one network lately, and over any. An observer that has no address on the
// network does not count.
func heardOver(network int, leases []tenure.Lease, networksOf func(lnn int) int, span time.Duration, now time.Time) (heard, of int) {
	lately := now.Add(-span)
	for _, l := range leases {
		if l.Observer == tenure.Ground || networksOf(l.Observer) <= network || !l.Last().After(lately) {
			continue
		}
		of++
		if l.Acknowledged[network].After(lately) {
			heard++
		}
	}
	return heard, of
}

// cutInterfaces says which interfaces have networks that are cut for this node, and none that works. The text is the same while nothing changes, since it is
// written to the store.
func cutInterfaces(states []networkState, names []string, interfaces [][]string) map[string]string {
	cut, working := map[string][]string{}, map[string]bool{}
	for i, s := range states {
		if i >= len(names) || i >= len(interfaces) {
			break
		}
		for _, name := range interfaces[i] {
			if s.fault {
				cut[name] = append(cut[name], names[i])
			}
			working[name] = working[name] || !s.cut
		}
	}
	faults := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(cut)) {
		if !working[name] {
			faults[name] = fmt.Sprintf("interface %s has a carrier, but most nodes are not heard over %s that are heard over another network", name, strings.Join(cut[name], ", "))
		}
	}
	return faults
}

// carriers are the member interfaces of a node that carry each of its networks: the one that has the node's address by the kernel's
// word, or else those of pools in the subnet that contains it.
func carriers(node cluster.Node, config *cluster.Config, there []link.Address) [][]string {
	out := make([][]string, len(node.Addresses))
	for i, addr := range node.Addresses {
		at := slices.IndexFunc(there, func(a link.Address) bool { return a.Prefix.Addr() == addr })
		if at >= 0 {
			if slices.Contains(node.Interfaces, there[at].Interface) {
				out[i] = []string{there[at].Interface}
			}
			continue
		}
		out[i] = membersAround(node, config, addr)
	}
	return out
}

// membersAround are a node's member interfaces in the subnets that contain an address.
func membersAround(node cluster.Node, config *cluster.Config, addr netip.Addr) []string {
	var names []string
	for _, id := range config.Pools() {
		subnet, ok := config.Subnet(id.SubnetID())
		if !ok || !subnet.CIDR.Contains(addr) {
			continue
		}
		for _, m := range config.Members(id) {
			if m.LNN == node.LNN && !slices.Contains(names, m.Interface) {
				names = append(names, m.Interface)
			}
		}
	}
	return names
}
