package agent

import (
	"maps"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
)

// sinces remembers for each thing since when it has been what it is, by this agent's clock. It belongs to the loop; what snapshot hands
// out is never changed.
type sinces struct {
	sinceTimes
	shared bool // what has changed lately has been handed out
}

// sinceTimes are the times: most in one large map that is never changed, and those that have come since in a small one, of which it costs
// little to make another.
type sinceTimes struct {
	settled, lately map[sinceKey]sinceEntry
}

// of is since when a thing has been what it is; false if that is not known.
func (s sinceTimes) of(key sinceKey) (sinceEntry, bool) {
	if entry, changed := s.lately[key]; changed {
		return entry, true
	}
	entry, seen := s.settled[key]
	return entry, seen
}

// sinceKey names a node, or what the answers of a pool say of a member.
type sinceKey struct {
	pool   cluster.PoolID
	member cluster.Member
}

type sinceEntry struct {
	is string
	at time.Time
}

func nodeKey(lnn int) sinceKey { return sinceKey{member: cluster.Member{LNN: lnn}} }

// note says what a thing is now. A thing that is seen for the first time has been so since the time that the store knows of, if any.
func (s *sinces) note(key sinceKey, is string, known, now time.Time) {
	old, seen := s.of(key)
	if seen && old.is == is {
		return
	}
	s.own()
	entry := sinceEntry{is, now}
	if !seen && !known.IsZero() && known.Before(now) {
		entry.at = known
	}
	s.lately[key] = entry
}

// sinceShare is the part of all times up to which those that changed lately are kept apart.
const sinceShare = 8

// own makes what has changed lately the loop's own again, to be changed.
func (s *sinces) own() {
	switch {
	case s.shared && len(s.lately) > len(s.settled)/sinceShare:
		all := make(map[sinceKey]sinceEntry, len(s.settled)+len(s.lately))
		maps.Copy(all, s.settled)
		maps.Copy(all, s.lately)
		s.settled, s.lately = all, map[sinceKey]sinceEntry{}
	case s.shared || s.lately == nil:
		if s.lately = maps.Clone(s.lately); s.lately == nil {
			s.lately = map[sinceKey]sinceEntry{}
		}
	}
	s.shared = false
}

// forget drops what is no longer configured.
func (s *sinces) forget(config *cluster.Config) {
	kept := map[sinceKey]sinceEntry{}
	keep := func(entries map[sinceKey]sinceEntry) {
		for key, entry := range entries {
			_, node := config.Node(key.member.LNN)
			_, _, _, pool := config.Pool(key.pool)
			if node && (pool || key.pool == cluster.PoolID{}) {
				kept[key] = entry
			}
		}
	}
	keep(s.settled)
	keep(s.lately)
	s.sinceTimes, s.shared = sinceTimes{lately: kept}, false
}

func (s *sinces) snapshot() sinceTimes {
	s.shared = true
	return s.sinceTimes
}

// stateKnownSince is what the store knows of the time when the present state of a node began; zero if nothing. It is for an agent
// that has just started.
func (l *loop) stateKnownSince(lnn int, state string, w *steering.World) time.Time {
	var wallClock time.Time
	switch entry, present := l.replica.members[lnn]; {
	case state == "draining":
		wallClock = l.replica.drains[lnn].At
	case state == "down":
		wallClock = l.replica.outages[lnn].Since
		if wallClock.IsZero() {
			return w.Nodes[lnn].AbsentSince
		}
	case present && entry.record.StateSinceMS > 0:
		wallClock = time.UnixMilli(entry.record.StateSinceMS)
	}
	if wallClock.IsZero() {
		return time.Time{}
	}
	return l.now().Add(-time.Since(wallClock))
}

// ownStateSince is since when this node has been what it is, by the wall clock, for those that start later.
func (l *loop) ownStateSince() int64 {
	entry, known := l.since.of(nodeKey(l.self.LNN))
	if known && !entry.at.Equal(l.ownSince.at) { // worked out once: two clocks would make it another time in each report
		l.ownSince.at, l.ownSince.ms = entry.at, wall(entry.at, l.now()).UnixMilli()
	}
	return l.ownSince.ms
}

// heldDownUntil is when a node that came back may be given addresses again, by this agent's clock; zero if it is not held down.
func heldDownUntil(node steering.Node, now time.Time) time.Time {
	if node.HoldDown == 0 || node.Trusted || node.FitSince.IsZero() || !node.Present || !node.FitSince.Add(node.HoldDown).After(now) {
		return time.Time{}
	}
	return node.FitSince.Add(node.HoldDown)
}

// clockText is a time of day for people, with its zone. Absolute times are for what is written down, where "in 5 s" would grow old.
func clockText(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

// heldDownText says of a node that is held down why and until when.
func heldDownText(node steering.Node, until, now time.Time) string {
	away := ""
	if node.Outage > 0 {
		away = " after " + node.Outage.Round(time.Second).String() + " away"
	}
	return "it came back" + away + " and is held down for " + node.HoldDown.String() + ": it is given no address before " +
		clockText(wall(until, now)) + ", in " + strconv.Itoa(int(until.Sub(now).Round(time.Second)/time.Second)) + "s"
}
