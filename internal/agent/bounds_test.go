package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/store"
)

// Everything that is kept has a bound. These are the bounds of the agent, and what happens there.

// The oldest events go; those that are left keep their numbers, and who follows goes on from where he was.
func TestTheOldestEventsGo(t *testing.T) {
	l := newEventLog()
	for i := range maxEvents {
		l.add(event{Subject: fmt.Sprint(i + 1)})
	}
	if kept, _ := l.after(0); len(kept) != maxEvents || kept[0].ID != 1 {
		t.Fatalf("%d events are kept, from %d on", len(kept), kept[0].ID)
	}
	for i := range 3 * maxEvents {
		l.add(event{Subject: fmt.Sprint(maxEvents + i + 1)})
		if n := len(l.ring); n > maxEvents || n < maxEvents/2 {
			t.Fatalf("%d events are kept", n)
		}
	}
	kept, _ := l.after(1) // long gone
	for i, e := range kept {
		if e.ID != kept[0].ID+int64(i) || e.Subject != fmt.Sprint(e.ID) {
			t.Fatalf("event %d is %+v", i, e)
		}
	}
	if last := kept[len(kept)-1]; last.ID != 4*maxEvents {
		t.Errorf("the last event is %d", last.ID)
	}
	if rest, more := l.after(4*maxEvents - 2); len(rest) != 2 || more == nil {
		t.Errorf("a follower gets %d", len(rest))
	}
	if rest, _ := l.after(4 * maxEvents); len(rest) != 0 {
		t.Errorf("a follower who has all gets %d", len(rest))
	}
}

// Of records that cannot be read the first are remembered; the rest are left alone all the same, and one that is mended makes room.
func TestUnreadableRecordsAreRememberedWithinABound(t *testing.T) {
	r := newReplica()
	put := func(key, value string) {
		r.apply(store.Batch{Events: []store.Event{{Entry: store.Entry{Key: key, Value: []byte(value), Revision: 1}}}, Revision: 1}, time.Unix(1000, 0))
	}
	key := func(i int) string { return keyDrain + fmt.Sprint(i+1) }
	for i := range maxForeign + 6 {
		put(key(i), "{")
	}
	if len(r.foreign) != maxForeign || len(r.drains) != 0 {
		t.Errorf("%d are remembered, %d were read", len(r.foreign), len(r.drains))
	}
	put(key(0), `{"by":"test"}`)
	put(key(maxForeign), "{")
	if _, remembered := r.foreign[key(maxForeign)]; !remembered || len(r.foreign) != maxForeign || len(r.drains) != 1 {
		t.Errorf("after one was mended: %d are remembered, %d were read", len(r.foreign), len(r.drains))
	}
}

// What another node says of the store's members is taken up to a bound.
func TestARosterIsTakenWithinABound(t *testing.T) {
	var said []*holdfastv1.RosterMember
	for i := range maxRoster + 3 {
		said = append(said, &holdfastv1.RosterMember{Id: fmt.Sprint(i + 1)})
	}
	got := rosterFromMessages(said)
	if len(got.Members) != maxRoster || got.Members[maxRoster-1].ID != fmt.Sprint(maxRoster) {
		t.Errorf("%d members are taken", len(got.Members))
	}
	if got := rosterFromMessages(said[:2]); len(got.Members) != 2 {
		t.Errorf("of two %d are taken", len(got.Members))
	}
}

// A message about more answers than a large cluster can have is refused whole.
func TestAnswersToldAreTakenWithinABound(t *testing.T) {
	node := cluster.Node{LNN: 2, Name: "node2"}
	request := func(answers, standings int) *holdfastv1.AnsweredRequest {
		r := &holdfastv1.AnsweredRequest{Holder: 2}
		for range answers {
			r.Answers = append(r.Answers, &holdfastv1.PoolAnswers{Pool: pool0, Lnn: 1, Count: 1})
		}
		for range standings {
			r.Standings = append(r.Standings, &holdfastv1.PoolStanding{Pool: pool0, Known: 7})
		}
		return r
	}
	if told, theirs, err := toldBy(node, request(maxPoolAnswers, 1)); err != nil || len(told.Answers) != maxPoolAnswers || len(theirs) != 1 {
		t.Errorf("as many as there can be: %d, %v, %v", len(told.Answers), theirs, err)
	}
	for _, r := range []*holdfastv1.AnsweredRequest{request(maxPoolAnswers+1, 0), request(0, maxPoolAnswers+1), {Holder: 3},
		{Holder: 2, Answers: []*holdfastv1.PoolAnswers{{Pool: "nonsense"}}}, {Holder: 2, Standings: []*holdfastv1.PoolStanding{{Pool: "nonsense"}}}} {
		if told, _, err := toldBy(node, r); !api.IsInvalid(err) {
			t.Errorf("%d answers and %d standings of node %d: %v, %d taken", len(r.Answers), len(r.Standings), r.Holder, err, len(told.Answers))
		}
	}
}

// Problems that do not fit are counted where metrics are read.
func TestProblemsThatAreNotKeptAreCounted(t *testing.T) {
	a := &Agent{board: &problem.Board{}}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{a})
	for i := range 1024 + 3 {
		a.board.Set(problemForeign, fmt.Sprint(i), "", time.Unix(1000, 0))
	}
	text := exposition(t, registry)
	for _, line := range []string{"holdfast_agent_problems_dropped_total 3\n", `holdfast_agent_problems{code="problem.list-full",severity="warning"} 1` + "\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("not said: %s in\n%s", line, text)
		}
	}
}
