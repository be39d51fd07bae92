package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/internal/store"
	"github.com/holdfast/holdfast/internal/tenure"
)

// How a node reports itself to the store.
const (
	reportTry    = time.Second
	reportAgain  = 100 * time.Millisecond
	storeLook    = time.Second     // how often a node that has nothing to report asks whether the store answers
	storeSilence = 3 * time.Second // after which a store that has not answered is a problem
	resumeLimit  = 3 * time.Second // after which a lapse that nobody ends is given up for another incarnation; and ten spans
)

var errAnotherAgent = errors.New("does a second agent run with its certificate?")

// StoreSilentFor is how long ago the store last answered this node; zero while nobody has asked it for long.
func (t *tenancy) StoreSilentFor() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if since := max(t.answered.UnixNano(), t.began.UnixNano()); !t.began.IsZero() {
		return t.now().Sub(time.Unix(0, since))
	}
	return 0
}

// RegisteredSince reports whether the store has taken a report of this node since a moment: what was begun then came to something.
func (t *tenancy) RegisteredSince(moment time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.written.Incarnation > 0 && !t.answered.Before(moment)
}

// Publish sets what this node reports of itself; it is written when it differs from what is there.
func (t *tenancy) Publish(member memberRecord) {
	t.mu.Lock()
	t.member = member
	t.mu.Unlock()
	t.stir()
}

// Vanished says that this node's report is not in the store any more, or not as it was written: it is written again.
func (t *tenancy) Vanished() {
	t.mu.Lock()
	t.written = memberRecord{}
	t.mu.Unlock()
	t.stir()
}

// stir has the report looked at soon.
func (t *tenancy) stir() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Run draws incarnations and keeps this node's report until the context ends; then it resigns, and says so in the store.
func (t *tenancy) Run(ctx context.Context) {
	for ctx.Err() == nil {
		again := t.round(ctx)
		timer := time.NewTimer(again)
		select {
		case <-ctx.Done():
		case <-t.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	if t.isRetired() {
		return // another agent holds on under this incarnation
	}
	t.resign()
	t.close()
}

// round does what is due towards the store, and says when to look again.
func (t *tenancy) round(ctx context.Context) (again time.Duration) {
	t.reports.Lock()
	defer t.reports.Unlock()
	if t.isRetired() {
		return storeLook
	}
	t.mu.Lock()
	needs, waits := t.needsIncarnation()
	member, due := t.due()
	idle := t.now().Sub(t.asked) >= storeLook
	if t.began.IsZero() {
		t.began = t.now()
	}
	t.mu.Unlock()
	try, cancel := context.WithTimeout(ctx, reportTry)
	defer cancel()
	var err error
	switch {
	case needs:
		err = t.begin(try)
	case due:
		err = t.report(try, member)
	case idle:
		err = t.look(try)
	default:
		return min(storeLook, waits)
	}
	if err != nil {
		t.log.Debug("the store; trying again", "error", err)
		return reportAgain
	}
	return 0
}

// needsIncarnation reports whether another number is to be drawn now, or else in what time that may be. What the last one held must be off the
// interfaces before: under the right of another it would be kept and renewed, although the record gives it to another node by then. The caller
// has the lock.
func (t *tenancy) needsIncarnation() (bool, time.Duration) {
	if t.silencing > 0 {
		return false, storeLook
	}
	if t.peer.Ended() {
		return true, 0
	}
	if t.lapsedAt.IsZero() {
		return false, storeLook
	}
	left := t.lapsedAt.Add(t.resumeWithin()).Sub(t.now())
	return left <= 0, max(left, reportAgain)
}

// resumeWithin is for how long a lapse may be resumed before it is given up. The caller has the lock.
func (t *tenancy) resumeWithin() time.Duration { return max(resumeLimit, 10*t.timing.Span()) }

// due is the report that is to be written, if it differs from what is there. Nothing is reported before the incarnation has had
// enough leases. The caller has the lock.
func (t *tenancy) due() (memberRecord, bool) {
	incarnation, begun := t.peer.Incarnation()
	if !begun || t.peer.Ended() {
		return memberRecord{}, false
	}
	member := t.member
	observers, span := t.peer.OnRecord()
	member.Incarnation, member.Observers, member.SpanMS = incarnation, observers, wholeMilliseconds(span)
	return member, !member.equal(t.written)
}

func wholeMilliseconds(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }

// begin draws the number of another incarnation and enters it, unless the old one has resumed meanwhile.
func (t *tenancy) begin(ctx context.Context) error {
	incarnation, err := t.draw(ctx)
	t.heard(err)
	if err != nil {
		return fmt.Errorf("drawing an incarnation: %w", err)
	}
	t.mu.Lock()
	needs, _ := t.needsIncarnation()
	if needs {
		t.lapsedAt = time.Time{}
		t.step(&tenure.Entered{Incarnation: incarnation}, t.now())
	}
	t.mu.Unlock()
	t.wire.Poke()
	return nil
}

// report writes the member record as the next version of what is there. What a later incarnation of this node wrote is left alone:
// it would be a second agent under the same name, or a write of an earlier life that arrives late.
func (t *tenancy) report(ctx context.Context, member memberRecord) error {
	err := t.put(ctx, member)
	t.heard(err)
	if err != nil {
		t.mu.Lock()
		t.written = memberRecord{} // it may have been written all the same
		t.mu.Unlock()
		return err
	}
	t.mu.Lock()
	t.written = member
	t.mu.Unlock()
	t.tell(&tenure.Published{Incarnation: member.Incarnation, Version: member.Observers.Version, Span: time.Duration(member.SpanMS) * time.Millisecond})
	t.changed()
	return nil
}

func (t *tenancy) put(ctx context.Context, member memberRecord) error {
	key := memberKey(t.lnn)
	present, _, err := store.GetRecord[memberRecord](ctx, t.store, key)
	switch {
	case err != nil && !errors.Is(err, store.ErrDamaged):
		return fmt.Errorf("reading this node's report: %w", err)
	case present.Value.Incarnation > member.Incarnation:
		return fmt.Errorf("incarnation %d of this node has reported already: %w", present.Value.Incarnation, errAnotherAgent)
	case present.Value.Over && present.Value.Incarnation == member.Incarnation:
		t.tell(&tenure.Told{LNN: t.lnn, Over: member.Incarnation, By: "the store says so"})
		return nil
	}
	op, err := store.PutOp(key, member, 0)
	if err != nil {
		return err
	}
	txn := store.Txn{If: []store.Condition{{Key: key, Revision: present.Revision}}, Then: []store.Op{op}}
	if _, err := t.store.Commit(ctx, txn); err != nil {
		return fmt.Errorf("writing this node's report: %w", err)
	}
	return nil
}

// look asks whether the store answers.
func (t *tenancy) look(ctx context.Context) error {
	_, _, err := store.GetRecord[incarnationRecord](ctx, t.store, incarnationKey(t.lnn))
	t.heard(err)
	return err
}

// heard notes whether the store answered: a conflict is an answer, too.
func (t *tenancy) heard(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked = t.now()
	if err == nil || errors.Is(err, store.ErrConflict) || errors.Is(err, errAnotherAgent) {
		t.answered = t.asked
	}
}

// close says in the store that this incarnation is over, so that whoever starts later knows. The others have had the farewell.
func (t *tenancy) close() {
	t.mu.Lock()
	incarnation, begun := t.peer.Incarnation()
	member := t.member
	member.Incarnation, member.Over = incarnation, true
	member.Observers, _ = t.peer.OnRecord()
	t.mu.Unlock()
	if !begun {
		return // nothing names it
	}
	ctx, cancel := context.WithTimeout(context.Background(), reportTry)
	defer cancel()
	if err := t.put(ctx, member); err != nil {
		t.log.Warn("the store was not told that this node is gone; the others know, or find out", "error", err)
	}
}
