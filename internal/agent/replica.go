package agent

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/store"
	"github.com/holdfast/holdfast/internal/tenure"
)

// replica is this node's copy of the store, kept by one watch. It belongs to the loop.
type replica struct {
	revision int64 // of the last batch
	synced   bool  // the first full state has arrived

	config         *cluster.Config
	configRevision int64
	configSeen     int64 // revision of the last one that was read, also when it could not be understood
	members        map[int]memberEntry
	membersShared  bool               // others read them: they are replaced, and not changed
	gone           map[int]goneMember // members whose record went, until they come back
	pools          map[cluster.PoolID]poolEntry
	services       map[steering.ServiceKey]serviceEntry
	drains         map[int]drainRecord
	outages        map[int]outageRecord
	trusts         map[int]trustRecord
	roster         rosterRecord
	rosterRevision int64 // zero: nobody has written it yet

	foreign map[string]string // keys that could not be read, and why; kept as they are
}

type memberEntry struct {
	record   memberRecord
	revision int64
	fitSince time.Time // when it last became ready, by this node's clock
	upSince  time.Time
	faults   steering.FaultTimes
}

type goneMember struct {
	incarnation tenure.Incarnation
	name        string
	since       time.Time
	left        bool // it said that it was shutting down
	faults      steering.FaultTimes
	record      memberRecord // its last report
	revision    int64        // of that report while it is in the store and does not say that it is over; zero: nothing is left to write
}

type poolEntry struct {
	record   tenure.Record
	revision int64
}

type serviceEntry struct {
	statement tenure.Statement
	revision  int64
}

func newReplica() *replica {
	return &replica{
		members: map[int]memberEntry{}, gone: map[int]goneMember{},
		pools: map[cluster.PoolID]poolEntry{}, services: map[steering.ServiceKey]serviceEntry{},
		drains: map[int]drainRecord{}, outages: map[int]outageRecord{}, trusts: map[int]trustRecord{}, foreign: map[string]string{},
	}
}

// maxForeign bounds what is remembered about records that could not be read.
const maxForeign = 64

// apply takes in one batch. A resync carries the full state: what is not in it is gone.
func (r *replica) apply(batch store.Batch, now time.Time) {
	if batch.Resync {
		seen := make(map[string]bool, len(batch.Events))
		for _, event := range batch.Events {
			seen[event.Entry.Key] = true
		}
		for _, key := range r.keys() {
			if !seen[key] {
				r.delete(key, now)
			}
		}
		r.synced = true
	}
	for _, event := range batch.Events {
		if event.Deleted {
			r.delete(event.Entry.Key, now)
		} else if err := r.put(event.Entry, now); err != nil && len(r.foreign) < maxForeign {
			r.foreign[event.Entry.Key] = err.Error()
		}
	}
	r.revision = max(r.revision, batch.Revision)
}

// put takes in one record. A record that cannot be read changes nothing that was known before.
func (r *replica) put(entry store.Entry, now time.Time) error {
	key := entry.Key
	delete(r.foreign, key)
	switch {
	case key == keyConfig:
		return r.putConfig(entry)
	case strings.HasPrefix(key, keyMember):
		return r.putMember(entry, now)
	case strings.HasPrefix(key, keyPool):
		return r.putPool(entry)
	case strings.HasPrefix(key, keyService):
		return r.putService(entry)
	case strings.HasPrefix(key, keyDrain):
		return putByNode(r.drains, entry, keyDrain)
	case strings.HasPrefix(key, keyOutage):
		return putByNode(r.outages, entry, keyOutage)
	case strings.HasPrefix(key, keyTrust):
		return putByNode(r.trusts, entry, keyTrust)
	case key == keyRoster:
		return r.putRoster(entry)
	case key == store.ClusterIDKey, strings.HasPrefix(key, keyIncarnation):
		return nil // the one belongs to the store's guard, the others are only read when a number is drawn
	}
	return fmt.Errorf("the store has a record %q that this version does not know", key)
}

func putByNode[T any](into map[int]T, entry store.Entry, prefix string) error {
	lnn, err := parseLNN(entry.Key, prefix)
	if err != nil {
		return err
	}
	var value T
	if err := decode(entry, &value); err != nil {
		return err
	}
	into[lnn] = value
	return nil
}

func (r *replica) putConfig(entry store.Entry) error {
	r.configSeen = entry.Revision
	var record configRecord
	if err := decode(entry, &record); err != nil {
		return err
	}
	config, err := cluster.Parse("the configuration in the store", []byte(record.YAML))
	if err != nil {
		return err
	}
	r.config, r.configRevision = config, entry.Revision
	return nil
}

func (r *replica) putMember(entry store.Entry, now time.Time) error {
	lnn, err := parseLNN(entry.Key, keyMember)
	if err != nil {
		return err
	}
	old, known := r.members[lnn]
	member := memberEntry{revision: entry.Revision, upSince: now}
	if err := decode(entry, &member.record); err != nil {
		return err
	}
	if before := r.gone[lnn]; !known && member.record.Incarnation <= before.incarnation {
		before.record, before.revision = member.record, entry.Revision
		if member.record.Over {
			before.revision = 0
		}
		r.gone[lnn] = before
		return nil // it is known to be gone; what it had reported comes late
	}
	same := known && old.record.Incarnation == member.record.Incarnation
	if same {
		member.upSince, member.fitSince = old.upSince, old.fitSince
	}
	if member.record.Ready && (!same || !old.record.Ready) {
		member.fitSince = now
	}
	before := old.faults
	if !known {
		before = r.gone[lnn].faults
	}
	member.faults = before.Next(member.record.Faults, member.record.PoolFaults, member.record.Ready, now)
	r.ownMembers()
	r.members[lnn] = member
	delete(r.gone, lnn)
	if member.record.Over {
		if !known {
			now = time.Time{} // it was over before this agent knew of it
		}
		r.bury(lnn, now)
	}
	return nil
}

// bury takes in that the incarnation of which a node's report is, is over, since a time; zero if that is not known.
func (r *replica) bury(lnn int, now time.Time) {
	old := r.members[lnn]
	gone := goneMember{incarnation: old.record.Incarnation, name: old.record.Name, since: now, left: old.record.Leaving, faults: old.faults, record: old.record}
	if !old.record.Over {
		gone.revision = old.revision
	}
	r.gone[lnn] = gone
	r.ownMembers()
	delete(r.members, lnn)
}

func (r *replica) putPool(entry store.Entry) error {
	id, err := parsePoolKey(entry.Key)
	if err != nil {
		return err
	}
	var record tenure.Record
	if err := decode(entry, &record); err != nil {
		return err
	}
	r.pools[id] = poolEntry{record, entry.Revision}
	return nil
}

func (r *replica) putService(entry store.Entry) error {
	key, err := parseServiceKey(entry.Key)
	if err != nil {
		return err
	}
	var statement tenure.Statement
	if err := decode(entry, &statement); err != nil {
		return err
	}
	r.services[key] = serviceEntry{statement, entry.Revision}
	return nil
}

// delete takes in that a record is gone.
func (r *replica) delete(key string, now time.Time) {
	delete(r.foreign, key)
	switch {
	case strings.HasPrefix(key, keyMember):
		if lnn, err := parseLNN(key, keyMember); err == nil {
			if _, known := r.members[lnn]; known {
				r.bury(lnn, now)
			}
			gone := r.gone[lnn]
			gone.revision = 0
			r.gone[lnn] = gone
		}
	case strings.HasPrefix(key, keyPool):
		if id, err := parsePoolKey(key); err == nil {
			delete(r.pools, id)
		}
	case strings.HasPrefix(key, keyService):
		if service, err := parseServiceKey(key); err == nil {
			delete(r.services, service)
		}
	case strings.HasPrefix(key, keyDrain):
		if lnn, err := parseLNN(key, keyDrain); err == nil {
			delete(r.drains, lnn)
		}
	case strings.HasPrefix(key, keyOutage):
		if lnn, err := parseLNN(key, keyOutage); err == nil {
			delete(r.outages, lnn)
		}
	case strings.HasPrefix(key, keyTrust):
		if lnn, err := parseLNN(key, keyTrust); err == nil {
			delete(r.trusts, lnn)
		}
	}
}

// keys are the keys of all records that the replica knows, apart from the configuration's, which is never given up because a
// listing lacks it.
func (r *replica) keys() []string {
	var keys []string
	for lnn := range r.members {
		keys = append(keys, memberKey(lnn))
	}
	for id := range r.pools {
		keys = append(keys, poolKey(id))
	}
	for key := range r.services {
		keys = append(keys, serviceKey(key))
	}
	for lnn := range r.drains {
		keys = append(keys, drainKey(lnn))
	}
	for lnn := range r.outages {
		keys = append(keys, outageKey(lnn))
	}
	for lnn := range r.trusts {
		keys = append(keys, trustKey(lnn))
	}
	return keys
}

// sharedMembers are the members as they are now, to be read only; they stay so.
func (r *replica) sharedMembers() map[int]memberEntry {
	r.membersShared = true
	return r.members
}

// ownMembers makes the members the replica's own again, to be changed.
func (r *replica) ownMembers() {
	if r.membersShared {
		r.members, r.membersShared = maps.Clone(r.members), false
	}
}

// statements are the pools' records without their revisions. The records themselves are those of the replica, which replaces and never
// changes them: they are to be read only.
func (r *replica) statements() map[cluster.PoolID]tenure.Record {
	out := make(map[cluster.PoolID]tenure.Record, len(r.pools))
	for id, entry := range r.pools {
		out[id] = entry.record
	}
	return out
}

func (r *replica) serviceStatements() map[steering.ServiceKey]tenure.Statement {
	out := make(map[steering.ServiceKey]tenure.Statement, len(r.services))
	for key, entry := range r.services {
		out[key] = entry.statement
	}
	return out
}

// decode reads a record strictly: this version must not write back what it did not understand.
func decode[T any](entry store.Entry, into *T) error {
	record, err := store.DecodeRecord[T](entry)
	if err != nil {
		return err
	}
	*into = record.Value
	return nil
}
