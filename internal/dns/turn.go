package dns

import (
	"encoding/binary"
	"maps"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
)

// maxPicked bounds the addresses in one answer, whatever the configuration asks for.
const maxPicked = 64

// maxServiceTurns bounds the service addresses whose rotation one pool keeps apart; a subnet has at most 32, and what is
// beyond shares one turn.
const maxServiceTurns = 64

// poolState is where a pool's rotation stands. It outlives views.
type poolState struct {
	id     cluster.PoolID
	shared turn

	mu      sync.Mutex
	apart   atomic.Pointer[map[netip.Addr]*turn] // for independent rotation: one for each service address; replaced, never changed
	sampled map[int]uint64                       // Sampled of each node in the last view
}

// turn is one position in a pool: the policy's, and for each node that of its addresses.
type turn struct {
	plan atomic.Pointer[plan] // what comes next; changes only under mu

	mu       sync.Mutex
	rotation placement.Rotation
	next     map[int]uint32 // by LNN: which of the node's addresses comes next
	given    map[int]uint32 // by LNN: answers not yet told to the other holders

	ahead  int                // how many picks the next plan has
	after  placement.Rotation // where the rotation stands at the end of the plan
	counts []uint32           // by node of the plan's pool; memory that is used again
}

// of is the turn that a query to a service address advances.
func (s *poolState) of(rotation cluster.Rotation, service netip.Addr) *turn {
	if rotation != cluster.RotationIndependent {
		return &s.shared
	}
	if t := s.turns()[service]; t != nil {
		return t
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	turns := s.turns()
	if t := turns[service]; t != nil {
		return t
	}
	if len(turns) >= maxServiceTurns {
		return &s.shared
	}
	changed := make(map[netip.Addr]*turn, len(turns)+1)
	maps.Copy(changed, turns)
	t := &turn{}
	changed[service] = t
	s.apart.Store(&changed)
	return t
}

// turns are those of the service addresses; nobody changes the map.
func (s *poolState) turns() map[netip.Addr]*turn {
	if turns := s.apart.Load(); turns != nil {
		return *turns
	}
	return nil
}

// forget drops the turn of a service address that is no longer held here, so that it starts at the first option when
// it comes back.
func (s *poolState) forget(service netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if changed := maps.Clone(s.turns()); changed[service] != nil {
		delete(changed, service)
		s.apart.Store(&changed)
	}
}

// noteSamples tells every turn which nodes have a fresh load sample, and forgets nodes that left the pool.
func (s *poolState) noteSamples(nodes []Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := make(map[int]uint64, len(nodes))
	var fresh []int
	for _, n := range nodes {
		now[n.LNN] = n.Sampled
		if before, known := s.sampled[n.LNN]; known && n.Sampled != before {
			fresh = append(fresh, n.LNN)
		}
	}
	s.sampled = now
	s.shared.note(fresh, now)
	for _, t := range s.turns() {
		t.note(fresh, now)
	}
}

func (t *turn) note(fresh []int, members map[int]uint64) {
	t.lock()
	defer t.mu.Unlock()
	for _, lnn := range fresh {
		t.rotation.Sampled(lnn)
	}
	for lnn := range t.next {
		if _, member := members[lnn]; !member {
			delete(t.next, lnn)
		}
	}
}

// merge counts answers that another holder gave, each with one of the node's addresses.
func (t *turn) merge(lnn int, count uint32) {
	t.lock()
	defer t.mu.Unlock()
	t.rotation.Merge(lnn, count)
	if t.next == nil {
		t.next = map[int]uint32{}
	}
	if _, known := t.next[lnn]; known || len(t.next) < placement.MaxTurns {
		t.next[lnn] += count
	}
}

// takeGiven adds the answers not yet told to the other holders, and where that leaves the turn, and forgets them.
func (t *turn) takeGiven(id cluster.PoolID, told Told) Told {
	t.lock()
	defer t.mu.Unlock()
	if !t.untold() {
		return told
	}
	for lnn, count := range t.given {
		if count > 0 {
			told.Answers = append(told.Answers, Answered{Pool: id, LNN: lnn, Count: count})
			t.given[lnn] = 0
		}
	}
	told.Standings = append(told.Standings, t.standing(id))
	return told
}

// pick appends the addresses of one answer to out: of the nodes that the policy picks, one address each until every
// eligible node has given one, then more of the same nodes, up to MaxAnswers. It reports whether the answer has to be
// shared with other holders. It appends nothing when no node is eligible.
func (p *pool) pick(out []netip.Addr, service netip.Addr, client netip.Prefix) (addresses []netip.Addr, share bool) {
	if p.usable == 0 {
		return out, false
	}
	if p.Affinity == cluster.AffinityPrefix {
		return p.pickSame(out, client), false
	}
	share = p.shares()
	t := p.state.of(p.Rotation, service)
	if p.MaxAnswers == 1 {
		return append(out, p.options[t.reserve(p, 1)[0]].address), share
	}
	t.lock()
	defer t.mu.Unlock()
	var chosen [maxPicked]int
	count := t.pickNodes(chosen[:min(p.MaxAnswers, p.usable)], p, share)
	for _, i := range chosen[:count] {
		out = append(out, t.nextAddress(&p.Nodes[i]))
	}
	return p.fill(out, chosen[:count]), share
}

// shares reports whether other holders have to hear of the pool's answers.
func (p *pool) shares() bool { return p.Rotation != cluster.RotationIndependent }

// pickNodes fills chosen with different nodes of the policy's choice. Where weights make the policy repeat itself for
// long, the rest are the following eligible nodes.
func (t *turn) pickNodes(chosen []int, p *pool, share bool) int {
	count := 0
	for tries := 4 * len(chosen); count < len(chosen) && tries > 0; tries-- {
		i := t.rotation.Pick(p.Policy, p.choices)
		if i < 0 {
			return count
		}
		if share {
			t.count(p.Nodes[i].LNN, 1)
		}
		if !contains(chosen[:count], i) {
			chosen[count] = i
			count++
		}
	}
	for step := 1; count < len(chosen) && step < len(p.choices); step++ {
		i := (chosen[0] + step) % len(p.choices)
		if p.choices[i].Eligible && !contains(chosen[:count], i) {
			chosen[count] = i
			count++
		}
	}
	return count
}

func contains(list []int, wanted int) bool {
	for _, i := range list {
		if i == wanted {
			return true
		}
	}
	return false
}

func (t *turn) count(lnn int, answers uint32) {
	if t.given == nil {
		t.given = map[int]uint32{}
	}
	t.given[lnn] += answers
}

// nextAddress rotates over the addresses of a node that has some.
func (t *turn) nextAddress(n *Node) netip.Addr {
	position := t.next[n.LNN]
	t.moveOn(n.LNN, 1)
	return n.Addresses[position%uint32(len(n.Addresses))]
}

// moveOn counts answers with addresses of a node.
func (t *turn) moveOn(lnn int, answers uint32) {
	if t.next == nil {
		t.next = map[int]uint32{}
	}
	t.next[lnn] += answers
}

// fill appends further addresses of the chosen nodes in turn while the answer may have more.
func (p *pool) fill(out []netip.Addr, chosen []int) []netip.Addr {
	first := out[len(out)-len(chosen):]
	for round := 1; len(out) < p.MaxAnswers; round++ {
		grown := false
		for k, i := range chosen {
			addresses := p.Nodes[i].Addresses
			if round < len(addresses) && len(out) < p.MaxAnswers {
				out = append(out, addresses[(indexOf(addresses, first[k])+round)%len(addresses)])
				grown = true
			}
		}
		if !grown {
			break
		}
	}
	return out
}

func indexOf(list []netip.Addr, wanted netip.Addr) int {
	for i, a := range list {
		if a == wanted {
			return i
		}
	}
	return 0
}

// affinityBits is how much of a client's address decides with client-affinity prefix: the sizes that resolvers send in
// the client-subnet option (RFC 7871 section 11.1).
func affinityBits(a netip.Addr) int {
	if a.Is4() {
		return 24
	}
	return 56
}

// pickSame gives a client prefix the same nodes and addresses as long as they are eligible, on every holder, without
// remembering anything: weighted rendezvous hashing. A node that leaves moves only its own clients.
func (p *pool) pickSame(out []netip.Addr, client netip.Prefix) []netip.Addr {
	var chosen [maxPicked]int
	wanted := min(p.MaxAnswers, p.usable)
	for count := range wanted {
		best, bestScore := -1, math.Inf(-1)
		for i := range p.choices {
			c := &p.choices[i]
			if !c.Eligible || contains(chosen[:count], i) {
				continue
			}
			if score := affinityScore(client, c); score > bestScore {
				best, bestScore = i, score
			}
		}
		chosen[count] = best
		addresses := p.Nodes[best].Addresses
		out = append(out, addresses[affinityHash(client, -1)%uint64(len(addresses))])
	}
	return p.fill(out, chosen[:wanted])
}

// affinityScore is the rank of a node for a client: the largest wins, each node in proportion to its weight.
func affinityScore(client netip.Prefix, c *placement.Choice) float64 {
	uniform := (float64(affinityHash(client, c.LNN)>>11) + 0.5) / (1 << 53)
	return -float64(max(c.Weight, 1)) / math.Log(uniform)
}

// affinityHash depends on the masked client prefix and a number, with a key that every holder knows.
func affinityHash(client netip.Prefix, n int) uint64 {
	var input [16 + 8]byte
	sixteen := client.Masked().Addr().As16()
	copy(input[:], sixteen[:])
	binary.LittleEndian.PutUint64(input[16:], uint64(int64(n)))
	return sipHash(&affinityKey, input[:])
}

var affinityKey = [16]byte{'h', 'o', 'l', 'd', 'f', 'a', 's', 't', ' ', 'a', 'f', 'f', 'i', 'n', 'i', 't'}
