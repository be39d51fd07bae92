package sim

import (
	"net/netip"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// This file mirrors internal/agent/replica.go: a node's copy of the store.

type replica struct {
	revision       int64
	synced         bool
	config         *cluster.Config
	configRevision int64
	members        map[int]memberEntry
	gone           map[int]goneMember
	pools          map[cluster.PoolID]versioned[tenure.Record]
	services       map[steering.ServiceKey]versioned[tenure.Statement]
	drains         map[int]drainRecord
	outages        map[int]outageRecord
	trusts         map[int]trustRecord
}

type memberEntry struct {
	record   memberRecord
	revision int64
	fitSince time.Time
	faults   steering.FaultTimes
}

type goneMember struct {
	incarnation tenure.Incarnation
	name        string
	since       time.Time
	left        bool
	faults      steering.FaultTimes
	record      memberRecord
	revision    int64
}

// versioned is a record and the revision of its last change.
type versioned[T any] struct {
	record   T
	revision int64
}

func newReplica() replica {
	return replica{
		members: map[int]memberEntry{}, gone: map[int]goneMember{}, pools: map[cluster.PoolID]versioned[tenure.Record]{},
		services: map[steering.ServiceKey]versioned[tenure.Statement]{}, drains: map[int]drainRecord{}, outages: map[int]outageRecord{}, trusts: map[int]trustRecord{},
	}
}

// apply takes in one change, and says what of that which the loop sees may be changed by it, if anything is.
func (r *replica) apply(c change, now time.Time) (part sight, changed bool) {
	kind, _, _ := strings.Cut(c.key, "/")
	switch kind + "/" {
	case keyConfig + "/":
		r.config, r.configRevision = c.value.(*cluster.Config), c.revision
	case keyMember:
		return ofNodes, r.applyMember(c, now)
	case keyPool:
		id, err := cluster.NewPoolID(c.key[len(keyPool):])
		if err != nil {
			panic("sim: " + err.Error())
		}
		if delete(r.pools, id); c.value != nil {
			r.pools[id] = versioned[tenure.Record]{c.value.(tenure.Record), c.revision}
		}
		return ofPools, true
	case keyService:
		key := serviceKeyIn(c.key)
		if delete(r.services, key); c.value != nil {
			r.services[key] = versioned[tenure.Statement]{c.value.(tenure.Statement), c.revision}
		}
		return ofServices, true
	case keyDrain:
		applyByNode(r.drains, c)
	case keyOutage:
		applyByNode(r.outages, c)
	case keyTrust:
		applyByNode(r.trusts, c)
	default:
		return ofNodes, false // the loop does not look at it
	}
	return ofNodes, true
}

func applyByNode[T any](into map[int]T, c change) {
	lnn := numberIn(c.key)
	if delete(into, lnn); c.value != nil {
		into[lnn] = c.value.(T)
	}
}

func serviceKeyIn(key string) steering.ServiceKey {
	subnet, address, _ := strings.Cut(key[len(keyService):], "/")
	id, err := cluster.NewSubnetID(subnet)
	if err != nil {
		panic("sim: " + err.Error())
	}
	return steering.ServiceKey{Subnet: id, Address: netip.MustParseAddr(address)}
}

func (r *replica) applyMember(c change, now time.Time) (news bool) {
	if c.value == nil {
		panic("sim: a report was deleted") // nobody does
	}
	lnn, record := numberIn(c.key), c.value.(memberRecord)
	old, known := r.members[lnn]
	member := memberEntry{revision: c.revision, record: record}
	if before := r.gone[lnn]; !known && record.Incarnation <= before.incarnation {
		before.record, before.revision = record, c.revision
		if record.Over {
			before.revision = 0
		}
		r.gone[lnn] = before
		return true
	}
	same := known && old.record.Incarnation == record.Incarnation
	if same {
		member.fitSince = old.fitSince
	}
	if record.Ready && (!same || !old.record.Ready) {
		member.fitSince = now
	}
	before := old.faults
	if !known {
		before = r.gone[lnn].faults
	}
	member.faults = before.Next(record.Faults, record.PoolFaults, record.Ready, now)
	r.members[lnn] = member
	delete(r.gone, lnn)
	if record.Over {
		if !known {
			now = time.Time{}
		}
		r.bury(lnn, now)
	}
	return !known || !record.alike(old.record)
}

// bury takes in that the incarnation of which a node's report is, is over.
func (r *replica) bury(lnn int, now time.Time) {
	old := r.members[lnn]
	gone := goneMember{incarnation: old.record.Incarnation, name: old.record.Name, since: now, left: old.record.Leaving, faults: old.faults, record: old.record}
	if !old.record.Over {
		gone.revision = old.revision
	}
	r.gone[lnn] = gone
	delete(r.members, lnn)
}

// memberRevisions is by which revision of its report each node is known; 0: it is not.
func (r *replica) memberRevisions() (revisions [MaxNodes + 1]int64) {
	for lnn, entry := range r.members {
		revisions[lnn] = entry.revision
	}
	return revisions
}

// recordsOf are records without their revisions. Decisions do not change them, and neither does this package.
func recordsOf[K comparable, T any](entries map[K]versioned[T]) map[K]T {
	records := make(map[K]T, len(entries))
	for key, e := range entries {
		records[key] = e.record
	}
	return records
}
