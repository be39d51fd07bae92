package steering

import (
	"slices"

	"github.com/holdfast/holdfast/internal/cluster"
)

// ServiceCandidate is one node as the choice of who holds a service address sees it.
type ServiceCandidate struct {
	LNN     int
	Member  cluster.Member // where it would host the address; zero if nowhere
	Holding int            // service addresses of the subnet that it has
	Why     string         // why it may take none; empty when it may
}

// ServiceCandidates are all configured nodes, by number: those that may take a service address of a subnet, and why the others may
// not.
func ServiceCandidates(w *World, subnet cluster.SubnetID) []ServiceCandidate {
	w = w.ForReading()
	counts, interfaces := w.serviceCounts(subnet), w.serviceInterfaces(subnet)
	candidates := make([]ServiceCandidate, 0, len(w.Config.Nodes))
	for _, node := range w.Config.Nodes {
		c := ServiceCandidate{LNN: node.LNN, Member: w.firstFit(interfaces[node.LNN]), Holding: counts[node.LNN]}
		switch {
		case node.Witness:
			c.Why = "it is a witness and hosts nothing"
		case c.Member.IsZero():
			c.Why = "none of its interfaces is in a pool of " + subnet.String()
		default:
			c.Why = w.Unfit(c.Member)
		}
		candidates = append(candidates, c)
	}
	slices.SortFunc(candidates, func(a, b ServiceCandidate) int { return a.LNN - b.LNN })
	return candidates
}
