package tenure

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

var (
	one   = Claim{LNN: 1, Interface: "eth0", Incarnation: 3}
	two   = Claim{LNN: 2, Interface: "eth0", Incarnation: 5}
	three = Claim{LNN: 3, Interface: "eth0", Incarnation: 1}
)

func TestStatementTransitions(t *testing.T) {
	held := Statement{Owner: one, Next: two, Epoch: 4}
	moving := Statement{Owner: one, Next: two, To: two, Epoch: 4}
	unsettled := Statement{Owner: one, Next: two, Former: three, Epoch: 4}
	waiting := Statement{Owner: one, Next: two, To: two, Former: three, Epoch: 4}
	fixed := Statement{Owner: one, Epoch: 4, Fixed: true}
	left := Statement{Former: two, Epoch: 4}
	returned := Claim{LNN: 1, Interface: "eth0", Incarnation: 4}
	nobody := Claim{}
	for _, test := range []struct {
		name   string
		before Statement
		change Change
		after  string // owner, next, former, to, epoch: the numbers of their nodes
		stays  bool
	}{
		{"an unowned address is assigned", Statement{}, Change{Action: Assign, To: one}, "1 0 0 0 1", false},
		{"an owned one is not", held, Change{Action: Assign, To: two}, "1 2 0 0 4", true},
		{"one that was abandoned waits for who was next", left, Change{Action: Assign, To: one}, "0 0 2 0 4", true},
		{"and is assigned when that one is over", left, Change{Action: Assign, To: one, FormerOver: true}, "1 0 0 0 5", false},

		{"a live owner is not failed over", held, Change{Action: FailOver, To: two}, "1 2 0 0 4", true},
		{"a dead one is, to its next, which has taken it", held, Change{Action: FailOver, To: two, Over: true}, "2 0 0 0 5", false},
		{"to nobody else while that one lives", held, Change{Action: FailOver, To: three, Over: true}, "1 2 0 0 4", true},
		{"to another when it is over, too", held, Change{Action: FailOver, To: three, Over: true, NextOver: true}, "3 0 0 0 5", false},
		{"the new next does not take before the former one has acknowledged", unsettled, Change{Action: FailOver, To: two, Over: true}, "1 2 3 0 4", true},
		{"the former one may have taken it, and stays on record with its own next", unsettled, Change{Action: FailOver, To: three, Over: true}, "3 2 0 0 5", false},
		{"when it is over, the new next takes", unsettled, Change{Action: FailOver, To: two, Over: true, FormerOver: true}, "2 0 0 0 5", false},
		{"in the middle of a move it goes where it was going", moving, Change{Action: FailOver, To: two, Over: true}, "2 0 0 0 5", false},

		{"another is named next, and the one before is asked", held, Change{Action: Name, To: three}, "1 3 2 0 4", false},
		{"nobody is asked that is over", held, Change{Action: Name, To: three, NextOver: true}, "1 3 0 0 4", false},
		{"a next that could not act yet is not replaced", unsettled, Change{Action: Name, To: returned}, "1 2 3 0 4", true},
		{"not even by the one before", unsettled, Change{Action: Name, To: three}, "1 2 3 0 4", true},
		{"but when it is over it is, by the one before", unsettled, Change{Action: Name, To: three, NextOver: true}, "1 3 0 0 4", false},
		{"or by another", unsettled, Change{Action: Name, To: returned, NextOver: true}, "1 1 3 0 4", false},
		{"while it moves, its target is next", moving, Change{Action: Name, To: three}, "1 2 0 2 4", true},
		{"the former next acknowledges", unsettled, Change{Action: Acknowledge, By: three}, "1 2 0 0 4", false},
		{"nobody does for it", unsettled, Change{Action: Acknowledge, By: two}, "1 2 3 0 4", true},
		{"there is nothing to acknowledge", held, Change{Action: Acknowledge, By: two}, "1 2 0 0 4", true},
		{"also when nobody owns the address any more", left, Change{Action: Acknowledge, By: two}, "0 0 0 0 4", false},

		{"a move begins: its target is next, and no owner changes", held, Change{Action: BeginMove, To: three}, "1 3 2 3 5", false},
		{"to the next", held, Change{Action: BeginMove, To: two}, "1 2 0 2 5", false},
		{"not while somebody else might take", unsettled, Change{Action: BeginMove, To: returned}, "1 2 3 0 4", true},
		{"a move to where it is, is none", held, Change{Action: BeginMove, To: one}, "1 2 0 0 4", true},
		{"a move is not turned: the target may have it", moving, Change{Action: BeginMove, To: three}, "1 2 0 2 4", true},
		{"it is when the target is over", moving, Change{Action: BeginMove, To: three, NextOver: true}, "1 3 0 3 5", false},
		{"a move back is a cancel", moving, Change{Action: BeginMove, To: one, By: one}, "1 2 0 0 4", false},
		{"the owner cancels it", moving, Change{Action: Cancel, By: one}, "1 2 0 0 4", false},
		{"others only when the target is over", moving, Change{Action: Cancel}, "1 2 0 2 4", true},
		{"then anyone", moving, Change{Action: Cancel, NextOver: true}, "1 2 0 0 4", false},
		{"the owner completes it", moving, Change{Action: Complete, By: one}, "2 0 0 0 5", false},
		{"or its target, with the owner's word", moving, Change{Action: Complete, By: two}, "2 0 0 0 5", false},
		{"nobody else does", moving, Change{Action: Complete, By: three}, "1 2 0 2 4", true},
		{"nor the owner under another incarnation", moving, Change{Action: Complete, By: returned}, "1 2 0 2 4", true},
		{"not before the former next has acknowledged", waiting, Change{Action: Complete, By: one}, "1 2 3 2 4", true},
		{"nothing moving, nothing to complete", held, Change{Action: Complete, By: one}, "1 2 0 0 4", true},
		{"the owner may abandon it, and its next is asked", held, Change{Action: Abandon, By: one}, "0 0 2 0 5", false},
		{"nobody else may", held, Change{Action: Abandon, By: two}, "1 2 0 0 4", true},

		{"a fixed owner's end frees nothing", fixed, Change{Action: FailOver, To: two, Over: true}, "1 0 0 0 4", true},
		{"but its node is the owner again", fixed, Change{Action: FailOver, To: returned, Over: true}, "1 0 0 0 5", false},
		{"and an operator may take the node away", fixed, Change{Action: FailOver, To: two, Over: true, Gone: true}, "2 0 0 0 5", false},
		{"a fixed owner may abandon it", fixed, Change{Action: Abandon, By: one}, "0 0 0 0 5", false},
		{"no owner is nobody", Statement{}, Change{Action: Assign, To: nobody}, "0 0 0 0 0", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			after, outcome := test.before.Step(test.change)
			got := fmt.Sprint(after.Owner.LNN, after.Next.LNN, after.Former.LNN, after.To.LNN, after.Epoch)
			if got != test.after || outcome.Changed == test.stays {
				t.Errorf("got %s, want %s: %+v, %+v", got, test.after, after, outcome)
			}
			if after.Fixed != (test.before.Fixed && after.Owner.LNN == test.before.Owner.LNN) {
				t.Errorf("fixed is %v: it is when the owner's node was fixed before, and for nobody else", after.Fixed)
			}
			if test.stays && (outcome.Reason == "" || after != test.before) {
				t.Errorf("staying says no reason or changed something: %+v, %+v", after, outcome)
			}
		})
	}
}

func TestStatementPanicsOnAnActionThatDoesNotExist(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	Statement{}.Step(Change{Action: "explode"})
}

// The rules on which everything rests: the owner changes only by the owner itself or with its word, or once it is over, or when there was
// none; and whoever was next is the owner, still asked, or over.
func TestOwnerChangesOnlyByItselfOrOnceOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		claims := rapid.SampledFrom([]Claim{{}, one, two, three})
		st := Statement{}
		for range rapid.IntRange(1, 40).Draw(t, "changes") {
			c := Change{
				Action: rapid.SampledFrom([]Action{Assign, FailOver, Name, Acknowledge, BeginMove, Cancel, Complete, Abandon}).Draw(t, "action"),
				By:     claims.Draw(t, "by"), To: claims.Draw(t, "to"), Over: rapid.Bool().Draw(t, "over"),
				NextOver: rapid.Bool().Draw(t, "next over"), FormerOver: rapid.Bool().Draw(t, "former over"),
			}
			after, outcome := st.Step(c)
			if after.Owner != st.Owner {
				byOwner := c.By == st.Owner && (c.Action == Complete || c.Action == Abandon) || c.By == st.To && c.Action == Complete
				over := c.Action == FailOver && c.Over
				if !st.Owner.IsZero() && !byOwner && !over {
					t.Fatalf("%+v by %s changed the owner from %s to %s", c, c.By, st.Owner, after.Owner)
				}
				if after.Epoch != st.Epoch+1 {
					t.Fatalf("the epoch went from %d to %d with a change of owner", st.Epoch, after.Epoch)
				}
			}
			if former := st.Former; former != after.Former && !former.IsZero() {
				asked := c.FormerOver || c.Action == Acknowledge && c.By == former || after.Owner == former || after.Next == former
				if !asked {
					t.Fatalf("%+v: the former next %s was forgotten: from %+v to %+v", c, former, st, after)
				}
			}
			if next := st.Next; next != after.Next && !next.IsZero() && !c.NextOver && after.Owner != next && after.Former != next {
				t.Fatalf("%+v: the next %s was forgotten: from %+v to %+v", c, next, st, after)
			}
			if outcome.Changed == (after == st) {
				t.Fatalf("%+v: changed=%v, from %+v to %+v", c, outcome.Changed, st, after)
			}
			st = after
		}
	})
}
