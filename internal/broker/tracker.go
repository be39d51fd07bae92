package broker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/lastgood"
	"github.com/holdfast/holdfast/internal/broker/poll"
	"github.com/holdfast/holdfast/internal/broker/watch"
	"github.com/holdfast/holdfast/internal/problem"
)

// tracker carries out what the watch of one fleet says. One goroutine does it (run), a second one writes to disk, and each poll and probe
// has one of its own that ends by its timeout; a watch has one poll and at most watch.MaxProbes probes under way.
type tracker struct {
	b      *Broker
	link   Link
	client *poll.Client

	watch *watch.Watch // under b.mu, with what its steps want
	todo  work

	wake    chan struct{} // there is something to do
	keep    chan struct{} // the view is to be written
	stop    context.CancelFunc
	wait    sync.WaitGroup
	learnt  bool                        // run's: the key of the central manager is on disk
	present map[*problem.Kind]time.Time // run's: the alarms that are on the board, and since when
}

// work is what steps of a watch want to be done.
type work struct {
	poll  bool
	probe []*fleet.Gateway
	keep  bool
	told  []string
	next  time.Time
}

// maxTold bounds what is told of a fleet at once; older changes are over already.
const maxTold = 8

func newTracker(b *Broker, link Link) *tracker {
	return &tracker{
		b: b, link: link, client: b.client(link), watch: watch.New(link.Link, b.now()), wake: make(chan struct{}, 1), keep: make(chan struct{}, 1),
		learnt: link.Central != "", present: map[*problem.Kind]time.Time{},
	}
}

// restore takes the view from disk over.
func (t *tracker) restore(record *lastgood.Record) {
	age, atLeast := record.Stamp.Aged(lastgood.Look())
	t.step(watch.Restored{View: record.View, Age: age, AtLeast: atLeast})
}

// step is one step of the watch. What it wants is done by run.
func (t *tracker) step(event watch.Event) {
	t.b.mu.Lock()
	t.stepLocked(event)
	t.b.mu.Unlock()
}

func (t *tracker) stepLocked(event watch.Event) {
	a := t.watch.Step(event, t.b.now())
	w := &t.todo
	w.poll, w.keep, w.next = w.poll || a.Poll, w.keep || a.Keep, a.Next
	w.probe = append(w.probe, a.Probe...)
	if a.Told != "" {
		w.told = append(w.told, a.Told)
		w.told = w.told[max(0, len(w.told)-maxTold):]
	}
	signal(t.wake)
}

// lookLocked has a gateway probed now, besides those whose turn it is. The caller has b.mu.
func (t *tracker) lookLocked(g *fleet.Gateway) {
	w := &t.todo
	if len(w.probe) < watch.MaxProbes && !slices.ContainsFunc(w.probe, func(p *fleet.Gateway) bool { return p.Key == g.Key }) {
		w.probe = append(w.probe, g)
		signal(t.wake)
	}
}

// signal leaves a note for whoever waits; one note is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take is what is to be done now, how long there is nothing else, and the alarms that there are.
func (t *tracker) take() (w work, central string, alarms []watch.Alarm) {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	w, t.todo = t.todo, work{next: t.todo.next}
	return w, t.watch.Central(), t.watch.Alarms()
}

func (t *tracker) start() {
	ctx, stop := context.WithCancel(t.b.ctx)
	t.stop = stop
	for _, part := range []func(context.Context){t.run, t.keepViews} {
		t.b.wait.Add(1)
		t.wait.Go(func() {
			defer t.b.wait.Done()
			part(ctx)
		})
	}
}

// end ends its goroutines and waits for them.
func (t *tracker) end() {
	t.stop()
	t.wait.Wait()
}

// leastPause keeps a watch that wants the next step at once from taking the whole processor.
const leastPause = time.Millisecond

func (t *tracker) run(ctx context.Context) {
	var under sync.WaitGroup
	defer under.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	t.step(watch.Tick{})
	for ctx.Err() == nil {
		w, central, alarms := t.take()
		t.carryOut(ctx, &under, &w, central)
		t.tell(&w, alarms)
		if central != "" && !t.learnt {
			t.learnt = true
			t.b.wait.Go(func() { t.b.learned(t) }) // it waits for changes, of which one may wait for this goroutine
		}
		timer.Reset(max(leastPause, w.next.Sub(t.b.now())))
		select {
		case <-ctx.Done():
		case <-t.wake:
		case <-timer.C:
			t.step(watch.Tick{})
		}
	}
}

// carryOut starts what is to be done. Results come back as steps.
func (t *tracker) carryOut(ctx context.Context, under *sync.WaitGroup, w *work, central string) {
	if w.poll {
		expected := expectedOf(t.link)
		expected.Central = central
		under.Go(func() { t.poll(ctx, expected) })
	}
	for _, g := range w.probe {
		under.Go(func() {
			evidence, reached := poll.Knock(ctx, g, watch.ProbeTimeout)
			if ctx.Err() == nil {
				t.b.measure.probed(reached)
				t.step(watch.Probed{Gateway: g.Key, Reached: reached, Evidence: evidence})
			}
		})
	}
	if w.keep {
		signal(t.keep)
	}
}

func (t *tracker) poll(ctx context.Context, expected fleet.Expected) {
	view, failure := t.client.Fetch(ctx, expected)
	if ctx.Err() != nil {
		return
	}
	if failure != nil {
		t.b.measure.polled(failure.Kind.String())
		t.step(watch.Failed{Failure: *failure})
		return
	}
	t.b.measure.polled("answered")
	t.step(watch.Answered{View: view})
}

// tell says what changed, and puts the alarms that there are on the board.
func (t *tracker) tell(w *work, alarms []watch.Alarm) {
	name := t.link.Fleet
	for _, told := range w.told {
		t.b.options.Event("broker.central-manager", name, told, nil)
	}
	there := make(map[*problem.Kind]time.Time, len(alarms))
	for _, a := range alarms {
		there[a.Kind] = a.Since
		t.b.options.Board.Set(a.Kind, name, a.Detail, a.Since)
		if _, known := t.present[a.Kind]; !known {
			t.b.options.Event(a.Kind.Code, name, fmt.Sprintf("fleet %s: %s", name, a.Detail), nil)
		}
	}
	now := t.b.now()
	for kind, since := range t.present {
		if _, still := there[kind]; !still {
			t.b.options.Board.Clear(kind, name)
			t.b.options.Event(kind.Code, name, fmt.Sprintf("fleet %s: it is over after %s", name, fleet.Ago(now.Sub(since))), map[string]string{"over": "yes"})
		}
	}
	t.present = there
}

// clearProblems takes what is on the board of a fleet off it, once its goroutines have ended.
func (t *tracker) clearProblems() {
	for kind := range t.present {
		t.b.options.Board.Clear(kind, t.link.Fleet)
	}
	t.b.options.Board.Clear(lastgood.Unreadable, t.link.Fleet)
	t.b.options.Board.Clear(lastgood.Unwritable, t.link.Fleet)
}

// keepViews writes the view to disk when that is due. A disk that hangs holds up nothing else.
func (t *tracker) keepViews(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.keep:
		}
		clocks := lastgood.Look()
		t.b.mu.Lock()
		p := t.watch.Picture()
		record := &lastgood.Record{Fleet: t.link.Fleet, View: p.View, Stamp: lastgood.Stamp{Age: p.Age(t.b.now()), AtLeast: p.AtLeast, Clocks: clocks}}
		t.b.mu.Unlock()
		if record.View == nil {
			continue
		}
		err := t.b.shelf.Save(record)
		t.b.options.Board.Is(err != nil, lastgood.Unwritable, t.link.Fleet, text(err), t.b.now())
		if err != nil {
			t.b.log.Warn("a last good view is not kept", "fleet", t.link.Fleet, "error", err)
		}
	}
}
