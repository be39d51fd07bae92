package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// tellMoves turns changes of the records into events, and remembers where addresses that come here come from.
func (l *loop) tellMoves(before map[cluster.PoolID]tenure.Record, services map[steering.ServiceKey]tenure.Statement) {
	for id, entry := range l.replica.pools {
		if entry.record.Is(before[id]) {
			continue
		}
		for addr, st := range entry.record {
			l.tellMove(id.String(), addr, before[id][addr], st)
		}
	}
	for key, entry := range l.replica.services {
		l.tellMove(key.Subnet.String(), key.Address, services[key], entry.statement)
	}
}

func (l *loop) tellMove(within string, addr netip.Addr, old, now tenure.Statement) {
	if old == now {
		return
	}
	fields := map[string]string{fieldWithin: within, "epoch": strconv.FormatUint(now.Epoch, 10), "from": l.memberName(old.Owner.Member()), "to": l.memberName(now.Owner.Member())}
	switch {
	case old.To.IsZero() && !now.To.IsZero():
		fields["to"] = l.memberName(now.To.Member())
		l.event("address.moving", addr.String(), fmt.Sprintf("%s is to move from %s to %s: %s", addr, fields["from"], fields["to"], now.Reason), fields)
	case old.Owner != now.Owner && now.Owner.LNN != 0:
		failover := l.failedOver(old, now)
		if failover != "" {
			fields[fieldFailover], fields[fieldOwner] = failover, l.nodeName(now.Owner.LNN)
		}
		l.event(kindOwned, addr.String(), fmt.Sprintf("%s now belongs to %s: %s", addr, fields["to"], now.Reason), fields)
		if now.Owner.LNN == l.self.LNN {
			ends := moveEnds{to: now.Owner.Member()}
			if old.To == now.Owner {
				ends.from = old.Owner.Member()
			}
			l.moveFrom[addr] = ends
			l.causes[addr] = cause{failover, now.Epoch}
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

// nodeProblems are those whose subject is a node.
var nodeProblems = []*problem.Kind{problemNodeDown, problemNodeUnfit, problemNodeDraining}

// observed is the world of which events and problems were made last. There is none if not all of them fitted on the board: they may by then.
type observed struct{ world *steering.World }

// of reports whether another world says the same of all that they are made of, so that nothing would come of looking at it: time itself
// makes none of them.
func (o observed) of(w *steering.World) bool {
	return w.SameNodes(o.world) && w.SameRecords(o.world) && w.Settling == o.world.Settling
}

// observeNodes turns changes in what is known of the nodes into events and problems. A node that was taken out of the configuration
// and is not heard any more is none.
func (l *loop) observeNodes(w *steering.World, now time.Time) {
	if l.observed.of(w) {
		return
	}
	dropped := l.board.Dropped()
	current := map[string]bool{}
	for lnn, node := range w.Nodes {
		state, why := nodeState(w, node)
		l.since.note(nodeKey(lnn), state, l.stateKnownSince(lnn, state, w), now)
		impaired := state == "up" && why != allWell // it is left out of some of its pools
		said := state
		if state != "up" || impaired {
			said += ": " + why
		}
		name := cmp.Or(node.Name, l.nodeName(lnn))
		if old, known := l.reported[lnn]; !known || old != said {
			if known || state == "down" || state == "draining" {
				l.event("node."+state, name, fmt.Sprintf("%s is %s: %s", name, state, why), map[string]string{"incarnation": strconv.FormatUint(uint64(node.Incarnation), 10)})
			}
			l.reported[lnn] = said
		}
		if !configuredNode(w, lnn) && !node.Present {
			continue
		}
		current[name] = true
		l.board.Is(state == "down", problemNodeDown, name, why, now)
		l.board.Is(state == "unfit" || impaired, problemNodeUnfit, name, why, now)
		l.board.Is(state == "draining", problemNodeDraining, name, why, now)
	}
	for _, active := range l.board.List() {
		if slices.Contains(nodeProblems, active.Kind) && !current[active.Subject] {
			l.board.Clear(active.Kind, active.Subject)
		}
	}
	l.observeVoices(w, now)
	l.observeOrphans(w, now)
	l.observePools(w, now)
	l.observed = observed{}
	if l.board.Dropped() == dropped {
		l.observed.world = w
	}
}

// observeVoices says while a cluster has just two voices, of which one depends on the other.
func (l *loop) observeVoices(w *steering.World, now time.Time) {
	dependent := w.Dependent()
	l.board.Is(dependent > 0, problemTwoVoices, "cluster", fmt.Sprintf("%s depends on the other node and hosts nothing that moves", nameOf(w, dependent)), now)
}

// observeOrphans says which addresses have nobody.
func (l *loop) observeOrphans(w *steering.World, now time.Time) {
	for id, record := range w.Pools {
		var orphans []netip.Addr
		pool, _, _, configured := w.Config.Pool(id)
		for addr, st := range record {
			if configured && pool.AllocMethod == cluster.AllocStatic && !st.Owner.IsZero() {
				continue // it goes and comes with its node, about which there is a problem of its own
			}
			if st.Owner.IsZero() || w.Over(st.Owner) || w.Silent(st.Owner) {
				orphans = append(orphans, addr)
			}
		}
		slices.SortFunc(orphans, netip.Addr.Compare)
		l.board.Is(len(orphans) > 0, problemOrphaned, id.String(), fmt.Sprintf("%d addresses have no working holder: %s", len(orphans), firstFew(orphans)), now)
	}
}

func firstFew(addrs []netip.Addr) string {
	if len(addrs) > 4 {
		return fmt.Sprintf("%s, %s, %s and %d more", addrs[0], addrs[1], addrs[2], len(addrs)-3)
	}
	return fmt.Sprint(addrs)
}

// allWell is why a node is up of which nothing bad is known.
const allWell = "its heartbeats are acknowledged and its checks pass"

// nodeState is the one word for a node, and why. A node is unfit when no pool may give it anything; one that is left out of some of
// its pools alone is up, and the reason says so.
func nodeState(w *steering.World, node steering.Node) (state, why string) {
	switch {
	case node.Incarnation == 0 && !node.Present && !node.AbsentSince.IsZero():
		return "down", "it was away already when this agent started; what it held is with others"
	case node.Incarnation == 0 && !node.Present:
		return "unknown", "it has never been heard"
	case !node.Present && node.Left:
		return "down", fmt.Sprintf("its agent was stopped in an orderly way and handed over what it held; incarnation %d is over", node.Incarnation)
	case !node.Present && node.Declared:
		return "down", fmt.Sprintf("an operator declared it dead; incarnation %d is over", node.Incarnation)
	case !node.Present && node.Over >= node.Incarnation:
		return "down", fmt.Sprintf("its heartbeats stopped and a majority of its observers has given up incarnation %d", node.Incarnation)
	case !node.Present:
		return "unknown", "it has not reported yet since this agent started"
	case !configuredNode(w, node.LNN) || node.Lapsed != "":
		return "unfit", w.Unfit(cluster.Member{LNN: node.LNN})
	case node.Draining:
		return "draining", w.Unfit(cluster.Member{LNN: node.LNN})
	case node.Leaving || !node.Ready || w.Dependent() == node.LNN:
		return "unfit", w.Unfit(cluster.Member{LNN: node.LNN})
	case len(node.Faults)+len(node.PoolFaults) == 0:
		return "up", allWell
	}
	return fitness(w, node)
}

func configuredNode(w *steering.World, lnn int) bool {
	_, configured := w.Config.Node(lnn)
	return configured
}

// fitness is the state of a node with faults of its own, by what they mean for its pools.
func fitness(w *steering.World, node steering.Node) (state, why string) {
	var out []string
	in := false
	for _, id := range w.Config.Pools() {
		for _, m := range w.Config.Members(id) {
			if m.LNN != node.LNN {
				continue
			}
			if why := w.UnfitFor(id, m); why != "" {
				out = append(out, fmt.Sprintf("for %s: %s", id, why))
			} else {
				in = true
			}
		}
	}
	configured, _ := w.Config.Node(node.LNN)
	switch {
	case len(out) > 0 && in:
		return "up", "its heartbeats are acknowledged, but it is left out " + strings.Join(firstTexts(out), "; ")
	case len(out) > 0:
		return "unfit", strings.Join(firstTexts(out), "; ")
	case !in: // a member of no pool may still host service addresses
		for _, name := range configured.Interfaces {
			if why := node.Faults[name]; why != "" {
				return "unfit", why
			}
		}
	}
	return "up", allWell
}

// firstTexts keeps a line for people short.
func firstTexts(texts []string) []string {
	const most = 3
	if len(texts) <= most {
		return texts
	}
	return append(slices.Clone(texts[:most]), fmt.Sprintf("and %d more", len(texts)-most))
}

func (l *loop) nodeName(lnn int) string {
	if l.replica.config != nil {
		if node, ok := l.replica.config.Node(lnn); ok {
			return node.Name
		}
	}
	return "node " + strconv.Itoa(lnn)
}
