package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/store"
	"github.com/holdfast/holdfast/internal/tenure"
)

// The members of the embedded store become those of the configuration one step at a time. Which step is the next is decided by
// store.NextStep; the node whose member leads the store takes it, since a leader's agent lives by definition and etcd lets nobody
// else promote. Should two take themselves for the leader for a moment, etcd puts their steps in an order, makes one after the
// other, and refuses a second learner.

// Bounds of a change of the members.
const (
	learnerLimit = 2 * time.Minute  // for a new member to start, and to answer
	catchUpLimit = 15 * time.Minute // for a new member that answers to catch up
	lostAfter    = 10 * time.Second // how long a node has to say that it does not have its member's data
	restAfter    = 10 * time.Minute // before a node whose member failed is tried again, unless its agent starts anew
)

var (
	problemReseating = problem.Define(problem.Kind{
		Code: "store.members-changing", Severity: problem.Info,
		Meaning: "The members of the embedded store are not yet those that the configuration asks for; they change one at a time, and only while all that stay are well.",
		Remedy:  "Nothing, unless it waits for a node: start that one, or change `voter` so that another hosts the store.",
	})
	problemReseatFailed = problem.Define(problem.Kind{
		Code: "store.members-failed", Severity: problem.Error,
		Meaning: "A change of the embedded store's members did not come to its end. The members that were there carry the store.",
		Remedy:  "See `holdfast problems list` on the node that the detail names, and whether ports 7701 and 7702 are open to it; restart its agent to have it tried at once, or set `voter` to false for it.",
	})
	problemSeat = problem.Define(problem.Kind{
		Code: "store.member-not-started", Severity: problem.Error,
		Meaning: "This node should host a member of the store, and it cannot start. The others carry the store as long as they are a majority.",
		Remedy:  "Remove the cause that the detail names, mostly a full disk or a port in use. It is tried again every ten seconds while the node serves; otherwise restart the agent.",
	})
	problemSeatLost = problem.Define(problem.Kind{
		Code: "store.member-lost", Severity: problem.Error,
		Meaning: "This node hosted a member of the store and has lost its data. The other members remove it and add it anew, if they are a majority without it and with it counted.",
		Remedy:  "Wait some seconds. If it stays, `holdfast status` on another node says what the change waits for: bring back the members that do not answer.",
	})
)

// nodeWord is what a node says of its member, and since which start.
type nodeWord struct {
	up          bool
	member      string // number of the one whose data it has
	fault       string // why that one does not run
	incarnation tenure.Incarnation
}

// bench remembers what takes its time: learners on their way, members that their nodes do not know, and nodes that rest after a failure.
// Only the node that leads has one that counts; another leader counts anew.
type bench struct {
	learners map[uint64]time.Time
	lost     map[uint64]time.Time
	resting  map[string]rest
}

type rest struct {
	until       time.Time
	incarnation tenure.Incarnation
}

func newBench() bench {
	return bench{learners: map[uint64]time.Time{}, lost: map[uint64]time.Time{}, resting: map[string]rest{}}
}

// judge adds to the members which are late and which are lost.
func (b *bench) judge(present []store.Present, word func(peer string) nodeWord, now time.Time) []store.Present {
	learners, lost := map[uint64]time.Time{}, map[uint64]time.Time{}
	for i, p := range present {
		says := word(p.Peer)
		if p.Learner {
			learners[p.ID] = since(b.learners, p.ID, now)
			age := now.Sub(learners[p.ID])
			present[i].Late = age > catchUpLimit || age > learnerLimit && (!p.Started || !p.Healthy)
		}
		if p.Started && !p.Healthy && says.up && says.fault == "" && says.member != memberID(p.ID) {
			lost[p.ID] = since(b.lost, p.ID, now)
			present[i].Lost = now.Sub(lost[p.ID]) > lostAfter
		}
	}
	b.learners, b.lost = learners, lost
	return present
}

func since(before map[uint64]time.Time, id uint64, now time.Time) time.Time {
	if at, known := before[id]; known {
		return at
	}
	return now
}

// wanted are the members that the configuration asks for.
func (b *bench) wanted(v *view, word func(peer string) nodeWord, now time.Time) []store.Wanted {
	var out []store.Wanted
	resting := map[string]rest{}
	for _, node := range v.world.Config.Voters() {
		if len(node.Addresses) == 0 {
			continue
		}
		says := word(peerAddress(node))
		w := store.Wanted{Name: node.Name, Peer: peerAddress(node), Up: says.up}
		if r, rests := b.resting[node.Name]; rests && now.Before(r.until) && says.incarnation == r.incarnation {
			resting[node.Name] = r
			w.Rest = fmt.Sprintf("%s did not bring its new member of the store up in time; it is tried again after ten minutes, or when its agent starts anew", node.Name)
		}
		out = append(out, w)
	}
	b.resting = resting
	return out
}

// words looks up what the nodes say.
func words(v *view) func(peer string) nodeWord {
	said := map[string]nodeWord{}
	for _, node := range v.world.Config.Nodes {
		if entry, present := v.members[node.LNN]; present && len(node.Addresses) > 0 {
			r := entry.record
			said[peerAddress(node)] = nodeWord{up: !r.Leaving, member: r.StoreMember, fault: r.StoreFault, incarnation: r.Incarnation}
		}
	}
	return func(peer string) nodeWord { return said[peer] }
}

// reseat takes the next step if this node's member leads, and writes the roster.
func (s *seat) reseat(ctx context.Context, v *view) {
	s.mu.Lock()
	member := s.member
	s.mu.Unlock()
	if member == nil || !member.Leads() {
		s.bench, s.failing = newBench(), ""
		return
	}
	ctx, cancel := context.WithTimeout(ctx, seatTry)
	defer cancel()
	present, err := member.Members(ctx)
	if err != nil {
		s.log.Debug("trying again", "error", err)
		return
	}
	word := words(v)
	present = s.bench.judge(store.WithHealth(present, s.client.Health(ctx)), word, s.now())
	wanted := s.bench.wanted(v, word, s.now())
	step := store.NextStep(wanted, present)
	change := step.Reason
	if step.Acts() {
		change = s.take(ctx, member, step, word(step.Peer))
		if present, err = member.Members(ctx); err != nil {
			return // another leader will write it down, or this one in a moment
		}
	}
	roster := rosterOf(present, v.world.Config)
	roster.Change, roster.Fault = change, s.faultOf(wanted)
	s.writeRoster(ctx, v, roster)
}

// take makes a step and returns what there is to say of it.
func (s *seat) take(ctx context.Context, member *store.Member, step store.Step, word nodeWord) string {
	err := member.Take(ctx, step)
	switch {
	case err == nil:
		s.failing = ""
		s.event("store.members", step.Name, stepText(step), nil)
		if step.Failed {
			s.bench.resting[step.Name] = rest{until: s.now().Add(restAfter), incarnation: word.incarnation}
		}
		s.note()
		return stepText(step)
	case errors.Is(err, store.ErrNotYet):
		s.log.Debug("trying again", "error", err)
		return step.Reason + ", and has to catch up"
	}
	s.failing = err.Error()
	s.log.Warn("trying again", "error", err)
	return step.Reason
}

// stepText says what a step did.
func stepText(step store.Step) string {
	switch step.Kind {
	case store.AddLearner:
		return "a member of the store is added on " + step.Name + ", without a vote at first"
	case store.Promote:
		return "the member of the store on " + step.Name + " has a vote now"
	case store.RemoveMember:
		return "the member on " + step.Name + " is removed from the store: " + step.Reason
	case store.MoveLeader:
		return step.Name + " leads the store now: " + step.Reason
	case store.Settled, store.Waiting:
	}
	return step.Reason
}

// faultOf is what did not come to its end.
func (s *seat) faultOf(wanted []store.Wanted) string {
	var faults []string
	if s.failing != "" {
		faults = append(faults, s.failing)
	}
	for _, w := range wanted {
		if w.Rest != "" {
			faults = append(faults, w.Rest)
		}
	}
	return strings.Join(faults, "; ")
}

// writeRoster puts the roster on record where it differs. Who comes second looks again.
func (s *seat) writeRoster(ctx context.Context, v *view, roster rosterRecord) {
	if v.rosterRevision != 0 && v.roster.equal(roster) {
		return
	}
	put, err := store.PutOp(keyRoster, roster, 0)
	if err == nil {
		_, err = s.store.Commit(ctx, store.Txn{If: []store.Condition{{Key: keyRoster, Revision: v.rosterRevision}}, Then: []store.Op{put}})
	}
	if err != nil && !errors.Is(err, store.ErrConflict) {
		s.log.Debug("trying again", "error", err)
	}
}
