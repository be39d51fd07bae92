package fleet

import (
	"testing"
	"time"
)

// What keeps a gateway from taking sessions: each obstacle, which of two counts, and what a probe that reached it undoes.
func TestObstacles(t *testing.T) {
	fetched := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	before, after := fetched.Add(-time.Second), fetched.Add(time.Second)
	live, old := Picture{Source: Live, FetchedAt: fetched}, Picture{Source: LastGood, FetchedAt: fetched}
	strict := Picture{Source: LastGood, FetchedAt: fetched, Mode: Strict}
	gone := old
	gone.CentralDown = true
	for _, test := range []struct {
		name     string
		picture  Picture
		key      string
		status   Status
		standing Standing
		want     Obstacle
		revived  bool
	}{
		{"all is well", live, "a", Available, Standing{}, Nothing, false},
		{"nothing is said of it", live, "a", Unknown, Standing{}, Nothing, false},
		{"it is said to be down", live, "a", Unavailable, Standing{}, SaidDown, false},
		{"and a probe has reached it", live, "a", Unavailable, Standing{ProvenAt: after}, SaidDown, false},
		{"by an old view", old, "a", Unavailable, Standing{}, SaidDown, false},
		{"and a probe has reached it since", old, "a", Unavailable, Standing{ProvenAt: after}, Nothing, true},
		{"and one had before", old, "a", Unavailable, Standing{ProvenAt: before}, SaidDown, false},
		{"and one has, and the next one did not", old, "a", Unavailable, Standing{ProvenAt: after, SuspectSince: after}, SaidDown, false},
		{"and one has, under strict", strict, "a", Unavailable, Standing{ProvenAt: after}, SaidDown, false},
		{"it is silent", live, "a", Available, Standing{SilentSince: before}, Silent, false},
		{"it was silent by an old view, and a probe has reached it", old, "a", Available, Standing{SilentSince: before, ProvenAt: after}, Nothing, true},
		{"it did not answer", live, "a", Available, Standing{SuspectSince: after}, Suspect, false},
		{"it did not answer, under strict", strict, "a", Available, Standing{SuspectSince: after}, Nothing, false},
		{"the central manager is gone", gone, "cm", Available, Standing{ProvenAt: after}, CentralGone, false},
		{"and the others are not", gone, "a", Available, Standing{}, Nothing, false},
	} {
		test.picture.View = &View{Central: "cm"}
		g := Gateway{Key: test.key, Status: test.status}
		if got, revived := test.picture.Obstacle(&g, &test.standing); got != test.want || revived != test.revived {
			t.Errorf("%s: %d, revived %v; want %d, %v", test.name, got, revived, test.want, test.revived)
		}
	}
}

func TestOld(t *testing.T) {
	fetched := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p := Picture{View: &View{}, FetchedAt: fetched, WarnAge: time.Minute}
	if p.Old(fetched.Add(time.Minute-1)) || !p.Old(fetched.Add(time.Minute)) {
		t.Error("the warning age does not count at its moment")
	}
	p.View = nil
	if p.Old(fetched.Add(time.Hour)) {
		t.Error("nothing is old")
	}
	p.View, p.WarnAge = &View{}, 0
	if p.Old(fetched.Add(time.Hour)) {
		t.Error("without a warning age it is old")
	}
}
