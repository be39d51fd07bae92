package store

import "errors"

// What can go wrong, each with what an operator should do.
var (
	// ErrConflict: another writer was first. Read again and decide again.
	ErrConflict = errors.New("the record was changed by another writer")
	// ErrUnavailable: no member answered in time, or no majority of members works together.
	ErrUnavailable = errors.New("the store does not answer: a majority of its members must run and reach each other; see " +
		"holdfast status for which do; what works goes on meanwhile, and nothing is moved")
	// ErrOutcomeUnknown comes together with ErrUnavailable: the write was sent and no answer came.
	ErrOutcomeUnknown = errors.New("the write may or may not have been made")
	// ErrFull: the space quota, or the disk under a member, is used up.
	ErrFull = errors.New("the store is full: free space on the disk under the members' data directories or raise their quota, " +
		"compact and defragment the store, and clear its NOSPACE alarm; reading goes on, writing does not")
	// ErrLeaseGone: the lease ran out or was revoked; its keys are gone.
	ErrLeaseGone = errors.New("the lease has ended")
	// ErrEmpty: the cluster's own record is not there though it once was.
	ErrEmpty = errors.New("the store has come back empty: it does not hold this cluster's record any more; restore the " +
		"members' data directories from a backup, or initialise the store anew; nothing is moved until then")
	// ErrForeign: the store holds another cluster's record.
	ErrForeign = errors.New("the store belongs to another cluster: check store.endpoints and the data directory")
	// ErrInvalid: the request is beyond the bounds of the store. A programming error, or a configuration that is too large.
	ErrInvalid = errors.New("the store cannot take this request")
	// ErrTooMany: a List found more than MaxListEntries.
	ErrTooMany = errors.New("too many records under one prefix")
	// ErrRemoved: the other members have removed this one; its data is of no use any more.
	ErrRemoved = errors.New("the member was removed from the store")
	// ErrStuck: etcd gave up its start half-way and left its sockets open: no other member can start in this process.
	ErrStuck = errors.New("restart the agent when the cause is gone")
	// ErrClosed: Close was called.
	ErrClosed = errors.New("the store has been closed")
	// ErrDamaged: a record's value is not what its key promises.
	ErrDamaged = errors.New("the record is damaged or of a newer version")
)
