package agent

import (
	"time"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

// leasesView is a node's part in the protocol at one moment.
type leasesView struct {
	at       time.Time
	standing tenure.Standing
	right    tenure.Right
	watched  []tenure.Watched
}

// Leases is this node's part in the protocol now.
func (t *tenancy) Leases() leasesView {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	return leasesView{at: now, standing: t.peer.Standing(now), right: t.peer.Right(), watched: t.peer.Watched()}
}

// Right is this node's own right, and the moment of it.
func (t *tenancy) Right() (tenure.Right, time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peer.Right(), t.now()
}

// gatewayName is what the ground is called where observers are listed; its number is 0.
const gatewayName = "the gateway"

// leasesNames says what people call things.
type leasesNames struct {
	node     func(lnn int) string
	networks []string // by their position among this node's addresses
}

// networkNames name a node's networks for people: by the prefix of the subnet that each is, else by the node's address there.
func networkNames(config *cluster.Config, node cluster.Node) []string {
	names := make([]string, 0, len(node.Addresses))
	for _, addr := range node.Addresses {
		name := addr.String()
		for _, id := range config.Subnets() {
			if subnet, ok := config.Subnet(id); ok && subnet.CIDR.Contains(addr) {
				name = subnet.CIDR.String()
			}
		}
		names = append(names, name)
	}
	return names
}

// message is the view for the API. It names nodes and networks, and turns moments into spans, which mean the same on every node.
func (v leasesView) message(self cluster.Node, names leasesNames) *holdfastv1.NodeLeases {
	set := v.right.Observers
	m := &holdfastv1.NodeLeases{
		Node: self.Name, Lnn: int32(self.LNN), Incarnation: uint64(v.right.Incarnation), MayHold: v.standing.MayHold, Lapsed: v.standing.Lapsed,
		Why: v.standing.Reason, IntervalMs: v.right.Timing.Interval.Milliseconds(), SpanMs: v.right.Timing.Span().Milliseconds(),
		Observers: &holdfastv1.ObserverSet{Version: set.Version, Recorded: v.right.Recorded, Current: lnns(set.Current), Previous: lnns(set.Previous),
			Changing: set.Changing, Need: int32(tenure.Need(len(set.Current)))},
	}
	if v.standing.MayHold && !v.standing.Until.IsZero() {
		left := v.left(v.standing.Until)
		m.LeftMs = &left
	}
	for _, l := range v.right.Leases {
		if l.Observer == tenure.Ground { // it has no networks, and nothing to record
			m.Leases = append(m.Leases, &holdfastv1.ObserverLease{
				Observer: gatewayName, LeftMs: v.left(l.Until), Acknowledged: v.heard(l.Acknowledged, []string{"its answer"}),
				Recorded: set.Version, RecordedPresent: true,
			})
			continue
		}
		m.Leases = append(m.Leases, &holdfastv1.ObserverLease{
			Observer: names.node(l.Observer), Lnn: int32(l.Observer), LeftMs: v.left(l.Until), Acknowledged: v.heard(l.Acknowledged, names.networks),
			Recorded: l.Recorded, RecordedPresent: l.Recorded >= set.Version,
		})
	}
	for _, w := range v.watched {
		m.Watched = append(m.Watched, v.watchedMessage(w, names))
	}
	return m
}

func (v leasesView) watchedMessage(w tenure.Watched, names leasesNames) *holdfastv1.ObservedNode {
	m := &holdfastv1.ObservedNode{
		Node: names.node(w.LNN), Lnn: int32(w.LNN), Incarnation: uint64(w.Incarnation), Over: uint64(w.Over), Observes: w.Observed,
		Heard: v.heard(w.Heard, names.networks), PromisedMs: v.left(w.Promise), Confirmed: uint64(w.Confirmed),
	}
	if !w.Quiet.IsZero() {
		in := w.Quiet.Sub(v.at).Milliseconds()
		m.SilentInMs = &in
	}
	if !w.Declared.IsZero() {
		ago := v.at.Sub(w.Declared).Milliseconds()
		m.DeclaredMsAgo = &ago
	}
	for _, word := range w.Words {
		m.Words = append(m.Words, wordMessage(word, names))
	}
	return m
}

func wordMessage(word tenure.Word, names leasesNames) *holdfastv1.ObserverWord {
	m := &holdfastv1.ObserverWord{Observer: names.node(word.Observer), Lnn: int32(word.Observer)}
	switch {
	case word.Asked.IsZero():
		m.Said = "not asked"
	case !word.Confirmed.IsZero():
		m.Said = "confirmed"
	case word.Denied != 0:
		m.Said, m.Why = "denied", word.Denied.String()
	default:
		m.Said = "no answer"
	}
	return m
}

// left is what is left until a moment in milliseconds; what has less than one left has one.
func (v leasesView) left(until time.Time) int64 {
	left := until.Sub(v.at)
	if until.IsZero() || left <= 0 {
		return 0
	}
	return max(left.Milliseconds(), 1)
}

// heard are the networks over which something has come at all.
func (v leasesView) heard(times [tenure.MaxNetworks]time.Time, networks []string) []*holdfastv1.NetworkHeard {
	var out []*holdfastv1.NetworkHeard
	for i, at := range times {
		if at.IsZero() {
			continue
		}
		m := &holdfastv1.NetworkHeard{Network: int32(i), MsAgo: v.at.Sub(at).Milliseconds()}
		if i < len(networks) {
			m.Name = networks[i]
		}
		out = append(out, m)
	}
	return out
}

func lnns(list []int) []int32 {
	var out []int32
	for _, lnn := range list {
		out = append(out, int32(lnn))
	}
	return out
}
