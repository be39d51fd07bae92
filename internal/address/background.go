package address

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/linux/neigh"
)

// subscribeAgain is how long a subscription to the kernel that ended is left alone before the next try; the periodic
// reading stands in for it meanwhile.
const subscribeAgain = time.Second

// Run does the background work until ctx is done, and then returns nil: it renews lifetimes, repeats announcements,
// answers foreign claims, and brings back what the kernel lost. It drops nothing when it ends: a caller that stops for
// good calls Set with nothing desired, and one that hands over leaves the addresses where they are.
func (r *Reconciler) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group.Go(func() { r.subscribe(ctx) })
	watches := watches{reconciler: r, group: &group, running: map[string]watch{}, ended: make(chan watchEnd)}
	renew, reread := time.NewTicker(RenewInterval), time.NewTicker(RereadInterval)
	defer renew.Stop()
	defer reread.Stop()
	r.checkSettings()
	for {
		watches.adjust(ctx)
		timer := time.NewTimer(r.nextAnnouncement())
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-renew.C:
			r.renew()
		case <-reread.C:
			r.pass(ctx, true)
			r.checkSettings()
			watches.retry()
		case <-r.reread:
			r.pass(ctx, false)
		case end := <-watches.ended:
			watches.enterEnd(end)
		case <-r.wake:
		case <-timer.C:
			r.mu.Lock()
			r.announceDue()
			r.mu.Unlock()
		}
		timer.Stop()
	}
}

// nextAnnouncement is how long it is until announceDue has something to do.
func (r *Reconciler) nextAnnouncement() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := RereadInterval
	for _, next := range []func() (time.Time, bool){r.schedule.next, r.contests.next} {
		if at, any := next(); any {
			wait = min(wait, at.Sub(r.now()))
		}
	}
	return max(0, wait)
}

// renew renews the lifetimes of all that is held under one. Where the process stood still for so long that they may have
// run out, the kernel is read first: what is gone comes back by taking, with all that belongs to it, if at all.
func (r *Reconciler) renew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	silences := r.silences.Load()
	now := r.now()
	stalled := !r.renewed.IsZero() && now.Sub(r.renewed) >= ValidLifetime
	r.renewed = now
	if stalled {
		r.log.Warn("stood still for longer than the lifetime of addresses")
		r.passLocked(false)
	}
	var operations []link.Operation
	for _, h := range r.held {
		if h.Lifetime {
			operations = append(operations, link.Operation{Verb: link.Renew, Object: addressOf(h)})
		}
	}
	if r.leftover() {
		notify(r.reread)
	}
	failed := map[netip.Addr]string{}
	for len(operations) > 0 && r.forbidden(silences) == nil {
		batch := operations[:min(batchSize, len(operations))]
		operations = operations[len(batch):]
		for i, err := range r.kernel.Apply(batch) {
			if err != nil {
				r.metrics.renewFailures.Inc()
				failed[batch[i].Object.(link.Address).Prefix.Addr()] = err.Error()
				continue
			}
			r.metrics.renewals.Inc()
		}
	}
	r.reportRenewals(failed)
}

// leftover reports whether something is on an interface that could not be removed. r.mu is held.
func (r *Reconciler) leftover() bool {
	if len(r.mine) == len(r.held) {
		return false
	}
	desired := make(map[netip.Addr]bool, len(r.desired.Holdings))
	for _, h := range r.desired.Holdings {
		desired[h.Address] = true
	}
	for a := range r.mine {
		if !desired[a] {
			return true
		}
	}
	return false
}

// reportRenewals puts failures on the board, and has the kernel read again if there are new ones. r.mu is held.
func (r *Reconciler) reportRenewals(failed map[netip.Addr]string) {
	var list []found
	for a, detail := range failed {
		list = append(list, found{problemRenew, a.String(), detail})
		if _, known := r.unrenewed[a]; !known {
			notify(r.reread)
		}
	}
	r.unrenewed = failed
	r.problems.replace("renew", r.now(), list)
}

// pass brings the kernel to the desired state again; thorough includes rules and routes. The link is asked for
// addresses whose interface was not there when they were set.
func (r *Reconciler) pass(ctx context.Context, thorough bool) {
	r.mu.Lock()
	r.passLocked(thorough)
	waiting := len(r.unasked(false)) > 0
	r.mu.Unlock()
	if !waiting || !r.setting.TryLock() {
		return // a Set that is running asks for them itself
	}
	defer r.setting.Unlock()
	r.mu.Lock()
	ask := r.unasked(false)
	r.mu.Unlock()
	answers := r.probe(ctx, ask)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.judgeProbe(ask, answers)
	r.passLocked(false)
}

func (r *Reconciler) passLocked(thorough bool) {
	before, failedBefore := maps.Clone(r.held), maps.Clone(r.failed)
	r.stale = r.stale || thorough
	r.converge(r.silences.Load())
	sameFailed := func(a, b error) bool { return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error()) }
	if !maps.Equal(before, r.held) || !maps.EqualFunc(failedBefore, r.failed, sameFailed) {
		notify(r.changed)
	}
}

// subscribe hears of changes from the kernel until ctx is done.
func (r *Reconciler) subscribe(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.kernel.Changes(ctx, r.heardChange); err != nil {
			r.log.Warn("the subscription to link and address changes ended; reading periodically", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(subscribeAgain):
		}
	}
}

// heardChange has the kernel read again where a change may concern what is held.
func (r *Reconciler) heardChange(c link.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch c.Kind {
	case link.AddressRemoved:
		if _, held := r.held[c.Address.Addr()]; !held {
			return // it was removed by this package, or is nobody's business
		}
	case link.LinkChanged:
		for name, i := range r.devices {
			if i.Index == c.Interface && !c.Carrier {
				i.Carrier = false // it may be back when it is read; the link has to be told all the same
				r.devices[name] = i
			}
		}
		r.stale = true
	}
	notify(r.reread)
}

// checkSettings puts kernel settings that do not suit on the board.
func (r *Reconciler) checkSettings() {
	r.mu.Lock()
	uses := r.uses()
	r.mu.Unlock()
	settings, err := r.kernel.Findings(uses)
	if err != nil {
		r.log.Warn("could not read kernel settings", "error", err)
	}
	var list []found
	for _, s := range settings {
		kind := noteSetting
		if s.Harmful {
			kind = problemSetting
		}
		list = append(list, found{kind, s.Setting, s.String()})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems.replace("settings", r.now(), list)
}

// uses says what each interface is used for. r.mu is held.
func (r *Reconciler) uses() []link.Uses {
	byName := map[string]link.Uses{}
	enter := func(iface string, a netip.Addr, shared bool) {
		u := byName[iface]
		u.Interface = iface
		u.IPv4, u.IPv6, u.Shared = u.IPv4 || a.Is4(), u.IPv6 || a.Is6(), u.Shared || shared
		byName[iface] = u
	}
	for _, h := range r.desired.Holdings {
		enter(h.Interface, h.Address, false)
	}
	for _, a := range r.desired.Routes {
		shared := false
		for _, b := range r.desired.Routes {
			shared = shared || a.Prefix.Masked() == b.Prefix.Masked() && a.Interface != b.Interface
		}
		enter(a.Interface, a.Prefix.Addr(), shared)
	}
	var list []link.Uses
	for _, name := range sortedKeys(byName) {
		list = append(list, byName[name])
	}
	return list
}

// watches are the running watches for foreign claims, one for each interface with held addresses. Only Run uses them.
type watches struct {
	reconciler *Reconciler
	group      *sync.WaitGroup
	running    map[string]watch
	ended      chan watchEnd
}

// watch is one running watch, or one that failed and waits for the next try.
type watch struct {
	index  int // of the interface, since a new one may bear the old name
	stop   context.CancelFunc
	failed string // why it ended; empty while it runs
}

type watchEnd struct {
	iface string
	index int
	err   error
}

// adjust starts and ends watches so that they fit what is held.
func (w *watches) adjust(ctx context.Context) {
	r := w.reconciler
	r.mu.Lock()
	defer r.mu.Unlock()
	needed := map[string]int{}
	for _, h := range r.held {
		needed[h.Interface] = r.devices[h.Interface].Index
	}
	for iface, running := range w.running {
		if index, still := needed[iface]; !still || index != running.index {
			running.stop()
			delete(w.running, iface)
		}
	}
	for iface, index := range needed {
		if _, running := w.running[iface]; running {
			continue
		}
		watching, stop := context.WithCancel(ctx)
		w.running[iface] = watch{index: index, stop: stop}
		w.group.Go(func() {
			err := r.announcer.Watch(watching, iface, func(c neigh.Claim) { r.claimed(c.Address, c.MAC) })
			if watching.Err() != nil {
				return // ended by adjust or with Run
			}
			select {
			case w.ended <- watchEnd{iface, index, err}:
			case <-ctx.Done():
			}
		})
	}
	var list []found
	for iface, running := range w.running {
		if running.failed != "" {
			list = append(list, found{problemDeaf, iface, running.failed})
		}
	}
	r.problems.replace("watch", r.now(), list)
}

// enterEnd enters that a watch ended by itself. It is tried again when the kernel is next read periodically.
func (w *watches) enterEnd(end watchEnd) {
	if running, present := w.running[end.iface]; present && running.index == end.index {
		running.stop()
		running.failed = "the watch ended"
		if end.err != nil {
			running.failed = end.err.Error()
		}
		w.running[end.iface] = running
		w.reconciler.log.Warn("cannot hear foreign claims", "interface", end.iface, "error", running.failed)
	}
}

// retry lets adjust start anew what has failed.
func (w *watches) retry() {
	for iface, running := range w.running {
		if running.failed != "" {
			delete(w.running, iface)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
