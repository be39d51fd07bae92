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
