package tenure

import (
	"fmt"
	"net/netip"
	"reflect"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

// Claim is a member interface under one incarnation of its node. The zero Claim is nobody's.
type Claim struct {
	LNN         int         `json:"lnn,omitempty"`
	Interface   string      `json:"interface,omitempty"`
	Incarnation Incarnation `json:"incarnation,omitempty"`
}

// Member is the claim without its incarnation.
func (c Claim) Member() cluster.Member { return cluster.Member{LNN: c.LNN, Interface: c.Interface} }

// IsZero reports whether the claim is nobody's.
func (c Claim) IsZero() bool { return c == Claim{} }

// String writes the claim for people, for example "3:eth0 (incarnation 7)".
func (c Claim) String() string {
	if c.IsZero() {
		return "nobody"
	}
	return fmt.Sprintf("%s (incarnation %d)", c.Member(), c.Incarnation)
}

// Statement is what is on record about one address.
//
// Two may act on a statement: its owner, and its next, once the owner's incarnation is Down; the next does so without asking the
// store. So a node that has read an older statement may act on that, and the safety of the whole rests on this rule: a new statement
// takes effect when everyone who could act on any earlier one has acknowledged it, or is Down.
//
//   - The owner is changed only by that owner, after the address is off its interfaces, or by anyone once its incarnation is Down. So
//     it never acts on an older statement against a newer one.
//   - A next that is replaced stays on record as the former one until it has said that it will not take ("old-next"). Until then
//     nobody else takes: neither the new next, nor whom a move goes to. There is at most one former next: it is not replaced a second
//     time before ("previous-only"). If it has taken already, it does not say so; it puts itself on record as the owner.
//
// A fixed owner (of a static address) holds without a right that could run out, so that the end of its incarnation frees
// nothing: only its node lets go, in whatever incarnation, or an operator takes the node out of the configuration.
type Statement struct {
	Owner  Claim     `json:"owner,omitzero"`
	Next   Claim     `json:"next,omitzero"`    // who takes when the owner is Down
	Former Claim     `json:"former,omitzero"`  // who was next, and has not acknowledged yet that it is not any more
	To     Claim     `json:"to,omitzero"`      // who takes when the owner has let go: a planned move under way; it is next, too
	Fixed  bool      `json:"fixed,omitempty"`  // the owner holds it without tenure
	Epoch  uint64    `json:"epoch"`            // rises with every change of owner, and with every move that is asked for
	Since  time.Time `json:"since"`            // when the owner became owner, by the proposer's clock; for people
	Reason string    `json:"reason,omitempty"` // why the owner became owner
}

// Record is the statements of one pool or one service address.
type Record map[netip.Addr]Statement

// Is reports whether two records are the very same one, so that nothing need be compared. It says nothing of a record that somebody changes
// in place.
func (r Record) Is(other Record) bool {
	return reflect.ValueOf(r).UnsafePointer() == reflect.ValueOf(other).UnsafePointer()
}

// State is which of its three states a statement is in.
type State string

// The states of a statement.
const (
	Unowned State = "unowned"
	Held    State = "held"
	Moving  State = "moving"
)

// State derives the state from the fields.
func (s Statement) State() State {
	switch {
	case s.Owner.IsZero():
		return Unowned
	case s.To.IsZero():
		return Held
	default:
		return Moving
	}
}

// Action is what somebody wants to do to a statement.
type Action string

// The actions. The comment says who may.
const (
	Assign      Action = "assign"      // anyone: give an unowned address an owner
	FailOver    Action = "failover"    // anyone, once the owner's incarnation is over
	Name        Action = "name"        // anyone: another next, or none
	Acknowledge Action = "acknowledge" // the former next, which does not hold the address and will not take it
	BeginMove   Action = "move"        // anyone: ask the owner to let go in favour of To
	Cancel      Action = "cancel"      // the owner, which has told nobody that it let go; anyone once the target is over
	Complete    Action = "complete"    // the owner, after the address is off its interfaces, or the target, which has its word for that
	Abandon     Action = "abandon"     // the owner, after the address is off its interfaces, in favour of nobody
)

// Change is one action with its particulars.
type Change struct {
	Action               Action
	By                   Claim // who acts; counts for complete, cancel, abandon and acknowledge
	To                   Claim // the new owner, the new next, or the target of a move
	Over                 bool  // the owner's incarnation is known to be over
	Gone                 bool  // and its node is no longer configured
	NextOver, FormerOver bool  // what is known of the next's and the former next's incarnations
	Reason               string
	Now                  time.Time
}

// Outcome says what became of a change.
type Outcome struct {
	Changed bool
	Reason  string // why it stayed, or why it changed
}

// transitions is the whole table: which action is possible in which state.
var transitions = map[State]map[Action]func(Statement, Change) (Statement, Outcome){
	Unowned: {Assign: assign, FailOver: stay("nobody owns the address"), BeginMove: stay("nobody owns the address"),
		Cancel: stay("nothing is moving"), Complete: stay("nobody owns the address"), Abandon: stay("nobody owns the address"),
		Name: stay("nobody owns the address"), Acknowledge: acknowledge},
	Held: {Assign: stay("the address has an owner"), FailOver: failOver, BeginMove: beginMove,
		Cancel: stay("nothing is moving"), Complete: stay("nothing is moving"), Abandon: abandon,
		Name: name, Acknowledge: acknowledge},
	Moving: {Assign: stay("the address has an owner"), FailOver: failOver, BeginMove: beginMove,
		Cancel: cancelMove, Complete: complete, Abandon: abandon,
		Name: stay("it is moving, and whom it moves to is next"), Acknowledge: acknowledge},
}

// Step is the one door in. An action that the state does not allow stays, with the reason; one that does not exist panics.
func (s Statement) Step(c Change) (Statement, Outcome) {
	action, known := transitions[s.State()][c.Action]
	if !known {
		panic(fmt.Sprintf("tenure: action %q in state %q", c.Action, s.State()))
	}
	return action(s, c)
}

func stay(reason string) func(Statement, Change) (Statement, Outcome) {
	return func(s Statement, _ Change) (Statement, Outcome) { return s, Outcome{Reason: reason} }
}

// Settled reports whether nobody can act on an earlier statement any more: no former next is left that lives.
func (s Statement) Settled(formerOver bool) bool { return s.Former.IsZero() || formerOver }

// mayStillTake is why a change waits for the former next.
func (s Statement) mayStillTake() Outcome {
	return Outcome{Reason: fmt.Sprintf("%s was next before and has not acknowledged yet that it is not any more", s.Former)}
}

func assign(s Statement, c Change) (Statement, Outcome) {
	switch {
	case c.To.IsZero():
		return s, Outcome{Reason: "no new owner is named"}
	case !s.Settled(c.FormerOver):
		return s, s.mayStillTake()
	}
	return owned(s, c), Outcome{Changed: true, Reason: c.Reason}
}

// failOver makes another the owner whose incarnation is over. The former next, or else the next, may have taken the address already:
// while it lives, only it becomes the owner.
func failOver(s Statement, c Change) (Statement, Outcome) {
	same := c.To.LNN == s.Owner.LNN
	switch {
	case !c.Over:
		return s, Outcome{Reason: fmt.Sprintf("%s is not known to be over", s.Owner)}
	case s.Fixed && !same && !c.Gone:
		return s, Outcome{Reason: fmt.Sprintf("%s holds it without a right that ends: only its node can let go", s.Owner)}
	case !s.Settled(c.FormerOver) && c.To == s.Former:
		after := owned(s, c)
		after.Next = s.Next // it could take only when this one is over, and so it still can
		return after, Outcome{Changed: true, Reason: c.Reason}
	case !s.Settled(c.FormerOver):
		return s, s.mayStillTake()
	case !s.Next.IsZero() && !c.NextOver && c.To != s.Next:
		return s, Outcome{Reason: fmt.Sprintf("%s is next and may have taken it", s.Next)}
	}
	after := owned(s, c)
	after.Fixed = s.Fixed && same // the interface may have it from before
	return after, Outcome{Changed: true, Reason: c.Reason}
}

// name makes another the next. The one before stays on record as the former one until it has acknowledged. A next that could not act
// yet, since the one before it had not acknowledged, is not replaced while it lives, not even by that one: it would then be the former
// next, who may act.
func name(s Statement, c Change) (Statement, Outcome) {
	switch {
	case c.To == s.Next:
		return s, Outcome{Reason: "it is next already"}
	case s.Next.IsZero() || c.NextOver:
	case s.Settled(c.FormerOver):
		s.Former = s.Next
	default:
		return s, s.mayStillTake()
	}
	if s.Former == c.To {
		s.Former = Claim{} // it is next again
	}
	s.Next = c.To
	return s, Outcome{Changed: true, Reason: c.Reason}
}

// acknowledge is the former next's word that it does not hold the address and will not take it.
func acknowledge(s Statement, c Change) (Statement, Outcome) {
	switch {
	case s.Former.IsZero():
		return s, Outcome{Reason: "nobody is asked to acknowledge anything"}
	case c.By != s.Former:
		return s, Outcome{Reason: fmt.Sprintf("only the former next %s may acknowledge", s.Former)}
	}
	s.Former = Claim{}
	return s, Outcome{Changed: true, Reason: c.Reason}
}

// beginMove makes the target of the move the next as well, so that whoever was next before acknowledges before the owner lets go.
func beginMove(s Statement, c Change) (Statement, Outcome) {
	switch {
	case c.To.IsZero():
		return s, Outcome{Reason: "no new owner is named"}
	case c.To == s.To:
		return s, Outcome{Reason: "it is moving there already"}
	case c.To == s.Owner && s.To.IsZero():
		return s, Outcome{Reason: "it is there already"}
	case c.To == s.Owner:
		return cancelMove(s, c)
	case !s.To.IsZero() && !c.NextOver:
		return s, Outcome{Reason: fmt.Sprintf("it is moving to %s, which may have it already", s.To)}
	}
	if s.Next != c.To {
		named, outcome := name(s, c)
		if !outcome.Changed {
			return s, outcome
		}
		s = named
	}
	s.To, s.Reason = c.To, c.Reason
	s.Epoch++ // the owner's word that it has let go is for this move and no other
	return s, Outcome{Changed: true, Reason: c.Reason}
}

// cancelMove takes a request back. Where the move goes on, only the owner knows whether it has let go already; whom it moves to is next, so
// that one's being over is NextOver.
func cancelMove(s Statement, c Change) (Statement, Outcome) {
	if c.By != s.Owner && !c.NextOver {
		return s, Outcome{Reason: fmt.Sprintf("only the owner %s may take it back: %s may have it already", s.Owner, s.To)}
	}
	s.To = Claim{}
	return s, Outcome{Changed: true, Reason: c.Reason}
}

func complete(s Statement, c Change) (Statement, Outcome) {
	switch {
	case c.By != s.Owner && c.By != s.To:
		return s, Outcome{Reason: fmt.Sprintf("only the owner %s, or %s with its word, may complete a move", s.Owner, s.To)}
	case !s.Settled(c.FormerOver):
		return s, s.mayStillTake()
	}
	c.To = s.To
	if c.Reason == "" {
		c.Reason = s.Reason
	}
	return owned(s, c), Outcome{Changed: true, Reason: c.Reason}
}

// abandon leaves the address to nobody. Its next has to acknowledge before anybody else is given it.
func abandon(s Statement, c Change) (Statement, Outcome) {
	switch {
	case c.By != s.Owner:
		return s, Outcome{Reason: fmt.Sprintf("only the owner %s may abandon the address", s.Owner)}
	case !s.Settled(c.FormerOver):
		return s, s.mayStillTake()
	}
	c.To = Claim{}
	former := s.Next
	after := owned(s, c)
	if after.Next = (Claim{}); !c.NextOver {
		after.Former = former
	}
	return after, Outcome{Changed: true, Reason: c.Reason}
}

// owned makes c.To the owner under the next epoch. Its next has to be named anew: whoever was next is the owner now, or over.
func owned(s Statement, c Change) Statement {
	return Statement{Owner: c.To, Epoch: s.Epoch + 1, Since: c.Now, Reason: c.Reason}
}
