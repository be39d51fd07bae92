package verdict

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/verdict/probe"
)

const (
	startSpread   = 250 * time.Millisecond // first tries of targets are spread over this, or an interval if that is shorter
	jitterShare   = 0.1                    // an interval varies by this share up and down
	sweepInterval = time.Second            // how often the Runner looks for stale evidence
	flappingFrom  = 3                      // unforgiven flaps that make flapping a problem
)

// Options are what a Runner needs from outside. Every field may be left zero.
type Options struct {
	Logger     *slog.Logger                      // default: discards
	Board      *problem.Board                    // default: one that nobody reads
	Registerer prometheus.Registerer             // default: metrics are counted and not registered
	Dial       probe.Dialer                      // default: the system's
	Probe      func(Target) (probe.Probe, error) // default: probe.New; tests put fakes here
	Random     *rand.Rand                        // for jitter; default: seeded by the system
	Damping    Damping                           // default: DefaultDamping
}

// Runner runs the checks of this node's targets and keeps a Verdict for each. Make one with NewRunner. All methods are
// safe for concurrent use.
type Runner struct {
	options Options
	metrics *metrics
	changed chan struct{}
	workers sync.WaitGroup

	mu      sync.Mutex
	running context.Context // of Run; nil before it and after it
	told    bool            // Set has been called
	entries map[string]*entry
	refused map[string]string
}

// entry is one target that is checked.
type entry struct {
	target  Target
	machine *Machine
	probe   probe.Probe
	stop    context.CancelFunc // of its worker; nil before Run
}

// NewRunner returns a Runner without targets. It checks nothing before Run. It panics if its metrics are registered
// already.
func NewRunner(options Options) *Runner {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.Board == nil {
		options.Board = &problem.Board{}
	}
	if options.Random == nil {
		options.Random = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // jitter is no secret
	}
	if options.Probe == nil {
		dial := options.Dial
		options.Probe = func(t Target) (probe.Probe, error) { return probe.New(t.Check, t.Address, dial) }
	}
	options.Damping = options.Damping.withDefaults()
	r := &Runner{options: options, changed: make(chan struct{}, 1), entries: map[string]*entry{}}
	r.metrics = newMetrics(options.Registerer, r)
	return r
}

// Changed yields a value after any verdict changed its state or the targets changed. Changes are coalesced: read Status
// after each value. There is one channel, for one reader.
func (r *Runner) Changed() <-chan struct{} { return r.changed }

func (r *Runner) notify() {
	select {
	case r.changed <- struct{}{}:
	default: // the reader will see this change together with the one before
	}
}

// Set makes targets the ones that are checked. A target that stays keeps its verdict, also when its thresholds, its
// interval or its question changed; one with another kind, port or address starts anew. At most MaxTargets run: the
// rest, and those that cannot be checked at all, stay Unknown, say why, and are a problem on the board.
func (r *Runner) Set(targets []Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	admitted, refused := admit(targets)
	for id, target := range admitted {
		if err := r.adopt(target); err != nil {
			refused[id] = err.Error()
			delete(admitted, id)
		}
	}
	for id, e := range r.entries {
		if _, stays := admitted[id]; !stays {
			r.drop(e)
		}
	}
	r.refuse(refused)
	r.told = true
	r.notify()
}

// adopt starts, changes or leaves alone the entry of one target.
func (r *Runner) adopt(target Target) error {
	old := r.entries[target.ID]
	if old != nil && old.target.same(target) {
		return nil
	}
	ask, err := r.options.Probe(target)
	if err != nil {
		return err
	}
	rules := RulesFor(target.Check, r.options.Damping)
	e := &entry{target: target, probe: ask}
	if old != nil && old.target.sameThing(target) {
		e.machine = old.machine
		e.machine.SetRules(rules)
	} else {
		e.machine = NewMachine(rules)
	}
	if old != nil {
		old.halt()
	}
	r.entries[target.ID] = e
	r.launch(e)
	return nil
}

func (r *Runner) drop(e *entry) {
	e.halt()
	delete(r.entries, e.target.ID)
	for _, kind := range targetProblems {
		r.options.Board.Clear(kind, e.target.ID)
	}
}

func (e *entry) halt() {
	if e.stop != nil {
		e.stop()
	}
}

// refuse puts what cannot be checked on the board, and takes off what was refused before and is no longer.
func (r *Runner) refuse(refused map[string]string) {
	for id := range r.refused {
		if _, still := refused[id]; !still {
			r.options.Board.Clear(checkRefused, id)
		}
	}
	for id, why := range refused {
		if r.refused[id] != why {
			r.options.Logger.Error("check refused", "target", id, "why", why)
			r.metrics.refused.Inc()
		}
		r.options.Board.Set(checkRefused, id, why, time.Now())
	}
	r.refused = refused
}

// Run checks until ctx ends, and returns when every worker has stopped. It may be called once.
func (r *Runner) Run(ctx context.Context) {
	r.mu.Lock()
	r.running = ctx
	for _, e := range r.entries {
		r.launch(e)
	}
	r.mu.Unlock()

	sweep := time.NewTicker(sweepInterval)
	defer sweep.Stop()
	for {
		select {
		case <-sweep.C:
			r.sweep()
			continue
		case <-ctx.Done():
		}
		break
	}
	r.mu.Lock()
	r.running = nil // no worker starts from here on
	r.mu.Unlock()
	r.workers.Wait()
}

// launch starts the worker of an entry if the Runner runs; the caller holds the lock.
func (r *Runner) launch(e *entry) {
	if r.running == nil || r.running.Err() != nil {
		return
	}
	ctx, stop := context.WithCancel(r.running)
	e.stop = stop
	r.workers.Go(func() {
		defer stop()
		r.work(ctx, e)
	})
}

// work tries one target again and again. Tries never overlap: one that lasts longer than the interval delays the next.
func (r *Runner) work(ctx context.Context, e *entry) {
	next := time.NewTimer(r.startDelay(e.target.Check.Interval))
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		began := time.Now()
		evidence, err := r.try(ctx, e)
		took := time.Since(began)
		if ctx.Err() != nil {
			return // called off, which says nothing about the target
		}
		r.record(e, evidence, err, took)
		next.Reset(max(0, r.interval(e.target.Check.Interval)-took))
	}
}

func (r *Runner) try(ctx context.Context, e *entry) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, e.target.Check.Timeout)
	defer cancel()
	return e.probe.Try(ctx)
}

// startDelay spreads the first tries, so that a start with a thousand targets is not one burst.
func (r *Runner) startDelay(interval time.Duration) time.Duration {
	return time.Duration(r.random() * float64(min(interval, startSpread)))
}

// interval varies the interval, so that checks of different nodes against a shared service do not fall into step.
func (r *Runner) interval(interval time.Duration) time.Duration {
	return time.Duration((1 - jitterShare + 2*jitterShare*r.random()) * float64(interval))
}

// random draws from [0, 1).
func (r *Runner) random() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.options.Random.Float64()
}

// record steps the entry's machine with one result. A result of a worker that has been replaced meanwhile is dropped.
func (r *Runner) record(e *entry, evidence string, err error, took time.Duration) {
	event := Event{Kind: Good, Evidence: evidence}
	if err != nil {
		event = Event{Kind: Bad, Evidence: err.Error()}
	}
	r.metrics.count(e.target.Check.Kind, event.Kind, took)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.entries[e.target.ID] == e {
		r.step(e, event, time.Now())
	}
}

// sweep lets every machine notice that time has passed.
func (r *Runner) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, e := range r.entries {
		r.step(e, Event{Kind: Tick}, now)
	}
}

// step feeds one event to a machine and tells the board, the log and the reader; the caller holds the lock.
func (r *Runner) step(e *entry, event Event, now time.Time) {
	before := e.machine.Verdict().State
	v, changed := e.machine.Step(event, now)
	id, detail := e.target.ID, v.Evidence+" ("+v.Reason+")"
	r.options.Board.Is(v.State == Down, checkFailing, id, detail, now)
	r.options.Board.Is(v.State == Unknown && !v.Pending(), checkStale, id, detail, now)
	r.options.Board.Is(v.Flaps >= flappingFrom, checkFlapping, id, detail, now)
	if !changed {
		return
	}
	r.metrics.transitions.WithLabelValues(v.State.String()).Inc()
	r.options.Logger.Info("verdict changed", "target", id, "from", before.String(), "to", v.State.String(),
		"reason", v.Reason, "evidence", v.Evidence)
	r.notify()
}

// Status is the present verdict on every target, by ID, those that were refused included. Evidence that has become
// stale by now is taken into account.
func (r *Runner) Status() map[string]Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	status := make(map[string]Verdict, len(r.entries)+len(r.refused))
	for id, e := range r.entries {
		r.step(e, Event{Kind: Tick}, now)
		status[id] = e.machine.Verdict()
	}
	for id, why := range r.refused {
		status[id] = Verdict{Reason: why}
	}
	return status
}

// Ready reports whether targets have been set and each of them has had its first result, so that every verdict rests
// on evidence. Targets that were refused do not count: they will never have one. A target that Set adds later makes
// Ready false again until its first result.
func (r *Runner) Ready() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.told {
		return false
	}
	for _, e := range r.entries {
		if e.machine.Verdict().Pending() {
			return false
		}
	}
	return true
}
