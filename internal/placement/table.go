package placement

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/internal/cluster"
)

// nobody is the index of no seat.
const nobody = -1

// seat is one candidate while its pool is being allocated.
type seat struct {
	*Candidate
	Fit    bool // as the candidate's, but not when it is down in a plan
	known  bool // use comes from a sample of its own
	weight float64
	node   int     // index of its node in table.nodes
	before int     // addresses it held on record
	held   int     // addresses it holds in the proposal
	nexts  int     // addresses it is next for in the proposal
	use    float64 // under a measured policy: its load, or the mean of the others when that is unknown or stale
}

// node is one node with its seats, which are neighbours in table.seats.
type node struct {
	first, end int
	weight     float64 // of its fit seats together
	held       int
}

// slot is one address while its pool is being allocated.
type slot struct {
	address  netip.Addr
	recorded Statement // as it was; zero members when nobody
	pin      cluster.Member
	owner    int
	next     int
	recNext  int // seat of the recorded next; nobody when it is not a candidate
	why      cause
}

// cause is why a slot has its owner.
type cause uint8

const (
	causeNone     cause = iota // no candidate is fit
	causeStays                 // the owner on record is fit
	causePinned                // the operator put it there
	causeNext                  // the owner on record is not fit, its next is
	causeOrphan                // neither is fit
	causeNew                   // nobody held it
	causeBalanced              // moved for evenness
)

// table is one pool while it is being allocated: seats sorted by member, slots sorted by address.
type table struct {
	req     Request
	down    []int // LNNs of nodes that are taken as down
	seats   []seat
	nodes   []node
	slots   []slot
	gone    []Statement // recorded statements on addresses that left the pool
	open    []int       // seats that may be given something: fit and not in hold-down, or fit if there are no others
	fit     []int       // fit seats
	trusted []int       // fit seats that are not in hold-down, where there are others
	byNode  [][]*slot   // by node: its slots, all in the memory of owned; see succession.go
	owned   []*slot
	plan    []int   // by seat: what it is to get of the slots that are planned together
	keys    []key   // by seat, empty until they are needed; see pick.go
	byLoad  bool    // the failover policy is a measured one, and a load is known
	carried float64 // under byLoad: what the seats whose load is known carry together
}

// newTable lays out a request, with the nodes of the LNNs in down taken as unfit.
func newTable(req Request, down []int) *table {
	t := &table{}
	t.lay(req, down)
	return t
}

// lay lays out a request on a table that may have served for another one: it keeps that one's memory and nothing else.
func (t *table) lay(req Request, down []int) {
	*t = table{
		req: req, down: down, seats: t.seats[:0], nodes: t.nodes[:0], slots: t.slots[:0], gone: t.gone[:0], fit: t.fit[:0],
		trusted: t.trusted[:0], keys: t.keys[:0], byNode: t.byNode[:0], owned: t.owned[:0], plan: t.plan[:0],
	}
	t.seatCandidates()
	t.listAddresses()
	t.joinRecords()
	t.weighLoads()
}

// zeroed is a slice of so many zero values, in the memory of one that is not used any more if that is enough.
func zeroed[T any](memory []T, count int) []T {
	memory = slices.Grow(memory[:0], count)[:count]
	clear(memory)
	return memory
}

// seatCandidates sorts the candidates by member, drops duplicates and nobodies, and groups them by node.
func (t *table) seatCandidates() {
	candidates := sortedCandidates(t.req.Candidates)
	t.seats = zeroed(t.seats, len(candidates))
	t.nodes = slices.Grow(t.nodes, len(candidates))
	t.fit = slices.Grow(t.fit, len(candidates))
	trusted := 0
	for i := range candidates {
		candidate := &candidates[i]
		if i == 0 || candidates[i-1].Member.LNN != candidate.Member.LNN {
			t.nodes = append(t.nodes, node{first: i})
		}
		n := &t.nodes[len(t.nodes)-1]
		n.end = i + 1
		s := &t.seats[i]
		s.Candidate, s.node, s.weight = candidate, len(t.nodes)-1, float64(clampWeight(candidate.Weight))
		s.Fit = candidate.Fit && !slices.Contains(t.down, candidate.Member.LNN)
		if s.Fit {
			n.weight += s.weight
			t.fit = append(t.fit, i)
			if !s.HoldDown {
				trusted++
			}
		}
	}
	t.open = t.fit
	if trusted == 0 || trusted == len(t.fit) {
		return
	}
	for _, i := range t.fit {
		if !t.seats[i].HoldDown {
			t.trusted = append(t.trusted, i)
		}
	}
	t.open = t.trusted
}

// sortedCandidates gives the candidates in order, each member once. It copies only what is out of order.
func sortedCandidates(candidates []Candidate) []Candidate {
	inOrder := true
	for i := range candidates {
		member := candidates[i].Member
		if member.IsZero() || i > 0 && compareMembers(candidates[i-1].Member, member) >= 0 {
			inOrder = false
			break
		}
	}
	if inOrder {
		return candidates
	}
	candidates = slices.DeleteFunc(slices.Clone(candidates), func(c Candidate) bool { return c.Member.IsZero() })
	slices.SortFunc(candidates, compareCandidates)
	return slices.CompactFunc(candidates, func(a, b Candidate) bool { return a.Member == b.Member })
}

// compareCandidates orders by member; of duplicates the most cautious comes first and is kept.
func compareCandidates(a, b Candidate) int {
	return cmp.Or(
		compareMembers(a.Member, b.Member),
		compareBools(a.Fit, b.Fit),
		compareBools(b.HoldDown, a.HoldDown),
		cmp.Compare(a.Weight, b.Weight),
		compareBools(a.Load.Known, b.Load.Known),
		compareBools(b.Load.Stale, a.Load.Stale),
		cmp.Compare(b.Load.Connections, a.Load.Connections),
		cmp.Compare(b.Load.Throughput, a.Load.Throughput),
		cmp.Compare(b.Load.CPU, a.Load.CPU),
		cmp.Compare(b.Load.Age, a.Load.Age),
		strings.Compare(a.Why, b.Why),
		strings.Compare(a.Node, b.Node),
	)
}

func compareMembers(a, b cluster.Member) int {
	if a.LNN != b.LNN {
		return cmp.Compare(a.LNN, b.LNN)
	}
	return strings.Compare(a.Interface, b.Interface)
}

// compareBools orders false before true.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// listAddresses makes one slot for each address, sorted.
func (t *table) listAddresses() {
	addresses := t.req.Addresses
	if !slices.IsSortedFunc(addresses, netip.Addr.Compare) {
		addresses = slices.Clone(addresses)
		slices.SortFunc(addresses, netip.Addr.Compare)
	}
	t.slots = slices.Grow(t.slots, len(addresses))
	for i, address := range addresses {
		if i > 0 && address == addresses[i-1] {
			continue
		}
		t.slots = append(t.slots, slot{address: address, owner: nobody, next: nobody, recNext: nobody, pin: t.req.Pins[address]})
	}
}

// joinRecords attaches the statements on record to their slots.
func (t *table) joinRecords() {
	current := t.req.Current
	if !slices.IsSortedFunc(current, compareStatements) {
		current = slices.Clone(current)
		slices.SortFunc(current, compareStatements)
	}
	at := 0
	for i, statement := range current {
		if i > 0 && statement.Address == current[i-1].Address {
			continue
		}
		for at < len(t.slots) && t.slots[at].address.Less(statement.Address) {
			at++
		}
		if at == len(t.slots) || t.slots[at].address != statement.Address {
			t.gone = append(t.gone, statement)
			continue
		}
		s := &t.slots[at]
		s.recorded = statement
		s.recNext = t.seatOf(statement.Next)
		if owner := t.seatOf(statement.Owner); owner != nobody {
			t.seats[owner].before++
		}
	}
}

func compareStatements(a, b Statement) int {
	if c := a.Address.Compare(b.Address); c != 0 {
		return c
	}
	// Of two statements on one address the one that names an owner is kept.
	return cmp.Or(
		compareBools(a.Owner.IsZero(), b.Owner.IsZero()),
		compareMembers(a.Owner, b.Owner),
		compareBools(a.Next.IsZero(), b.Next.IsZero()),
		compareMembers(a.Next, b.Next),
	)
}

// seatOf finds a member's seat, or nobody.
func (t *table) seatOf(member cluster.Member) int {
	if member.IsZero() {
		return nobody
	}
	low, high := 0, len(t.seats)
	if high > 0 { // most pools have one interface of each node, and the nodes' numbers have no gap
		if at := member.LNN - t.seats[0].Member.LNN; at >= 0 && at < high && t.seats[at].Member == member {
			return at
		}
	}
	for low < high {
		middle := int(uint(low+high) >> 1)
		if compareMembers(t.seats[middle].Member, member) < 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low < len(t.seats) && t.seats[low].Member == member {
		return low
	}
	return nobody
}

// fitSeat is seatOf for members that may hold addresses now.
func (t *table) fitSeat(member cluster.Member) int {
	if i := t.seatOf(member); i != nobody && t.seats[i].Fit {
		return i
	}
	return nobody
}

// give makes a seat the owner of a slot.
func (t *table) give(s *slot, owner int, why cause) {
	s.owner, s.why = owner, why
	t.seats[owner].held++
	t.nodes[t.seats[owner].node].held++
}

// weighLoads fills in the loads that a measured failover policy counts. A fit seat whose load is not known or stale
// counts at the mean of the others.
func (t *table) weighLoads() {
	m := measureOf(t.req.FailoverPolicy)
	if m == byNumber {
		return
	}
	sum, known, carried := 0.0, 0, 0.0
	for _, i := range t.fit {
		s := &t.seats[i]
		if !s.Load.counts(m) {
			continue
		}
		s.known, s.use = true, s.Load.use(m, 1/s.weight)
		sum += s.use
		carried += float64(s.use * s.weight) // rounded here on every processor, so that all nodes agree
		known++
	}
	if known == 0 || sum == 0 {
		return // nothing to go by: spread by number
	}
	for _, i := range t.fit {
		if s := &t.seats[i]; !s.known {
			s.use = sum / float64(known)
		}
	}
	t.byLoad, t.carried = true, carried
}

// whyUnfit is the reason for messages why a seat is not fit or in hold-down.
func (t *table) whyUnfit(i int) string {
	s := &t.seats[i]
	switch {
	case s.Candidate.Fit && !s.Fit:
		return "down in this plan"
	case s.Why == "":
		return noReason
	}
	return s.Why
}

// noReason stands where a caller left the reason empty.
const noReason = "no reason given"
