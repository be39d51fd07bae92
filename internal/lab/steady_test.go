package lab

import (
	"strings"
	"testing"
)

// TestNothingMayChange: a case in which nothing should move fails by each thing that did, also if it was put right since.
func TestNothingMayChange(t *testing.T) {
	before := standing{holders: map[string]string{"10.10.0.100": "node1", "10.10.0.4": "node2"}, records: map[string]int64{"pool/p": 7, "service/s": 8}}
	for name, c := range map[string]struct {
		after standing
		want  disturbance
	}{
		"the same":                     {before, disturbance{}},
		"one moved":                    {standing{map[string]string{"10.10.0.100": "node3", "10.10.0.4": "node2"}, before.records}, disturbance{Moved: 1}},
		"one is with nobody":           {standing{map[string]string{"10.10.0.100": "", "10.10.0.4": "node2"}, before.records}, disturbance{Moved: 1}},
		"one is gone, one is new":      {standing{map[string]string{"10.10.0.100": "node1", "10.10.0.5": "node2"}, before.records}, disturbance{Moved: 2}},
		"moved away and back, by that": {standing{before.holders, map[string]int64{"pool/p": 9, "service/s": 8}}, disturbance{Records: 1}},
	} {
		got := c.after.since(before)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		one := failoverCase{BoundMS: 1}
		if one.judge([]seen{{disturbed: &got}, {disturbed: &disturbance{}}}); one.Pass != (c.want == disturbance{}) || one.Disturbed == nil || *one.Disturbed != c.want {
			t.Errorf("%s: the case is %+v", name, one)
		}
	}
	one := failoverCase{BoundMS: 1}
	if one.judge([]seen{{disturbed: &disturbance{Connections: 2}}, {disturbed: &disturbance{Connections: 1}}}); one.Pass || !strings.Contains(one.Why, "3 connections were lost") {
		t.Errorf("lost connections: %+v", one)
	}
	one = failoverCase{BoundMS: 1}
	if one.judge([]seen{{}}); !one.Pass || one.Disturbed != nil {
		t.Errorf("a case in which addresses move: %+v", one)
	}
}

// TestAConnectionStandsByItsAnswer: what counts is not that no end was seen, but that what is said on the same connection is answered.
func TestAConnectionStandsByItsAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		one  watchedReport
		want int
	}{
		"answered": {watchedReport{Node: "node1", Answers: 1}, 0}, "silent": {watchedReport{Node: "node1"}, 1},
		"another one answers": {watchedReport{Node: "node1", Answers: 1, Broke: true}, 1},
	} {
		if got := (probeReport{Watched: map[string]watchedReport{"10.10.0.100": c.one, "10.10.0.101": {Answers: 1}}}).unheard(); got != c.want {
			t.Errorf("%s: %d lost, want %d", name, got, c.want)
		}
	}
}
