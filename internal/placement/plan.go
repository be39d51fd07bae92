package placement

import "slices"

// PlanDown proposes what happens if the nodes with these LNNs die now, all at once: what is on record decides, and only
// addresses whose next dies too are placed anew. Nothing else moves, whatever the request says of rebalancing.
func PlanDown(req Request, down ...int) Result {
	req.Rebalance = false
	req.Candidates = slices.Clone(req.Candidates)
	for i := range req.Candidates {
		if candidate := &req.Candidates[i]; slices.Contains(down, candidate.Member.LNN) {
			candidate.Fit = false
			candidate.Why = "down in this plan"
		}
	}
	return Allocate(req)
}
