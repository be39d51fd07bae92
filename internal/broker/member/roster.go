package member

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/pin"
)

// Member is a gateway that a central manager listens to.
type Member struct {
	Key         string
	Fingerprint pin.Fingerprint // of its certificate
}

// MaxMembers bounds those of one central manager: with itself they are as many as brokers take.
const MaxMembers = fleet.MaxGateways - 1

// Beats that are missed until a member is down, and how often they come.
const (
	Misses          = 3
	DefaultInterval = 10 * time.Second
	LeastInterval   = 100 * time.Millisecond
	MostInterval    = 10 * time.Second // brokers take a gateway for silent whose reports do not change for 30 s
)

// CheckMembers says what is wrong with a list of members, all of it.
func CheckMembers(own string, members []Member) error {
	if len(members) > MaxMembers {
		return fmt.Errorf("there are %d members, at most %d are taken", len(members), MaxMembers)
	}
	var faults []error
	keys, fingerprints := map[string]bool{own: true}, map[pin.Fingerprint]string{}
	for _, m := range members {
		faults = append(faults, CheckKey(m.Key))
		if keys[m.Key] {
			faults = append(faults, fmt.Errorf("member %.80s is listed twice, or is this gateway itself, which is not listed", m.Key))
		}
		if other, twice := fingerprints[m.Fingerprint]; twice {
			faults = append(faults, fmt.Errorf("members %.80s and %.80s have one fingerprint: each gateway makes a certificate of its own", other, m.Key))
		}
		keys[m.Key], fingerprints[m.Fingerprint] = true, m.Key
	}
	return errors.Join(faults...)
}

// Standing is what the central manager takes a member for.
type Standing uint8

// The standings. The zero Standing is Unknown.
const (
	Unknown Standing = iota // not heard yet, and three beats have not passed since it is listened for
	Up                      // heard within three beats
	Down
)

// RefusalKind is why a beat does not count.
type RefusalKind uint8

// The kinds.
const (
	Stranger    RefusalKind = iota // nobody of this certificate is listed
	OtherKey                       // it speaks for another member than the one whose certificate it has
	Roles                          // its roles are not those of a member, or another one's
	Superseded                     // a later process of this member is heard
	ListTooLong                    // brokers would not read a list with what it says
)

// Refusal is why a beat does not count, for whoever sent it.
type Refusal struct {
	Kind RefusalKind
	Text string
}

// Error is the text.
func (r *Refusal) Error() string { return r.Text }

func refuse(kind RefusalKind, format string, arguments ...any) *Refusal {
	return &Refusal{Kind: kind, Text: fmt.Sprintf(format, arguments...)}
}

// superseded is how many earlier processes of a member are known to be that.
const superseded = 4

// entry is what is known of one member.
type entry struct {
	Member
	listened    time.Time // since when it is listened for
	heard       time.Time // last; zero: never since then
	described   bool
	description Description
	roles       fleet.Roles // of the description
	size        int         // of its item in the list of nodes
	health      Health
	process     string
	sequence    uint64
	before      []string // processes that a later one has taken the place of, latest last
}

// Roster is who is a member, and how it stands with each. Make one with NewRoster.
type Roster struct {
	own      string // key of the central manager
	itself   Description
	interval time.Duration
	entries  map[string]*entry
	by       map[pin.Fingerprint]string
	size     int // of the list of nodes
	last     time.Time
	changed  bool // what is worth remembering
}

// NewRoster begins to listen, at a moment. Members are those of CheckMembers; an interval of 0 is the default.
func NewRoster(own string, itself Description, members []Member, interval time.Duration, now time.Time) *Roster {
	r := &Roster{own: own, itself: itself, interval: cmp.Or(interval, DefaultInterval), entries: map[string]*entry{}}
	r.SetMembers(members, now)
	return r
}

// SetMembers makes others the members. What is known of those that stay, with the same certificate, stays.
func (r *Roster) SetMembers(members []Member, now time.Time) {
	now = r.advance(now)
	entries, by := map[string]*entry{}, map[pin.Fingerprint]string{}
	for _, m := range members {
		e := r.entries[m.Key]
		if e == nil {
			e = &entry{Member: m, listened: now}
		} else if e.Fingerprint != m.Fingerprint {
			e = &entry{Member: m, listened: now, described: e.described, description: e.description, roles: e.roles}
		}
		entries[m.Key], by[m.Fingerprint] = e, m.Key
	}
	r.changed = r.changed || len(entries) != len(r.entries)
	r.entries, r.by = entries, by
	r.size = nodeSize(r.own, r.itself)
	for _, e := range r.entries {
		e.size = nodeSize(e.Key, e.description)
		r.size += e.size
	}
}

// advance keeps time from running backwards.
func (r *Roster) advance(now time.Time) time.Time {
	if now.Before(r.last) {
		return r.last
	}
	r.last = now
	return now
}

// Interval is how often members are to report.
func (r *Roster) Interval() time.Duration { return r.interval }

// Hear takes a beat from whoever has proved to hold a certificate. A beat that came before, or before a later one, is neither an error nor taken.
// An error is a *Refusal.
func (r *Roster) Hear(by pin.Fingerprint, b Beat, now time.Time) error {
	now = r.advance(now)
	key, listed := r.by[by]
	if !listed {
		return refuse(Stranger, "the central manager %s does not know this certificate; to make its holder a member, add {key: KEY, fingerprint: \"%s\"} to fleet.members there", r.own, by)
	}
	if b.Key != key {
		return refuse(OtherKey, "this certificate is listed as that of %s at the central manager %s, and the beat is of %s: correct fleet.key here, or fleet.members there", key, r.own, b.Key)
	}
	e := r.entries[key]
	if b.Process == e.process {
		if b.Sequence <= e.sequence {
			return nil
		}
	} else if slices.Contains(e.before, b.Process) && r.standing(e, now) == Up {
		return refuse(Superseded, "a later process reports as %s with the same certificate: stop one of the two, or give it a key and a certificate of its own", key)
	}
	if err := r.describe(e, b.Description, now); err != nil {
		return err
	}
	if b.Process != e.process {
		if e.process != "" {
			e.before = append(e.before, e.process)
		}
		e.before = slices.DeleteFunc(e.before, func(p string) bool { return p == b.Process })
		e.before = e.before[max(0, len(e.before)-superseded):]
	}
	r.listenAnew(now)
	e.process, e.sequence, e.heard, e.health = b.Process, b.Sequence, now, b.Health
	return nil
}

// listenAnew is for the first beat after a time in which nobody was heard: then it was rather this central manager that was cut off than all others
// that were down, and whoever has not reported since is unknown again, for three beats.
func (r *Roster) listenAnew(now time.Time) {
	if len(r.entries) < 2 {
		return
	}
	for _, e := range r.entries {
		if r.standing(e, now) != Down {
			return
		}
	}
	for _, e := range r.entries {
		e.listened, e.heard = now, time.Time{}
	}
}

// describe takes over what a member says it is, if it may be that.
func (r *Roster) describe(e *entry, d Description, now time.Time) error {
	roles := fleet.ParseRoles(d.Roles)
	if roles.Has(fleet.CentralManagement) {
		return refuse(Roles, "%s has the role central-management, and %s is the central manager: a fleet has one. Make it a managed-host", e.Key, r.own)
	}
	if roles.Has(fleet.SearchPrimary) {
		if other := r.searchPrimary(e, now); other != "" {
			return refuse(Roles, "%s has the role search-primary, and so has %s: a fleet has one. Give one of the two search-local or search-minion", e.Key, other)
		}
	}
	if e.described && reflect.DeepEqual(e.description, d) {
		return nil
	}
	size := nodeSize(e.Key, d)
	if r.size-e.size+size > fleet.MaxAnswer {
		return refuse(ListTooLong, "with what %s says of itself the list of the fleet would have more than the %d bytes that brokers read: have fewer members, or fewer and shorter host keys", e.Key, fleet.MaxAnswer)
	}
	r.size += size - e.size
	e.described, e.description, e.roles, e.size = true, d, roles, size
	r.changed = true
	return nil
}

// searchPrimary is the key of another one that is the search-primary now; empty if none is.
func (r *Roster) searchPrimary(but *entry, now time.Time) string {
	if fleet.ParseRoles(r.itself.Roles).Has(fleet.SearchPrimary) {
		return r.own
	}
	for _, e := range r.entries {
		if e != but && e.roles.Has(fleet.SearchPrimary) && r.standing(e, now) == Up {
			return e.Key
		}
	}
	return ""
}

func (r *Roster) standing(e *entry, now time.Time) Standing {
	limit := Misses * r.interval
	switch {
	case !e.heard.IsZero() && now.Sub(e.heard) < limit:
		return Up
	case e.heard.IsZero() && now.Sub(e.listened) < limit:
		return Unknown
	}
	return Down
}

// nodeSize is the length of an item in the list of nodes.
func nodeSize(key string, d Description) int {
	text, _ := json.Marshal(nodeOf(key, d)) // texts and numbers can always be written
	return len(text) + 1
}
