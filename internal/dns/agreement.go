package dns

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
)

// Holders of service addresses tell each other of their answers, so that each goes on where the others are. A message that is lost,
// or a holder that begins, leaves two of them at odds, and they would stay so: each moves on by the same answers. Therefore each says
// with its answers where it stands, in short; who finds that it stands elsewhere and knows fewer answers asks for the whole and goes
// on from there. Between answers that cross on the way, standings differ without being at odds; nothing is adopted then.

// Standing says in short where a pool's shared rotation stands.
type Standing struct {
	Pool   cluster.PoolID
	Known  uint64 // answers that it accounts for
	Digest uint64 // the same for those that stand alike
}

// Told is what one holder tells the others: the answers that they have not been told of, one entry for each pool and node, and
// where it stands with them.
type Told struct {
	Answers   []Answered
	Standings []Standing
}

// Rotation is the whole of where a pool's shared rotation stands.
type Rotation struct {
	Pool cluster.PoolID
	placement.Standing
	Next map[int]uint32 // by LNN: which of the node's addresses comes next
}

// standing is where the turn stands. The caller has the lock.
func (t *turn) standing(id cluster.PoolID) Standing {
	h := fnv.New64a()
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], t.rotation.Digest())
	_, _ = h.Write(b[:]) // never fails
	for _, lnn := range slices.Sorted(maps.Keys(t.next)) {
		binary.BigEndian.PutUint32(b[0:], uint32(lnn))
		binary.BigEndian.PutUint32(b[4:], t.next[lnn])
		_, _ = h.Write(b[:])
	}
	return Standing{Pool: id, Known: t.rotation.Known(), Digest: h.Sum64()}
}

// untold reports whether there are answers that the others have not been told of. The caller has the lock.
func (t *turn) untold() bool {
	for _, count := range t.given {
		if count > 0 {
			return true
		}
	}
	return false
}

// Merge counts what another holder tells, and returns where this node stands in those pools in which it stands elsewhere. Pools that
// this node does not know are passed over.
func (a *Answerer) Merge(told Told) (apart []Standing) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, answer := range told.Answers {
		if s := a.pools[answer.Pool]; s != nil {
			s.shared.merge(answer.LNN, answer.Count)
		}
	}
	for _, theirs := range told.Standings {
		s := a.pools[theirs.Pool]
		if s == nil {
			continue
		}
		s.shared.lock()
		if own := s.shared.standing(theirs.Pool); own.Digest != theirs.Digest && !s.shared.untold() {
			apart = append(apart, own)
		}
		s.shared.mu.Unlock()
	}
	return apart
}

// Rotation is where a pool's shared rotation stands; false for a pool that this node does not know.
func (a *Answerer) Rotation(id cluster.PoolID) (Rotation, bool) {
	a.mu.Lock()
	s := a.pools[id]
	a.mu.Unlock()
	if s == nil {
		return Rotation{}, false
	}
	s.shared.lock()
	defer s.shared.mu.Unlock()
	return Rotation{Pool: id, Standing: s.shared.rotation.Standing(), Next: maps.Clone(s.shared.next)}, true
}

// Adopt goes on from where another holder's rotation stands, if this node still stands where it stood when that was asked for.
func (a *Answerer) Adopt(r Rotation, own Standing) (adopted bool) {
	a.mu.Lock()
	s := a.pools[r.Pool]
	a.mu.Unlock()
	if s == nil {
		return false
	}
	s.shared.lock()
	defer s.shared.mu.Unlock()
	if s.shared.standing(r.Pool) != own || s.shared.untold() {
		return false
	}
	s.shared.rotation.Adopt(r.Standing)
	if len(r.Next) <= placement.MaxTurns {
		s.shared.next = maps.Clone(r.Next)
	}
	return true
}
