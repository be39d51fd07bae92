package broker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/broker/choice"
	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/lastgood"
	"github.com/holdfast/holdfast/internal/broker/token"
	"github.com/holdfast/holdfast/internal/linux/boottime"
	"github.com/holdfast/holdfast/internal/problem"
)

// Options are what a Broker needs from outside.
type Options struct {
	Dir        string // its own; made with mode 0700 when there is something to keep
	Name       string // of this broker, the same after restarts, and no other one's
	Logger     *slog.Logger
	Board      *problem.Board
	Registerer prometheus.Registerer                                         // nil: nothing is measured
	Event      func(kind, subject, message string, fields map[string]string) // nil: nobody is told
	Now        func() time.Time                                              // a clock that nobody sets; nil: boottime.Now
	Sign       func(token.Grant) (string, error)                             // makes session tokens; nil: none are made
	Peers      Peers                                                         // the other brokers; nil: there are none
	Exchange   time.Duration                                                 // from one exchange of rules to the next; default 10 s
	Pace       time.Duration                                                 // at least between two exchanges that others asked for; default 1 s
}

// MaxFleets bounds how many fleets are linked.
const MaxFleets = 16

// Broker is one broker. Make it with Open.
type Broker struct {
	options Options
	log     *slog.Logger
	now     func() time.Time
	shelf   *lastgood.Shelf // nil until there is something to keep
	audit   *trail
	measure *measures
	rules   atomic.Pointer[ruled]

	ctx  context.Context // of everything that runs
	stop context.CancelFunc
	wait sync.WaitGroup

	changing sync.Mutex // one change of links or rules at a time; held while it is written to disk
	closed   bool       // under changing: nothing is written any more

	mu       sync.Mutex // the watches, and who they are
	trackers []*tracker // sorted by fleet
	pictures []*fleet.Picture

	exchange exchange
	judged   judged
	launches launchNames
}

// ErrClosed is the error of a broker that has been closed.
var ErrClosed = errors.New("this broker is stopping; ask again in a moment")

// Open reads what is on disk and begins to watch the fleets that are linked. It waits for nobody on the network.
func Open(o Options) (*Broker, error) {
	if o.Now == nil {
		o.Now = boottime.Now
	}
	if o.Event == nil {
		o.Event = func(string, string, string, map[string]string) {}
	}
	o.Exchange, o.Pace = cmp.Or(o.Exchange, 10*time.Second), cmp.Or(o.Pace, time.Second)
	b := &Broker{options: o, log: o.Logger, now: o.Now, launches: newLaunchNames()}
	b.exchange.kick = make(chan struct{}, 1)
	links, err := readLinks(o.Dir)
	if err != nil {
		return nil, err
	}
	kept, err := readRules(o.Dir)
	if err != nil {
		return nil, err
	}
	b.rules.Store(kept)
	b.ctx, b.stop = context.WithCancel(context.Background())
	b.measure = newMeasures(b)
	b.audit = newTrail(filepath.Join(o.Dir, auditDir), o.Board, o.Now, b.measure)
	if len(links) > 0 || kept.kept {
		if err := b.makeDir(); err != nil {
			b.stop()
			b.measure.forget(o.Registerer)
			return nil, err
		}
	}
	for _, link := range links {
		b.begin(newTracker(b, link), b.recall(link.Fleet))
	}
	b.wait.Go(func() { b.audit.run(b.ctx) })
	b.wait.Go(func() { b.exchangeRules(b.ctx) })
	return b, nil
}

// Close ends everything and waits for that.
func (b *Broker) Close() error {
	b.changing.Lock()
	b.closed = true
	b.changing.Unlock()
	b.stop()
	b.wait.Wait()
	b.measure.forget(b.options.Registerer)
	return b.audit.close()
}

// Name is what this broker is called.
func (b *Broker) Name() string { return b.options.Name }

// makeDir makes the directory, and what is in it.
func (b *Broker) makeDir() error {
	if b.shelf != nil {
		return nil
	}
	if err := os.MkdirAll(b.options.Dir, 0o700); err != nil {
		return refused("making the broker's directory: %v", err)
	}
	shelf, err := lastgood.Open(filepath.Join(b.options.Dir, viewsDir))
	if err != nil {
		return err
	}
	b.shelf = shelf
	return nil
}

// recall reads the last good view of a fleet; nil if there is none that can be used.
func (b *Broker) recall(name string) *lastgood.Record {
	record, err := b.shelf.Load(name)
	b.options.Board.Is(err != nil, lastgood.Unreadable, name, text(err), b.now())
	if err != nil {
		b.log.Warn("a last good view is not used", "fleet", name, "error", err)
		return nil
	}
	return record
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// begin takes a fleet into the world and starts its goroutine. The caller has b.changing, or is Open.
func (b *Broker) begin(t *tracker, record *lastgood.Record) {
	b.mu.Lock()
	i, _ := slices.BinarySearchFunc(b.trackers, t.link.Fleet, compareTracker)
	b.trackers = slices.Insert(slices.Clone(b.trackers), i, t)
	b.pictures = slices.Insert(slices.Clone(b.pictures), i, t.watch.Picture())
	b.mu.Unlock()
	if record != nil {
		t.restore(record)
	}
	t.start()
}

// end takes a fleet out of the world and waits until its goroutines have ended. The caller has b.changing.
func (b *Broker) end(t *tracker) {
	b.mu.Lock()
	if i := slices.Index(b.trackers, t); i >= 0 {
		b.trackers = slices.Delete(slices.Clone(b.trackers), i, i+1)
		b.pictures = slices.Delete(slices.Clone(b.pictures), i, i+1)
	}
	b.mu.Unlock()
	t.end()
}

func compareTracker(t *tracker, name string) int { return cmp.Compare(t.link.Fleet, name) }

// tracker is the one of a fleet; nil if it is not linked. The caller has b.mu.
func (b *Broker) tracker(name string) *tracker {
	i, found := slices.BinarySearchFunc(b.trackers, name, compareTracker)
	if !found {
		return nil
	}
	return b.trackers[i]
}

// linked is the tracker of a fleet; nil if it is not linked.
func (b *Broker) linked(name string) *tracker {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tracker(name)
}

// world is what a choice is made from. The caller has b.mu.
func (b *Broker) world() choice.World {
	return choice.World{Fleets: b.pictures, Rules: b.rules.Load().table}
}

// InUse reports whether operators have given this broker anything: a fleet or a rule.
func (b *Broker) InUse() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.trackers) > 0 || b.rules.Load().kept
}
