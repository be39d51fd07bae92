package placement

// PlanDown proposes what happens if the nodes with these LNNs die now, all at once: what is on record decides, and only
// addresses whose next dies too are placed anew. Nothing else moves, whatever the request says of rebalancing.
func PlanDown(req Request, down ...int) Result {
	req.Rebalance = false
	t := newTable(req, down)
	t.allocate()
	return t.result()
}
