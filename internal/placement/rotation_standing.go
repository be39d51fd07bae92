package placement

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"slices"
)

// Standing is where a Rotation stands, in a form that another holder can go on from. The zero value is where one begins.
type Standing struct {
	Known uint64         // answers that it accounts for, its own and others'; whoever knows more is not behind
	Nodes []NodeStanding // those that take part, the one whose last answer is oldest first; at most MaxTurns
}

// NodeStanding is one node's place in the weighted fair order.
type NodeStanding struct {
	LNN    int
	Ahead  uint64 // how far its next answer lies after the one that is next of all; an answer is 1<<24 divided by the weight
	Recent bool   // it has been answered since the account began
}

// Standing says where the rotation stands. Two that stand alike go on alike, as long as policy, choices and loads are the same.
func (r *Rotation) Standing() Standing {
	s := Standing{Known: r.known}
	for _, t := range r.takingPart() {
		s.Nodes = append(s.Nodes, NodeStanding{LNN: t.lnn, Ahead: uint64(t.start - r.least()), Recent: t.recent > 0})
	}
	return s
}

// Digest is a short form of where the rotation stands, apart from how many answers it knows: those that stand alike have the
// same one. A number that is equal by chance is as likely as one in 2^64.
func (r *Rotation) Digest() uint64 {
	h := fnv.New64a()
	var b [17]byte
	least := r.least()
	for _, t := range r.takingPart() {
		binary.BigEndian.PutUint64(b[0:], uint64(t.lnn))
		binary.BigEndian.PutUint64(b[8:], uint64(t.start-least))
		b[16] = 0
		if t.recent > 0 {
			b[16] = 1
		}
		_, _ = h.Write(b[:]) // never fails
	}
	return h.Sum64()
}

// Known is how many answers the rotation accounts for, its own and others'.
func (r *Rotation) Known() uint64 { return r.known }

// Adopt goes on from where another holder's rotation stands. Nodes that it does not name keep their order among themselves and start
// where the others are, as nodes do that join.
func (r *Rotation) Adopt(s Standing) {
	at := make(map[int]int, len(r.turns))
	for i := range r.turns {
		at[r.turns[i].lnn] = i
		r.turns[i].taking = false
	}
	base := r.now + turn // so that nothing that was reached before is ahead of anybody
	for _, n := range s.Nodes[:min(len(s.Nodes), MaxTurns)] {
		i, known := at[n.LNN]
		if !known {
			if len(r.turns) >= MaxTurns {
				r.ignored++
				continue
			}
			i = len(r.turns)
			at[n.LNN] = i
			r.turns = append(r.turns, turnOf{lnn: n.LNN})
		}
		t := &r.turns[i]
		t.start, t.taking, t.pending = base+position(min(n.Ahead, uint64(2*maxLag))), true, 0
		t.recent = 0
		if n.Recent {
			r.count++
			t.recent = r.count
		}
	}
	r.now, r.known = base, max(r.known, s.Known)
	r.run, r.longRun, r.shorts, r.crowded = 0, false, 0, false
	r.forgetOwn()
	if r.now >= rebaseAt {
		r.rebase()
	}
}

// takingPart are the nodes that count for where the rotation stands: the one whose last answer is oldest first, of those without
// any the lower LNN.
func (r *Rotation) takingPart() []*turnOf {
	var part []*turnOf
	for i := range r.turns {
		if r.turns[i].taking {
			part = append(part, &r.turns[i])
		}
	}
	slices.SortFunc(part, func(a, b *turnOf) int { return cmp.Or(cmp.Compare(a.recent, b.recent), cmp.Compare(a.lnn, b.lnn)) })
	return part
}

// least is the position of the node that is next.
func (r *Rotation) least() position {
	least, found := position(0), false
	for i := range r.turns {
		if t := &r.turns[i]; t.taking && (!found || t.start < least) {
			least, found = t.start, true
		}
	}
	return least
}
