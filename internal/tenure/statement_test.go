package tenure

import (
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
	moving := Statement{Owner: one, Next: three, To: two, Epoch: 4}
	fixed := Statement{Owner: one, Epoch: 4, Fixed: true}
	returned := Claim{LNN: 1, Interface: "eth0", Incarnation: 4}
	for _, test := range []struct {
		name   string
		before Statement
		change Change
		owner  Claim
		to     Claim
		epoch  uint64
		stays  bool
	}{
		{"an unowned address is assigned", Statement{}, Change{Action: Assign, To: one}, one, Claim{}, 1, false},
		{"an owned one is not", held, Change{Action: Assign, To: two}, one, Claim{}, 4, true},
		{"a live owner is not failed over", held, Change{Action: FailOver, To: two}, one, Claim{}, 4, true},
		{"a dead one is", held, Change{Action: FailOver, To: two, Over: true}, two, Claim{}, 5, false},
		{"in the middle of a move too", moving, Change{Action: FailOver, To: three, Over: true}, three, Claim{}, 5, false},
		{"a move begins and changes no owner", held, Change{Action: BeginMove, To: two}, one, two, 4, false},
		{"a move to where it is, is none", held, Change{Action: BeginMove, To: one}, one, Claim{}, 4, true},
		{"a move can be turned", moving, Change{Action: BeginMove, To: three}, one, three, 4, false},
		{"a move back is a cancel", moving, Change{Action: BeginMove, To: one}, one, Claim{}, 4, false},
		{"a move can be cancelled", moving, Change{Action: Cancel}, one, Claim{}, 4, false},
		{"the owner completes it", moving, Change{Action: Complete, By: one}, two, Claim{}, 5, false},
		{"nobody else does, not even the target", moving, Change{Action: Complete, By: two}, one, two, 4, true},
		{"nor the owner under another incarnation", moving, Change{Action: Complete, By: Claim{LNN: 1, Interface: "eth0", Incarnation: 4}}, one, two, 4, true},
		{"nothing moving, nothing to complete", held, Change{Action: Complete, By: one}, one, Claim{}, 4, true},
		{"the owner may abandon it", held, Change{Action: Abandon, By: one}, Claim{}, Claim{}, 5, false},
		{"a fixed owner's end frees nothing", fixed, Change{Action: FailOver, To: two, Over: true}, one, Claim{}, 4, true},
		{"but its node is the owner again", fixed, Change{Action: FailOver, To: returned, Over: true}, returned, Claim{}, 5, false},
		{"and an operator may take the node away", fixed, Change{Action: FailOver, To: two, Over: true, Gone: true}, two, Claim{}, 5, false},
		{"a fixed owner may abandon it", fixed, Change{Action: Abandon, By: one}, Claim{}, Claim{}, 5, false},
		{"nobody else may", held, Change{Action: Abandon, By: two}, one, Claim{}, 4, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			after, outcome := test.before.Step(test.change)
			if after.Owner != test.owner || after.To != test.to || after.Epoch != test.epoch || outcome.Changed == test.stays {
				t.Errorf("got %+v, %+v", after, outcome)
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

// The rule on which everything rests: the owner changes only by the owner itself, or once it is over, or when there was none.
func TestOwnerChangesOnlyByItselfOrOnceOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		claims := rapid.SampledFrom([]Claim{{}, one, two, three})
		st := Statement{}
		for range rapid.IntRange(1, 40).Draw(t, "changes") {
			c := Change{
				Action: rapid.SampledFrom([]Action{Assign, FailOver, BeginMove, Cancel, Complete, Abandon}).Draw(t, "action"),
				By:     claims.Draw(t, "by"), To: claims.Draw(t, "to"), Over: rapid.Bool().Draw(t, "over"),
			}
			after, outcome := st.Step(c)
			if after.Owner != st.Owner {
				byOwner := c.By == st.Owner && (c.Action == Complete || c.Action == Abandon)
				over := c.Action == FailOver && c.Over
				if !st.Owner.IsZero() && !byOwner && !over {
					t.Fatalf("%+v by %s changed the owner from %s to %s", c, c.By, st.Owner, after.Owner)
				}
				if after.Epoch != st.Epoch+1 {
					t.Fatalf("the epoch went from %d to %d with a change of owner", st.Epoch, after.Epoch)
				}
			}
			if outcome.Changed == (after == st) {
				t.Fatalf("%+v: changed=%v, from %+v to %+v", c, outcome.Changed, st, after)
			}
			st = after
		}
	})
}
