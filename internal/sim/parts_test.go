package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/tenure"
)

// TestClock: whatever the rate, the moment at which a clock shows a time is the first at which it does.
func TestClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := clock{ahead: time.Duration(rapid.Int64Range(0, int64(100*24*time.Hour)).Draw(t, "ahead")), parts: rapid.Int64Range(-1000, 1000).Draw(t, "parts")}
		at := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "at"))
		shows := c.at(at)
		when := c.when(shows)
		if c.at(when).Before(shows) || when > 0 && !c.at(when-1).Before(shows) && when > at {
			t.Fatalf("the clock shows %s at %s, and is said to do so at %s", shows, at, when)
		}
		if off := when - at; off < -2 || off > 2 {
			t.Fatalf("off by %s", off)
		}
	})
}

// TestCalendar: what is entered comes in the order of its time, and of its entry.
func TestCalendar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c calendar
		var want, got []int
		times := rapid.SliceOfN(rapid.IntRange(0, 20), 0, 100).Draw(t, "times")
		for i, at := range times {
			c.enter(time.Duration(at), act(func() { got = append(got, i) }))
			want = append(want, i)
		}
		slices.SortStableFunc(want, func(a, b int) int { return times[a] - times[b] })
		for {
			next, ok := c.next(20)
			if !ok {
				break
			}
			next.what.happen()
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// TestEachWayForItself: what is lost or late on the way from one node to another says nothing of the way back.
func TestEachWayForItself(t *testing.T) {
	s := setUp(Scenario{Seed: 1, Nodes: 3, Multiplier: 3, Interval: 100 * time.Millisecond, Addresses: 3, Networks: 2, Delay: time.Millisecond}, Unbroken, nil)
	ways := func(number *[MaxNodes + 1][MaxNodes + 1]int) (all []string) {
		for from := range number {
			for to, amount := range number[from] {
				if amount != 0 {
					all = append(all, fmt.Sprintf("%d-%d", from, to))
				}
			}
		}
		return all
	}
	for _, c := range []struct {
		node, other int
		want        string
	}{
		{1, 2, "1-2"}, {3, 0, "3-1 3-2 3-3"}, {0, 2, "1-2 2-2 3-2"}, {0, 0, "1-1 1-2 1-3 2-1 2-2 2-3 3-1 3-2 3-3"},
	} {
		for kind, number := range map[FaultKind]*[MaxNodes + 1][MaxNodes + 1]int{Loss: &s.network.loss, Late: &s.network.late} {
			end := s.cause(Fault{Kind: kind, Node: c.node, Other: c.other, Amount: 100})
			if got := strings.Join(ways(number), " "); got != c.want {
				t.Errorf("%s from %d to %d: %s, want %s", kind, c.node, c.other, got, c.want)
			}
			if end(); len(ways(number)) > 0 {
				t.Errorf("%s from %d to %d does not end: %v", kind, c.node, c.other, ways(number))
			}
		}
	}
	s.cause(Fault{Kind: Loss, Node: 1, Other: 2, Amount: 1000})
	s.cause(Fault{Kind: Late, Node: 2, Other: 1, Amount: 1000})
	arrived := func(from, to int) (all []time.Duration) {
		s.calendar = calendar{}
		for range 50 {
			s.carry(0, from, to, &tenure.Message{}, 0)
		}
		for _, h := range s.calendar.heap {
			all = append(all, h.at-s.now)
		}
		return all
	}
	if lost := arrived(1, 2); len(lost) > 0 {
		t.Errorf("%d of 50 messages came through where all are lost", len(lost))
	}
	if slow := arrived(2, 1); len(slow) != 50 || slices.Max(slow) < 400*time.Millisecond {
		t.Errorf("the way back is not slow: %v", slow)
	}
	if well := arrived(1, 3); len(well) != 50 {
		t.Errorf("%d of 50 messages came through where nothing is wrong", len(well))
	}
}

// TestWhatSeedsReach: every kind of fault, and what was asked of the range of clusters and networks.
func TestWhatSeedsReach(t *testing.T) {
	reached := map[string]int{}
	note := func(what string, is bool) {
		if is {
			reached[what]++
		}
	}
	for seed := range uint64(4000) {
		s := Generate(seed)
		note("heartbeats of 10 ms x 3", s.Interval == 10*time.Millisecond && s.Multiplier == 3)
		note("more nodes than observe one", s.Nodes > tenure.MaxObservers+1)
		for _, f := range s.Faults {
			note(string(f.Kind), true)
			note("one way is lossy", f.Kind == Loss && f.Node > 0 && f.Other > 0 && f.Node != f.Other)
			note("one way is late", f.Kind == Late && f.Node > 0 && f.Other > 0 && f.Node != f.Other)
			note("one way is cut", (f.Kind == Deaf || f.Kind == Mute) && f.Other > 0 && f.Node != f.Other)
		}
	}
	wanted := []string{"heartbeats of 10 ms x 3", "more nodes than observe one", "one way is lossy", "one way is late", "one way is cut"}
	for _, kind := range Kinds() {
		wanted = append(wanted, string(kind))
	}
	for _, what := range wanted {
		if reached[what] < 10 {
			t.Errorf("%s: %d times in 4000 seeds", what, reached[what])
		}
	}
}

// TestHolderBound: it is shorter where less was disturbed, and longer with longer spans, up to what it is at most.
func TestHolderBound(t *testing.T) {
	for _, c := range []struct {
		disturbed  disturbance
		span, want time.Duration
	}{
		{ofHeartbeats, 30 * time.Millisecond, 6150 * time.Millisecond}, {ofHeartbeats, 300 * time.Millisecond, 7500 * time.Millisecond},
		{ofHeartbeats, 800 * time.Millisecond, 15 * time.Second}, {ofHeartbeats, 10 * time.Second, 30 * time.Second},
		{ofLinks, 300 * time.Millisecond, 12500 * time.Millisecond}, {ofLinks, 10 * time.Second, 30 * time.Second},
		{ofAll, 30 * time.Millisecond, 30 * time.Second},
	} {
		if got := holderBound(c.disturbed, c.span); got != c.want {
			t.Errorf("%s, %s: %s, want %s", c.disturbed, c.span, got, c.want)
		}
	}
	disturbed := map[disturbance][]FaultKind{}
	for _, kind := range Kinds() {
		disturbed[kind.disturbs()] = append(disturbed[kind.disturbs()], kind)
	}
	if len(disturbed) != 3 || !slices.Equal(disturbed[ofLinks], []FaultKind{Deaf, Mute, Cut, Partition, Switch}) || !slices.Contains(disturbed[ofHeartbeats], Loss) || !slices.Contains(disturbed[ofAll], Freeze) {
		t.Errorf("%v", disturbed)
	}
}

// TestHolderBoundCanBreak: a cluster in which heartbeats at most were disturbed, and a node does not come back, fails by the shorter bound.
func TestHolderBoundCanBreak(t *testing.T) {
	s := held(t)
	s.begin(Fault{Kind: Loss, Node: 1, Amount: 500, Lasts: time.Second})
	s.play(s.now + 2*time.Second)
	s.settle()
	s.node(1).stopped++ // behind the back of what counts faults
	s.node(1).kill()
	began := s.now
	what := broken(func() { s.awaitHolders() })
	if want := holderBound(ofHeartbeats, 300*time.Millisecond) + restFor; !strings.Contains(what, "7.5s is the most where heartbeats at most were disturbed") || s.now-began > want {
		t.Errorf("after %s: %q", s.now-began, what)
	}
	s.disturb(ofAll)
	if bound, _ := s.bound(); bound != recoveryMost {
		t.Errorf("with more disturbed it is %s", bound)
	}
}

// broken is what a function ends a history with.
func broken(do func()) (what string) {
	defer func() {
		if found, is := recover().(breach); is {
			what = found.what
		}
	}()
	do()
	return ""
}

// held is a cluster of three in which every address has a holder.
func held(t *testing.T) *simulation {
	s := setUp(Scenario{Seed: 1, Nodes: 3, Multiplier: 3, Interval: 100 * time.Millisecond, Addresses: 3, Services: 1, Networks: 1, Delay: time.Millisecond}, Unbroken, nil)
	s.play(8 * time.Second)
	if without := s.missing(); len(without) > 0 {
		t.Fatalf("nobody holds %v", without)
	}
	return s
}

// TestInvariantsCanBreak: each is broken by hand once, and says so.
func TestInvariantsCanBreak(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(s *simulation, holder, other *node, a int)
		want string
	}{
		{"two holders", func(_ *simulation, _, other *node, a int) { other.put(a, true) }, "both hold"},
		{"found over", func(s *simulation, holder, _ *node, _ int) {
			s.found(tenure.Finding{LNN: holder.lnn, Over: holder.named})
		}, "has been found over"},
		{"kept too long", func(s *simulation, holder, _ *node, a int) {
			holder.setDeadline(bootNanoseconds(holder.time())+1, holder.named)
			holder.process = nil
			holder.guard.facts.Agent = ""
			s.now += kernelBound + time.Second
			holder.off(a)
		}, "after its right to hold had ended"},
		{"announced without the right", func(_ *simulation, holder, _ *node, a int) {
			holder.setDeadline(0, holder.named)
			holder.process.announce(a)
		}, "without the right"},
		{"given away by force", func(s *simulation, holder, other *node, a int) {
			before := s.store.entries[poolKey(dynamicPool)].value.(tenure.Record)
			st := before[s.addresses[a]]
			st.Owner = tenure.Claim{LNN: other.lnn, Interface: interfaceName, Incarnation: other.named}
			s.written(operation{poolKey(dynamicPool), tenure.Record{s.addresses[a]: st}})
		}, "while"},
		{"moved without a reason", func(s *simulation, holder, other *node, a int) {
			before := s.store.entries[poolKey(dynamicPool)].value.(tenure.Record)
			st := before[s.addresses[a]]
			st.To, st.Reason = tenure.Claim{LNN: other.lnn, Interface: interfaceName, Incarnation: other.named}, ""
			s.written(operation{poolKey(dynamicPool), tenure.Record{s.addresses[a]: st}})
		}, "without a reason"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := held(t)
			for a, address := range s.addresses {
				if address.As4()[3] < 100 {
					continue // a service address
				}
				for i, n := range s.nodes {
					if n.visible(a) {
						if what := broken(func() { c.do(s, n, s.nodes[(i+1)%3], a) }); !strings.Contains(what, c.want) {
							t.Errorf("got %q, want %q in it", what, c.want)
						}
						return
					}
				}
			}
		})
	}
}

// asked is a node of a cluster in which every address has a holder that is asked for names, and another one.
func asked(t *testing.T) (s *simulation, n, other *node) {
	t.Helper()
	s = held(t)
	for _, n := range s.nodes {
		if n.answersNames() {
			return s, n, s.nodes[n.lnn%3]
		}
	}
	t.Fatal("nobody answers names")
	return nil, nil, nil
}

// TestNamesCanBreak: a node that answers with what it knows down is found.
func TestNamesCanBreak(t *testing.T) {
	s, n, other := asked(t)
	view := *n.process.view // as it is now, for good
	n.process.box.Reset()
	n.process.peer.Step(&tenure.Told{LNN: other.lnn, Over: other.named}, n.time(), &n.process.box)
	n.process.view, s.now = &view, s.now+time.Second
	if what := broken(n.ask); !strings.Contains(what, "of which it knows") {
		t.Errorf("got %q", what)
	}
}

// TestNamesAtOnce: a node that has just learned that another is down, and whose loop does not look, is found within milliseconds.
func TestNamesAtOnce(t *testing.T) {
	s, n, other := asked(t)
	n.process.noted = true // the loop is said to be on its way already, and never comes
	what := broken(func() {
		over := other.named
		other.powerOff()
		n.process.inform(&tenure.Told{LNN: other.lnn, Over: over})
		s.play(s.now + 10*time.Millisecond)
	})
	if !strings.Contains(what, "of which it knows") {
		t.Errorf("got %q", what)
	}
}
