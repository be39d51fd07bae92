package tenure

import (
	"fmt"
	"net/netip"
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
// The safety of the whole rests on one rule: the owner of a statement is changed only by that owner, after the address is
// off its interfaces, or by anyone once the owner's incarnation is Down. The owner's own knowledge of what it owns is
// therefore never out of date in the dangerous direction.
//
// A fixed owner (of a static address) holds without a right that could run out, so that the end of its incarnation frees
// nothing: only its node lets go, in whatever incarnation, or an operator takes the node out of the configuration.
type Statement struct {
	Owner  Claim     `json:"owner,omitzero"`
	Next   Claim     `json:"next,omitzero"`    // who takes when the owner is Down
	To     Claim     `json:"to,omitzero"`      // who takes when the owner has let go: a planned move under way
	Fixed  bool      `json:"fixed,omitempty"`  // the owner holds it without tenure
	Epoch  uint64    `json:"epoch"`            // rises with every change of owner
	Since  time.Time `json:"since"`            // when the owner became owner, by the proposer's clock; for people
	Reason string    `json:"reason,omitempty"` // why the owner became owner
}

// Record is the statements of one pool or one service address.
type Record map[netip.Addr]Statement

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
	Assign    Action = "assign"   // anyone: give an unowned address an owner
	FailOver  Action = "failover" // anyone, once the owner's incarnation is over
	BeginMove Action = "move"     // anyone: ask the owner to let go in favour of To
	Cancel    Action = "cancel"   // anyone: take the request back
	Complete  Action = "complete" // the owner, after the address is off its interfaces
	Abandon   Action = "abandon"  // the owner, after the address is off its interfaces, in favour of nobody
)

// Change is one action with its particulars.
type Change struct {
	Action Action
	By     Claim // who acts; counts for complete and abandon
	To     Claim // the new owner, or the target of a move
	Over   bool  // for failover: the owner's incarnation is known to be over
	Gone   bool  // for failover: and its node is no longer configured
	Reason string
	Now    time.Time
}

// Outcome says what became of a change.
type Outcome struct {
	Changed bool
	Reason  string // why it stayed, or why it changed
}

// transitions is the whole table: which action is possible in which state.
var transitions = map[State]map[Action]func(Statement, Change) (Statement, Outcome){
	Unowned: {Assign: assign, FailOver: stay("nobody owns the address"), BeginMove: stay("nobody owns the address"),
		Cancel: stay("nothing is moving"), Complete: stay("nobody owns the address"), Abandon: stay("nobody owns the address")},
	Held: {Assign: stay("the address has an owner"), FailOver: failOver, BeginMove: beginMove,
		Cancel: stay("nothing is moving"), Complete: stay("nothing is moving"), Abandon: abandon},
	Moving: {Assign: stay("the address has an owner"), FailOver: failOver, BeginMove: beginMove,
		Cancel: cancelMove, Complete: complete, Abandon: abandon},
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

func assign(s Statement, c Change) (Statement, Outcome) {
	if c.To.IsZero() {
		return s, Outcome{Reason: "no new owner is named"}
	}
	return owned(s, c), Outcome{Changed: true, Reason: c.Reason}
}

func failOver(s Statement, c Change) (Statement, Outcome) {
	same := c.To.LNN == s.Owner.LNN
	switch {
	case !c.Over:
		return s, Outcome{Reason: fmt.Sprintf("%s is not known to be over", s.Owner)}
	case s.Fixed && !same && !c.Gone:
		return s, Outcome{Reason: fmt.Sprintf("%s holds it without a right that ends: only its node can let go", s.Owner)}
	}
	after := owned(s, c)
	after.Fixed = s.Fixed && same // the interface may have it from before
	return after, Outcome{Changed: true, Reason: c.Reason}
}

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
	}
	s.To, s.Reason = c.To, c.Reason
	return s, Outcome{Changed: true, Reason: c.Reason}
}

func cancelMove(s Statement, c Change) (Statement, Outcome) {
	s.To = Claim{}
	return s, Outcome{Changed: true, Reason: c.Reason}
}

func complete(s Statement, c Change) (Statement, Outcome) {
	if c.By != s.Owner {
		return s, Outcome{Reason: fmt.Sprintf("only the owner %s may complete a move", s.Owner)}
	}
	c.To = s.To
	if c.Reason == "" {
		c.Reason = s.Reason
	}
	return owned(s, c), Outcome{Changed: true, Reason: c.Reason}
}

func abandon(s Statement, c Change) (Statement, Outcome) {
	if c.By != s.Owner {
		return s, Outcome{Reason: fmt.Sprintf("only the owner %s may abandon the address", s.Owner)}
	}
	c.To = Claim{}
	return owned(s, c), Outcome{Changed: true, Reason: c.Reason}
}

// owned makes c.To the owner under the next epoch.
func owned(s Statement, c Change) Statement {
	next := s.Next
	if next.Member() == c.To.Member() {
		next = Claim{}
	}
	return Statement{Owner: c.To, Next: next, Epoch: s.Epoch + 1, Since: c.Now, Reason: c.Reason}
}
