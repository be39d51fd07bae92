package watch

import (
	"fmt"
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
)

// State is how it stands with the central manager.
type State uint8

// The states.
//
//	           answer   failure                        view from disk
//	Unheard    Live     Lost at 'misses'               Unheard, with a view
//	Live       Live     Faltering, or Lost at 'misses' nothing
//	Faltering  Live     Lost at 'misses'               nothing
//	Lost       Live     Lost                           nothing
const (
	Unheard   State = iota // it has not answered since this broker started
	Live                   // its last poll gave a view
	Faltering              // polls fail, not yet for long enough
	Lost                   // the last good view is what there is
)

var stateNames = [...]string{Unheard: "unheard", Live: "live", Faltering: "faltering", Lost: "lost"}

// String is the state in lower case.
func (s State) String() string {
	if int(s) >= len(stateNames) {
		return fmt.Sprintf("state %d", uint8(s))
	}
	return stateNames[s]
}

// Watch watches one fleet. Make one with New.
type Watch struct {
	link    Link
	picture fleet.Picture
	state   State
	last    time.Time // of the latest event
	due     time.Time // when something is due although nothing happens

	polling     bool // a poll is under way
	polledAt    time.Time
	failures    int // in a row
	refusals    int // of them the last ones that were refused
	lastFailure fleet.FailureKind
	keptAt      time.Time

	beats     []beat  // of the view's gateways, at the same positions
	probes    []probe // of the same
	nextProbe int     // position where the next look for due probes begins
	raised    []Alarm // that there were after the last step
}

// beat is when a gateway's report was seen to change.
type beat struct {
	seen    time.Time // as the fleet's clock has it; only compared for being the same
	changed time.Time // by the broker's clock
}

// probe is when a gateway was probed.
type probe struct {
	asked    time.Time
	underWay bool
}

// New begins to watch, at a moment. Nothing is known until an event says so.
func New(link Link, now time.Time) *Watch {
	link = link.withDefaults()
	return &Watch{
		link: link, last: now,
		picture: fleet.Picture{
			Fleet: link.Fleet, Asked: link.Address, Mode: link.Mode, WarnAge: link.WarnAge, HardLimit: link.HardLimit, CentralSince: now,
		},
	}
}

// Picture is what is known now. It is lent until the next step.
func (w *Watch) Picture() *fleet.Picture { return &w.picture }

// State is how it stands with the central manager.
func (w *Watch) State() State { return w.state }

// Central is the key of the central manager that counts; empty: none is known yet.
func (w *Watch) Central() string { return w.link.Central }

// Step is the only way in. Time never runs backwards for a Watch: a now before that of an earlier event counts as the earlier one.
func (w *Watch) Step(event Event, now time.Time) Actions {
	if now.Before(w.last) {
		now = w.last
	}
	w.last = now
	if e, ok := event.(Launched); ok && e.Outcome == Chosen {
		w.launched(e, now) // there may be thousands a second, and nothing else follows from one
		return Actions{Next: w.due}
	}
	before := w.state
	var a Actions
	switch e := event.(type) {
	case Answered:
		w.polling = false
		a.Keep = w.answered(e.View, now)
	case Failed:
		w.polling = false
		w.failed(e.Failure)
	case Probed:
		w.probed(e, now)
	case Launched:
		w.launched(e, now)
	case Restored:
		w.restored(e, now)
	case Tick:
	default:
		panic(fmt.Sprintf("watch: there is no event %v", event))
	}
	w.giveUp(now)
	w.listen(now)
	a.Poll = w.duePoll(now)
	a.Probe = w.dueProbes(now)
	a.Keep = a.Keep || w.dueKeep(now)
	if a.Keep {
		w.keptAt = now
	}
	w.raised = w.present(now)
	w.due = w.next(now)
	a.Next = w.due
	if w.state != before {
		a.Told = w.because(before)
	}
	return a
}

// because words a change of state.
func (w *Watch) because(before State) string {
	text := fmt.Sprintf("the central manager of fleet %s was %s and is %s", w.link.Fleet, before, w.state)
	if w.state == Live {
		return text
	}
	return fmt.Sprintf("%s: %d failed polls, the last one %s: %s", text, w.failures, w.lastFailure, w.picture.CentralWhy)
}

// answered takes a view over. It returns whether it differs from the last one in more than figures.
func (w *Watch) answered(view *fleet.View, now time.Time) bool {
	if view == nil {
		panic("watch: an answer without a view") // a poll that gave none has failed
	}
	if w.link.Central == "" {
		w.link.Central = view.Central
	}
	if view.Central != w.link.Central {
		w.failed(fleet.Failure{
			Kind:     fleet.Contradictory,
			Evidence: fmt.Sprintf("the answer speaks for %s, and the linked central manager is %s", view.Central, w.link.Central),
		})
		return false
	}
	changed := !view.Alike(w.picture.View)
	w.adopt(view, now)
	p := &w.picture
	p.Source, p.FetchedAt, p.AtLeast = fleet.Live, now, false
	p.CentralDown, p.CentralSince, p.CentralWhy = false, now, ""
	w.state, w.failures, w.refusals = Live, 0, 0
	return changed
}

// adopt makes a view the present one, with what is known of its gateways by their keys.
func (w *Watch) adopt(view *fleet.View, now time.Time) {
	p := &w.picture
	n := len(view.Gateways)
	standings, beats, probes := make([]fleet.Standing, n), make([]beat, n), make([]probe, n)
	for i := range view.Gateways {
		g := &view.Gateways[i]
		old, known := 0, false
		if p.View != nil {
			old, known = p.View.Find(g.Key)
		}
		beats[i] = beat{seen: g.LastSeen, changed: now}
		if known {
			standings[i], probes[i] = p.Standings[old], w.probes[old]
			if !g.LastSeen.IsZero() && g.LastSeen.Equal(w.beats[old].seen) {
				beats[i].changed = w.beats[old].changed
			} else {
				standings[i].Launches = 0 // the new sample has them
			}
		}
		s := &standings[i]
		if g.Status != fleet.Unavailable {
			s.DownSince = time.Time{}
		} else if s.DownSince.IsZero() {
			s.DownSince = now
		}
	}
	p.View, p.Standings, w.beats, w.probes = view, standings, beats, probes
	w.nextProbe = 0
}

// failed counts a poll that gave no view.
func (w *Watch) failed(f fleet.Failure) {
	p := &w.picture
	w.failures = min(w.failures+1, 1<<30)
	w.lastFailure = f.Kind
	if w.refusals++; f.Kind != fleet.Refused {
		w.refusals = 0
	}
	p.CentralWhy = f.Evidence
	if w.failures < w.link.Misses && w.refusals < refusedMisses && w.state != Lost {
		if w.state == Live {
			w.state = Faltering
		}
		return
	}
	w.state = Lost
	if p.View != nil {
		p.Source = fleet.LastGood
	}
	p.CentralDown = !f.Kind.Answered()
}

// restored takes a view from disk over, if there is no other.
func (w *Watch) restored(e Restored, now time.Time) {
	p := &w.picture
	if p.View != nil || e.View == nil || w.link.Central != "" && e.View.Central != w.link.Central {
		return
	}
	if w.link.Central == "" {
		w.link.Central = e.View.Central
	}
	w.adopt(e.View, now)
	p.Source, p.FetchedAt, p.AtLeast = fleet.LastGood, now.Add(-max(0, e.Age)), e.AtLeast
	// It may have died with the broker. It is given nothing until it has answered, which takes one poll if it lives.
	p.CentralDown = true
	w.keptAt = now
}

// listen notes gateways whose reports to the central manager have stopped changing. Only what a live central manager says counts, and
// only that it changes: their clocks may show anything.
func (w *Watch) listen(now time.Time) {
	p := &w.picture
	if w.state != Live {
		return
	}
	for i := range w.beats {
		g, s := &p.View.Gateways[i], &p.Standings[i]
		silent := !g.LastSeen.IsZero() && g.Key != p.View.Central && now.Sub(w.beats[i].changed) > silentAfter+w.link.Poll
		if !silent {
			s.SilentSince = time.Time{}
		} else if s.SilentSince.IsZero() {
			s.SilentSince = w.beats[i].changed
		}
	}
}

// giveUp ends a poll that never came back.
func (w *Watch) giveUp(now time.Time) {
	if limit := lost * w.link.Timeout; w.polling && now.Sub(w.polledAt) >= limit {
		w.polling = false
		w.failed(fleet.Failure{Kind: fleet.TimedOut, Evidence: fmt.Sprintf("a poll did not come back within %s", fleet.Ago(limit))})
	}
	for i := range w.probes {
		if w.probes[i].underWay && now.Sub(w.probes[i].asked) >= lost*ProbeTimeout {
			w.probes[i].underWay = false // what became of it is not known
		}
	}
}

func (w *Watch) duePoll(now time.Time) bool {
	if w.polling || !w.polledAt.IsZero() && now.Sub(w.polledAt) < w.link.Poll {
		return false
	}
	w.polling, w.polledAt = true, now
	return true
}

func (w *Watch) dueKeep(now time.Time) bool {
	return w.picture.View != nil && now.Sub(w.keptAt) >= w.link.Keep
}

// next is when something is due although nothing happens.
func (w *Watch) next(now time.Time) time.Time {
	next := w.polledAt.Add(w.link.Poll)
	if w.polling {
		next = w.polledAt.Add(lost * w.link.Timeout)
	}
	if p := &w.picture; p.View != nil {
		for _, t := range []time.Time{w.keptAt.Add(w.link.Keep), p.FetchedAt.Add(p.WarnAge), p.FetchedAt.Add(p.HardLimit), w.probeDue()} {
			if t.After(now) && t.Before(next) {
				next = t
			}
		}
	}
	return next
}
