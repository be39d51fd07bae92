package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/store"
	"github.com/holdfast/holdfast/internal/tenure"
)

// The shortest sound life of a lease in the store, and what hangs on it. etcd counts leases in whole seconds and looks for
// ended ones twice a second, so a death is noticed after one second at the earliest and about one and a half at the latest;
// with the store's leader dead too, its election comes on top and the new leader gives every lease its full life again.
const (
	shortestLease = time.Second
	longestSpan   = 10 * time.Second       // longer ones are refused: nobody may bind an observer for ever
	renewTry      = 200 * time.Millisecond // one renewal; the next goes to another member of the store
	leaseMargin   = 100 * time.Millisecond // lateness of timers, and the time that silencing takes
	registerTry   = 2 * time.Second
	registerPause = 200 * time.Millisecond
	maxStartsKept = 16
	flapWindow    = 10 * time.Minute
	holdDownBase  = 2 * time.Second
	holdDownMax   = 10 * time.Minute
)

// span is how long an acknowledgement of a node counts: as long as its heartbeats may fail, in the whole seconds of the store.
type span time.Duration

func spanOf(settings cluster.Settings) span {
	asked := settings.HeartbeatInterval * time.Duration(settings.HeartbeatMultiplier)
	return span(min(max(store.WholeSeconds(asked), shortestLease), longestSpan))
}

func (s span) lease() time.Duration { return time.Duration(s) }

// renewEvery is how often it is renewed: three renewals in a row may fail.
func (s span) renewEvery() time.Duration { return time.Duration(s) / 4 }

// askPeersAfter is after how long without a renewal the other nodes are asked as well.
func (s span) askPeersAfter() time.Duration { return time.Duration(s) * 2 / 5 }

// tenancy keeps this node's right to hold: it draws incarnations, renews the lease, asks the other nodes when the store does
// not answer, and calls silence the moment the right runs out. All methods are safe for concurrent use.
type tenancy struct {
	lnn      int
	store    store.Store
	peers    peerAsker
	now      func() time.Time
	log      *slog.Logger
	silence  func(reason string) // one atomic silence; must not wait for the network
	changed  func()              // the standing or the incarnation changed; must not block
	draw     func(ctx context.Context) (tenure.Incarnation, error)
	mu       sync.Mutex
	holder   *tenure.Holder
	standing tenure.Standing
	lease    store.LeaseID
	renewed  time.Time // when the last successful renewal was sent; zero asks the other nodes at once
	answered time.Time // the same, but kept
	others   []int
	span     span
	member   memberRecord // what is published
	written  memberRecord // what was last written under this lease
	wake     chan struct{}
	handOver func(deadline int64) // tells the guard, without blocking; nil: there is none
	deadline atomic.Int64         // when the right runs out, in nanoseconds of the clock; 0: there is none
}

// forever is the deadline of the only node of a cluster.
const forever = math.MaxInt64

// Permitted reports whether the right is there at this moment, without waiting for anybody: the reconciler asks it while it
// works on the kernel.
func (t *tenancy) Permitted() bool { return t.now().UnixNano() < t.deadline.Load() }

// peerAsker asks the other nodes to acknowledge this one.
type peerAsker interface {
	// Acknowledge asks one node for a span and returns its answer.
	Acknowledge(ctx context.Context, lnn int, incarnation tenure.Incarnation, span time.Duration) (tenure.Answer, error)
}

// Standing is the right as of now.
func (t *tenancy) Standing() tenure.Standing {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.step(tenure.Tick{}, t.now())
}

// StoreSilentFor is how long ago the last renewal that the store answered was sent.
func (t *tenancy) StoreSilentFor() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.answered.IsZero() {
		return 0
	}
	return t.now().Sub(t.answered)
}

// RegisteredSince reports whether the store has answered this node since a moment: what was begun then came to something.
func (t *tenancy) RegisteredSince(moment time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.answered.Before(moment)
}

// Span is how long a lease lasts from the next one on.
func (t *tenancy) Span() span {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.span
}

// Incarnation is the present one; 0 before the first registration.
func (t *tenancy) Incarnation() tenure.Incarnation {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder == nil {
		return 0
	}
	return t.holder.Incarnation()
}

// HoldsUnder reports whether this node is of an incarnation and may hold.
func (t *tenancy) HoldsUnder(incarnation tenure.Incarnation) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.holder != nil && t.holder.Incarnation() == incarnation && t.step(tenure.Tick{}, t.now()).MayHold
}

// Vanished says that this node's report is no longer in the store: its lease was ended before its time, or it ran out. If this
// incarnation still holds, it attaches another lease at once, before anybody can conclude anything, and asks the other nodes.
func (t *tenancy) Vanished(incarnation tenure.Incarnation) {
	t.mu.Lock()
	if t.holder != nil && t.holder.Incarnation() == incarnation {
		t.lease, t.renewed = 0, time.Time{}
	}
	t.mu.Unlock()
	t.stir()
}

// stir has the report written soon.
func (t *tenancy) stir() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// step passes an event through the holder and acts on a lapse at once. The caller has the lock.
func (t *tenancy) step(event tenure.HolderEvent, now time.Time) tenure.Standing {
	if t.holder == nil {
		return tenure.Standing{Reason: "not registered with the store yet"}
	}
	before := t.standing.MayHold
	t.standing = t.holder.Step(event, now)
	t.setDeadline(deadlineOf(t.standing))
	if before && !t.standing.MayHold {
		t.silence(t.standing.Reason)
	}
	if before != t.standing.MayHold {
		t.changed()
	}
	return t.standing
}

// setDeadline is where the deadline changes: what is permitted here is what the guard knows. The caller has the lock.
func (t *tenancy) setDeadline(deadline int64) {
	if t.deadline.Swap(deadline) != deadline && t.handOver != nil {
		t.handOver(deadline)
	}
}

func deadlineOf(standing tenure.Standing) int64 {
	switch {
	case !standing.MayHold:
		return 0
	case standing.Until.IsZero():
		return forever
	}
	return standing.Until.UnixNano()
}

// Configure says who the other nodes are, and how long a lease lasts from the next one on.
func (t *tenancy) Configure(others []int, span span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.others, t.span = others, span
	if t.holder != nil {
		t.step(tenure.ObserversChanged{Observers: others}, t.now())
	}
}

// Publish sets what this node reports of itself; it is written under the lease when it differs.
func (t *tenancy) Publish(member memberRecord) {
	t.mu.Lock()
	t.member = member
	t.mu.Unlock()
	t.stir()
}

// Run registers and renews until the context ends, then deregisters: the records are gone at once, not after the lease.
func (t *tenancy) Run(ctx context.Context) {
	defer t.leave()
	for ctx.Err() == nil {
		if err := t.register(ctx); err != nil {
			t.log.Warn("not registered with the store", "error", err)
			wait(ctx, registerPause)
			continue
		}
		t.keep(ctx)
	}
}

// register begins a new incarnation: it draws the number, and puts the member record under a new lease.
func (t *tenancy) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registerTry)
	defer cancel()
	incarnation, err := t.draw(ctx)
	if err != nil {
		return fmt.Errorf("drawing an incarnation: %w", err)
	}
	t.mu.Lock()
	t.holder = tenure.NewHolder(incarnation, t.others, leaseMargin)
	t.standing = tenure.Standing{}
	t.setDeadline(0)
	t.lease = 0
	t.mu.Unlock()
	return t.attach(ctx)
}

// attach puts the member record under a new lease. The lease counts only once the record lies under it: others conclude from
// the record's absence that the lease is gone.
func (t *tenancy) attach(ctx context.Context) error {
	sent := t.now()
	lease, ttl, err := t.store.Grant(ctx, t.Span().lease())
	if err != nil {
		return fmt.Errorf("asking for a lease: %w", err)
	}
	t.mu.Lock()
	member := t.member
	member.Incarnation = t.holder.Incarnation()
	t.mu.Unlock()
	if err := t.put(ctx, member, lease); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lease, t.renewed, t.answered, t.written = lease, sent, sent, member
	t.step(tenure.LeaseRenewed{Sent: sent, TTL: ttl}, t.now())
	t.changed()
	return nil
}

// put writes the member record as the next version of what is there. What a later incarnation of this node wrote is left alone:
// it would be a second agent under the same name, or a write of an earlier life that arrives late.
func (t *tenancy) put(ctx context.Context, member memberRecord, lease store.LeaseID) error {
	key := memberKey(t.lnn)
	present, _, err := store.GetRecord[memberRecord](ctx, t.store, key)
	switch {
	case err != nil && !errors.Is(err, store.ErrDamaged):
		return fmt.Errorf("reading this node's report: %w", err)
	case present.Value.Incarnation > member.Incarnation:
		return fmt.Errorf("incarnation %d of this node has reported already; does a second agent run with its certificate?", present.Value.Incarnation)
	}
	op, err := store.PutOp(key, member, lease)
	if err != nil {
		return err
	}
	txn := store.Txn{If: []store.Condition{{Key: key, Revision: present.Revision}}, Then: []store.Op{op}}
	if _, err := t.store.Commit(ctx, txn); err != nil {
		return fmt.Errorf("writing this node's report: %w", err)
	}
	return nil
}

// keep renews until the right is gone. It waits for nothing but time: renewals, reports and the questions to the other nodes run
// beside it, one of each at a time, so that a store that stalls cannot make the lapse late.
func (t *tenancy) keep(ctx context.Context) {
	var beside sync.WaitGroup
	defer beside.Wait() // before the next incarnation begins
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	renewals, reports := make(chan struct{}, 1), make(chan struct{}, 1)
	start := func(turn chan struct{}, what func(context.Context)) {
		select {
		case turn <- struct{}{}:
			beside.Go(func() {
				defer func() { <-turn }()
				what(ctx)
			})
		default: // the last one is still under way
		}
	}
	ticker := time.NewTicker(t.Span().renewEvery())
	defer ticker.Stop()
	for {
		standing := t.Standing()
		if !standing.MayHold {
			t.log.Warn("this node may no longer hold moving addresses", "reason", standing.Reason)
			return
		}
		deadline := time.NewTimer(t.untilLapse(standing))
		select {
		case <-ctx.Done():
			deadline.Stop()
			return
		case <-deadline.C:
		case <-t.wake:
			start(reports, t.writeMember)
			t.askPeers(ctx)
		case <-ticker.C:
			start(renewals, t.renew)
			start(reports, t.writeMember)
			t.askPeers(ctx)
		}
		deadline.Stop()
	}
}

func (t *tenancy) untilLapse(standing tenure.Standing) time.Duration {
	if standing.Until.IsZero() {
		return time.Hour // the only node of a cluster never lapses
	}
	return max(standing.Until.Sub(t.now()), 0) + time.Millisecond
}

// renew sends one renewal.
func (t *tenancy) renew(ctx context.Context) {
	t.mu.Lock()
	lease := t.lease
	t.mu.Unlock()
	if lease == 0 {
		return
	}
	try, cancel := context.WithTimeout(ctx, renewTry)
	defer cancel()
	sent := t.now()
	ttl, err := t.store.KeepAlive(try, lease)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case lease != t.lease:
	case err == nil:
		t.renewed, t.answered = sent, sent
		t.step(tenure.LeaseRenewed{Sent: sent, TTL: ttl}, t.now())
	case errors.Is(err, store.ErrLeaseGone):
		// What was acknowledged still counts to its end: a lease never ends in the store before that, unless the store
		// lost its data, and then nobody may act on what it says. The other nodes are asked at once, and writeMember
		// attaches another lease under the same incarnation.
		t.lease, t.renewed = 0, time.Time{}
	}
}

// askPeers asks every other node for a span, when the store has not answered for a while.
func (t *tenancy) askPeers(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder == nil || t.now().Sub(t.renewed) < t.span.askPeersAfter() {
		return
	}
	incarnation, span := t.holder.Incarnation(), t.span.lease()
	for _, lnn := range t.others {
		go func() {
			try, cancel := context.WithTimeout(ctx, span)
			defer cancel()
			sent := t.now()
			answer, err := t.peers.Acknowledge(try, lnn, incarnation, span)
			if err != nil {
				return
			}
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.holder.Incarnation() != incarnation {
				return
			}
			if answer.Yes {
				t.step(tenure.Granted{Observer: lnn, Sent: sent, Span: span}, t.now())
			} else if answer.Final {
				t.step(tenure.Refused{Observer: lnn, Reason: answer.Reason}, t.now())
			}
		}()
	}
}

// writeMember writes the member record when it differs from what is there, under a new lease if the old one is gone while
// this incarnation still holds by the word of the other nodes.
func (t *tenancy) writeMember(ctx context.Context) {
	t.mu.Lock()
	lease, member := t.lease, t.member
	member.Incarnation = t.holder.Incarnation()
	same := member.equal(t.written)
	t.mu.Unlock()
	try, cancel := context.WithTimeout(ctx, renewTry)
	defer cancel()
	if lease == 0 {
		if err := t.attach(try); err != nil {
			t.log.Debug("no new lease yet; trying again", "error", err)
		}
		return
	}
	if same {
		return
	}
	if err := t.put(try, member, lease); err != nil {
		t.log.Debug("trying again", "error", err)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lease == lease {
		t.written = member
	}
}

// leave deregisters: the member record goes with the lease, at once. What is still on the interfaces goes before: as soon as the
// record is gone, others may take.
func (t *tenancy) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), registerTry)
	defer cancel()
	t.mu.Lock()
	lease := t.lease
	t.step(tenure.Resigned{Reason: "the agent stops"}, t.now())
	t.mu.Unlock()
	if lease != 0 {
		if err := t.store.Revoke(ctx, lease); err != nil {
			t.log.Warn("the lease was not given back; the others will notice when it ends", "error", err)
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
