package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

func ms(n int64) *int64 { return &n }

// Moments become spans, and numbers become names.
func TestLeasesForPeople(t *testing.T) {
	now := time.Unix(1000, 0)
	before := func(d time.Duration) time.Time { return now.Add(-d * time.Millisecond) }
	v := leasesView{
		at: now, standing: tenure.Standing{MayHold: true, Until: before(-120)},
		right: tenure.Right{
			Incarnation: 7, Timing: tenure.Timing{Interval: 50 * time.Millisecond, Multiplier: 3}, Recorded: 4,
			Observers: tenure.Observers{Version: 5, Current: []int{2, 3}, Previous: []int{3}, Changing: true},
			Leases: []tenure.Lease{
				{Observer: 2, Until: before(-120), Recorded: 5, Acknowledged: [tenure.MaxNetworks]time.Time{before(12), before(900)}},
				{Observer: 3, Until: before(1), Recorded: 4},
			},
		},
		watched: []tenure.Watched{{
			LNN: 2, Incarnation: 9, Over: 8, Observed: true, Quiet: before(40), Promise: before(-300), Confirmed: 9, Declared: before(39),
			Heard: [tenure.MaxNetworks]time.Time{1: before(190)},
			Words: []tenure.Word{{Observer: 1, Asked: before(30), Confirmed: before(30)}, {Observer: 3, Asked: before(30), Denied: tenure.DeniedHeard},
				{Observer: 4, Asked: before(30)}, {Observer: 5}},
		}, {LNN: 3}},
	}
	names := leasesNames{node: func(lnn int) string { return "n" + string(rune('0'+lnn)) }, networks: []string{"10.0.0.0/24"}}
	got := v.message(cluster.Node{Name: "node1", LNN: 1}, names)
	want := &holdfastv1.NodeLeases{
		Node: "node1", Lnn: 1, Incarnation: 7, MayHold: true, LeftMs: ms(120), IntervalMs: 50, SpanMs: 150,
		Observers: &holdfastv1.ObserverSet{Version: 5, Recorded: 4, Current: []int32{2, 3}, Previous: []int32{3}, Changing: true, Need: 1},
		Leases: []*holdfastv1.ObserverLease{
			{Observer: "n2", Lnn: 2, LeftMs: 120, Recorded: 5, RecordedPresent: true,
				Acknowledged: []*holdfastv1.NetworkHeard{{Name: "10.0.0.0/24", MsAgo: 12}, {Network: 1, MsAgo: 900}}},
			{Observer: "n3", Lnn: 3, Recorded: 4},
		},
		Watched: []*holdfastv1.ObservedNode{{
			Node: "n2", Lnn: 2, Incarnation: 9, Over: 8, Observes: true, Heard: []*holdfastv1.NetworkHeard{{Network: 1, MsAgo: 190}}, SilentInMs: ms(-40), PromisedMs: 300,
			Confirmed: 9, DeclaredMsAgo: ms(39), Words: []*holdfastv1.ObserverWord{{Observer: "n1", Lnn: 1, Said: "confirmed"},
				{Observer: "n3", Lnn: 3, Said: "denied", Why: "it hears the node"}, {Observer: "n4", Lnn: 4, Said: "no answer"}, {Observer: "n5", Lnn: 5, Said: "not asked"}},
		}, {Node: "n3", Lnn: 3}},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Node 3 says nothing: its observers say what they hear of it, and what it hears as an observer is not known.
func TestSights(t *testing.T) {
	heard := func(n int64) []*holdfastv1.NetworkHeard {
		return []*holdfastv1.NetworkHeard{{MsAgo: n + 500}, {Network: 1, MsAgo: n}}
	}
	got := sights([]*holdfastv1.NodeLeases{
		{Node: "a", Lnn: 1, Leases: []*holdfastv1.ObserverLease{{Observer: "b", Lnn: 2, LeftMs: 90}, {Observer: "c", Lnn: 3}},
			Watched: []*holdfastv1.ObservedNode{{Node: "b", Lnn: 2, Observes: true, Heard: heard(7)}, {Node: "c", Lnn: 3, Observes: true, Heard: heard(800)}}},
		{Node: "b", Lnn: 2, Leases: []*holdfastv1.ObserverLease{{Observer: "a", Lnn: 1, LeftMs: 80}},
			Watched: []*holdfastv1.ObservedNode{{Node: "a", Lnn: 1, Observes: true, Heard: heard(9)}, {Node: "c", Lnn: 3, Observes: true}}},
	})
	want := []*holdfastv1.Sight{
		{Node: "a", Lnn: 1, Observer: "b", ObserverLnn: 2, LeaseLeftMs: ms(90), HeardMsAgo: ms(9), NodeAnswered: true, ObserverAnswered: true},
		{Node: "a", Lnn: 1, Observer: "c", ObserverLnn: 3, LeaseLeftMs: ms(0), NodeAnswered: true},
		{Node: "b", Lnn: 2, Observer: "a", ObserverLnn: 1, LeaseLeftMs: ms(80), HeardMsAgo: ms(7), NodeAnswered: true, ObserverAnswered: true},
		{Node: "c", Lnn: 3, Observer: "a", ObserverLnn: 1, HeardMsAgo: ms(800), ObserverAnswered: true},
		{Node: "c", Lnn: 3, Observer: "b", ObserverLnn: 2, ObserverAnswered: true},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func (c *testCluster) leases(lnn int) *holdfastv1.LeasesResponse {
	c.t.Helper()
	answer, err := c.ask(lnn).Leases(c.t.Context(), &holdfastv1.LeasesRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	return answer
}

func sightOf(all []*holdfastv1.Sight, lnn, observer int) *holdfastv1.Sight {
	i := slices.IndexFunc(all, func(s *holdfastv1.Sight) bool { return int(s.Lnn) == lnn && int(s.ObserverLnn) == observer })
	if i < 0 {
		return nil
	}
	return all[i]
}

// Heartbeats from node 2 to node 3 are lost, and nothing else: both ends show it, and why nothing comes of it.
func TestLeasesShowACutOfOneDirection(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		before := c.leases(1)
		if len(before.Nodes) != 4 || before.Nodes[0].Node != "node1" || len(before.Unanswered) != 0 || len(before.Sights) != 9 {
			t.Fatalf("%d nodes, %d pairs, %v", len(before.Nodes), len(before.Sights), before.Unanswered)
		}
		for _, s := range before.Sights {
			if s.GetLeaseLeftMs() <= 0 || s.GetLeaseLeftMs() > spanOf(c).Milliseconds() || s.HeardMsAgo == nil || s.GetHeardMsAgo() > 55 {
				t.Errorf("%s and %s: %v", s.Node, s.Observer, s)
			}
		}
		if network := before.Nodes[0].Leases[0].Acknowledged[0].Name; network != "10.0.0.0/24" {
			t.Errorf("the network is called %q", network)
		}

		c.beats.Cut(2, 3)
		c.pass(time.Second)
		after := c.leases(1)
		for _, s := range after.Sights {
			cut := s.Lnn == 2 && s.ObserverLnn == 3
			lost := cut || s.Lnn == 3 && s.ObserverLnn == 2 // acknowledgements of node 2 go the same way as its heartbeats
			if (s.GetLeaseLeftMs() == 0) != lost || (s.GetHeardMsAgo() > 500) != cut {
				t.Errorf("%s and %s: %v", s.Node, s.Observer, s)
			}
		}
		node3 := after.Nodes[2]
		i := slices.IndexFunc(node3.Watched, func(w *holdfastv1.ObservedNode) bool { return w.Lnn == 2 })
		watched := node3.Watched[i]
		if watched.GetSilentInMs() >= 0 || watched.DeclaredMsAgo == nil || len(watched.Words) != 1 || watched.Words[0].Said != "denied" ||
			!strings.Contains(watched.Words[0].Why, "hears") {
			t.Errorf("node 3 knows of node 2: %v", watched)
		}
		if !after.Nodes[1].MayHold || c.pool(2) != 3 {
			t.Error("node 2 lost something, although one of its two observers acknowledges it")
		}
	})
}

// A dead node is named, and its observers say when they last heard it.
func TestLeasesNameWhoDoesNotAnswer(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.kill(4)
		c.pass(2 * time.Second)
		answer := c.leases(2)
		if len(answer.Nodes) != 3 || answer.Nodes[0].Node != "node2" || len(answer.Unanswered) != 1 || answer.Unanswered[0].Node != "node4" || answer.Unanswered[0].Why == "" {
			t.Fatalf("%v", answer)
		}
		if s := sightOf(answer.Sights, 4, 1); s == nil || s.NodeAnswered || s.LeaseLeftMs != nil || !s.ObserverAnswered {
			t.Errorf("of node 4 node 1 says %v", s)
		}
	})
}
