package dns

import (
	"math/rand/v2"
	"testing"

	"github.com/holdfast/holdfast/internal/cluster"
)

// agree does what the agents do with what Merge returns: who knows fewer answers, of equal ones the one with the higher number, goes on
// from where the other stands.
func agree(holders []*holder, from, to int, told Told, lost bool) {
	if lost {
		return
	}
	for _, own := range holders[to].a.Merge(told) {
		for _, theirs := range told.Standings {
			if theirs.Pool == own.Pool && (theirs.Known > own.Known || theirs.Known == own.Known && from < to) {
				if r, found := holders[from].a.Rotation(own.Pool); found {
					holders[to].a.Adopt(r, own)
				}
			}
		}
	}
}

// TestHoldersAgreeAgain: messages between three holders are lost at random, and a holder begins anew. Once all arrive, and what
// was uneven by then is made up for, any 7 answers in a row name 7 nodes, whoever gives them.
func TestHoldersAgreeAgain(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		holders := newHolders(t, 3, 7, cluster.RotationShared)
		tell := func(loss float64) {
			for from, h := range holders {
				told := h.a.TakeGiven()
				for to := range holders {
					if to != from {
						agree(holders, from, to, told, random.Float64() < loss)
					}
				}
			}
		}
		for range random.IntN(40) {
			holders[random.IntN(3)].ask(t)
			tell(0.5)
		}
		if seed%2 == 0 {
			holders[1] = newHolders(t, 2, 7, cluster.RotationShared)[1]
		}
		for i := range 30 {
			holders[i%3].ask(t)
			tell(0)
		}
		var last []int
		for i := range 70 {
			last = append(last, holders[random.IntN(3)].ask(t))
			tell(0)
			if len(last) < 7 {
				continue
			}
			window := map[int]int{}
			for _, n := range last[len(last)-7:] {
				window[n]++
			}
			if len(window) != 7 {
				t.Errorf("seed %d: answers %d to %d name %v", seed, i-6, i, last[len(last)-7:])
				break
			}
		}
	}
}

// TestNothingIsAdoptedAfterAnAnswer: what was asked for before this node answered does not take that answer back.
func TestNothingIsAdoptedAfterAnAnswer(t *testing.T) {
	holders := newHolders(t, 2, 5, cluster.RotationShared)
	pool := testPool("pool0", false, 5).ID
	for range 3 {
		holders[0].ask(t)
	}
	apart := holders[1].a.Merge(Told{Standings: holders[0].a.TakeGiven().Standings}) // the answers themselves were lost
	if len(apart) != 1 || apart[0].Pool != pool {
		t.Fatalf("apart: %+v", apart)
	}
	r, found := holders[0].a.Rotation(pool)
	if !found {
		t.Fatal("the other holder knows no such pool")
	}
	holders[1].ask(t)
	if holders[1].a.Adopt(r, apart[0]) {
		t.Error("adopted although it has answered meanwhile")
	}
	if apart := holders[1].a.Merge(Told{Standings: []Standing{{Pool: pool, Known: 3, Digest: 1}}}); len(apart) != 0 {
		t.Errorf("with an answer that the others have not heard of it is not at odds, yet: %+v", apart)
	}
}
