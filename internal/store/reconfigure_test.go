package store

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// seats reads what is wanted: node numbers; "-" after one: its agent is not up; "z": it rests.
func seats(text string) []Wanted {
	var out []Wanted
	for _, word := range strings.Fields(text) {
		number := strings.TrimRight(word, "-z")
		w := Wanted{Name: "node" + number, Peer: "peer" + number, Up: !strings.Contains(word, "-")}
		if strings.Contains(word, "z") {
			w.Rest = "node" + number + " rests"
		}
		out = append(out, w)
	}
	return out
}

// members reads what is there: node numbers, with letters after them: x does not answer, * leads, l learner that has started,
// n learner that has not, o lost its data, t late.
func members(text string) []Present {
	var out []Present
	for _, word := range strings.Fields(text) {
		number := strings.TrimRight(word, "x*lnot")
		has := func(letter string) bool { return strings.Contains(word, letter) }
		id, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			panic(err)
		}
		p := Present{ID: id, Name: "node" + number, Peer: "peer" + number, Learner: has("l") || has("n"), Started: !has("n"),
			Healthy: !has("x") && !has("o") && !has("n"), Leader: has("*"), Lost: has("o"), Late: has("t")}
		if !p.Started {
			p.Name = ""
		}
		out = append(out, p)
	}
	return out
}

func (k StepKind) String() string {
	return [...]string{"settled", "wait", "add", "promote", "remove", "lead"}[k]
}

func TestNextStep(t *testing.T) {
	for _, c := range []struct{ name, wanted, present, step, reason string }{
		{"one", "1", "1*", "settled", ""},
		{"three", "1 2 3", "1 2* 3", "settled", ""},
		{"three of which one is down", "1 2 3-", "1 2* 3x", "settled", ""},

		{"grow", "1 2 3", "1*", "add node2", "should host a member"},
		{"the learner has not started", "1 2 3", "1* 2n", "wait", "new member on node2 has to start"},
		{"the learner has started", "1 2 3", "1* 2l", "promote node2", "has started"},
		{"the learner has started and died", "1 2 3", "1* 2lx", "wait", "new member on node2 does not answer"},
		{"between one and three", "1 2 3", "1* 2", "add node3", ""},
		{"grow to five", "1 2 3 4 5", "1* 2 3", "add node4", ""},
		{"no second new member", "1 2 3-", "1*", "wait", "node3 should host a member and is not up; with node2 alone the store would have 2 members"},
		{"none up", "1 2- 3-", "1*", "wait", "node2 should host a member and is not up; node3 should"},
		{"the second died in between", "1 2 3-", "1* 2", "wait", "node3 should host a member and is not up"},
		{"two are asked for", "1 2", "1*", "add node2", ""},
		{"a member is ill", "1 2 3 4 5", "1* 2 3x", "wait", "the member on node3 does not answer: a new member is added only while all are well"},
		{"it rests", "1 2z 3", "1*", "wait", "node2 rests; with node3 alone"},

		{"the learner does not start", "1 2 3", "1* 2nt", "remove node2!", "did not start and catch up in time"},
		{"the learner does not catch up", "1 2 3", "1* 2lt", "remove node2!", "did not start and catch up in time"},
		{"the learner is not wanted any more", "1", "1* 2n", "remove peer2", "not wanted any more"},
		{"the learner lost its data", "1 2 3", "1* 2lo", "remove node2", "lost the data"},
		{"a voter died while the learner caught up", "1 2 3 4 5", "1* 2 3x 4l", "promote node4", ""},
		{"no majority to promote it", "1 2 3 4 5", "1* 2 3x 4x 5l", "wait", "2 of 4 members of the store answer"},

		{"replace one that works", "1 2 4", "1* 2 3", "add node4", ""},
		{"the replacement is there", "1 2 4", "1* 2 3 4", "remove node3", "not wanted any more"},
		{"the replacement is not up", "1 2 4-", "1* 2 3", "wait", "node4 should host a member and is not up"},
		{"replace a dead one", "1 2 4", "1* 2 3x", "remove node3", "not wanted and does not answer"},
		{"after that", "1 2 4", "1* 2", "add node4", ""},
		{"replace the leader", "1 2 4", "1 2 3* 4", "lead node1", "node3 leads the store"},
		{"replace all", "4 5 6", "1* 2 3", "add node4", ""},

		{"five to three", "1 2 3", "1* 2 3 4 5", "remove node5", ""},
		{"the leader goes last", "1 2 3", "1 2 3 4 5*", "remove node4", ""},
		{"and hands over first", "1 2 3", "1 2 3 5*", "lead node1", ""},
		{"not while one of the others is ill", "1 2 3", "1* 2x 3 4 5", "wait", "the member on node2 does not answer: node5 is kept meanwhile"},
		{"more than wanted, with one missing", "1 2 6-", "1* 2 3 4", "remove node4", ""},
		{"three to one", "1", "1* 2 3", "remove node3", ""},
		{"to one that never hosted", "4-", "1*", "wait", "node4 should host a member and is not up"},

		{"a disk was wiped", "1 2 3", "1* 2 3o", "remove node3", "removed and added anew"},
		{"two disks of five", "1 2 3 4 5", "1* 2 3 4o 5o", "remove node4", ""},
		{"a disk of two", "1 2", "1* 2o", "wait", "1 of 2 members of the store answer: without a majority its members cannot change"},
		{"nobody is wanted", "", "1*", "wait", "names no host"},
		{"no majority", "1 2 3", "1* 2x 3x", "wait", "1 of 3"},
	} {
		step := NextStep(seats(c.wanted), members(c.present))
		got := step.Kind.String()
		if step.Acts() {
			got += " " + step.Name
		}
		if step.Failed {
			got += "!"
		}
		if got != c.step || !strings.Contains(step.Reason, c.reason) || step.Kind != Settled && step.Reason == "" {
			t.Errorf("%s: wanted %q, present %q: %s (%s), want %s (%s)", c.name, c.wanted, c.present, got, step.Reason, c.step, c.reason)
		}
	}
}

// troupe plays nodes and their members, under the rules of the Raft that stands behind: a change needs a majority.
type troupe struct {
	up      map[int]bool
	data    map[int]uint64 // the member whose data a node has
	members []Present
	next    uint64
}

func (tr *troupe) see() []Present {
	out := slices.Clone(tr.members)
	led := false
	for i, p := range out {
		node := number(p.Peer)
		out[i].Healthy = tr.up[node] && tr.data[node] == p.ID
		out[i].Lost = p.Started && tr.up[node] && tr.data[node] != p.ID
		out[i].Leader = !led && !p.Learner && out[i].Healthy && p.Leader
		led = led || out[i].Leader
	}
	for i := range out { // a dead leader is replaced
		if !led && out[i].Healthy && !out[i].Learner {
			out[i].Leader, led = true, true
		}
	}
	return out
}

func number(peer string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(peer, "peer"))
	if err != nil {
		panic(err)
	}
	return n
}

func (tr *troupe) wanted(nodes []int) []Wanted {
	var out []Wanted
	for _, n := range nodes {
		out = append(out, Wanted{Name: fmt.Sprintf("node%d", n), Peer: fmt.Sprintf("peer%d", n), Up: tr.up[n]})
	}
	return out
}

func count(all []Present) (voters, well, learners int) {
	for _, p := range all {
		switch {
		case p.Learner:
			learners++
		case p.Healthy:
			well++
			fallthrough
		default:
			voters++
		}
	}
	return voters, well, learners
}

// take carries a step out, and what follows from it on the nodes.
func (tr *troupe) take(t *rapid.T, step Step) {
	index := slices.IndexFunc(tr.members, func(p Present) bool { return p.ID == step.ID })
	if step.Kind != AddLearner && index < 0 {
		t.Fatalf("%v names a member that is not there", step)
	}
	switch step.Kind {
	case AddLearner:
		if slices.ContainsFunc(tr.members, func(p Present) bool { return p.Peer == step.Peer }) {
			t.Fatalf("%v is there", step)
		}
		tr.next++
		tr.members = append(tr.members, Present{ID: tr.next, Peer: step.Peer, Learner: true})
	case Promote:
		tr.members[index].Learner = false
	case RemoveMember:
		tr.members = slices.Delete(tr.members, index, index+1)
	case MoveLeader:
		for i := range tr.members {
			tr.members[i].Leader = i == index
		}
	case Settled, Waiting:
	}
}

// start lets the nodes do what the agents do: start a member that was added.
func (tr *troupe) start() {
	for i, p := range tr.members {
		if node := number(p.Peer); p.Learner && !p.Started && tr.up[node] {
			tr.data[node] = p.ID
			tr.members[i].Started, tr.members[i].Name = true, fmt.Sprintf("node%d", node)
		}
	}
}

// checked takes one step and checks what must hold of it.
func (tr *troupe) checked(t *rapid.T, nodes []int) Step {
	before := tr.see()
	step := NextStep(tr.wanted(nodes), before)
	voters, well, _ := count(before)
	if !step.Acts() {
		return step
	}
	if well < majority(voters) {
		t.Fatalf("%v without a majority in %+v", step, before)
	}
	tr.take(t, step)
	after := tr.see()
	voters, well, learners := count(after)
	if voters < 1 || well < majority(voters) || learners > 1 {
		t.Fatalf("after %v there is no majority, or more than one change is under way: %+v", step, after)
	}
	return step
}

// Whatever is wanted and whoever dies, loses its disk or comes back: no step loses the majority, and once all are up the members
// become those that are wanted.
func TestReconfigurationIsSafeAndConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := &troupe{up: map[int]bool{}, data: map[int]uint64{}}
		for node := 1; node <= 7; node++ {
			tr.up[node] = true
		}
		for node := 1; node <= rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "at first"); node++ {
			tr.next++
			tr.data[node] = tr.next
			tr.members = append(tr.members, Present{ID: tr.next, Name: fmt.Sprintf("node%d", node), Peer: fmt.Sprintf("peer%d", node), Started: true})
		}
		want := rapid.Custom(func(t *rapid.T) []int {
			nodes := rapid.Permutation([]int{1, 2, 3, 4, 5, 6, 7}).Draw(t, "order")
			return nodes[:rapid.IntRange(1, 5).Draw(t, "count")]
		})
		nodes := want.Draw(t, "wanted")
		for range rapid.IntRange(0, 40).Draw(t, "events") {
			node := rapid.IntRange(1, 7).Draw(t, "node")
			switch rapid.SampledFrom([]string{"step", "step", "step", "start", "down", "up", "wipe", "want"}).Draw(t, "event") {
			case "step":
				tr.checked(t, nodes)
			case "start":
				tr.start()
			case "down":
				tr.up[node] = false
			case "up":
				tr.up[node] = true
			case "wipe":
				voters, well, _ := count(tr.see())
				if well > majority(voters) { // more than can be lost is lost for good
					tr.up[node], tr.data[node] = true, 0
				}
			case "want":
				nodes = want.Draw(t, "wanted")
			}
		}
		tr.start()
		for node := range tr.up {
			tr.up[node] = true
		}
		if voters, well, _ := count(tr.see()); well < majority(voters) {
			return // disks were lost while others were down
		}
		for range 40 {
			if tr.checked(t, nodes).Kind == Settled {
				break
			}
			tr.start()
		}
		var got, wanted []string
		for _, p := range tr.see() {
			got = append(got, p.Peer)
		}
		for _, n := range nodes {
			wanted = append(wanted, fmt.Sprintf("peer%d", n))
		}
		slices.Sort(got)
		slices.Sort(wanted)
		if !slices.Equal(got, wanted) {
			t.Fatalf("it came to %v, not to %v: %+v", got, wanted, NextStep(tr.wanted(nodes), tr.see()))
		}
	})
}
