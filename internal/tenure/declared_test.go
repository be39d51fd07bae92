package tenure

import (
	"slices"
	"testing"
	"time"
)

// buries has an operator declare a node dead that is off.
func (s *storm) buries(_, _ *seat) {
	for _, x := range s.seats {
		if x.peer == nil {
			s.declare(x)
			return
		}
	}
}

// declare is an operator's word, for those that it reaches, that a node is dead.
func (s *storm) declare(x *seat) {
	s.log("an operator declares node %d dead", x.lnn)
	for _, other := range s.seats {
		if other != x && other.peer != nil && !other.frozen && (s.calm || s.random.IntN(4) > 0) {
			s.step(other, &Told{LNN: x.lnn, Over: x.drawn, By: "an operator declared it dead", Declared: true})
		}
	}
}

// lostMajority is a cluster of which some nodes die at once, and what has become of the others.
func lostMajority(t *testing.T, nodes int, dead ...int) *storm {
	t.Helper()
	s := newStorm(t, 7, flaw{})
	s.seats, s.members, s.calm, s.racks, s.networks = nil, nil, true, 0, 1
	for lnn := 1; lnn <= nodes; lnn++ {
		s.seats = append(s.seats, &seat{lnn: lnn, timing: Timing{Interval: 50 * time.Millisecond, Multiplier: 3}, lapsed: -1})
		s.members = append(s.members, true)
	}
	for _, x := range s.seats {
		s.start(x)
	}
	s.run(3*time.Second, nil)
	if holders, _ := s.holders(); len(holders) != nodes {
		t.Fatalf("before anybody died only %v hold", holders)
	}
	for _, lnn := range dead {
		s.kill(s.seats[lnn-1])
	}
	s.run(8*time.Second, nil)
	return s
}

// When a majority dies at once, the survivors have lapsed, and only an operator's word brings them back.
func TestDeclaredDead(t *testing.T) {
	for _, c := range []struct {
		name      string
		nodes     int
		dead      []int
		declared  []int
		survivors []int
	}{
		{"two of the three of four that observe", 4, []int{2, 3}, []int{2, 3}, []int{1, 4}},
		{"all but one", 4, []int{1, 2, 4}, []int{1, 2, 4}, []int{3}},
		{"four of five", 5, []int{1, 2, 3, 4}, []int{1, 2, 3, 4}, []int{5}},
		{"the first of two", 2, []int{1}, []int{1}, []int{2}},
		{"not all that died", 4, []int{1, 2, 4}, []int{2, 4}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := lostMajority(t, c.nodes, c.dead...)
			if holders, _ := s.holders(); len(holders) != 0 {
				t.Fatalf("without a majority %v hold", holders)
			}
			for _, lnn := range c.declared {
				s.declare(s.seats[lnn-1])
			}
			s.run(12*time.Second, nil)
			if got, _ := s.holders(); !slices.Equal(got, c.survivors) {
				t.Fatalf("after the word %v hold, want %v", got, c.survivors)
			}
			for _, lnn := range c.survivors {
				observers, _ := s.seats[lnn-1].peer.OnRecord()
				if slices.ContainsFunc(c.declared, observers.has) {
					t.Errorf("node %d still has %v for its observers", lnn, observers)
				}
			}
			for _, lnn := range c.dead {
				s.start(s.seats[lnn-1])
			}
			s.run(30*time.Second, nil)
			if got, _ := s.holders(); len(got) != c.nodes {
				t.Fatalf("after everybody's return only %v hold", got)
			}
			for _, x := range s.seats {
				if observers, _ := x.peer.OnRecord(); c.nodes > 2 && (len(observers.Current) < c.nodes-2 || observers.Changing) {
					t.Errorf("node %d has %v for its observers, want the others", x.lnn, observers)
				}
			}
		})
	}
}

// A node that lives and is declared dead is refused by everybody, and comes back under its next incarnation as any other.
func TestDeclaredDeadByMistake(t *testing.T) {
	s := lostMajority(t, 4)
	x := s.seats[2]
	before := x.drawn
	s.mistaken = x.lnn
	s.declare(x)
	s.run(12*time.Second, nil)
	holders, _ := s.holders()
	if incarnation, _ := x.peer.Incarnation(); incarnation <= before || len(holders) != 4 {
		t.Errorf("it has incarnation %d, and %v hold", incarnation, holders)
	}
	if s.seats[0].peer.Declared(3) {
		t.Error("its next incarnation still counts as dead")
	}
}

// Whoever sends a heartbeat lives, be it one that nobody may answer any more.
func TestALapsedNodeSounds(t *testing.T) {
	s := lostMajority(t, 4, 3, 4)
	one := s.seats[0].peer
	if now := s.clock(s.seats[0]); !one.Sounds(2, now) || one.Sounds(3, now) || one.Sounds(4, now) {
		t.Errorf("node 1 hears node 2: %t, 3: %t, 4: %t", one.Sounds(2, now), one.Sounds(3, now), one.Sounds(4, now))
	}
}
