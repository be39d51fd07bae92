package placement

import "slices"

// evenOutMovable evens out where only some addresses may leave their owner, such as those without connections. It takes
// only steps of the way that a full rebalance would go: a seat gives away no more than it has above its share of the
// whole, and is given no more than it lacks of it. Otherwise an address would leave for a spread that is better for the
// moment, and another one would have to take its place when the rest may move.
func (t *table) evenOutMovable() {
	free := func(s *slot) bool { return s.owner != nobody && s.why != causePinned }
	movable := t.loosen(func(s *slot) bool { return free(s) && t.req.Movable[s.address] })
	if len(movable) == 0 {
		return
	}
	gives, lacks := t.wayToEven(t.loosen(free))
	had := t.lift(movable)
	share, leaving := make([]int, len(had)), 0
	for i := range had {
		gone := min(gives[i], had[i])
		share[i] = had[i] - gone
		leaving += gone
	}
	t.fillUp(share, lacks, leaving)
	t.settleShares(movable, had, share)
}

// wayToEven says how many addresses each seat gives away and how many it lacks on the way to the most even spread of all
// free slots. Where several spreads are equally even and equally near, a seat whose addresses may not move keeps them.
func (t *table) wayToEven(all []*slot) (gives, lacks []int) {
	fixed := make([]int, len(t.seats))
	for _, s := range all {
		if !t.req.Movable[s.address] {
			fixed[s.owner]++
		}
	}
	had := t.lift(all)
	share := t.shares(len(all), had, fixed)
	gives, lacks = make([]int, len(had)), make([]int, len(had))
	for i := range had {
		gives[i], lacks[i] = max(had[i]-share[i], 0), max(share[i]-had[i], 0)
		t.hold(i, had[i])
	}
	return gives, lacks
}

// fillUp adds a number of addresses to the shares, to the lightest seats first, to each as many as it lacks at the most.
func (t *table) fillUp(share, lacks []int, count int) {
	added, nodeShare := make([]int, len(share)), make([]int, len(t.nodes))
	for i, n := range share {
		nodeShare[t.seats[i].node] += n
	}
	t.resetKeys()
	for i := range share {
		t.setKey(i, share[i], nodeShare[t.seats[i].node])
	}
	var list []int
	for _, i := range t.fit {
		if lacks[i] > 0 {
			list = append(list, i)
		}
	}
	for range count {
		i := t.lightest(list, 0, 0)
		n := t.seats[i].node
		share[i]++
		added[i]++
		nodeShare[n]++
		for j := t.nodes[n].first; j < t.nodes[n].end; j++ {
			t.setKey(j, share[j], nodeShare[n])
		}
		if added[i] == lacks[i] {
			list = slices.DeleteFunc(list, func(j int) bool { return j == i })
		}
	}
}
