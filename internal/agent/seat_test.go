package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/store"
)

// Founding where a store exists would make two of them: a node founds only when every other host says that it is as new.
func TestDecideFounding(t *testing.T) {
	names := map[string]string{"a:1": "node1", "b:1": "node2", "c:1": "node3", "d:1": "node4"}
	hosts := []string{"a:1", "b:1", "c:1"}
	fresh := rosterAnswer{hosts: []string{"c:1", "a:1", "b:1"}}
	roster := rosterRecord{Members: []rosterMember{{ID: "1", Peer: "a:1"}}}
	for name, c := range map[string]struct {
		self    string
		hosts   []string
		answers map[string]rosterAnswer
		want    string // join, found, or what it waits for
		roster  bool
	}{
		"the only host":             {"a:1", []string{"a:1"}, nil, "found", false},
		"all are new":               {"a:1", hosts, map[string]rosterAnswer{"b:1": fresh, "c:1": fresh}, "found", false},
		"one does not answer":       {"a:1", hosts, map[string]rosterAnswer{"b:1": fresh}, "agent of node3 does not answer yet", false},
		"nobody answers":            {"b:1", hosts, nil, "agent of node1, node3 does not answer yet", false},
		"others are asked in vain":  {"a:1", hosts, map[string]rosterAnswer{"d:1": fresh}, "agent of node2, node3 does not answer yet", false},
		"another file":              {"b:1", hosts, map[string]rosterAnswer{"a:1": {hosts: []string{"a:1"}}, "c:1": fresh}, "configuration of node1 names other hosts", false},
		"there is a store":          {"b:1", hosts, map[string]rosterAnswer{"a:1": {belongs: true, roster: roster}, "c:1": fresh}, "join", true},
		"it is just being founded":  {"b:1", hosts, map[string]rosterAnswer{"a:1": {belongs: true}, "c:1": fresh}, "join", false},
		"a node that hosts nothing": {"c:1", hosts, map[string]rosterAnswer{"d:1": {belongs: true, roster: roster}}, "join", true},
		"this one hosts nothing":    {"d:1", hosts, nil, "join", false},
	} {
		got := decideFounding(c.self, c.hosts, names, c.answers)
		said := got.waits
		switch {
		case got.join:
			said = "join"
		case got.found:
			said = "found"
		}
		if !strings.Contains(said, c.want) || (len(got.roster.Members) > 0) != c.roster {
			t.Errorf("%s: %s with %v, want %s", name, said, got.roster, c.want)
		}
	}
}

func TestAttending(t *testing.T) {
	for name, c := range map[string]struct {
		listed, started bool
		id, running     string
		data            bool
		want            seatAction
	}{
		"hosts nothing":                 {false, false, "", "", false, seatStay},
		"runs":                          {true, true, "a", "a", true, seatStay},
		"runs and was just added":       {true, false, "a", "a", true, seatStay},
		"was added":                     {true, false, "a", "", false, seatJoin},
		"could not start":               {true, true, "a", "", true, seatResume},
		"was removed":                   {false, false, "", "a", true, seatLeave},
		"was removed and added anew":    {true, false, "b", "a", true, seatLeave},
		"was removed while it was down": {false, false, "", "", true, seatAside},
		"lost its data":                 {true, true, "a", "", false, seatMissing},
	} {
		if got := attending(c.listed, c.started, c.id, c.running, c.data); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// A learner that does not start is late after two minutes, one that answers after fifteen; a member is lost when its node has said
// for ten seconds that it does not have its data, and not when it has and cannot run.
func TestBenchJudges(t *testing.T) {
	start := time.Unix(1e9, 0)
	says := nodeWord{up: true}
	word := func(string) nodeWord { return says }
	look := func(b *bench, p store.Present, after time.Duration) store.Present {
		return b.judge([]store.Present{p}, word, start.Add(after))[0]
	}
	learner := store.Present{ID: 1, Peer: "p", Learner: true}
	b := newBench()
	if look(&b, learner, 0).Late || look(&b, learner, learnerLimit).Late || !look(&b, learner, learnerLimit+1).Late {
		t.Error("a learner that does not start must be late after the limit and not before")
	}
	b = newBench()
	learner.Started, learner.Healthy = true, true
	if look(&b, learner, 0).Late || look(&b, learner, learnerLimit+1).Late || !look(&b, learner, catchUpLimit+1).Late {
		t.Error("a learner that answers has longer")
	}
	member := store.Present{ID: 0xab, Peer: "p", Started: true}
	for name, c := range map[string]struct {
		says nodeWord
		lost bool
	}{
		"no data":           {nodeWord{up: true}, true},
		"another's data":    {nodeWord{up: true, member: "cd"}, true},
		"its data":          {nodeWord{up: true, member: "ab"}, false},
		"cannot run":        {nodeWord{up: true, fault: "disk full"}, false},
		"not up":            {nodeWord{}, false},
		"up, member stands": {nodeWord{up: true, member: "ab", fault: "x"}, false},
	} {
		b, says = newBench(), c.says
		if look(&b, member, 0).Lost || look(&b, member, lostAfter).Lost {
			t.Errorf("%s: lost too soon", name)
		}
		if got := look(&b, member, lostAfter+1).Lost; got != c.lost {
			t.Errorf("%s: lost is %v", name, got)
		}
	}
	// In between it was well: the time counts anew.
	b, says = newBench(), nodeWord{up: true}
	look(&b, member, 0)
	well := member
	well.Healthy = true
	look(&b, well, 5*time.Second)
	if look(&b, member, lostAfter+1).Lost {
		t.Error("the time did not begin anew")
	}
}

// A node whose member failed rests until its time is over or its agent starts anew.
func TestBenchRests(t *testing.T) {
	config, err := cluster.Parse("test", []byte(testConfig))
	if err != nil {
		t.Fatal(err)
	}
	v := &view{world: &steering.World{Config: config}}
	start := time.Unix(1e9, 0)
	b := newBench()
	b.resting["node2"] = rest{until: start.Add(restAfter), incarnation: 7}
	incarnation := nodeWord{up: true, incarnation: 7}
	resting := func(at time.Time) bool {
		for _, w := range b.wanted(v, func(string) nodeWord { return incarnation }, at) {
			if w.Name == "node2" {
				return w.Rest != ""
			}
		}
		t.Fatal("node2 is not wanted")
		return false
	}
	if !resting(start) || !resting(start.Add(restAfter-1)) {
		t.Error("it does not rest")
	}
	again := b.resting["node2"]
	if resting(start.Add(restAfter)) {
		t.Error("it rests for ever")
	}
	b.resting["node2"] = again
	incarnation.incarnation = 8
	if resting(start) {
		t.Error("a new start is not tried")
	}
}

func TestRosterEndpoints(t *testing.T) {
	roster := rosterRecord{Members: []rosterMember{
		{Peer: "10.0.0.3:7702", Learner: true}, {Peer: "10.0.0.1:7702"}, {Peer: "10.0.0.2:7702"}, {Peer: "nonsense"}, {Peer: "[fd00::1]:7702"},
	}}
	want := []string{"10.0.0.2:7701", "10.0.0.1:7701", "[fd00::1]:7701", "10.0.0.3:7701"}
	if got := endpointsOf(roster, "10.0.0.2:7702"); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	// A learner asks the others first, also where it is this node's own.
	if got := endpointsOf(roster, "10.0.0.3:7702"); got[0] != "10.0.0.1:7701" {
		t.Errorf("a learner's own endpoint comes first: %v", got)
	}
}

func TestRosterIsKept(t *testing.T) {
	dir := t.TempDir()
	if roster, err := readRoster(dir); err != nil || len(roster.Members) != 0 {
		t.Errorf("without a file: %v, %v", roster, err)
	}
	a := &Agent{options: Options{Dir: dir}, now: time.Now, board: &problem.Board{}}
	want := rosterRecord{Members: []rosterMember{{ID: "ab", Name: "node1", Peer: "10.0.0.1:7702", Started: true}}}
	a.keepRoster(want)
	if roster, err := readRoster(dir); err != nil || !roster.equal(want) {
		t.Errorf("%v, %v", roster, err)
	}
	if err := os.WriteFile(filepath.Join(dir, rosterFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readRoster(dir); err == nil || !strings.Contains(err.Error(), "take a copy from another node") {
		t.Errorf("a damaged file: %v", err)
	}
}

// rosterFunc answers for other nodes.
type rosterFunc func(lnn int) (rosterAnswer, error)

func (f rosterFunc) Roster(_ context.Context, lnn int) (rosterAnswer, error) { return f(lnn) }

// A node asks all others at once, and takes those that do not answer as silent.
func TestAskRosters(t *testing.T) {
	config, err := cluster.Parse("test", []byte(testConfig))
	if err != nil {
		t.Fatal(err)
	}
	answers := askRosters(t.Context(), config, 1, rosterFunc(func(lnn int) (rosterAnswer, error) {
		if lnn == 3 {
			return rosterAnswer{}, errors.New("down")
		}
		return rosterAnswer{belongs: lnn == 4}, nil
	}))
	if len(answers) != 2 || answers["10.0.0.12:7702"].belongs || !answers["10.0.0.14:7702"].belongs {
		t.Errorf("%v", answers)
	}
}
