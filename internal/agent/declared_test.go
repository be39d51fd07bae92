package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/store"
	"github.com/holdfast/holdfast/internal/tenure"
)

func (a asker) Declared(_ context.Context, lnn int, r *holdfastv1.DeclaredRequest) (*holdfastv1.DeclaredResponse, error) {
	agent, err := a.reach(lnn)
	if err != nil {
		return nil, err
	}
	return agent.answerDeclared(r)
}

// declareDead asks a node's agent.
func (c *testCluster) declareDead(lnn int, r *holdfastv1.DeclareDeadRequest) (*holdfastv1.ChangeResult, error) {
	if r.Options == nil {
		r.Options = &holdfastv1.ChangeOptions{NoWait: true}
	}
	return nodeService{c.nodes[lnn].agent}.DeclareDead(context.Background(), r)
}

// lapse lets nodes die at once and waits until the others have lapsed.
func (c *testCluster) lapse(dead ...int) {
	c.t.Helper()
	for _, lnn := range dead { // at one moment: nobody may find one of them down before the next dies
		for other := range c.nodes {
			c.sever(lnn, other, true)
		}
		c.nodes[lnn].store.Cut(true)
	}
	for _, lnn := range dead {
		c.kill(lnn)
	}
	c.eventually("the others have lapsed", func() bool {
		for lnn := range c.nodes {
			if len(c.onKernel(lnn)) > 0 {
				return false
			}
		}
		return true
	})
	c.pass(5 * time.Second)
	for lnn := range c.nodes {
		if held := c.onKernel(lnn); len(held) > 0 {
			c.t.Fatalf("node %d holds %v without a majority", lnn, held)
		}
	}
	for _, lnn := range dead {
		for other := range c.nodes {
			c.sever(lnn, other, false)
		}
	}
}

const power = "the rack lost its power"

// Two of the three that observe die at once: the two others lapse and stay so, until an operator says that the dead are dead.
func TestTwoOfFourDieAtOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.lapse(2, 3)
		said, err := c.declareDead(1, &holdfastv1.DeclareDeadRequest{Nodes: []string{"node3", "2"}, Reason: power, Options: &holdfastv1.ChangeOptions{DryRun: true}})
		if err != nil {
			t.Fatal(err)
		}
		if want := "node1: may hold by the word of node4\nnode4: may hold by the word of node1"; said.Note != want || len(said.Moves) < 6 {
			t.Errorf("the dry run says %q and %d moves", said.Note, len(said.Moves))
		}
		c.pass(time.Second)
		if n := c.pool(1) + c.pool(4); n != 0 {
			t.Fatalf("after the dry run %d addresses are held", n)
		}
		began := time.Now()
		if _, err := c.declareDead(1, &holdfastv1.DeclareDeadRequest{Nodes: []string{"node3", "2"}, Reason: power}); err != nil {
			t.Fatal(err)
		}
		c.eventually("all twelve are on the survivors", func() bool { return c.spreadIs(6, 0, 0, 6) })
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
		c.eventually("the word is on record", func() bool { return c.onRecordDead(3) && c.onRecordDead(2) })
		story, _ := c.nodes[4].agent.events.after(0)
		if !slices.ContainsFunc(story, func(e event) bool {
			return e.Kind == "node.declared-dead" && e.Subject == "node3" && strings.Contains(e.Message, power) && e.Fields["by"] == "somebody on node1"
		}) {
			t.Errorf("node 4 does not say who declared what and why\n%s", c.story())
		}
		c.start(3)
		c.start(2)
		c.eventually("they are back as any other", func() bool { return c.spreadIs(3, 3, 3, 3) })
		if c.onRecordDead(3) {
			t.Error("node 3 is back and still on record as dead")
		}
		c.kill(4)
		c.eventually("a death is found out by itself again", func() bool { return c.spreadIs(4, 4, 4, 0) })
	})
}

// onRecordDead reports whether the store has an operator's word that a node is dead.
func (c *testCluster) onRecordDead(lnn int) bool {
	record, _, err := store.GetRecord[memberRecord](context.Background(), c.store.Connect(), memberKey(lnn))
	return err == nil && record.Value.Over && record.Value.Declared != nil && record.Value.Declared.Reason == power
}

func TestAllButOneDie(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.lapse(1, 2, 4)
		if _, err := c.declareDead(3, &holdfastv1.DeclareDeadRequest{Nodes: []string{"1-2", "node4"}, Reason: power}); err != nil {
			t.Fatal(err)
		}
		c.eventually("all twelve are on the survivor", func() bool { return c.spreadIs(0, 0, 12, 0) })
		c.start(2)
		c.eventually("the second has its part", func() bool { return c.pool(2) == 6 && c.pool(3) == 6 })
	})
}

// Without a majority of the store no incarnation can begin: the word is kept, and acted upon as soon as the store answers. An agent
// that starts meanwhile learns it from the store.
func TestDeclaredDeadWithoutTheStore(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.store.LoseQuorum(true)
		c.lapse(2, 3)
		said, err := c.declareDead(1, &holdfastv1.DeclareDeadRequest{Nodes: []string{"3", "2"}, Reason: power})
		if err != nil {
			t.Fatal(err)
		}
		c.pass(10 * time.Second)
		if !c.spreadIs(0, 0, 0, 0) {
			t.Fatalf("somebody holds although no incarnation can have begun: %v", said)
		}
		if _, err := c.declareDead(1, &holdfastv1.DeclareDeadRequest{Nodes: []string{"3", "2"}, Reason: power, ForceStore: true}); err == nil || !strings.Contains(err.Error(), "not embedded") {
			t.Errorf("a store that is not embedded is rebuilt: %v", err)
		}
		c.end(4) // its agent is restarted, and has forgotten
		c.start(4)
		c.store.LoseQuorum(false)
		c.eventually("all twelve are on the survivors", func() bool { return c.spreadIs(6, 0, 0, 6) })
		if !c.onRecordDead(3) || !c.onRecordDead(2) || !c.nodes[4].agent.tenancy.Declared(3) {
			t.Error("the word is not on record, or the agent that started later does not know")
		}
	})
}

// Whoever lives is not declared dead, and nobody without a reason.
func TestDeclaringTheLivingDeadIsRefused(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		before := c.snapshot()
		for want, r := range map[string]*holdfastv1.DeclareDeadRequest{
			"agent of node3 answers":    {Nodes: []string{"3"}, Reason: power},
			"node1 is the node":         {Nodes: []string{"1"}, Reason: power, Force: true},
			"say why":                   {Nodes: []string{"3"}, Reason: " ", Force: true},
			`no node "node9"`:           {Nodes: []string{"node9"}, Reason: power},
			"at most 500 bytes":         {Nodes: []string{"3"}, Reason: strings.Repeat("x", 501)},
			"store is not embedded in ": {Nodes: []string{"3"}, Reason: power, Force: true, ForceStore: true},
		} {
			if _, err := c.declareDead(1, r); err == nil || !strings.Contains(api.Text(err), want) {
				t.Errorf("%v: %v, want %q", r, err, want)
			}
		}
		c.sever(1, 3, true) // the asked node does not reach it, and the others hear it
		c.pass(time.Second)
		if _, err := c.declareDead(1, &holdfastv1.DeclareDeadRequest{Nodes: []string{"3"}, Reason: power}); err == nil || !strings.Contains(api.Text(err), "node2 hears the heartbeats of node3") {
			t.Errorf("one that others hear: %v", err)
		}
		c.sever(1, 3, false)
		c.pass(time.Second)
		if diff := cmp.Diff(fmt.Sprint(before), fmt.Sprint(c.snapshot())); diff != "" {
			t.Errorf("something moved:\n%s", diff)
		}
		if _, err := c.declareDead(1, &holdfastv1.DeclareDeadRequest{Nodes: []string{"3"}, Reason: power, Force: true}); err != nil {
			t.Fatal(err)
		}
		// It is told as any other node that answers, gives up, and comes back. The word is a person's: what two nodes have meanwhile is not looked at.
		time.Sleep(20 * time.Second)
		c.eventually("it is back under its next incarnation", func() bool { return c.spreadIs(3, 3, 3, 3) })
	})
}

func TestWhatFollowsFromDeclaringDead(t *testing.T) {
	name := func(lnn int) string { return fmt.Sprintf("n%d", lnn) }
	for _, test := range []struct {
		name     string
		nodes    int
		dead     []int
		answers  []int
		want     string
		revision string
	}{
		{"two of four", 4, []int{3, 4}, []int{1, 2}, "n1: may hold by the word of n2\nn2: may hold by the word of n1", ""},
		{"all but one", 4, []int{1, 2, 3}, []int{4}, "n4: may hold by itself, whoever else is reached", ""},
		{"one forgotten", 5, []int{3, 4}, []int{1, 2}, "n1: may hold by the word of n2\nn2: may hold by the word of n1\nn5: no answer, and not named here, so that the others still need that word; name it too if it is dead", ""},
		{"two forgotten, of which one observes", 5, []int{4}, []int{1, 2}, "n1: may hold by the word of n2\nn2: may hold by the word of n1\nn3, n5: no answer, and not named here, so that the others still need that word; name it too if it is dead", ""},
	} {
		d := declaring{self: test.answers[0], dead: test.dead, opinions: map[int]opinion{}, name: name}
		for lnn := 1; lnn <= test.nodes; lnn++ {
			d.all = append(d.all, tenure.Voice{LNN: lnn})
		}
		for _, lnn := range test.answers {
			d.opinions[lnn] = opinion{}
		}
		if diff := cmp.Diff(test.want, d.follows()); diff != "" {
			t.Errorf("%s:\n%s", test.name, diff)
		}
	}
}

// A copy of the store that lacks what somebody has seen is not made the store.
func TestAnOldCopyIsNotMadeTheStore(t *testing.T) {
	d := declaring{opinions: map[int]opinion{1: {revision: 100}, 2: {revision: 102}}}
	if err := enough("n1", 101, d); err == nil || !strings.Contains(api.Text(err), "ends at revision 101, and a node that answers has seen revision 102") {
		t.Errorf("an old copy: %v", err)
	}
	if err := enough("n1", 102, d); err != nil {
		t.Error(err)
	}
}

// An operator's word is written once, and not over a node that came back.
func TestAnOperatorsWordInARecord(t *testing.T) {
	word := declaration{3, 7, declaredRecord{By: "user 0 on n1", Reason: power}}
	for name, test := range map[string]struct {
		before memberRecord
		want   bool
	}{
		"of the incarnation": {memberRecord{Incarnation: 7}, true}, "found down before": {memberRecord{Incarnation: 7, Over: true}, true},
		"of an earlier one": {memberRecord{Incarnation: 6}, true}, "none": {memberRecord{}, true},
		"said already": {memberRecord{Incarnation: 7, Over: true, Declared: &declaredRecord{}}, false}, "it came back": {memberRecord{Incarnation: 8}, false},
	} {
		if after, changed := test.before.declared(word); changed != test.want || changed && (!after.Over || after.Incarnation != 7 || after.Declared.Reason != power) {
			t.Errorf("%s: %t %+v", name, changed, after)
		}
	}
}
