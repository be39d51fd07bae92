package placement

// PlainlyEven reports whether a rebalance of all addresses would move none of them, where that shows without working it out: every owner
// on record is fit, none is in hold-down, nothing is pinned, no node has two fit members, and no address would be better placed elsewhere.
// False says nothing.
//
// It is the state in which most pools are most of the time.
func PlainlyEven(req Request) bool {
	if len(req.Pins) > 0 || req.Movable != nil || len(req.Current) != len(req.Addresses) {
		return false
	}
	t := table{req: req}
	t.seatCandidates()
	for at, i := range t.fit {
		if t.seats[i].HoldDown || at > 0 && t.seats[t.fit[at-1]].node == t.seats[i].node {
			return false
		}
	}
	for i, statement := range req.Current {
		owner := t.fitSeat(statement.Owner)
		if owner == nobody || statement.Address != req.Addresses[i] {
			return false
		}
		t.seats[owner].held++
	}
	return t.noStepEvens()
}

// noStepEvens reports whether no seat adds more to the sum of n*n/weight by the last address that it holds than another one would by
// one more (pick.go).
func (t *table) noStepEvens() bool {
	last, next := 0.0, -1.0
	for _, i := range t.fit {
		s := &t.seats[i]
		if s.held > 0 {
			last = max(last, float64(2*s.held-1)/s.weight)
		}
		if more := float64(2*s.held+1) / s.weight; next < 0 || more < next {
			next = more
		}
	}
	return last <= next
}
