package placement

// chooseNexts chooses for every address who takes it when its owner goes down. Addresses are planned together for each
// node, as a node's death sets them all free at once.
func (t *table) chooseNexts() {
	byNode := t.slotsByNode()
	t.countRecordedNexts()
	t.resetKeys()
	for i := range t.keys {
		t.keys[i].crowd = int32(t.seats[i].nexts)
	}
	t.plan = zeroed(t.plan, len(t.seats))
	plan := t.plan
	least := t.lightest(t.fit, 0, 0)
	mean := 0.0
	if t.byLoad {
		mean = t.meanAddressLoad()
	}
	for n, slots := range byNode {
		if len(slots) == 0 {
			continue
		}
		list := t.successors(n)
		switch {
		case list == nil:
			t.nextOnSameNode(n, slots)
		case t.byLoad:
			t.nextByLoad(n, slots, list, plan, mean)
		case t.alreadyEven(n, slots, list, plan, least):
		default:
			t.nextByNumber(n, slots, list, plan)
		}
	}
}

// slotsByNode groups the owned slots by their owner's node, in the order of addresses.
func (t *table) slotsByNode() [][]*slot {
	t.byNode, t.owned = zeroed(t.byNode, len(t.nodes)), zeroed(t.owned, len(t.slots))
	byNode, backing := t.byNode, t.owned
	for n := range byNode {
		held := t.nodes[n].held
		byNode[n], backing = backing[:0:held], backing[held:]
	}
	for i := range t.slots {
		if s := &t.slots[i]; s.owner != nobody {
			n := t.seats[s.owner].node
			byNode[n] = append(byNode[n], s)
		}
	}
	return byNode
}

// countRecordedNexts counts for each seat the nexts on record, which break ties: who is next for fewer comes first.
func (t *table) countRecordedNexts() {
	for i := range t.slots {
		if s := &t.slots[i]; s.recNext != nobody {
			t.seats[s.recNext].nexts++
		}
	}
}

// successors lists the seats that may be next for the addresses of node n: those off the node, without those in
// hold-down while there are others. Nil if there are none.
func (t *table) successors(n int) []int {
	for _, list := range [2][]int{t.open, t.fit} {
		first, last := t.seats[list[0]].node, t.seats[list[len(list)-1]].node
		if first != n || last != n {
			return list
		}
	}
	return nil
}

// onRecord is the seat that is next for the slot on record, if it may stay so: it is off node n and in the list.
func (t *table) onRecord(s *slot, n int, list []int) int {
	i := s.recNext
	if i == nobody || t.seats[i].node == n || !t.seats[i].Fit {
		return nobody
	}
	if t.seats[i].HoldDown && len(list) < len(t.fit) {
		return nobody
	}
	return i
}

// alreadyEven keeps the nexts on record if each of them may stay, no node is next twice, and none holds more than the
// lightest seat of all: no plan is more even. It is the usual case, and this shows it without looking at every seat; where
// it says no, nextByNumber may still come to the same plan.
func (t *table) alreadyEven(n int, slots []*slot, list, plan []int, least int) bool {
	even := true
	floor := &t.keys[least]
	marked := 0
	for _, s := range slots {
		i := t.onRecord(s, n, list)
		if i == nobody || plan[t.nodes[t.seats[i].node].first] > 0 ||
			t.keys[i].seat > floor.seat || t.keys[i].node > floor.node {
			even = false
			break
		}
		plan[t.nodes[t.seats[i].node].first]++
		marked++
	}
	for _, s := range slots[:marked] {
		plan[t.nodes[t.seats[s.recNext].node].first] = 0
		if even {
			s.next = s.recNext
		}
	}
	return even
}

// nextByNumber plans the addresses of node n so that the others are as even as they can be after its death. Of equal
// plans it takes the one that changes fewest nexts on record.
func (t *table) nextByNumber(n int, slots []*slot, list []int, plan []int) {
	skip, end := t.nodes[n].first, t.nodes[n].end
	for _, s := range slots {
		t.chargeNext(s.recNext, -1)
		if i := t.onRecord(s, n, list); i != nobody {
			t.keys[i].wants++
		}
	}
	for range slots {
		i := t.lightest(list, skip, end)
		plan[i]++
		t.keys[i].wants--
		t.keys[i].dealt++
		t.chargeNext(i, 1)
		t.plannedKeys(t.seats[i].node, plan)
	}
	// First those that may stay, then the others in turn, from the seat after the owner's node on.
	for _, s := range slots {
		if i := t.onRecord(s, n, list); i != nobody && plan[i] > 0 {
			s.next = i
			plan[i]--
		}
	}
	at := end % len(plan)
	for _, s := range slots {
		if s.next != nobody {
			continue
		}
		for plan[at] == 0 {
			at = (at + 1) % len(plan)
		}
		s.next = at
		plan[at]--
		at = (at + 1) % len(plan)
	}
	for _, s := range slots {
		t.setNodeKeys(t.seats[s.next].node)
		t.keys[s.next].wants, t.keys[s.next].dealt = 0, 0
		if s.recNext != nobody {
			t.keys[s.recNext].wants = 0
		}
	}
}

// plannedKeys computes the keys of a node's seats with what they are planned to get.
func (t *table) plannedKeys(n int, plan []int) {
	first, end := t.nodes[n].first, t.nodes[n].end
	planned := 0
	for j := first; j < end; j++ {
		planned += plan[j]
	}
	for j := first; j < end; j++ {
		t.setKey(j, plan[j], planned)
	}
}

// chargeNext counts one next more or less for a seat.
func (t *table) chargeNext(i, by int) {
	if i == nobody {
		return
	}
	t.seats[i].nexts += by
	t.keys[i].crowd = int32(t.seats[i].nexts)
}

// nextByLoad plans the addresses of node n by load: each goes to who would have the least with it. A next on record stays
// unless its load would be over the best one's by more than PlanGain.
func (t *table) nextByLoad(n int, slots []*slot, list []int, plan []int, mean float64) {
	skip, end := t.nodes[n].first, t.nodes[n].end
	for _, s := range slots {
		each := t.addressLoad(s.owner, mean)
		t.chargeNext(s.recNext, -1)
		best := t.leastLoaded(list, skip, end, plan, each)
		if i := t.onRecord(s, n, list); i != nobody {
			if t.loadWith(i, plan[i]+1, each) <= (1+PlanGain)*t.loadWith(best, plan[best]+1, each) {
				best = i
			}
		}
		s.next = best
		plan[best]++
		t.chargeNext(best, 1)
	}
	for _, s := range slots {
		plan[s.next] = 0
	}
}

// nextOnSameNode serves a node that is the only one with fit seats: its seats are each other's next.
func (t *table) nextOnSameNode(n int, slots []*slot) {
	first, end := t.nodes[n].first, t.nodes[n].end
	for _, s := range slots {
		if i := s.recNext; i != nobody && i != s.owner && t.seats[i].Fit {
			s.next = i
			continue
		}
		for i := first; i < end; i++ {
			if i == s.owner || !t.seats[i].Fit {
				continue
			}
			if s.next == nobody || t.seats[i].nexts < t.seats[s.next].nexts {
				s.next = i
			}
		}
		t.chargeNext(s.recNext, -1)
		t.chargeNext(s.next, 1)
	}
}
