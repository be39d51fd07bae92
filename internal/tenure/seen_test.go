package tenure

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var testTiming = Timing{Interval: 50 * time.Millisecond, Multiplier: 3}

// calmWorld is three peers that acknowledge each other, all on record.
func calmWorld(t *testing.T) *storm {
	t.Helper()
	s := &storm{t: t, random: rand.New(rand.NewPCG(1, 2)), latest: map[int]Recorded{}, cut: map[[2]int]float64{}, store: true, calm: true,
		over: map[int]Incarnation{}, found: map[int][]Finding{}, networks: 1}
	for lnn := 1; lnn <= 3; lnn++ {
		s.seats = append(s.seats, &seat{lnn: lnn, timing: testTiming, lapsed: -1})
		s.members = append(s.members, true)
	}
	for _, x := range s.seats {
		s.start(x)
	}
	s.run(10*time.Second, nil)
	if holders, _ := s.holders(); len(holders) != 3 {
		t.Fatalf("only %v hold", holders)
	}
	return s
}

// present is what every clock of a calm world shows.
func present(s *storm) time.Time { return s.clock(s.seats[0]) }

func watchedBy(s *storm, observer, lnn int) Watched {
	all := s.seats[observer-1].peer.Watched()
	return all[slices.IndexFunc(all, func(w Watched) bool { return w.LNN == lnn })]
}

func TestTheRightShowsItsLeases(t *testing.T) {
	s := calmWorld(t)
	right := s.seats[0].peer.Right()
	if right.Incarnation != 1 || right.Timing != testTiming || !slices.Equal(right.Observers.Current, []int{2, 3}) || right.Recorded != right.Observers.Version || len(right.Leases) != 2 {
		t.Fatalf("it shows %+v", right)
	}
	for i, lease := range right.Leases {
		left, ago := lease.Until.Sub(present(s)), present(s).Sub(lease.Last())
		if lease.Observer != i+2 || left <= 0 || left > testTiming.Span() || ago < 0 || ago > testTiming.Interval+time.Millisecond || lease.Recorded != right.Observers.Version {
			t.Errorf("lease %d: %+v, %s left, acknowledged %s ago", i, lease, left, ago)
		}
		if lease.Acknowledged[0] != lease.Last() || !lease.Acknowledged[1].IsZero() {
			t.Errorf("the networks are %v; all came over the first", lease.Acknowledged)
		}
	}
	right.Observers.Current[0] = 9
	if s.seats[0].peer.Right().Observers.Current[0] == 9 {
		t.Error("what was shown can be changed from outside")
	}
}

// Node 2 does not hear node 1 any more; node 3 does, and says so.
func TestAnObserverShowsWhatItWaitsFor(t *testing.T) {
	s := calmWorld(t)
	before := watchedBy(s, 2, 1)
	if before.Incarnation != 1 || !before.Observed || before.Quiet.Before(present(s)) || !before.Declared.IsZero() || len(before.Words) != 0 {
		t.Errorf("while it hears it: %+v", before)
	}
	s.cut[[2]int{1, 2}] = 1
	s.run(11*time.Second, nil)
	after := watchedBy(s, 2, 1)
	if after.Declared.IsZero() || after.Declared.Sub(after.Last()) < testTiming.Span() || after.Confirmed != 0 || len(after.Words) != 1 {
		t.Fatalf("while it does not hear it: %+v", after)
	}
	if word := after.Words[0]; word.Observer != 3 || word.Denied != DeniedHeard || word.Asked.IsZero() || !word.Confirmed.IsZero() {
		t.Errorf("node 3 said %+v", word)
	}
	if lease := s.seats[0].peer.Right().Leases[0]; lease.Observer != 2 || lease.Until.After(present(s)) {
		t.Errorf("node 1's lease from node 2 is %+v", lease)
	}
}

// The finding has the times of a failover in their order, and who confirmed.
func TestAFindingTellsHowItCame(t *testing.T) {
	s := calmWorld(t)
	s.kill(s.seats[2])
	died := s.now
	findings := map[int]Finding{}
	for s.now < died+time.Second && len(findings) < 2 {
		s.run(s.now+100*time.Microsecond, nil)
		for lnn := 1; lnn <= 2; lnn++ {
			for _, f := range s.found[lnn] {
				findings[lnn] = f
			}
		}
	}
	asked := false
	for lnn, f := range findings {
		if f.LNN != 3 || f.Over != 1 || f.Heard.IsZero() || f.Declared.Sub(f.Heard) < testTiming.Span() {
			t.Errorf("node %d found %+v", lnn, f)
		}
		if f.By != 0 {
			continue
		}
		asked = true
		if len(f.Words) != 1 || f.Asked.Before(f.Declared) || f.Words[0].Observer != 3-lnn || f.Words[0].Came.Before(f.Asked) {
			t.Errorf("node %d found it itself: %+v", lnn, f)
		}
	}
	if len(findings) != 2 || !asked {
		t.Errorf("the findings are %+v", findings)
	}
}
