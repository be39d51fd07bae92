package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
)

// widestMatrix is how many nodes fit beside each other; of more, only what is not as it should be is listed.
const widestMatrix = 16

func (s *session) showLeases(cmd *cobra.Command) error {
	leases, err := ask(s, cmd, "asking the agent, which asks the others", askTimeout, func(ctx context.Context, c Client) (*pb.LeasesResponse, error) {
		return c.Leases(ctx, &pb.LeasesRequest{})
	})
	if err != nil {
		return err
	}
	return s.show(leases, func(p *page) { layLeases(p, leases) })
}

func layLeases(p *page, r *pb.LeasesResponse) {
	names := map[int32]string{}
	for _, n := range r.Nodes {
		names[n.Lnn] = n.Node
	}
	for _, n := range r.Unanswered {
		names[n.Lnn] = n.Node
	}
	for _, n := range r.Nodes {
		if n.Lnn == r.Lnn {
			layOwnLeases(p, n, names)
		}
	}
	p.title("Who sees whom")
	laySights(p, r, names)
	for _, n := range r.Unanswered {
		p.linef("%s %s", n.Node, n.Why)
	}
}

// layOwnLeases is the asked node's own word.
func layOwnLeases(p *page, n *pb.NodeLeases, names map[int32]string) {
	set := n.GetObservers()
	p.facts(
		[2]string{"this node", fmt.Sprintf("%s (%d), incarnation %d", n.Node, n.Lnn, n.Incarnation)},
		[2]string{"may hold", mayHoldText(n)},
		[2]string{"heartbeats", fmt.Sprintf("every %s, each acknowledgement counts for %s", milliseconds(n.IntervalMs), milliseconds(n.SpanMs))},
		[2]string{"observers", observersText(set, names)},
	)
	if len(n.Leases) > 0 {
		p.title("Leases of " + n.Node)
		rows := make([][]string, len(n.Leases))
		for i, l := range n.Leases {
			recorded := "yes"
			if !l.RecordedPresent {
				recorded = fmt.Sprintf("no: version %d", l.Recorded)
			}
			rows[i] = []string{l.Observer, leftText(l.LeftMs), heardText(l.Acknowledged), recorded}
		}
		p.table([]string{"OBSERVER", "LEFT", "LAST ACKNOWLEDGED", "HAS RECORDED THE SET"}, rows)
	}
	if len(n.Watched) > 0 {
		p.title("What " + n.Node + " knows of the others")
		rows := make([][]string, len(n.Watched))
		for i, w := range n.Watched {
			rows[i] = []string{w.Node, incarnationText(w), yesNo(w.Observes), heardText(w.Heard), silentText(w), confirmedText(w)}
		}
		p.table([]string{"NODE", "INCARNATION", "OBSERVED", "LAST HEARTBEAT", "SILENT", "CONFIRMED DOWN"}, rows)
		for _, w := range n.Watched {
			layInquiry(p, n.Node, w)
		}
	}
}

func mayHoldText(n *pb.NodeLeases) string {
	switch {
	case n.MayHold && n.LeftMs != nil:
		return "for another " + milliseconds(*n.LeftMs) + " unless it is acknowledged"
	case n.MayHold:
		return "without leases: nobody observes it"
	case n.Lapsed:
		return "no, for now: " + n.Why
	}
	return "no: " + n.Why
}

func observersText(set *pb.ObserverSet, names map[int32]string) string {
	if len(set.GetCurrent()) == 0 && !set.GetChanging() {
		return "none"
	}
	text := fmt.Sprintf("version %d, %d of %s must acknowledge: %s", set.Version, set.Need, count(len(set.Current), "node"), named(set.Current, names))
	if len(set.Current) > 0 && set.Current[0] == 0 {
		text = fmt.Sprintf("version %d, the gateway must answer, or one must acknowledge: %s", set.Version, named(set.Current[1:], names))
	}
	if set.Changing {
		text += "; it is changing, so that the set before counts too: " + named(set.Previous, names)
	}
	if set.Recorded < set.Version {
		text += fmt.Sprintf("; on record is version %d", set.Recorded)
	}
	return text
}

func named(lnns []int32, names map[int32]string) string {
	texts := make([]string, len(lnns))
	for i, lnn := range lnns {
		switch texts[i] = names[lnn]; {
		case lnn == 0:
			texts[i] = "the gateway"
		case texts[i] == "":
			texts[i] = "node " + number(lnn)
		}
	}
	return strings.Join(texts, " ")
}

func incarnationText(w *pb.ObservedNode) string {
	if w.Incarnation <= w.Over {
		return fmt.Sprintf("%d, over", w.Incarnation)
	}
	return fmt.Sprint(w.Incarnation)
}

func silentText(w *pb.ObservedNode) string {
	switch {
	case w.SilentInMs == nil:
		return "-"
	case *w.SilentInMs <= 0:
		return "for " + milliseconds(-*w.SilentInMs)
	}
	return "in " + milliseconds(*w.SilentInMs)
}

func confirmedText(w *pb.ObservedNode) string {
	text := "-"
	if w.Confirmed > 0 {
		text = fmt.Sprintf("incarnation %d", w.Confirmed)
	}
	if w.PromisedMs > 0 {
		text += ", not acknowledged for " + milliseconds(w.PromisedMs)
	}
	return text
}

// layInquiry says what the other observers have said to the question whether a node has stopped.
func layInquiry(p *page, observer string, w *pb.ObservedNode) {
	if w.DeclaredMsAgo == nil {
		return
	}
	said := make([]string, len(w.Words))
	for i, word := range w.Words {
		if said[i] = word.Observer + ": " + word.Said; word.Why != "" {
			said[i] += ", " + word.Why
		}
	}
	p.linef("%s declared %s silent %s ago and asks the others. %s", observer, w.Node, milliseconds(*w.DeclaredMsAgo), strings.Join(said, "; "))
}

// laySights shows each node beside each of its observers.
func laySights(p *page, r *pb.LeasesResponse, names map[int32]string) {
	cells := map[[2]int32]*pb.Sight{}
	for _, s := range r.Sights {
		cells[[2]int32{s.Lnn, s.ObserverLnn}] = s
	}
	lnns := sortedKeys(names)
	called := observerNames(r, names)
	observers := sortedKeys(called)
	var rows [][]string
	if len(lnns) > widestMatrix {
		for _, s := range r.Sights {
			if s.GetLeaseLeftMs() == 0 {
				rows = append(rows, []string{s.Node, s.Observer, sightText(s)})
			}
		}
		p.linef("%d of %d leases are there.", len(r.Sights)-len(rows), len(r.Sights))
		if len(rows) > 0 {
			p.table([]string{"NODE", "OBSERVER", "LEASE"}, rows)
		}
		return
	}
	header := []string{"LEASE OF"}
	for _, observer := range observers {
		header = append(header, "FROM "+called[observer])
	}
	for _, lnn := range lnns {
		row := []string{names[lnn]}
		for _, observer := range observers {
			text := "-"
			if s := cells[[2]int32{lnn, observer}]; s != nil {
				text = sightText(s)
			}
			row = append(row, text)
		}
		rows = append(rows, row)
	}
	p.table(header, rows)
}

// observerNames are those of the nodes, and the gateway's (number 0) where it is one's observer.
func observerNames(r *pb.LeasesResponse, names map[int32]string) map[int32]string {
	for _, s := range r.Sights {
		if s.ObserverLnn == 0 {
			names = maps.Clone(names)
			names[0] = s.Observer
			break
		}
	}
	return names
}

func sortedKeys(names map[int32]string) []int32 {
	lnns := make([]int32, 0, len(names))
	for lnn := range names {
		lnns = append(lnns, lnn)
	}
	slices.Sort(lnns)
	return lnns
}

// sightText is a node and its observer in a few words: what is left of the lease, or why there is none.
func sightText(s *pb.Sight) string {
	heard := ""
	switch {
	case !s.ObserverAnswered:
	case s.HeardMsAgo == nil:
		heard = "never heard"
	default:
		heard = "heard " + milliseconds(*s.HeardMsAgo) + " ago"
	}
	switch {
	case s.GetLeaseLeftMs() > 0:
		return milliseconds(*s.LeaseLeftMs)
	case !s.NodeAnswered && heard == "":
		return "?"
	case !s.NodeAnswered:
		return heard
	case heard == "":
		return "none"
	}
	return "none, " + heard
}

func leftText(ms int64) string {
	if ms == 0 {
		return "none"
	}
	return milliseconds(ms)
}

// heardText is over which networks something came, and when.
func heardText(heard []*pb.NetworkHeard) string {
	if len(heard) == 0 {
		return "never"
	}
	texts := make([]string, len(heard))
	for i, h := range heard {
		name := h.Name
		if name == "" {
			name = "network " + number(h.Network)
		}
		texts[i] = fmt.Sprintf("%s %s ago", name, milliseconds(h.MsAgo))
	}
	return strings.Join(texts, ", ")
}

func milliseconds(ms int64) string { return span(time.Duration(ms) * time.Millisecond) }
