package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/store"
)

// Store is one user's way to a Fake.
type Store struct {
	fake      *Fake
	closed    chan struct{}
	closeOnce sync.Once

	// The rest is guarded by fake.mu.
	cut        bool
	failures   []error
	loseAnswer int
	watches    int
}

var _ store.Store = (*Store)(nil)

// Cut takes this user's network to the store away, or gives it back: calls hang until their context ends, and watches
// are silent.
func (s *Store) Cut(on bool) { s.fake.set(func() { s.cut = on }) }

// FailNext makes this user's next calls fail with these errors, one each, without effect.
func (s *Store) FailNext(errs ...error) {
	s.fake.set(func() { s.failures = append(s.failures, errs...) })
}

// LoseAnswers makes this user's next n commits happen and yet return ErrOutcomeUnknown.
func (s *Store) LoseAnswers(n int) { s.fake.set(func() { s.loseAnswer = n }) }

// enter waits until the store answers this user, and returns with the Fake locked when err is nil.
func (s *Store) enter(ctx context.Context) error {
	for {
		s.fake.mu.Lock()
		err := s.refusal(ctx)
		waiting := s.fake.stalled || s.cut
		changed := s.fake.changed
		if err == nil && !waiting {
			s.fake.expire()
			return nil
		}
		s.fake.mu.Unlock()
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-s.closed:
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", store.ErrUnavailable, ctx.Err())
		}
	}
}

// refusal is the error that a call gets at once.
func (s *Store) refusal(ctx context.Context) error {
	select {
	case <-s.closed:
		return store.ErrClosed
	default:
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w (%w)", store.ErrUnavailable, err)
	}
	if s.fake.stalled || s.cut {
		return nil
	}
	if s.fake.noQuorum {
		return store.ErrUnavailable
	}
	if len(s.failures) > 0 {
		err := s.failures[0]
		s.failures = s.failures[1:]
		return err
	}
	return nil
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.Entry, bool, error) {
	if err := store.ValidateKey(key); err != nil {
		return store.Entry{}, false, err
	}
	if err := s.enter(ctx); err != nil {
		return store.Entry{}, false, fmt.Errorf("reading %q: %w", key, err)
	}
	defer s.fake.mu.Unlock()
	entry, found := s.fake.entries[key]
	entry.Value = slices.Clone(entry.Value)
	return entry, found, nil
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix string) ([]store.Entry, int64, error) {
	if err := s.enter(ctx); err != nil {
		return nil, 0, fmt.Errorf("listing %q: %w", prefix, err)
	}
	defer s.fake.mu.Unlock()
	entries := s.fake.list(prefix)
	if len(entries) > store.MaxListEntries {
		return nil, 0, fmt.Errorf("listing %q: %w", prefix, store.ErrTooMany)
	}
	return entries, s.fake.revision, nil
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, txn store.Txn) (int64, error) {
	if err := txn.Validate(); err != nil {
		return 0, err
	}
	if err := s.enter(ctx); err != nil {
		return 0, fmt.Errorf("committing: %w", err)
	}
	defer s.fake.mu.Unlock()
	revision, err := s.fake.commit(txn)
	if err == nil && s.loseAnswer > 0 {
		s.loseAnswer--
		return 0, fmt.Errorf("committing: %w: %w", store.ErrUnavailable, store.ErrOutcomeUnknown)
	}
	return revision, err
}

// Grant implements store.Store.
func (s *Store) Grant(ctx context.Context, ttl time.Duration) (store.LeaseID, time.Duration, error) {
	if err := s.enter(ctx); err != nil {
		return 0, 0, fmt.Errorf("granting a lease: %w", err)
	}
	defer s.fake.mu.Unlock()
	if s.fake.full {
		return 0, 0, fmt.Errorf("granting a lease: %w", store.ErrFull)
	}
	s.fake.nextLease++
	granted := store.WholeSeconds(ttl)
	s.fake.leases[s.fake.nextLease] = &lease{ttl: granted, expires: s.fake.now().Add(granted)}
	return s.fake.nextLease, granted, nil
}

// KeepAlive implements store.Store.
func (s *Store) KeepAlive(ctx context.Context, id store.LeaseID) (time.Duration, error) {
	if err := s.enter(ctx); err != nil {
		return 0, fmt.Errorf("keeping a lease: %w", err)
	}
	defer s.fake.mu.Unlock()
	l := s.fake.leases[id]
	if l == nil {
		return 0, fmt.Errorf("keeping lease %x: %w", int64(id), store.ErrLeaseGone)
	}
	l.expires = s.fake.now().Add(l.ttl)
	return l.ttl, nil
}

// Revoke implements store.Store.
func (s *Store) Revoke(ctx context.Context, id store.LeaseID) error {
	if err := s.enter(ctx); err != nil {
		return fmt.Errorf("revoking a lease: %w", err)
	}
	defer s.fake.mu.Unlock()
	s.fake.end(id)
	return nil
}

// Health implements store.Store: one member called fake.
func (s *Store) Health(context.Context) store.Health {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	member := store.MemberHealth{Endpoint: "fake", Name: "fake", Reachable: !s.cut && !s.fake.stalled}
	health := store.Health{Full: s.fake.full}
	if !member.Reachable {
		member.Problem = "does not answer"
	} else if !s.fake.noQuorum {
		member.Leader, health.Leader, health.Writable, health.Revision = true, "fake", true, s.fake.revision
	}
	health.Members = []store.MemberHealth{member}
	return health
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.closeOnce.Do(func() { close(s.closed) })
	return nil
}

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, prefix string, from int64) <-chan store.Batch {
	out := make(chan store.Batch)
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	if s.watches >= store.MaxWatches {
		close(out)
		return out
	}
	s.watches++
	life := s.fake.life
	go func() {
		defer func() {
			s.fake.mu.Lock()
			defer s.fake.mu.Unlock()
			s.watches--
			close(out)
		}()
		for {
			batch, changed := s.next(prefix, &from, &life)
			if batch == nil {
				select {
				case <-changed:
				case <-s.closed:
					return
				case <-ctx.Done():
					return
				}
				continue
			}
			select {
			case out <- *batch:
			case <-s.closed:
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// next returns the next batch from revision *from on, or the channel to wait on.
func (s *Store) next(prefix string, from *int64, life *int) (*store.Batch, <-chan struct{}) {
	f := s.fake
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stalled || f.noQuorum || s.cut {
		return nil, f.changed
	}
	f.expire()
	// Asked for what is compacted, or for a future that cannot follow from what was delivered: the store has lost it.
	if *life != f.life || *from <= f.compacted || *from > f.revision+1 {
		*life = f.life
		batch := &store.Batch{Resync: true, Revision: f.revision}
		for _, entry := range f.list(prefix) {
			batch.Events = append(batch.Events, store.Event{Entry: entry})
		}
		*from = f.revision + 1
		return batch, nil
	}
	for _, c := range f.history {
		if c.revision < *from {
			continue
		}
		*from = c.revision + 1
		batch := &store.Batch{Revision: c.revision}
		for _, event := range c.events {
			if strings.HasPrefix(event.Key, prefix) {
				batch.Events = append(batch.Events, event)
			}
		}
		if len(batch.Events) > 0 {
			return batch, nil
		}
	}
	return nil, f.changed
}
