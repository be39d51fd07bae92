package store

import (
	"fmt"
	"slices"
	"strings"
)

// Wanted is a member that the store should have.
type Wanted struct {
	Name string // of its node
	Peer string // "address:port" of traffic between members, by which a member is known before it has started
	Up   bool   // its node's agent runs, so that it can start a member
	Rest string // why it is not tried for the time being; empty: it may be tried
}

// Present is a member that the store has.
type Present struct {
	ID      uint64
	Name    string // empty until it has started
	Peer    string // "address:port"
	Learner bool   // it gets everything and has no vote
	Started bool   // it has told the others that it runs, once at least
	Healthy bool   // it answers now
	Leader  bool
	Lost    bool // its node runs and does not have its data: the member cannot come back
	Late    bool // of a learner: the time in which it had to become a voter is over
}

// StepKind is what a Step does.
type StepKind int

// The kinds of steps.
const (
	Settled      StepKind = iota // the members are those that are wanted
	Waiting                      // something has to happen elsewhere first
	AddLearner                   // Name, Peer
	Promote                      // a learner becomes a voter: ID
	RemoveMember                 // ID
	MoveLeader                   // the leader hands over to ID
)

// Step is the next thing to do so that the store gets the members that are wanted, and why.
type Step struct {
	Kind   StepKind
	ID     uint64
	Name   string // of the member's node, or its Peer where that is all that is known
	Peer   string
	Reason string
	Failed bool // a new member is given up: its node should rest before it is tried again
}

// Acts says whether a step changes anything.
func (s Step) Acts() bool { return s.Kind != Settled && s.Kind != Waiting }

// NextStep decides the one next change of the store's members. There is never more than one under way, since a learner that has
// not become a voter is dealt with before anything else; and no step takes away what the majority of the present voters
// needs.
//
//   - New members are learners first. They are added only while every voter is well, and become voters when they have caught up,
//     which etcd itself judges.
//   - From an odd number it grows only when it can reach the next odd number: two members are no safer than one.
//   - Members that are not wanted go last, when those that replace them are there, unless they are dead: then they go first, as
//     do members whose data is lost. A leader hands over before it goes.
//   - Otherwise it waits, and says what for.
func NextStep(wanted []Wanted, present []Present) Step {
	r := &reconfiguration{wanted: wanted}
	for _, p := range present {
		switch {
		case p.Learner:
			r.learners = append(r.learners, p)
		case p.Healthy:
			r.well++
			fallthrough
		default:
			r.voters = append(r.voters, p)
		}
	}
	for _, decide := range []func() (Step, bool){r.possible, r.learner, r.dead, r.grow, r.shrink} {
		if step, decided := decide(); decided {
			return step
		}
	}
	return Step{Kind: Settled}
}

// reconfiguration is what a decision looks at.
type reconfiguration struct {
	wanted   []Wanted
	voters   []Present
	learners []Present
	well     int // voters that answer
}

func majority(voters int) int { return voters/2 + 1 }

func (p Present) name() string {
	if p.Name != "" {
		return p.Name
	}
	return p.Peer
}

// nameOf prefers the name under which the member is wanted: a learner has none before it has started.
func (r *reconfiguration) nameOf(p Present) string {
	if w, ok := r.seat(p); ok {
		return w.Name
	}
	return p.name()
}

func (r *reconfiguration) seat(p Present) (Wanted, bool) {
	i := slices.IndexFunc(r.wanted, func(w Wanted) bool { return w.Peer == p.Peer })
	if i < 0 {
		return Wanted{}, false
	}
	return r.wanted[i], true
}

func (r *reconfiguration) step(kind StepKind, p Present, reason string, arguments ...any) (Step, bool) {
	return Step{Kind: kind, ID: p.ID, Name: r.nameOf(p), Peer: p.Peer, Reason: fmt.Sprintf(reason, arguments...)}, true
}

func wait(reason string, arguments ...any) (Step, bool) {
	return Step{Kind: Waiting, Reason: fmt.Sprintf(reason, arguments...)}, true
}

// possible refuses where nothing may or can be changed.
func (r *reconfiguration) possible() (Step, bool) {
	switch {
	case len(r.wanted) == 0:
		return wait("the configuration names no host of the store: its members stay")
	case r.well < majority(len(r.voters)):
		return wait("%d of %d members of the store answer: without a majority its members cannot change", r.well, len(r.voters))
	}
	return Step{}, false
}

// learner brings the change that is under way to its end.
func (r *reconfiguration) learner() (Step, bool) {
	if len(r.learners) == 0 {
		return Step{}, false
	}
	p := r.learners[0]
	seat, wanted := r.seat(p)
	switch {
	case !wanted:
		return r.step(RemoveMember, p, "%s is not wanted any more, and was not a voter yet", p.name())
	case p.Lost:
		return r.step(RemoveMember, p, "%s has lost the data of its new member", seat.Name)
	case p.Late:
		step, _ := r.step(RemoveMember, p, "the member of %s did not start and catch up in time", seat.Name)
		step.Failed = true
		return step, true
	case !p.Started:
		return wait("the new member on %s has to start", seat.Name)
	case !p.Healthy:
		return wait("the new member on %s does not answer", seat.Name)
	}
	// With a majority before, there is one after: one voter more that is well.
	return r.step(Promote, p, "the new member on %s has started", seat.Name)
}

// dead takes out members that will not come back: what is dead and not wanted, and what lost its data, which is added anew after
// that.
func (r *reconfiguration) dead() (Step, bool) {
	for _, p := range r.voters {
		seat, wanted := r.seat(p)
		if p.Healthy || p.Leader || wanted && !p.Lost {
			continue
		}
		if left := len(r.voters) - 1; left < 1 || r.well < majority(left) {
			continue
		}
		if wanted {
			return r.step(RemoveMember, p, "%s has lost its member's data: the member is removed and added anew", seat.Name)
		}
		return r.step(RemoveMember, p, "%s is not wanted and does not answer", p.name())
	}
	return Step{}, false
}

// missing are the wanted members that are not there, and those of them that can be added now.
func (r *reconfiguration) missing() (missing, ready []Wanted) {
	for _, w := range r.wanted {
		if slices.ContainsFunc(r.voters, func(p Present) bool { return p.Peer == w.Peer }) {
			continue
		}
		missing = append(missing, w)
		if w.Up && w.Rest == "" {
			ready = append(ready, w)
		}
	}
	return missing, ready
}

// superfluous are the voters that are not wanted.
func (r *reconfiguration) superfluous() []Present {
	return slices.DeleteFunc(slices.Clone(r.voters), func(p Present) bool {
		_, wanted := r.seat(p)
		return wanted
	})
}

// grow adds what is missing.
func (r *reconfiguration) grow() (Step, bool) {
	missing, ready := r.missing()
	if len(ready) == 0 {
		return Step{}, false
	}
	if ill := r.unwell(nil); ill != "" {
		return wait("%s: a new member is added only while all are well", ill)
	}
	if alone := len(r.voters)%2 == 1 && len(missing) > 1 && len(ready) == 1 && len(r.superfluous()) == 0; alone {
		return wait("%s; with %s alone the store would have %d members, which bear no more losses than %d", hindrance(missing),
			ready[0].Name, len(r.voters)+1, len(r.voters))
	}
	return Step{Kind: AddLearner, Name: ready[0].Name, Peer: ready[0].Peer, Reason: fmt.Sprintf("%s should host a member", ready[0].Name)}, true
}

// hindrance says why the wanted members that are not ready are not.
func hindrance(missing []Wanted) string {
	var why []string
	for _, w := range missing {
		switch {
		case w.Rest != "":
			why = append(why, w.Rest)
		case !w.Up:
			why = append(why, w.Name+" should host a member and is not up")
		}
	}
	return strings.Join(why, "; ")
}

// shrink takes out what is not wanted, and never makes fewer members than are wanted while a wanted one is missing.
func (r *reconfiguration) shrink() (Step, bool) {
	missing, _ := r.missing()
	extra := r.superfluous()
	if len(extra) == 0 || len(missing) > 0 && len(r.voters) <= len(r.wanted) {
		if len(missing) > 0 {
			return wait("%s", hindrance(missing))
		}
		return Step{}, false
	}
	last := extra[len(extra)-1]
	if last.Leader && len(extra) > 1 {
		last = extra[len(extra)-2] // the leader goes last
	}
	if ill := r.unwell(&last); ill != "" {
		return wait("%s: %s is kept meanwhile", ill, last.name())
	}
	if !last.Leader {
		return r.step(RemoveMember, last, "%s is not wanted any more", last.name())
	}
	for _, p := range r.voters {
		if _, wanted := r.seat(p); wanted && p.Healthy {
			return r.step(MoveLeader, p, "%s leads the store and is not wanted any more: %s is to lead", last.name(), p.name())
		}
	}
	return wait("%s leads the store, and no wanted member can take over", last.name())
}

// unwell names the voters that do not answer, but one.
func (r *reconfiguration) unwell(but *Present) string {
	var names []string
	for _, p := range r.voters {
		if !p.Healthy && (but == nil || p.ID != but.ID) {
			names = append(names, r.nameOf(p))
		}
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return "the member on " + names[0] + " does not answer"
	}
	return "the members on " + strings.Join(names, ", ") + " do not answer"
}
