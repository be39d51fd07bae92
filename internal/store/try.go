package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	tryTimeoutMin = 50 * time.Millisecond
	tryTimeoutMax = 2 * time.Second
	tryMargin     = 10                    // times the usual answer is what a first try waits
	tryShare      = 4                     // a later try waits this share of the time that the call has taken so far: slow stores get there
	pauseMin      = 10 * time.Millisecond // after a round over all members in which none waited
	pauseMax      = 200 * time.Millisecond
)

// outcome is what one try came to.
type outcome int

const (
	done      outcome = iota // answered, with success or with a refusal that another member would repeat
	notMade                  // failed, and the request certainly had no effect
	ambiguous                // failed, and the request may have had, or may yet have, its effect
)

// try makes a call on the first member, then on the next, round and round, until one answers or the time is over. The error
// is a sentinel of this package or names one.
//
// A member that has no leader says so at once instead of waiting for one (metadata "hasleader"); so does a member whose
// process is gone. Only a member that is frozen or cut off costs its try in full, and only once: the next call begins with
// the member that answered last.
func (c *client) try(ctx context.Context, what string, call func(context.Context, *member) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.CallTimeout)
	defer cancel()
	start := time.Now()
	first, pause := c.firstTry(), pauseMin
	var last error
	for tries := 1; ; tries++ {
		if c.ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, ErrClosed)
		}
		m, began := c.preferred(), time.Now()
		timeout := min(max(first, began.Sub(start)/tryShare), tryTimeoutMax)
		err := c.once(ctx, m, timeout, call)
		if result, _ := judge(err); result == done {
			c.learn(time.Since(began))
			c.metrics.answered(what, time.Since(start), tries)
			return c.refusal(what, err)
		}
		if last == nil || ctx.Err() == nil {
			last = fmt.Errorf("%s: %w", m.endpoint, err) // the caller's own deadline says least about the store
		}
		c.avoid(m)
		if tries%len(c.members()) == 0 {
			if !sleep(ctx, pause) {
				break
			}
			pause = min(2*pause, pauseMax)
		}
		if ctx.Err() != nil {
			break
		}
	}
	c.metrics.unanswered(what)
	if c.ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, ErrClosed)
	}
	return fmt.Errorf("%s: %w (%w; last tried %w)", what, ErrUnavailable, ctx.Err(), last)
}

// firstTry is how long the first try of a call waits. A store that usually answers in a millisecond and has not after fifty
// has most likely lost its leader: the request went to the dead one, and only a new request finds the next.
func (c *client) firstTry() time.Duration {
	return min(max(tryMargin*time.Duration(c.usual.Load()), tryTimeoutMin), c.options.TryTimeout)
}

// learn keeps the usual time of an answer: an eighth of each new one. Two learning at once may lose one, which does no harm.
func (c *client) learn(took time.Duration) {
	usual := c.usual.Load()
	c.usual.Store(usual + (took.Nanoseconds()-usual)/8)
}

func (c *client) once(ctx context.Context, m *member, timeout time.Duration, call func(context.Context, *member) error) error {
	ctx, cancel := context.WithTimeout(requireLeader(ctx), timeout)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	return call(ctx, m)
}

func requireLeader(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
}

// judge says what an error of one try means. The second result is the sentinel for a refusal.
func judge(err error) (outcome, error) {
	if err == nil {
		return done, nil
	}
	for _, sentinel := range []error{ErrConflict, ErrLeaseGone, ErrFull, ErrOutcomeUnknown, ErrTooMany, ErrInvalid, errWriterGone} {
		if errors.Is(err, sentinel) {
			return done, sentinel
		}
	}
	text := status.Convert(err).Message()
	switch text {
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCNoSpace):
		return done, ErrFull
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCLeaseNotFound):
		return done, ErrLeaseGone
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader), rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooManyRequests),
		rpctypes.ErrorDesc(rpctypes.ErrGRPCNotCapable), rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner):
		return notMade, nil
	}
	switch status.Code(err) {
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied,
		codes.Unauthenticated, codes.Unimplemented:
		return done, nil // an external etcd with authentication on, an old version, or an error of ours: the text says which
	case codes.Unavailable:
		// grpc's own words for a connection that was never made.
		if strings.Contains(text, "error while dialing") || strings.Contains(text, "Error while dialing") ||
			strings.Contains(text, "authentication handshake failed") {
			return notMade, nil
		}
	}
	return ambiguous, nil
}

// refusal turns the answer of a member into the error that callers see, and keeps the problem store.full in step.
func (c *client) refusal(what string, err error) error {
	if err == nil {
		return nil
	}
	_, sentinel := judge(err)
	switch {
	case errors.Is(sentinel, ErrFull):
		c.full.Store(true)
		c.options.Board.Set(full, "store", what+": "+err.Error(), time.Now())
		return fmt.Errorf("%s: %w", what, ErrFull)
	case sentinel != nil && errors.Is(err, sentinel):
		return fmt.Errorf("%s: %w", what, err)
	case sentinel != nil:
		return fmt.Errorf("%s: %w", what, sentinel)
	}
	return fmt.Errorf("%s: the store refused: %w", what, err)
}

// sleep waits and says whether the context still runs.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
