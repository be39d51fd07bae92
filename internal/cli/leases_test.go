package cli

import (
	"fmt"
	"strings"
	"testing"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
)

// In a cluster too large for a matrix only what is missing is listed.
func TestLeasesOfManyNodes(t *testing.T) {
	r := &pb.LeasesResponse{Node: "n1", Lnn: 1}
	left, heard := int64(100), int64(700)
	for lnn := int32(1); lnn <= 40; lnn++ {
		r.Nodes = append(r.Nodes, &pb.NodeLeases{Node: fmt.Sprintf("n%d", lnn), Lnn: lnn, MayHold: true})
		for _, observer := range []int32{lnn%40 + 1, (lnn+1)%40 + 1} {
			s := &pb.Sight{Node: fmt.Sprintf("n%d", lnn), Lnn: lnn, Observer: fmt.Sprintf("n%d", observer), ObserverLnn: observer, LeaseLeftMs: &left,
				HeardMsAgo: &heard, NodeAnswered: true, ObserverAnswered: true}
			if lnn == 7 && observer == 8 {
				none := int64(0)
				s.LeaseLeftMs = &none
			}
			r.Sights = append(r.Sights, s)
		}
	}
	p := &page{out: &strings.Builder{}}
	layLeases(p, r)
	if text := p.out.String(); !strings.HasSuffix(text, "79 of 80 leases are there.\nNODE  OBSERVER  LEASE\nn7    n8        none, heard 700ms ago\n") {
		t.Errorf("%s", text)
	}
}

// The gateway that one of two nodes asks is among its observers, by name.
func TestLeasesOfTwoThatAskTheGateway(t *testing.T) {
	left, none, heard := int64(200), int64(0), int64(700)
	r := &pb.LeasesResponse{Node: "n1", Lnn: 1, Nodes: []*pb.NodeLeases{{
		Node: "n1", Lnn: 1, MayHold: true, LeftMs: &left, IntervalMs: 100, SpanMs: 300, Incarnation: 4,
		Observers: &pb.ObserverSet{Version: 1, Recorded: 1, Current: []int32{0, 2}, Need: 1},
		Leases: []*pb.ObserverLease{
			{Observer: "the gateway", RecordedPresent: true, Acknowledged: []*pb.NetworkHeard{{Name: "its answer", MsAgo: heard}}},
			{Observer: "n2", Lnn: 2, LeftMs: left, RecordedPresent: true},
		},
	}}, Sights: []*pb.Sight{
		{Node: "n1", Lnn: 1, Observer: "the gateway", NodeAnswered: true, ObserverAnswered: true, HeardMsAgo: &heard, LeaseLeftMs: &none},
		{Node: "n1", Lnn: 1, Observer: "n2", ObserverLnn: 2, NodeAnswered: true, LeaseLeftMs: &left},
	}, Unanswered: []*pb.Unanswered{{Node: "n2", Lnn: 2, Why: "does not answer"}}}
	p := &page{out: &strings.Builder{}}
	layLeases(p, r)
	text := p.out.String()
	for _, want := range []string{
		"version 1, the gateway must answer, or one must acknowledge: n2", "the gateway  none   its answer 700ms ago",
		"FROM the gateway", "none, heard 700ms ago",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "node 0") {
		t.Errorf("the gateway is taken for a node in\n%s", text)
	}
}
