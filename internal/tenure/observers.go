package tenure

import (
	"cmp"
	"slices"
)

// MaxObservers is how many nodes observe one: in clusters of up to seventeen nodes all others.
const MaxObservers = 16

// leastObservers is how small a set may get by leaving out the dead: with fewer than two, a cut between the last two nodes would
// stop both.
const leastObservers = 2

// Incarnation numbers the lives of one node, drawn from the store; a later one proves every earlier one over. Zero is no
// incarnation.
type Incarnation uint64

// Need is how many of n observers suffice to hold: half of them, rounded up.
func Need(n int) int { return n - n/2 }

// Majority is how many of n observers are needed to declare an incarnation over: more than half.
func Majority(n int) int { return n/2 + 1 }

// Observers is a node's set of observers as it is on record, under one incarnation. While the set changes both count.
type Observers struct {
	Version  uint64 `json:"version"`
	Current  []int  `json:"current,omitempty"`  // LNNs, sorted
	Previous []int  `json:"previous,omitempty"` // the set that it is changing from; counts while Changing
	Changing bool   `json:"changing,omitempty"`
}

// Equal reports whether two are the same.
func (o Observers) Equal(other Observers) bool {
	return o.Version == other.Version && o.Changing == other.Changing &&
		slices.Equal(o.Current, other.Current) && slices.Equal(o.Previous, other.Previous)
}

// clone is a copy that shares nothing.
func (o Observers) clone() Observers {
	o.Current, o.Previous = slices.Clone(o.Current), slices.Clone(o.Previous)
	return o
}

// has reports whether a node is in a set that counts.
func (o Observers) has(lnn int) bool {
	return slices.Contains(o.Current, lnn) || o.Changing && slices.Contains(o.Previous, lnn)
}

// Voice is a node that may observe.
type Voice struct {
	LNN  int
	Rack string // what fails together with it; empty: alone
	Over bool   // it is known to be down, and no later life of it has been heard

	Declared bool // and an operator said so: nobody waits for its word
	Voter    bool // it hosts a member of the store
}

// ChooseObservers picks the observers of a node: all others that live; of more than sixteen, those that rendezvous hashing picks,
// with at most a third from one rack where racks are named. Where fewer than two live, dead ones fill up: present members of
// the set first; those that an operator declared dead do not. A node all of whose fellows were declared dead has none, and holds without
// leases. In a cluster of two the first node has none either, so that it cannot be found Down; the other depends on it; so does a node
// that is not among them any more. It is a pure function of its arguments; voices may come in any order.
func ChooseObservers(self int, voices []Voice, present []int) []int {
	var living, dead []Voice
	named, own := false, Voice{}
	for _, v := range voices {
		switch {
		case v.LNN == self:
			named, own = true, v
		case v.Declared:
		case v.Over:
			dead = append(dead, v)
		default:
			living = append(living, v)
		}
	}
	if dependent := Depends(voices); len(living)+len(dead) == 0 || dependent > 0 && named && self != dependent {
		return nil
	}
	chosen := rendezvous(self, odd(own, living))
	slices.SortFunc(dead, func(a, b Voice) int {
		return cmp.Or(-compareBool(slices.Contains(present, a.LNN), slices.Contains(present, b.LNN)), cmp.Compare(a.LNN, b.LNN))
	})
	for _, v := range dead {
		if len(chosen) >= leastObservers {
			break
		}
		chosen = append(chosen, v.LNN)
	}
	slices.Sort(chosen)
	return chosen
}

// Depends is the one of just two nodes that depends on the other: the second. It is zero where there are fewer or more.
func Depends(voices []Voice) int {
	if len(voices) != 2 {
		return 0
	}
	return max(voices[0].LNN, voices[1].LNN)
}

// odd leaves out one of an even number of nodes that live, this one counted, so that of two halves that lose each other one goes on. With
// four that all observe each other, each would need two of three, and neither half would have them; of three that observe, the half
// with two of them goes on, and no fewer may die. It is the last of those that host no member of the store, else the last. Two are left as
// they are, and where only some observe it makes no difference.
func odd(own Voice, living []Voice) []Voice {
	if own.LNN == 0 || len(living)%2 == 0 || len(living) == 1 || len(living) > MaxObservers {
		return living
	}
	last := slices.MaxFunc(append(slices.Clone(living), own), func(a, b Voice) int {
		return cmp.Or(-compareBool(a.Voter, b.Voter), cmp.Compare(a.LNN, b.LNN))
	})
	return slices.DeleteFunc(slices.Clone(living), func(v Voice) bool { return v.LNN == last.LNN })
}

// rendezvous picks at most MaxObservers by their weight for a node.
func rendezvous(self int, voices []Voice) []int {
	slices.SortFunc(voices, func(a, b Voice) int {
		return cmp.Or(-cmp.Compare(weight(self, a.LNN), weight(self, b.LNN)), cmp.Compare(a.LNN, b.LNN))
	})
	var chosen []int
	inRack := map[string]int{}
	left := []int{}
	for _, v := range voices {
		if len(voices) > MaxObservers && v.Rack != "" && inRack[v.Rack] >= MaxObservers/3 {
			left = append(left, v.LNN)
			continue
		}
		inRack[v.Rack]++
		if chosen = append(chosen, v.LNN); len(chosen) == MaxObservers {
			return chosen
		}
	}
	// Too few racks for the rule: then as many as there are.
	return append(chosen, left[:min(len(left), MaxObservers-len(chosen))]...)
}

// weight is the rendezvous weight of one node for another: the finalizer of splitmix64 over both.
func weight(self, other int) uint64 {
	x := uint64(self)<<32 | uint64(other)
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
