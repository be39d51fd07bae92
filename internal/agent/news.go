package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// tellMoves turns changes of the records into events, and remembers where addresses that come here come from.
func (l *loop) tellMoves(before map[cluster.PoolID]tenure.Record, services map[steering.ServiceKey]tenure.Statement) {
	for id, entry := range l.replica.pools {
		for addr, st := range entry.record {
			l.tellMove(id.String(), addr, before[id][addr], st)
		}
	}
	for key, entry := range l.replica.services {
		l.tellMove(key.Subnet.String(), key.Address, services[key], entry.statement)
	}
}

func (l *loop) tellMove(within string, addr netip.Addr, old, now tenure.Statement) {
	fields := map[string]string{"within": within, "epoch": strconv.FormatUint(now.Epoch, 10), "from": l.memberName(old.Owner.Member()), "to": l.memberName(now.Owner.Member())}
	switch {
	case old.To.IsZero() && !now.To.IsZero():
		fields["to"] = l.memberName(now.To.Member())
		l.event("address.moving", addr.String(), fmt.Sprintf("%s is to move from %s to %s: %s", addr, fields["from"], fields["to"], now.Reason), fields)
	case old.Owner != now.Owner && now.Owner.LNN != 0:
		l.event("address.owned", addr.String(), fmt.Sprintf("%s now belongs to %s: %s", addr, fields["to"], now.Reason), fields)
		if now.Owner.LNN == l.self.LNN {
			ends := moveEnds{to: now.Owner.Member()}
			if old.To == now.Owner {
				ends.from = old.Owner.Member()
			}
			l.moveFrom[addr] = ends
		}
	}
}

func (l *loop) memberName(m cluster.Member) string {
	if m.IsZero() {
		return "nobody"
	}
	if l.replica.config != nil {
		if node, ok := l.replica.config.Node(m.LNN); ok {
			return node.Name + " " + m.String()
		}
	}
	return m.String()
}

// observeNodes turns changes in what is known of the nodes into events and problems.
func (l *loop) observeNodes(w *steering.World, now time.Time) {
	for lnn, node := range w.Nodes {
		state, why := nodeState(w, node)
		said := state + ": " + why
		if state == "up" {
			said = state
		}
		if old, known := l.reported[lnn]; !known || old != said {
			if known || state == "down" || state == "draining" {
				l.event("node."+state, l.nodeName(lnn), fmt.Sprintf("%s is %s: %s", l.nodeName(lnn), state, why), map[string]string{"incarnation": strconv.FormatUint(uint64(node.Incarnation), 10)})
			}
			l.reported[lnn] = said
		}
		l.board.Is(state == "down", problemNodeDown, l.nodeName(lnn), why, now)
		l.board.Is(state == "unfit", problemNodeUnfit, l.nodeName(lnn), why, now)
		l.board.Is(state == "draining", problemNodeDraining, l.nodeName(lnn), why, now)
	}
	for id, record := range w.Pools {
		var orphans []netip.Addr
		for addr, st := range record {
			if st.Owner.IsZero() || w.Over(st.Owner) || w.Silent(st.Owner) {
				orphans = append(orphans, addr)
			}
		}
		slices.SortFunc(orphans, netip.Addr.Compare)
		l.board.Is(len(orphans) > 0, problemOrphaned, id.String(), fmt.Sprintf("%d addresses have no working holder: %s", len(orphans), firstFew(orphans)), now)
	}
	l.observePools(w, now)
}

func firstFew(addrs []netip.Addr) string {
	if len(addrs) > 4 {
		return fmt.Sprintf("%s, %s, %s and %d more", addrs[0], addrs[1], addrs[2], len(addrs)-3)
	}
	return fmt.Sprint(addrs)
}

// nodeState is the one word for a node, and why.
func nodeState(w *steering.World, node steering.Node) (state, why string) {
	member := cluster.Member{LNN: node.LNN}
	if configured, ok := w.Config.Node(node.LNN); ok && len(configured.Interfaces) > 0 {
		member.Interface = configured.Interfaces[0]
	}
	why = w.Unfit(member)
	switch {
	case node.Incarnation == 0 && !node.Present:
		return "unknown", "it has never been heard"
	case !node.Present && node.Left:
		return "down", fmt.Sprintf("its agent was stopped in an orderly way and handed over what it held; incarnation %d is over", node.Incarnation)
	case !node.Present && node.Over >= node.Incarnation:
		return "down", fmt.Sprintf("its lease ended and a majority of the other nodes has given up incarnation %d", node.Incarnation)
	case !node.Present:
		return "unknown", "its lease in the store is gone; the other nodes are being asked"
	case node.Draining:
		return "draining", why
	case why != "":
		return "unfit", why
	}
	for _, id := range w.Config.Pools() {
		if why := node.PoolFaults[id]; why != "" {
			return "unfit", fmt.Sprintf("for %s: %s", id, why)
		}
	}
	return "up", "its lease in the store is live and its checks pass"
}

func (l *loop) nodeName(lnn int) string {
	if l.replica.config != nil {
		if node, ok := l.replica.config.Node(lnn); ok {
			return node.Name
		}
	}
	return "node " + strconv.Itoa(lnn)
}
