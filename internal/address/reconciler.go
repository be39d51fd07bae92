package address

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/problem"
)

// Reconciler brings the kernel to the desired state and keeps it there. Use New.
type Reconciler struct {
	kernel    Kernel
	announcer Announcer
	log       *slog.Logger
	now       func() time.Time
	permit    func() bool
	metrics   *metrics

	setting sync.Mutex // one Set or CleanUp at a time; taken before mu
	// silences counts the calls of Silence. It rises before mu is taken, so that work in progress under mu sees it
	// between two batches and stops adding.
	silences atomic.Uint64
	wake     chan struct{} // something changed that Run waits for; holds one
	reread   chan struct{} // the kernel is to be read again; holds one
	changed  chan struct{} // what is held or failed changed in the background; holds one

	mu        sync.Mutex // guards all below, and every change of the kernel and every announcement
	problems  findings
	still     bool // another process goes on in this one's place, or is about to
	desired   Desired
	held      map[netip.Addr]Holding
	failed    map[netip.Addr]error
	unread    error                 // why the kernel could not be read at the last pass
	mine      map[netip.Addr]string // what was put on which interface and not taken off since
	heldBack  map[netip.Addr]heldBack
	proven    map[netip.Addr]bool       // desired, and the link was asked for it without an answer
	devices   map[string]link.Interface // as read last
	stale     bool                      // rules and routes are to be looked at
	renewed   time.Time                 // when lifetimes were renewed last
	schedule  schedule
	contests  contests
	unheard   map[string]string // interface to why it could not be announced on
	unrenewed map[netip.Addr]string
}

// heldBack is why an address is not added although nothing stands in its way on this node.
type heldBack struct {
	reason error
	asked  time.Time // when the link was asked; zero: not yet
}

// batchSize is how many addresses are worked on between two looks at whether the node was silenced. The kernel takes
// about a millisecond for them.
const batchSize = 64

// New returns a Reconciler that desires nothing. It touches nothing before the first call.
func New(o Options) *Reconciler {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Board == nil {
		o.Board = &problem.Board{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Permit == nil {
		o.Permit = func() bool { return true }
	}
	return &Reconciler{
		kernel: o.Kernel, announcer: o.Announcer, log: o.Logger, now: o.Now, permit: o.Permit,
		metrics: newMetrics(o.Registerer),
		wake:    make(chan struct{}, 1), reread: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		problems: findings{board: o.Board, last: map[string][]found{}},
		held:     map[netip.Addr]Holding{}, failed: map[netip.Addr]error{}, mine: map[netip.Addr]string{},
		heldBack: map[netip.Addr]heldBack{}, proven: map[netip.Addr]bool{}, devices: map[string]link.Interface{}, contests: contests{},
		unheard: map[string]string{}, unrenewed: map[netip.Addr]string{}, stale: true,
	}
}

// Set makes d the desired state, brings the kernel to it as far as that is possible, announces what was taken, and
// returns what was achieved. Removals come before additions. Setting the same again is cheap and changes nothing.
// What could not be done is tried again in the background; Changed and Status tell of it. Holdings with Probe are
// added last, after asking the link; the others do not wait for them.
func (r *Reconciler) Set(ctx context.Context, d Desired) Result {
	return r.SetUnder(ctx, d, r.Silences())
}

// Silences is how many times the node was silenced. Who decides what is to be held reads it first, and hands it to SetUnder.
func (r *Reconciler) Silences() uint64 { return r.silences.Load() }

// SetUnder is Set for a caller who decided when the node had been silenced so many times: a silence that came since, also
// before this call, ends the right to what moves.
func (r *Reconciler) SetUnder(ctx context.Context, d Desired, silences uint64) Result {
	r.setting.Lock()
	defer r.setting.Unlock()
	r.mu.Lock()
	before := maps.Clone(r.held)
	r.accept(d, silences)
	result := r.converge(silences)
	ask := r.unasked(true)
	r.mu.Unlock()
	if len(ask) > 0 {
		answers := r.probe(ctx, ask)
		r.mu.Lock()
		r.judgeProbe(ask, answers)
		second := r.converge(silences)
		if len(result.taken) == 0 {
			result.put, result.announced = second.put, second.announced
		}
		result.taken = append(result.taken, second.taken...)
		r.mu.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	defer notify(r.wake)
	if r.silences.Load() != silences {
		r.dropMoving() // whoever comes first of the two, the result must not show what is about to go
	}
	all := r.resultSince(before, result.taken, d)
	if len(all.Taken) > 0 {
		all.Put, all.Announced = result.put, result.announced
	}
	return all
}

// accept makes d the desired state. Where the node was silenced since the call began, its moving addresses are left
// out: the right to them is gone. r.mu is held.
func (r *Reconciler) accept(d Desired, silences uint64) {
	silenced := r.silences.Load() != silences
	kept := Desired{Routes: slices.Clone(d.Routes), Managed: d.Managed}
	wanted := map[netip.Addr]bool{}
	for _, h := range d.Holdings {
		if h.Lifetime && silenced {
			continue
		}
		kept.Holdings = append(kept.Holdings, h)
		wanted[h.Address] = true
		if _, waiting := r.heldBack[h.Address]; h.Probe && !waiting && !r.proven[h.Address] && r.mine[h.Address] == "" {
			r.heldBack[h.Address] = heldBack{reason: fmt.Errorf("%v: %w", h.Address, ErrProbing)}
		}
		if !h.Probe {
			delete(r.heldBack, h.Address)
		}
	}
	unwanted := func(a netip.Addr) bool { return !wanted[a] }
	maps.DeleteFunc(r.heldBack, func(a netip.Addr, _ heldBack) bool { return unwanted(a) })
	maps.DeleteFunc(r.proven, func(a netip.Addr, _ bool) bool { return unwanted(a) })
	r.stale = r.stale || !slices.EqualFunc(kept.Routes, r.desired.Routes, equalRoutes)
	r.desired = kept
}

func equalRoutes(a, b SubnetRoute) bool {
	return a.Prefix == b.Prefix && a.Gateway == b.Gateway && a.Interface == b.Interface && slices.Equal(a.Static, b.Static) &&
		a.MTU == b.MTU && a.Priority == b.Priority
}

// resultSince compares with what was held before. What was desired and is not accounted for was cut off by a silence.
// r.mu is held.
func (r *Reconciler) resultSince(before map[netip.Addr]Holding, taken []netip.Addr, d Desired) Result {
	result := Result{Held: r.holdings(), Left: r.left(), Unread: r.unread, Failed: maps.Clone(r.failed), Taken: taken}
	for a, h := range before {
		if now, still := r.held[a]; !still || now.Interface != h.Interface {
			result.Released = append(result.Released, a)
		}
	}
	for _, h := range d.Holdings {
		if _, held := r.held[h.Address]; !held && result.Failed[h.Address] == nil {
			if result.Failed == nil {
				result.Failed = map[netip.Addr]error{}
			}
			result.Failed[h.Address] = fmt.Errorf("%v: %w", h.Address, ErrSilenced)
		}
	}
	result.Taken = slices.DeleteFunc(result.Taken, func(a netip.Addr) bool { _, held := r.held[a]; return !held })
	if len(result.Failed) == 0 {
		result.Failed = nil
	}
	if len(result.Taken) == 0 {
		result.Taken = nil
	}
	slices.SortFunc(result.Released, netip.Addr.Compare)
	slices.SortFunc(result.Taken, netip.Addr.Compare)
	return result
}

func (r *Reconciler) holdings() []Holding {
	var list []Holding
	for _, a := range slices.SortedFunc(maps.Keys(r.held), netip.Addr.Compare) {
		list = append(list, r.held[a])
	}
	return list
}

// left lists what was put on an interface, or found there, and is not held as it is desired. r.mu is held.
func (r *Reconciler) left() []netip.Addr {
	var list []netip.Addr
	for a := range r.mine {
		if _, held := r.held[a]; !held {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}

// Status returns what is held and what has failed at this moment; Taken and Released are empty.
func (r *Reconciler) Status() Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	result := Result{Held: r.holdings(), Left: r.left(), Unread: r.unread}
	if len(r.failed) > 0 {
		result.Failed = maps.Clone(r.failed)
	}
	return result
}

// Changed receives after the background work changed what is held or has failed, for example because an interface
// vanished. Several changes may come as one.
func (r *Reconciler) Changed() <-chan struct{} { return r.changed }

// Silence drops all addresses with a lifetime at once, and with them the wish for them: nothing of them is renewed,
// announced or added again before the next Set, and a Set in progress does not add any more. Static addresses stay.
// What cannot be removed is tried again by Run and leaves by its lifetime at the latest.
func (r *Reconciler) Silence(reason string) {
	r.silences.Add(1)
	r.mu.Lock()
	dropped := r.dropMoving()
	r.mu.Unlock()
	r.metrics.silences.Inc()
	notify(r.wake)
	r.log.Warn("silenced: dropped all moving addresses", "reason", reason, "addresses", dropped)
}

// dropMoving removes all addresses with a lifetime and the wish for them, and returns how many there were. r.mu is held.
func (r *Reconciler) dropMoving() int {
	var operations []link.Operation
	for a, h := range r.held {
		if h.Lifetime {
			operations = append(operations, link.Operation{Verb: link.Remove, Object: addressOf(h)})
			r.schedule.stop(a)
			delete(r.contests, a)
		}
	}
	r.desired.Holdings = slices.DeleteFunc(r.desired.Holdings, func(h Holding) bool {
		if h.Lifetime {
			delete(r.heldBack, h.Address)
			delete(r.proven, h.Address)
			delete(r.failed, h.Address)
		}
		return h.Lifetime
	})
	r.apply(operations, nil)
	if len(operations) > 0 {
		r.stale = true // the routes of an interface go with its last address
		notify(r.reread)
	}
	for a, h := range r.held {
		if h.Lifetime { // could not be removed; r.mine has it, so that the background tries again
			delete(r.held, a)
		}
	}
	r.metrics.held.Set(float64(len(r.held)))
	r.reportConflicts(r.now())
	return len(operations)
}

// CleanUp removes every moving address that is found on this node: what an earlier process left. managed says whether
// an address is one that the cluster moves. It is called at the start, before anything else, and leaves alone what this
// Reconciler holds. The error names each address that is still there.
func (r *Reconciler) CleanUp(ctx context.Context, managed func(netip.Addr) bool) error {
	r.setting.Lock()
	defer r.setting.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("removing addresses that an earlier process left: %w", err)
	}
	addresses, err := r.kernel.Addresses()
	if err != nil {
		return fmt.Errorf("removing addresses that an earlier process left: %w", err)
	}
	var operations []link.Operation
	var left []error
	var configured []found
	for _, a := range addresses {
		address := a.Prefix.Addr()
		if _, held := r.held[address]; held || !managed(address) {
			continue
		}
		if !a.Prefix.IsSingleIP() {
			err := fmt.Errorf("%v: %w: %v on %s", address, ErrConfigured, a.Prefix, a.Interface)
			left = append(left, err)
			configured = append(configured, found{problemConfigured, address.String(), err.Error()})
			continue
		}
		r.mine[address] = a.Interface
		operations = append(operations, link.Operation{Verb: link.Remove, Object: a})
	}
	r.problems.replace("clean-up", r.now(), configured)
	failures := map[netip.Addr]error{}
	r.apply(operations, failures)
	for _, err := range failures {
		left = append(left, err)
	}
	if len(operations) > 0 {
		r.log.Warn("removed addresses that an earlier process left", "addresses", len(operations)-len(failures))
	}
	return errors.Join(left...)
}

// notify puts a token into a channel that holds one.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
