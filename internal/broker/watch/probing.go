package watch

import (
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
)

// wanted reports whether a gateway is to be probed from time to time: under probe, those that could take sessions, from the first poll on
// that fails, because then nobody else tells who dies; and always those that are suspected, as nothing else would bring them back.
func (w *Watch) wanted(i int) bool {
	p := &w.picture
	g, s := &p.View.Gateways[i], &p.Standings[i]
	if p.Mode != fleet.Probe || g.Refuses() != "" {
		return false
	}
	return p.Source == fleet.LastGood || w.failures > 0 || !s.SuspectSince.IsZero()
}

// dueProbes picks gateways to be probed, in turn, as many as may be under way at once.
func (w *Watch) dueProbes(now time.Time) (due []*fleet.Gateway) {
	p := &w.picture
	if p.View == nil || p.Mode != fleet.Probe {
		return nil
	}
	n := len(p.View.Gateways)
	free := MaxProbes
	for i := range w.probes {
		if w.probes[i].underWay {
			free--
		}
	}
	for range n {
		if free <= 0 {
			break
		}
		i := w.nextProbe
		w.nextProbe = (w.nextProbe + 1) % n
		if pr := &w.probes[i]; !pr.underWay && w.wanted(i) && (pr.asked.IsZero() || now.Sub(pr.asked) >= w.link.Probe) {
			pr.asked, pr.underWay = now, true
			due = append(due, &p.View.Gateways[i])
			free--
		}
	}
	return due
}

// probeDue is when a probe is due or given up next; zero if never.
func (w *Watch) probeDue() (next time.Time) {
	for i := range w.probes {
		var at time.Time
		switch pr := &w.probes[i]; {
		case pr.underWay:
			at = pr.asked.Add(lost * ProbeTimeout)
		case w.wanted(i):
			at = pr.asked.Add(w.link.Probe)
		default:
			continue
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

func (w *Watch) probed(e Probed, now time.Time) {
	if w.picture.View == nil {
		return
	}
	i, found := w.picture.View.Find(e.Gateway)
	if !found {
		return // it has left meanwhile
	}
	w.probes[i].underWay = false
	w.heard(i, e.Reached, e.Evidence, now)
}

func (w *Watch) launched(e Launched, now time.Time) {
	if w.picture.View == nil {
		return
	}
	i, found := w.picture.View.Find(e.Gateway)
	if !found {
		return
	}
	switch e.Outcome {
	case Chosen:
		if s := &w.picture.Standings[i]; s.Launches < maxLaunches {
			s.Launches++
		}
	case Reached:
		w.heard(i, true, "", now)
	case Missed:
		w.heard(i, false, e.Evidence, now)
	}
}

// maxLaunches keeps the count from starting anew.
const maxLaunches = 1 << 31

// heard notes whether a gateway answered this broker.
func (w *Watch) heard(i int, reached bool, evidence string, now time.Time) {
	s := &w.picture.Standings[i]
	if reached {
		s.ProvenAt, s.SuspectSince, s.SuspectWhy = now, time.Time{}, ""
		return
	}
	if s.SuspectSince.IsZero() {
		s.SuspectSince = now
	}
	s.SuspectWhy = evidence
}
