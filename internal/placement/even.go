package placement

// plainlyEven reports whether a rebalance of all addresses would move none of them, where that shows without working it out: nothing is
// pinned, every owner on record is fit, none is in hold-down, no node has two fit members, and no address would be better placed elsewhere.
// False says nothing.
//
// A rebalance gives addresses to the seats one by one, each to where it adds least to the sum of n*n/weight (pick.go), and among equal ones
// to a seat that has more on record. If no last address on record adds more than a further one would elsewhere, it comes out as it is.
func (t *table) plainlyEven() bool {
	if len(t.req.Pins) > 0 || len(t.gone) > 0 || len(t.open) < len(t.fit) {
		return false
	}
	held, last, next := 0, 0.0, -1.0
	for at, i := range t.fit {
		s := &t.seats[i]
		if s.HoldDown || at > 0 && t.seats[t.fit[at-1]].node == s.node {
			return false
		}
		if held += s.before; s.before > 0 {
			last = max(last, float64(2*s.before-1)/s.weight)
		}
		if more := float64(2*s.before+1) / s.weight; next < 0 || more < next {
			next = more
		}
	}
	return held == len(t.slots) && last <= next
}
