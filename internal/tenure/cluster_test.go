package tenure

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// newStorm is the world of a seed at its beginning.
func newStorm(t testing.TB, seed uint64, f flaw) *storm {
	random := rand.New(rand.NewPCG(seed, 2))
	nodes := 1 + random.IntN(7)
	if random.IntN(100) == 0 {
		nodes = 8 + random.IntN(13)
	}
	s := &storm{t: t, random: random, latest: map[int]Recorded{}, cut: map[[2]int]float64{}, store: true, over: map[int]Incarnation{}, flaw: f,
		networks: 1 + random.IntN(5)/4, racks: max(0, random.IntN(8)-3)}
	timing := Timing{Interval: time.Duration(10+random.IntN(90)) * time.Millisecond, Multiplier: 2 + random.IntN(3)}
	for lnn := 1; lnn <= nodes; lnn++ {
		s.seats = append(s.seats, &seat{lnn: lnn, timing: timing, lapsed: -1, rate: random.IntN(2001+2*f.wildClock) - 1000 - f.wildClock,
			offset: time.Duration(random.IntN(100)) * time.Hour})
		s.members = append(s.members, true)
	}
	return s
}

// play is one whole random history. It returns what went wrong, if anything did, and how long it took after the last fault until all held.
func play(t testing.TB, seed uint64, trace bool, f flaw) (failure string, took time.Duration) {
	defer func() {
		switch found := recover().(type) {
		case nil:
		case wrong:
			failure = string(found)
		default:
			panic(found)
		}
	}()
	s := newStorm(t, seed, f)
	s.trace = trace
	if seed%20 == 0 && f == (flaw{}) {
		s.quiet()
		return "", 0
	}
	for _, x := range s.seats {
		s.start(x)
	}
	end := s.milliseconds(3000)
	s.run(end, nil)
	faults := 5 + s.random.IntN(60)
	if len(s.seats) > 7 {
		faults = 10
	}
	for range faults {
		s.blow()
		end += s.milliseconds(400)
		s.run(end, nil)
	}
	s.settle()
	s.run(end+patience, func() bool { holders, of := s.holders(); return len(holders) == of })
	if holders, of := s.holders(); len(holders) != of {
		s.fail("%s after the last fault only %v of %d nodes may hold", patience, holders, of)
	}
	took = s.now - end
	if seed%8 == 1 {
		s.order()
	}
	return "", took
}

// order lets a cluster in which all hold come to rest. Then everybody is observed by whom it should be, and nobody lapses or hints.
func (s *storm) order() {
	s.log("=== all hold")
	s.run(s.now+8*time.Second, nil)
	s.steady = true
	s.run(s.now+time.Second, nil)
	for _, x := range s.seats {
		if !s.members[x.lnn-1] {
			continue
		}
		r := &x.peer.right
		on := s.latest[x.lnn]
		if s.stuck(r.set) {
			continue
		}
		if !slices.Equal(r.set.Current, r.wanted) || r.set.Changing || on.Incarnation != r.incarnation || !on.Observers.Equal(r.set) || on.Span != x.timing.Span() {
			s.fail("when all is calm node %d/%d is observed by %v, wants %v, and has %v on record", x.lnn, r.incarnation, r.set, r.wanted, on)
		}
		if holders, of := s.holders(); len(holders) != of || of <= MaxObservers && of > 2 && len(r.wanted) != of-1 && (of%2 == 1 || len(r.wanted) != of-2) {
			s.fail("when all is calm %v of %d nodes hold, and node %d wants %v", holders, of, x.lnn, r.wanted)
		}
	}
}

// stuck reports whether a change of a set cannot end, since too few of the old one run. It is pending until the node's next
// incarnation, or an operator's word.
func (s *storm) stuck(o Observers) bool {
	running := 0
	for _, lnn := range o.Previous {
		if s.seats[lnn-1].peer != nil {
			running++
		}
	}
	return o.Changing && running < Need(len(o.Previous))
}

// quiet is a history in which nothing fails. Once all hold, nothing but heartbeats happens.
func (s *storm) quiet() {
	s.calm = true
	for _, x := range s.seats {
		s.start(x)
	}
	s.run(patience, func() bool { holders, of := s.holders(); return len(holders) == of })
	s.run(s.now+50*time.Millisecond, nil) // until all is on record
	s.steady = true
	s.run(s.now+8*time.Second, nil)
	for _, x := range s.seats {
		if v := x.peer.right.set.Version; v != 1 {
			s.fail("nothing failed, and node %d has version %d of its observers", x.lnn, v)
		}
	}
	if holders, of := s.holders(); len(holders) != of {
		s.fail("nothing failed, and only %v of %d nodes may hold", holders, of)
	}
}

// patience is within what everybody must hold again once all faults have ended: five seconds in which nodes of which nothing was ever heard
// are counted, three after which a lapse that nobody can resume is given up, and spans of which the longest is 400 ms.
const patience = 15 * time.Second

// TestStorms: whatever the network, the store, clocks and processes do, nobody holds under an incarnation that somebody has found
// over; nobody has a lease from an observer that promised to give none; no name is on record that never had leases; and once it stops,
// everybody that runs holds. HOLDFAST_STORMS=FROM:TO plays other seeds.
func TestStorms(t *testing.T) {
	from, to := seeds(t)
	var longest time.Duration
	failures := 0
	for seed := from; seed < to; seed++ {
		failure, took := play(t, seed, false, flaw{})
		if longest = max(longest, took); failure == "" {
			continue
		}
		t.Errorf("seed %d: %s", seed, failure)
		if failures++; to-from <= 1000 || failures > 20 {
			play(t, seed, true, flaw{})
			return
		}
	}
	t.Logf("the longest until all held: %s", longest)
}

func seeds(t *testing.T) (from, to uint64) {
	if asked := os.Getenv("HOLDFAST_STORMS"); asked != "" {
		for i := range asked {
			if asked[i] == ':' {
				from, _ = strconv.ParseUint(asked[:i], 10, 64)
				to, _ = strconv.ParseUint(asked[i+1:], 10, 64)
			}
		}
		if to <= from {
			t.Fatalf("HOLDFAST_STORMS=%s is not FROM:TO with FROM less than TO", asked)
		}
		return from, to
	}
	if testing.Short() {
		return 0, 60
	}
	return 0, 600
}

// TestStormsFindFlaws: a rule that is broken by little is found within a thousand histories.
func TestStormsFindFlaws(t *testing.T) {
	for _, f := range []flaw{
		{name: "the lease rule is broken by one interval", shortSpan: true},
		{name: "clocks are off by more than the margin covers", wildClock: 250_000},
	} {
		t.Run(f.name, func(t *testing.T) {
			for seed := range uint64(1000) {
				if failure, _ := play(t, seed, false, f); failure != "" {
					t.Logf("seed %d: %s", seed, failure)
					return
				}
			}
			t.Error("no history of a thousand shows it")
		})
	}
}
