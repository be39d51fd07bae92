package sim

import (
	"slices"
	"time"
)

// Shrink looks for a smaller scenario in which the same is wrong: fewer faults, fewer nodes, less of everything else, and shorter. It
// plays at most so many, and none once it is to stop, and returns the smallest with what became of it. A scenario in which nothing is
// wrong comes back as it is.
//
// A smaller scenario is another history, in which chance falls out otherwise; each is tried with a few seeds.
func Shrink(scenario Scenario, o Options, plays int, stop func() bool) Result {
	o.Trace = nil
	h := shrinking{stop: stop, options: o, plays: plays, best: Play(scenario, o)}
	if h.best.Failure == "" {
		return h.best
	}
	h.kind = h.best.Kind
	for smaller := true; smaller && h.plays > 0 && !h.stop(); {
		smaller = h.cutOff() || h.dropFaults() || h.dropNode() || h.simplify() || h.shorten()
	}
	return h.best
}

type shrinking struct {
	stop    func() bool
	options Options
	plays   int
	best    Result
	kind    FailureKind
}

// seedsTried is with how many seeds a smaller scenario is tried.
const seedsTried = 4

// fails reports whether a scenario fails in the same way, and keeps it if so.
func (h *shrinking) fails(s Scenario) bool {
	for i := range uint64(seedsTried) {
		if h.plays == 0 || h.stop() || s.check() != nil {
			return false
		}
		h.plays--
		again := s
		again.Seed += i
		if result := Play(again, h.options); result.Failure != "" && result.Kind == h.kind {
			h.best = result
			return true
		}
	}
	return false
}

// cutOff leaves out what comes after the failure.
func (h *shrinking) cutOff() bool {
	s := h.best.Scenario
	s.Faults = slices.DeleteFunc(slices.Clone(s.Faults), func(f Fault) bool { return f.At > h.best.At })
	if len(s.Faults) == len(h.best.Scenario.Faults) {
		return false
	}
	return h.fails(s)
}

// dropFaults leaves out the half of the faults, a quarter and so on, down to single ones.
func (h *shrinking) dropFaults() bool {
	faults := h.best.Scenario.Faults
	for size := len(faults) / 2; size > 0; size /= 2 {
		for from := 0; from < len(faults); from += size {
			s := h.best.Scenario
			s.Faults = slices.Delete(slices.Clone(faults), from, min(from+size, len(faults)))
			if h.fails(s) {
				return true
			}
		}
	}
	return len(faults) == 1 && h.fails(func() Scenario { s := h.best.Scenario; s.Faults = nil; return s }())
}

// dropNode leaves out one node and what happens to it; those behind it move up.
func (h *shrinking) dropNode() bool {
	for lnn := h.best.Scenario.Nodes; lnn > 0; lnn-- {
		if h.fails(h.best.Scenario.without(lnn)) {
			return true
		}
	}
	return false
}

// without is a scenario without a node.
func (s Scenario) without(lnn int) Scenario {
	var faults []Fault
	for _, f := range s.Faults {
		if f.Node == lnn || f.Kind != Switch && f.Other == lnn {
			continue
		}
		if f.Node > lnn {
			f.Node--
		}
		if f.Kind != Switch && f.Other > lnn {
			f.Other--
		}
		if f.Kind == Partition {
			low := f.Amount & (1<<lnn - 1)
			f.Amount = low | f.Amount>>(lnn+1)<<lnn
		}
		faults = append(faults, f)
	}
	s.Nodes, s.Faults = s.Nodes-1, faults
	return s
}

// simplify takes away what a scenario has besides faults and nodes.
func (h *shrinking) simplify() bool {
	for _, change := range []func(*Scenario){
		func(s *Scenario) { s.LossPM = 0 },
		func(s *Scenario) { s.Services = 0 },
		func(s *Scenario) { s.Static = false },
		func(s *Scenario) { s.Networks = 1 },
		func(s *Scenario) { s.External = true },
		func(s *Scenario) { s.Unguarded = false },
		func(s *Scenario) { s.Addresses = max(s.Addresses/2, 1) },
		func(s *Scenario) { s.Addresses = max(s.Addresses-1, 1) },
		func(s *Scenario) { s.Delay = max(s.Delay/2, 300*time.Microsecond) },
		func(s *Scenario) { s.Multiplier = min(s.Multiplier, 3) },
	} {
		s := h.best.Scenario
		if change(&s); !s.same(h.best.Scenario) && h.fails(s) {
			return true
		}
	}
	return false
}

// same compares all but the faults and the seed.
func (s Scenario) same(o Scenario) bool {
	return s.Nodes == o.Nodes && s.Interval == o.Interval && s.Multiplier == o.Multiplier && s.Addresses == o.Addresses && s.Static == o.Static &&
		s.Services == o.Services && s.Networks == o.Networks && s.External == o.External && s.Unguarded == o.Unguarded && s.NoWitness == o.NoWitness && s.LossPM == o.LossPM &&
		s.Delay == o.Delay && s.Storm == o.Storm
}

// shorten has faults last half as long, and the storm end earlier.
func (h *shrinking) shorten() bool {
	if s := h.best.Scenario; len(s.Faults) > 0 {
		if s.Storm = s.Faults[len(s.Faults)-1].At + 500*time.Millisecond; s.Storm < h.best.Scenario.Storm && h.fails(s) {
			return true
		}
	}
	for i, f := range h.best.Scenario.Faults {
		if f.Lasts < 20*time.Millisecond {
			continue
		}
		s := h.best.Scenario
		s.Faults = slices.Clone(s.Faults)
		s.Faults[i].Lasts = (f.Lasts / 2).Round(time.Millisecond)
		if h.fails(s) {
			return true
		}
	}
	return false
}
