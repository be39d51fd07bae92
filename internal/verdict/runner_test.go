package verdict

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/bubble"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/verdict/probe"
)

// services is a fake of everything that is checked: by target, whether it works and how long it takes to say so.
type services struct {
	mu      sync.Mutex
	broken  map[string]bool
	delay   map[string]time.Duration
	tries   map[string][]time.Time
	current map[string]int // tries in progress
	overlap bool
}

func newServices() *services {
	return &services{broken: map[string]bool{}, delay: map[string]time.Duration{}, tries: map[string][]time.Time{}, current: map[string]int{}}
}

type service struct {
	*services
	id string
}

func (s *services) probe(t Target) (probe.Probe, error) {
	if t.Check.Kind == "" {
		return nil, fmt.Errorf("check %s has no kind", t.Check.Name)
	}
	return service{s, t.ID}, nil
}

func (s *services) set(id string, broken bool, delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken[id], s.delay[id] = broken, delay
}

func (s *services) triesOf(id string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Time{}, s.tries[id]...)
}

func (s service) Try(ctx context.Context) (string, error) {
	s.mu.Lock()
	s.tries[s.id] = append(s.tries[s.id], time.Now())
	s.current[s.id]++
	s.overlap = s.overlap || s.current[s.id] > 1
	broken, delay := s.broken[s.id], s.delay[s.id]
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.current[s.id]--; s.mu.Unlock() }()
	if delay < 0 { // hangs, whatever the context says, for that long
		time.Sleep(-delay)
		return "", errors.New("woke up at last")
	}
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(delay):
	}
	if broken {
		return "", errors.New(s.id + " refused")
	}
	return s.id + " answered", nil
}

// target is a check with the default numbers.
func target(id string) Target {
	return Target{ID: id, Check: cluster.Check{Name: id, Kind: cluster.CheckTCP, Port: 80, Interval: time.Second,
		Timeout: 500 * time.Millisecond, Rise: 2, Fall: 3}}
}

// running starts a Runner in the bubble and ends it with the test.
func running(t *testing.T, options Options) *Runner {
	t.Helper()
	options.Random = rand.New(rand.NewPCG(1, 2))
	r := NewRunner(options)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return r
}

// pass lets time go by and everything settle.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func states(r *Runner) map[string]string {
	short := map[string]string{}
	for id, v := range r.Status() {
		short[id] = v.State.String()
	}
	return short
}

func want(t *testing.T, r *Runner, when string, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, states(r)); diff != "" {
		t.Errorf("%s: states (-want +got):\n%s", when, diff)
	}
}

func wantProblems(t *testing.T, board *problem.Board, when string, want ...string) {
	t.Helper()
	var got []string
	for _, active := range board.List() {
		got = append(got, active.Kind.Code+" "+active.Subject)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: problems (-want +got):\n%s", when, diff)
	}
}

func TestNothingIsReadyBeforeTheFirstFullRound(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newServices()
		s.set("slow", false, 400*time.Millisecond)
		r := running(t, Options{Probe: s.probe})
		synctest.Wait()
		if r.Ready() {
			t.Error("ready before anybody has said what to check")
		}
		r.Set([]Target{target("quick"), target("slow")})
		want(t, r, "at once", map[string]string{"quick": "unknown", "slow": "unknown"})
		if v := r.Status()["quick"]; !v.Pending() || v.Reason != "no result yet" {
			t.Errorf("quick says %+v", v)
		}
		pass(startSpread)
		want(t, r, "after the first tries began", map[string]string{"quick": "up", "slow": "unknown"})
		if r.Ready() {
			t.Error("ready although slow has no result")
		}
		pass(400 * time.Millisecond)
		want(t, r, "after the first round", map[string]string{"quick": "up", "slow": "up"})
		if !r.Ready() {
			t.Error("not ready although each target has a result")
		}
		r.Set([]Target{target("quick"), target("slow"), target("new")})
		if r.Ready() {
			t.Error("ready although the new target has no result")
		}
	})
}

func TestNoTargetsAreReadyOnceSet(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := running(t, Options{})
		r.Set(nil)
		if !r.Ready() || len(r.Status()) != 0 {
			t.Errorf("ready %v with status %v; there is nothing to wait for", r.Ready(), r.Status())
		}
	})
}

func TestDownUpAndWhy(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, board := newServices(), &problem.Board{}
		r := running(t, Options{Probe: s.probe, Board: board})
		r.Set([]Target{target("nfs"), target("smb")})
		pass(2 * time.Second)
		<-r.Changed()
		s.set("nfs", true, 0)
		pass(1500 * time.Millisecond)
		want(t, r, "one or two bad results", map[string]string{"nfs": "up", "smb": "up"})
		pass(2500 * time.Millisecond)
		want(t, r, "three bad results", map[string]string{"nfs": "down", "smb": "up"})
		wantProblems(t, board, "down", "verdict.check-failing nfs")
		v := r.Status()["nfs"]
		if v.Evidence != "nfs refused" || !strings.Contains(v.Reason, "bad") || v.At.IsZero() || v.Since.After(v.At) {
			t.Errorf("nfs says %+v", v)
		}
		select {
		case <-r.Changed():
		default:
			t.Error("the change was not told")
		}
		s.set("nfs", false, 0)
		pass(4 * time.Second)
		want(t, r, "good again, held down", map[string]string{"nfs": "down", "smb": "up"})
		pass(5 * time.Second)
		want(t, r, "after the hold-down", map[string]string{"nfs": "up", "smb": "up"})
		wantProblems(t, board, "up again")
	})
}

func TestTimeoutIsBad(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newServices()
		s.set("nfs", false, time.Hour)
		r := running(t, Options{Probe: s.probe})
		r.Set([]Target{target("nfs")})
		pass(startSpread + 500*time.Millisecond)
		want(t, r, "after a timeout", map[string]string{"nfs": "down"})
	})
}

// TestHungProbeIsStale has a probe that does not even obey its context, as a process in uninterruptible sleep.
func TestHungProbeIsStale(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, board := newServices(), &problem.Board{}
		r := running(t, Options{Probe: s.probe, Board: board})
		r.Set([]Target{target("nfs")})
		pass(500 * time.Millisecond)
		s.set("nfs", false, -30*time.Second)
		pass(4 * time.Second)
		want(t, r, "about 4.25 s without a result", map[string]string{"nfs": "up"})
		pass(time.Second)
		want(t, r, "more than 4.5 s without a result", map[string]string{"nfs": "unknown"})
		wantProblems(t, board, "hung", "verdict.check-stale nfs")
		s.set("nfs", false, 0)
		pass(time.Minute)
		want(t, r, "after it woke up", map[string]string{"nfs": "up"})
		wantProblems(t, board, "awake")
	})
}

func TestFlappingIsAProblem(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, board := newServices(), &problem.Board{}
		r := running(t, Options{Probe: s.probe, Board: board})
		r.Set([]Target{target("nfs")})
		for _, calm := range []time.Duration{10, 15, 25} {
			pass(calm * time.Second)
			s.set("nfs", true, 0)
			pass(5 * time.Second)
			s.set("nfs", false, 0)
		}
		wantProblems(t, board, "third flap", "verdict.check-failing nfs", "verdict.check-flapping nfs")
	})
}

// TestIntervalsJitterAndNeverOverlap looks at when tries began.
func TestIntervalsJitterAndNeverOverlap(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newServices()
		s.set("b", false, 300*time.Millisecond)
		r := running(t, Options{Probe: s.probe})
		began := time.Now()
		r.Set([]Target{target("a"), target("b")})
		pass(100 * time.Second)
		for _, id := range []string{"a", "b"} {
			tries := s.triesOf(id)
			if first := tries[0].Sub(began); first >= startSpread {
				t.Errorf("%s was first tried after %s, want less than %s", id, first, startSpread)
			}
			different := map[time.Duration]bool{}
			for i := range tries[1:] {
				gap := tries[i+1].Sub(tries[i])
				different[gap] = true
				if gap < 900*time.Millisecond || gap > 1100*time.Millisecond {
					t.Errorf("%s: %s between two tries, want 0.9 s to 1.1 s", id, gap)
				}
			}
			if len(tries) < 90 || len(different) < 50 {
				t.Errorf("%s: %d tries with %d different gaps in 100 s", id, len(tries), len(different))
			}
		}
		if s.triesOf("a")[0].Equal(s.triesOf("b")[0]) {
			t.Error("both targets were first tried at the same moment")
		}
		s.set("a", false, -1500*time.Millisecond) // longer than the interval
		pass(20 * time.Second)
		if s.overlap {
			t.Error("two tries of one target overlapped")
		}
	})
}

func TestSetKeepsWhatStays(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, board := newServices(), &problem.Board{}
		r := running(t, Options{Probe: s.probe, Board: board})
		s.set("gone", true, 0)
		r.Set([]Target{target("same"), target("stricter"), target("elsewhere"), target("gone")})
		pass(2 * time.Second)
		since := r.Status()["same"].Since
		wantProblems(t, board, "first targets", "verdict.check-failing gone")

		stricter, elsewhere := target("stricter"), target("elsewhere")
		stricter.Check.Fall = 1
		elsewhere.Address = netip.MustParseAddr("10.0.0.9")
		r.Set([]Target{target("same"), stricter, elsewhere, target("new")})
		want(t, r, "just after", map[string]string{"same": "up", "stricter": "up", "elsewhere": "unknown", "new": "unknown"})
		wantProblems(t, board, "gone with its target")
		tries := len(s.triesOf("gone"))
		s.set("stricter", true, 0)
		pass(1500 * time.Millisecond)
		want(t, r, "later", map[string]string{"same": "up", "stricter": "down", "elsewhere": "up", "new": "up"})
		if got := r.Status()["same"].Since; !got.Equal(since) {
			t.Errorf("same is up since %v, before it was %v", got, since)
		}
		if got := len(s.triesOf("gone")); got != tries {
			t.Error("a target that is gone is still tried")
		}
	})
}

// TestLateResultOfAReplacedTarget has a try that is still on its way when its target changes.
func TestLateResultOfAReplacedTarget(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newServices()
		s.set("nfs", false, -10*time.Second)
		r := running(t, Options{Probe: s.probe})
		r.Set([]Target{target("nfs")})
		pass(time.Second)
		s.set("nfs", false, 0)
		changed := target("nfs")
		changed.Check.Rise = 5
		r.Set([]Target{changed})
		pass(time.Second)
		since := r.Status()["nfs"]
		if since.State != Up || since.Evidence != "nfs answered" {
			t.Errorf("after the change: %+v", since)
		}
		pass(9 * time.Second)
		s.mu.Lock()
		pending := s.current["nfs"]
		s.mu.Unlock()
		if got := r.Status()["nfs"]; pending != 0 || got.State != Up || got.Evidence != "nfs answered" {
			t.Errorf("after the late result, %d tries pending: %+v", pending, got)
		}
	})
}

// TestTryThatIsCalledOffIsNoResult ends a Runner in the middle of the first try.
func TestTryThatIsCalledOffIsNoResult(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newServices()
		s.set("nfs", false, 400*time.Millisecond)
		r := NewRunner(Options{Probe: s.probe})
		r.Set([]Target{target("nfs")})
		ctx, cancel := context.WithTimeout(t.Context(), startSpread+100*time.Millisecond)
		defer cancel()
		r.Run(ctx)
		if v := r.Status()["nfs"]; len(s.triesOf("nfs")) != 1 || !v.Pending() {
			t.Errorf("after %d tries that were called off: %+v, want no result", len(s.triesOf("nfs")), v)
		}
	})
}

// TestRunnerOnTheLoopback uses the real probe, the real clock and a real listener.
func TestRunnerOnTheLoopback(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	open := target("open")
	open.Check.Port = listener.Addr().(*net.TCPAddr).AddrPort().Port()
	r := NewRunner(Options{})
	r.Set([]Target{open})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	for !r.Ready() {
		<-r.Changed()
	}
	if v := r.Status()["open"]; v.State != Up || !strings.HasPrefix(v.Evidence, "tcp connection to 127.0.0.1:") {
		t.Errorf("open says %+v", v)
	}
	cancel()
	<-done
}

func TestTargetsThatCannotBeChecked(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, board := newServices(), &problem.Board{}
		r := running(t, Options{Probe: s.probe, Board: board})
		kindless, timeless := target("kindless"), target("timeless")
		kindless.Check.Kind, timeless.Check.Timeout = "", 0
		r.Set([]Target{target("fine"), target("fine"), kindless, timeless})
		pass(time.Second)
		want(t, r, "refused", map[string]string{"fine": "up", "fine (again)": "unknown", "kindless": "unknown", "timeless": "unknown"})
		wantProblems(t, board, "refused", "verdict.check-refused fine (again)", "verdict.check-refused kindless", "verdict.check-refused timeless")
		if got := r.Status()["kindless"].Reason; got != "check kindless has no kind" {
			t.Errorf("kindless says %q", got)
		}
		if !r.Ready() {
			t.Error("not ready because of targets that can never be checked")
		}
		r.Set([]Target{target("fine"), target("kindless")})
		pass(time.Second)
		want(t, r, "corrected", map[string]string{"fine": "up", "kindless": "up"})
		wantProblems(t, board, "corrected")
	})
}

func TestAtMostMaxTargets(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, board := newServices(), &problem.Board{}
		registry := prometheus.NewRegistry()
		r := running(t, Options{Probe: s.probe, Board: board, Registerer: registry})
		var many []Target
		for i := range MaxTargets + 2 {
			many = append(many, target(fmt.Sprintf("target %04d", i)))
		}
		r.Set(many)
		pass(time.Second)
		up := 0
		for _, v := range r.Status() {
			if v.State == Up {
				up++
			}
		}
		if up != MaxTargets {
			t.Errorf("%d targets are up, want %d", up, MaxTargets)
		}
		wantProblems(t, board, "two too many", "verdict.check-refused target 1024", "verdict.check-refused target 1025")
		if got := metric(t, registry, "holdfast_verdict_refused_total", ""); got != 2 {
			t.Errorf("%v refusals counted, want 2", got)
		}
		if got := metric(t, registry, "holdfast_verdict_targets", "up"); got != MaxTargets {
			t.Errorf("%v targets counted as up, want %d", got, MaxTargets)
		}
	})
}

// metric reads the counter or gauge of a name whose first label has the value.
func metric(t *testing.T, registry *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, one := range family.GetMetric() {
			if family.GetName() == name && (label == "" || one.GetLabel()[0].GetValue() == label) {
				return one.GetCounter().GetValue() + one.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s of %q", name, label)
	return 0
}

func TestTargetsSetBeforeRun(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newServices()
		r := NewRunner(Options{Probe: s.probe})
		r.Set([]Target{target("early")})
		pass(5 * time.Second)
		if len(s.triesOf("early")) != 0 || r.Ready() {
			t.Error("checked before Run")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.Run(ctx) }()
		pass(time.Second)
		want(t, r, "running", map[string]string{"early": "up"})
		cancel()
		<-done
		r.Set([]Target{target("late")})
		pass(5 * time.Second)
		if len(s.triesOf("late")) != 0 {
			t.Error("checked after Run")
		}
	})
}

// TestReport6FlappingThroughTheRunner is report 6 with the shell around the machine: a service whose health toggles
// each second for 60 s moves at most once. https://github.com/acassen/keepalived/issues/2379
func TestReport6FlappingThroughTheRunner(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newServices()
		nervous := target("nfs")
		nervous.Check.Interval, nervous.Check.Timeout = 100*time.Millisecond, 50*time.Millisecond
		r := running(t, Options{Probe: s.probe})
		r.Set([]Target{nervous})
		pass(time.Second)
		moves, last := 0, r.Status()["nfs"].State
		for tenth := range 600 {
			s.set("nfs", tenth/10%2 == 0, 0)
			pass(100 * time.Millisecond)
			if now := r.Status()["nfs"].State; now != last {
				moves, last = moves+1, now
			}
		}
		if moves != 1 || last != Down {
			t.Errorf("%d moves, in the end %s; want one move, to down", moves, last)
		}
	})
}
