package placement

import "slices"

// Allocate proposes owner and next for every address of a dynamic pool. See the package comment for what it keeps to.
//
// While no candidate is fit the statements on record stay, as far as their members still are candidates: doing nothing
// beats a wrong move.
func Allocate(req Request) Result {
	var w Workspace
	return w.Allocate(req)
}

// Workspace is the memory in which one allocation after the other is worked out. It changes nothing of what comes out, and no result
// refers to it. The zero Workspace is ready; it serves one caller at a time.
type Workspace struct{ table table }

// Allocate is the function of that name.
func (w *Workspace) Allocate(req Request) Result {
	w.table.lay(req, nil)
	w.table.allocate()
	return w.table.result()
}

func (t *table) allocate() {
	if len(t.fit) == 0 {
		t.keepRecords()
		return
	}
	t.settle()
	t.placeOrphans()
	t.chooseNexts()
}

// keepRecords leaves things as they are.
func (t *table) keepRecords() {
	for i := range t.slots {
		s := &t.slots[i]
		if owner := t.seatOf(s.recorded.Owner); owner != nobody {
			t.give(s, owner, causeNone)
		}
		s.next = s.recNext
	}
}

// settle gives every address to whom it belongs without a choice: its pin, its fit owner, or its fit next, which may
// already have taken it.
func (t *table) settle() {
	for i := range t.slots {
		s := &t.slots[i]
		owner := t.fitSeat(s.recorded.Owner)
		if pin := t.pinSeat(s, owner); pin != nobody {
			t.give(s, pin, causePinned)
			continue
		}
		if owner != nobody {
			t.give(s, owner, causeStays)
			continue
		}
		if s.recNext != nobody && t.seats[s.recNext].Fit {
			t.give(s, s.recNext, causeNext)
			continue
		}
		s.why = causeOrphan
		if s.recorded.Owner.IsZero() {
			s.why = causeNew
		}
	}
}

// pinSeat finds the seat that a slot is pinned to, if it can hold the address. A seat in hold-down takes no address back
// while another can have it.
func (t *table) pinSeat(s *slot, owner int) int {
	pin := t.fitSeat(s.pin)
	if pin == nobody || pin == owner || !t.seats[pin].HoldDown || len(t.open) == len(t.fit) {
		return pin
	}
	return nobody
}

// placeOrphans gives owners to the addresses that have none, and evens out if the request allows it.
func (t *table) placeOrphans() {
	everything := t.req.Rebalance && t.req.Movable == nil
	loose := t.loosen(func(s *slot) bool { return s.owner == nobody || everything && s.why != causePinned })
	if len(loose) > 0 {
		if t.byLoad && !t.req.Rebalance {
			loose = t.placeByLoad(loose)
		}
		t.placeByNumber(loose)
	}
	if t.req.Rebalance && !everything {
		t.evenOutMovable()
	}
}

// loosen lists the slots that are free to go somewhere else, in the order of addresses.
func (t *table) loosen(free func(*slot) bool) []*slot {
	var loose []*slot
	for i := range t.slots {
		if s := &t.slots[i]; free(s) {
			loose = append(loose, s)
		}
	}
	return loose
}

// placeByNumber spreads the loose slots so that the whole is as even as it can be. It first decides how many of them
// each seat gets, preferring among equals the seats that have some already, and then which: a seat keeps its own as
// far as its number goes.
func (t *table) placeByNumber(loose []*slot) {
	had := t.lift(loose)
	t.settleShares(loose, had, t.shares(len(loose), had, nil))
}

// lift takes the slots from their owners for the time of a choice, and counts how many each seat had.
func (t *table) lift(loose []*slot) []int {
	had := make([]int, len(t.seats))
	for _, s := range loose {
		if s.owner != nobody {
			had[s.owner]++
			t.hold(s.owner, -1)
		}
	}
	return had
}

// hold counts addresses more or less for a seat and its node.
func (t *table) hold(seat, by int) {
	t.seats[seat].held += by
	t.nodes[t.seats[seat].node].held += by
}

// settleShares gives lifted slots to the seats by their shares.
func (t *table) settleShares(loose []*slot, had, share []int) {
	for i, count := range share {
		t.hold(i, count)
	}
	leaving := keepOwn(loose, had, share)
	leaving = t.moveToNext(leaving, share)
	t.deal(leaving, share)
}

// shares decides how many of count loose addresses each seat gets. A seat in hold-down gets at most what it had. Of seats
// that are equal otherwise those come first that have fixed addresses which are not counted yet; fixed may be nil.
func (t *table) shares(count int, had, fixed []int) []int {
	share := make([]int, len(t.seats))
	t.resetKeys()
	for i := range had {
		t.keys[i].wants = int32(had[i])
		if fixed != nil {
			t.keys[i].dealt = -int32(fixed[i])
		}
	}
	nodeShare := make([]int, len(t.nodes))
	list := t.open
	if len(t.open) < len(t.fit) {
		list = slices.Clone(t.fit)
		list = slices.DeleteFunc(list, func(i int) bool { return t.seats[i].HoldDown && had[i] == 0 })
	}
	for range count {
		i := t.lightest(list, 0, 0)
		share[i]++
		n := t.seats[i].node
		nodeShare[n]++
		t.keys[i].wants--
		// In a rebalance saving moves comes first.
		if !t.req.Rebalance || fixed != nil && t.keys[i].dealt < 0 {
			t.keys[i].dealt++
		}
		for j := t.nodes[n].first; j < t.nodes[n].end; j++ {
			t.setKey(j, share[j], nodeShare[n])
		}
		if t.seats[i].HoldDown && len(t.open) < len(t.fit) && share[i] == had[i] {
			list = slices.DeleteFunc(list, func(j int) bool { return j == i })
		}
	}
	return share
}

// keepOwn lets every seat keep as many of its own as its share allows, takes them off the share, and returns the slots
// that have to go elsewhere. Where a seat keeps only some, those that leave are the last ones by address, but first
// those whose next on record still has room: it is prepared for them.
func keepOwn(loose []*slot, had, share []int) []*slot {
	excess := make([]int, len(had))
	room := make([]int, len(had))
	for i := range had {
		excess[i] = max(had[i]-share[i], 0)
		room[i] = max(share[i]-had[i], 0)
	}
	leaves := make([]bool, len(loose))
	for at, s := range loose {
		if s.owner == nobody {
			leaves[at] = true
		} else if excess[s.owner] > 0 && s.recNext != nobody && room[s.recNext] > 0 {
			leaves[at] = true
			excess[s.owner]--
			room[s.recNext]--
		}
	}
	for at := len(loose) - 1; at >= 0; at-- {
		if s := loose[at]; !leaves[at] && excess[s.owner] > 0 {
			leaves[at] = true
			excess[s.owner]--
		}
	}
	var leaving []*slot
	for at, s := range loose {
		if leaves[at] {
			leaving = append(leaving, s)
			continue
		}
		share[s.owner]--
	}
	return leaving
}

// moveToNext gives leaving slots to the next on record where that one has room.
func (t *table) moveToNext(leaving []*slot, share []int) []*slot {
	return slices.DeleteFunc(leaving, func(s *slot) bool {
		if s.owner == nobody || s.recNext == nobody || share[s.recNext] == 0 {
			return false
		}
		share[s.recNext]--
		s.owner, s.why = s.recNext, causeBalanced
		return true
	})
}

// deal gives the remaining slots to the remaining shares, one to each seat in turn, so that neighbouring addresses, which
// often come from the same owner, go to different ones.
func (t *table) deal(leaving []*slot, share []int) {
	at := 0
	for _, s := range leaving {
		for share[at] == 0 {
			at = (at + 1) % len(share)
		}
		if s.owner != nobody {
			s.why = causeBalanced
		}
		s.owner = at
		share[at]--
		at = (at + 1) % len(share)
	}
}

// placeByLoad gives orphans of dead owners to the seats with the least load, counting for each address that a seat got
// the mean load of one. It returns the slots that never had an owner: those are spread by number.
func (t *table) placeByLoad(loose []*slot) []*slot {
	got := make([]int, len(t.seats))
	for i := range t.slots {
		if s := &t.slots[i]; s.why == causeNext {
			got[s.owner]++
		}
	}
	t.resetKeys()
	mean := t.meanAddressLoad()
	var fresh []*slot
	for _, s := range loose {
		if s.why == causeNew {
			fresh = append(fresh, s)
			continue
		}
		best := t.leastLoaded(t.open, 0, 0, got, mean)
		got[best]++
		t.give(s, best, causeOrphan)
		t.setNodeKeys(t.seats[best].node)
	}
	return fresh
}

// setNodeKeys computes the keys of a node's seats anew.
func (t *table) setNodeKeys(n int) {
	for j := t.nodes[n].first; j < t.nodes[n].end; j++ {
		t.setKey(j, 0, 0)
	}
}

// leastLoaded finds the seat of list that would have the least load with one more address of the given load, leaving out
// the seats from skip up to but without end. Seats with equal load are told apart by number.
func (t *table) leastLoaded(list []int, skip, end int, got []int, each float64) int {
	best, least := nobody, 0.0
	for _, i := range list {
		if i >= skip && i < end {
			continue
		}
		load := t.loadWith(i, got[i]+1, each)
		if best == nobody || load < least || load == least && t.lighter(i, best) {
			best, least = i, load
		}
	}
	return best
}

// lighter compares two seats by number.
func (t *table) lighter(i, j int) bool {
	a, b := &t.keys[i], &t.keys[j]
	return a.seat < b.seat || a.seat == b.seat && a.less(b)
}

// loadWith is the load of a seat with more addresses of the given load than when it was measured.
func (t *table) loadWith(i, more int, each float64) float64 {
	return t.seats[i].use + float64(more)*each/t.seats[i].weight
}

// meanAddressLoad is the load that one address carries in the mean, in what a seat of weight 1 can do.
func (t *table) meanAddressLoad() float64 {
	addresses := 0
	for _, i := range t.fit {
		if t.seats[i].known {
			addresses += t.seats[i].held
		}
	}
	return t.carried / float64(max(addresses, 1))
}

// addressLoad is the load that one address of an owner carries; the mean where the owner's own load says nothing.
func (t *table) addressLoad(owner int, mean float64) float64 {
	s := &t.seats[owner]
	if !s.known || s.use == 0 {
		return mean
	}
	return s.use * s.weight / float64(max(s.held, 1))
}
