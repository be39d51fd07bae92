package main

import (
	"math"
	"slices"
	"time"
)

// report is everything that was measured in one run.
type report struct {
	Began   time.Time      `json:"began"`
	Machine string         `json:"machine"`
	Kernel  string         `json:"kernel"`
	Rounds  int            `json:"rounds"`
	ProbeMS int            `json:"probe_ms"` // between two probes of one address: the resolution of every gap
	Beside  int            `json:"beside"`   // labs of slow systems that were up at once
	Systems []systemReport `json:"systems"`
}

// systemReport is one system with one set of settings.
type systemReport struct {
	Name     string       `json:"name"`
	Settings string       `json:"settings"`
	Version  string       `json:"version,omitempty"`
	Absent   string       `json:"absent,omitempty"`   // why it was not measured
	Troubles []string     `json:"troubles,omitempty"` // rounds in which it did not come up
	Cases    []caseReport `json:"cases"`
	Idle     *idleReport  `json:"idle,omitempty"`
}

// caseReport is one fault, done several times to one system.
type caseReport struct {
	Fault    string       `json:"fault"`
	Runs     int          `json:"runs"`     // after which the addresses answered from other nodes
	GapMS    distribution `json:"gap_ms"`   // the longest that any address did not answer the client
	GapsMS   []float64    `json:"gaps_ms"`  // the same, each run
	Held     int          `json:"held"`     // runs after which the victim had an address on an interface still
	Failures []string     `json:"failures"` // runs that did not get there, with the reason
}

// idleReport is how long after a link cut a client noticed that sends nothing.
type idleReport struct {
	Runs      int          `json:"runs"`      // in all
	AfterMS   distribution `json:"after_ms"`  // of those that noticed
	AftersMS  []float64    `json:"afters_ms"` // the same, each run
	Unnoticed int          `json:"unnoticed"` // runs in which it had noticed nothing when idlePatience was over
}

// distribution is a distribution in short; by the nearest rank: with fewer than a hundred values the 99th percentile is the longest. It is what
// `holdfast lab run failover` says of gaps, computed in the same way.
type distribution struct {
	Median float64 `json:"p50"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

func distributionOf(values []float64) distribution {
	if len(values) == 0 {
		return distribution{}
	}
	sorted := slices.Sorted(slices.Values(values))
	at := func(share float64) float64 { // by the nearest rank: the least value that at least this share of all does not exceed
		return sorted[int(math.Ceil(share*float64(len(sorted))))-1]
	}
	return distribution{Median: at(0.5), P99: at(0.99), Max: sorted[len(sorted)-1]}
}

// outcome is what one run came to.
type outcome struct {
	gapMS  float64
	held   bool
	idle   bool    // an idle client was watched
	idleMS float64 // when it noticed; negative: it did not
}

// caseOf returns the case of a fault, which it makes if need be.
func (s *systemReport) caseOf(fault string) *caseReport {
	i := slices.IndexFunc(s.Cases, func(c caseReport) bool { return c.Fault == fault })
	if i < 0 {
		i = len(s.Cases)
		s.Cases = append(s.Cases, caseReport{Fault: fault, GapsMS: []float64{}, Failures: []string{}})
	}
	return &s.Cases[i]
}

// add enters a run.
func (s *systemReport) add(fault string, o outcome) {
	c := s.caseOf(fault)
	c.Runs++
	c.GapsMS = append(c.GapsMS, o.gapMS)
	c.GapMS = distributionOf(c.GapsMS)
	if o.held {
		c.Held++
	}
	if !o.idle {
		return
	}
	if s.Idle == nil {
		s.Idle = &idleReport{AftersMS: []float64{}}
	}
	s.Idle.Runs++
	if o.idleMS < 0 {
		s.Idle.Unnoticed++
		return
	}
	s.Idle.AftersMS = append(s.Idle.AftersMS, o.idleMS)
	s.Idle.AfterMS = distributionOf(s.Idle.AftersMS)
}

// failed enters a run that did not get to its end.
func (s *systemReport) failed(fault string, why error) {
	c := s.caseOf(fault)
	c.Failures = append(c.Failures, why.Error())
}
