package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// How a Commit happens exactly once although it is tried several times.
//
// A try that gets no answer is ambiguous: its request may have been applied, may still be on its way, or may be lost.
// Neither the value nor the revision of the caller's keys tells which: two nodes propose the same values, and a third may
// have written since. So each client owns a few keys of its own, its slots, and every transaction also writes one of them:
//
//	if   the caller's conditions hold, and the slot is at the revision this client last saw
//	then the caller's changes, and slot = a token that is used for this Commit only
//	else read the slot
//
// At most one try of a Commit can be applied, because it moves the slot on. When a later try is refused, the slot tells
// why: it holds our token (an earlier try was applied: success, at the slot's revision), or it is where it was (the caller's
// condition failed: conflict). A conflict after an ambiguous try is reported only once the slot has been moved on by a
// fence, which makes every earlier try fail should it still arrive. Where neither can be found out in time the answer is
// ErrOutcomeUnknown and the slot is never used again.
//
// Slots hang on a lease of the client, so that they vanish with it.

const (
	maxSlots         = 64 // commits of one client at the same time; further ones wait
	writerLife       = time.Minute
	writerKeepAlive  = writerLife / 4
	maxWriterRenewal = 3 // times that one Commit starts anew because the client's lease was gone
)

// errWriterGone: this client's lease, and with it its slots, has ended, and nothing was written.
var errWriterGone = errors.New("this writer's lease has ended")

type slot struct {
	key      []byte
	lease    LeaseID
	revision int64 // of the slot's last change; zero: it does not exist yet
	uses     int
}

// slots are a client's slots that no Commit uses at the moment.
type slots struct {
	tokens   chan struct{} // one for each Commit that may run
	granting chan struct{} // held by the Commit that gets the lease

	mu    sync.Mutex
	free  []*slot
	made  int
	lease LeaseID // zero: none yet
}

func (s *slots) init() {
	s.tokens, s.granting = make(chan struct{}, maxSlots), make(chan struct{}, 1)
}

// takeSlot returns a slot for one Commit. Every taken slot is given back or dropped.
func (c *client) takeSlot(ctx context.Context) (*slot, error) {
	s := &c.slots
	select {
	case s.tokens <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for %d other commits: %w (%w)", maxSlots, ErrUnavailable, ctx.Err())
	case <-c.ctx.Done():
		return nil, ErrClosed
	}
	if err := c.ensureLease(ctx); err != nil {
		<-s.tokens
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		taken := s.free[n-1]
		s.free = s.free[:n-1]
		return taken, nil
	}
	s.made++
	return &slot{key: []byte(c.writers + strconv.Itoa(s.made)), lease: s.lease}, nil
}

// ensureLease gets the lease that the slots hang on, once.
func (c *client) ensureLease(ctx context.Context) error {
	s := &c.slots
	select {
	case s.granting <- struct{}{}:
		defer func() { <-s.granting }()
	case <-ctx.Done():
		return fmt.Errorf("waiting for this writer's lease: %w (%w)", ErrUnavailable, ctx.Err())
	}
	if s.currentLease() != 0 {
		return nil
	}
	lease, _, err := c.Grant(ctx, writerLife)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = lease
	return nil
}

func (s *slots) giveBack(used *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if used.lease == s.lease {
		s.free = append(s.free, used)
	}
	<-s.tokens
}

func (s *slots) drop() { <-s.tokens }

// forgetLease drops the slots of a lease that has ended.
func (s *slots) forgetLease(id LeaseID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == id {
		s.lease, s.free = 0, nil
	}
}

func (s *slots) currentLease() LeaseID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease
}

// forgetWriter deletes this client's slots. When the store does not answer at once they go with their lease.
func (c *client) forgetWriter() {
	if lease := c.slots.currentLease(); lease != 0 {
		ctx, cancel := context.WithTimeout(c.ctx, c.options.TryTimeout)
		defer cancel()
		if err := c.Revoke(ctx, lease); err != nil {
			c.log.Debug("this writer's slots stay until their lease ends", "err", err)
		}
		c.slots.forgetLease(lease)
	}
}

// Commit implements Store.
func (c *client) Commit(ctx context.Context, txn Txn) (int64, error) {
	if err := txn.Validate(); err != nil {
		return 0, err
	}
	for renewal := 0; ; renewal++ {
		revision, err := c.commitOnce(ctx, txn)
		if errors.Is(err, errWriterGone) && renewal < maxWriterRenewal {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("record %q: %w", txn.Then[0].key(), err)
		}
		if c.full.CompareAndSwap(true, false) {
			c.options.Board.Clear(full, "store")
		}
		return revision, nil
	}
}

func (c *client) commitOnce(ctx context.Context, txn Txn) (int64, error) {
	taken, err := c.takeSlot(ctx)
	if err != nil {
		return 0, err
	}
	taken.uses++
	a := &attempt{client: c, txn: txn, slot: taken, token: strconv.Itoa(taken.uses)}
	err = c.try(ctx, "committing", a.run)
	switch {
	case err == nil || errors.Is(err, ErrConflict):
		c.slots.giveBack(taken)
		return a.revision, err
	case a.sent && !errors.Is(err, ErrOutcomeUnknown):
		// Not only ErrUnavailable: a refusal for space or lease says nothing about the tries before it.
		c.slots.drop()
		return 0, fmt.Errorf("%w: %w", err, ErrOutcomeUnknown)
	}
	c.slots.drop()
	if errors.Is(err, ErrLeaseGone) && c.writerGone(ctx, taken.lease) {
		return 0, errWriterGone
	}
	if errors.Is(err, errWriterGone) {
		c.slots.forgetLease(taken.lease)
	}
	return 0, err
}

// writerGone finds out whether it was this client's own lease that the store missed, not the caller's.
func (c *client) writerGone(ctx context.Context, lease LeaseID) bool {
	_, err := c.KeepAlive(ctx, lease)
	if !errors.Is(err, ErrLeaseGone) {
		return false
	}
	c.slots.forgetLease(lease)
	return true
}

// attempt is one Commit over all its tries.
type attempt struct {
	client   *client
	txn      Txn
	slot     *slot
	token    string
	sent     bool // a try ended without an answer and may have been, or yet be, applied
	fencing  bool // the conditions failed after such a try: now make sure that it never is
	revision int64
}

// run is one try.
func (a *attempt) run(ctx context.Context, m *member) error {
	request := a.request()
	if a.fencing {
		request = a.fence()
	}
	response, err := m.kv.Txn(ctx, request)
	if err != nil {
		if result, _ := judge(err); result == ambiguous {
			a.sent = true
		}
		return err
	}
	if response.Succeeded {
		a.slot.revision = response.Header.Revision
		if a.fencing {
			return ErrConflict
		}
		a.revision = response.Header.Revision
		return nil
	}
	return a.explain(ctx, m, response.Responses[0].GetResponseRange())
}

// explain says why a transaction was refused, from what the slot held at that moment.
func (a *attempt) explain(ctx context.Context, m *member, held *etcdserverpb.RangeResponse) error {
	if len(held.Kvs) == 0 {
		switch {
		case a.slot.revision == 0:
			return a.conflict(ctx, m)
		case a.sent:
			return fmt.Errorf("%w (this writer was stopped for longer than its lease lives)", ErrOutcomeUnknown)
		}
		return errWriterGone
	}
	switch kv := held.Kvs[0]; {
	case string(kv.Value) == a.token:
		a.slot.revision, a.revision = kv.ModRevision, kv.ModRevision
		return nil
	case string(kv.Value) == a.fenceToken():
		a.slot.revision = kv.ModRevision
		return ErrConflict
	case kv.ModRevision == a.slot.revision:
		return a.conflict(ctx, m)
	default:
		return fmt.Errorf("%w (somebody else writes to %s)", ErrOutcomeUnknown, a.slot.key)
	}
}

// conflict reports a failed condition, after a fence where an earlier try may still arrive: a condition that says "absent"
// could come true again by then.
func (a *attempt) conflict(ctx context.Context, m *member) error {
	if !a.sent {
		return ErrConflict
	}
	if a.fencing {
		return fmt.Errorf("%w (the slot %s moved back)", ErrOutcomeUnknown, a.slot.key)
	}
	a.fencing = true
	return a.run(ctx, m)
}

func (a *attempt) fenceToken() string { return a.token + " fenced" }

func (a *attempt) request() *etcdserverpb.TxnRequest {
	request := a.around(a.token)
	for _, condition := range a.txn.If {
		request.Compare = append(request.Compare, unchangedSince(a.client.data(condition.Key), condition.Revision))
	}
	for _, op := range a.txn.Then {
		switch op := op.(type) {
		case Put:
			request.Success = append(request.Success, putRequest(a.client.data(op.Key), op.Value, op.Lease))
		case Delete:
			request.Success = append(request.Success, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestDeleteRange{
				RequestDeleteRange: &etcdserverpb.DeleteRangeRequest{Key: a.client.data(op.Key)}}})
		}
	}
	return request
}

func (a *attempt) fence() *etcdserverpb.TxnRequest { return a.around(a.fenceToken()) }

// around is a transaction that moves the slot on and otherwise reads it.
func (a *attempt) around(token string) *etcdserverpb.TxnRequest {
	return &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{unchangedSince(a.slot.key, a.slot.revision)},
		Success: []*etcdserverpb.RequestOp{putRequest(a.slot.key, []byte(token), a.slot.lease)},
		Failure: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestRange{
			RequestRange: &etcdserverpb.RangeRequest{Key: a.slot.key}}}},
	}
}

func unchangedSince(key []byte, revision int64) *etcdserverpb.Compare {
	return &etcdserverpb.Compare{Key: key, Target: etcdserverpb.Compare_MOD, Result: etcdserverpb.Compare_EQUAL,
		TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: revision}}
}

func putRequest(key, value []byte, lease LeaseID) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{
		RequestPut: &etcdserverpb.PutRequest{Key: key, Value: value, Lease: int64(lease)}}}
}
