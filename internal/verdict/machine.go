package verdict

import (
	"fmt"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

// Rules are what a Machine needs to know about its check.
type Rules struct {
	Rise       int           // good results in a row to come back; 1 or more
	Fall       int           // bad results in a row to leave; 1 or more
	StaleAfter time.Duration // without a result for this long the verdict is Unknown; positive
	Damping    Damping
}

// staleRounds is how many rounds may be missing before evidence is stale; the same number as for load samples.
const staleRounds = 3

// RulesFor are the rules of a configured check. Evidence is stale after three rounds, each as long as an interval and
// a timeout, because a check that runs into its timeout reports that late.
func RulesFor(check cluster.Check, damping Damping) Rules {
	return Rules{
		Rise:       max(check.Rise, 1),
		Fall:       max(check.Fall, 1),
		StaleAfter: staleRounds * (check.Interval + check.Timeout),
		Damping:    damping.withDefaults(),
	}
}

// EventKind is what can happen to a Machine.
type EventKind uint8

// The events.
const (
	Good EventKind = iota // a check passed
	Bad                   // a check failed
	Tick                  // time passed without a result
)

var eventNames = [...]string{Good: "good", Bad: "bad", Tick: "tick"}

// String is the name of the event kind as tests and logs show it.
func (k EventKind) String() string {
	if int(k) >= len(eventNames) {
		return fmt.Sprintf("event %d", uint8(k))
	}
	return eventNames[k]
}

// Event is one event, with its evidence unless it is a Tick.
type Event struct {
	Kind     EventKind
	Evidence string
}

// Machine judges one target. Make one with NewMachine.
type Machine struct {
	rules   Rules
	verdict Verdict
	last    time.Time // of the latest event

	good, bad  int       // results in a row
	goodSince  time.Time // first of the good results in a row
	decided    State     // Up or Down: the last state that a result decided; Unknown before the first
	flaps      int
	quietSince time.Time // from when the next quiet period counts; meaningful while Up
}

// NewMachine starts in Unknown. It panics on rules that no Machine can follow, which RulesFor never yields.
func NewMachine(rules Rules) *Machine {
	rules.check()
	return &Machine{rules: rules, verdict: Verdict{Reason: "no result yet"}}
}

func (r Rules) check() {
	if r.Rise < 1 || r.Fall < 1 || r.StaleAfter <= 0 || r.Damping.Base <= 0 ||
		r.Damping.Max < r.Damping.Base || r.Damping.Quiet <= 0 {
		panic(fmt.Sprintf("verdict: impossible rules %+v", r))
	}
}

// SetRules changes the rules from the next event on. The verdict, the counts and the flaps stay: an edited threshold
// must not make a working target Unknown.
func (m *Machine) SetRules(rules Rules) {
	rules.check()
	m.rules = rules
}

// Verdict is the present verdict.
func (m *Machine) Verdict() Verdict { return m.verdict }

// transition is one line of the table: in state From, on event On, go To unless the guard gives a reason to stay. A
// line without a guard and with To equal to From always stays, for the reason in Stay.
type transition struct {
	From State
	On   EventKind
	To   State
	// unless returns why the Machine must stay, or "" when it may move.
	unless func(m *Machine, now time.Time) string
	Stay   string
}

// transitions is the whole of the Machine. Every pair of state and event has exactly one line; Full is not among the
// states because no check yields it.
//
//	          good                          bad                    tick
//	Unknown   Up unless it was held down    Down                   stays
//	Up        stays                         Down at 'fall'         Unknown when stale
//	Down      Up at 'rise' and held long    stays                  Unknown when stale
var transitions = []transition{
	{From: Unknown, On: Good, To: Up, unless: (*Machine).heldDownBefore},
	{From: Unknown, On: Bad, To: Down},
	{From: Unknown, On: Tick, To: Unknown, Stay: "there is no evidence to lose"},
	{From: Up, On: Good, To: Up, Stay: "the last result was good"},
	{From: Up, On: Bad, To: Down, unless: (*Machine).belowFall},
	{From: Up, On: Tick, To: Unknown, unless: (*Machine).fresh},
	{From: Down, On: Good, To: Up, unless: (*Machine).belowRiseOrHeldDown},
	{From: Down, On: Bad, To: Down, Stay: "the last result was bad"},
	{From: Down, On: Tick, To: Unknown, unless: (*Machine).fresh},
}

// Step is the only way in. It returns the verdict after the event and whether its State changed. Time never runs
// backwards for a Machine: a now before that of an earlier event counts as the earlier one. It panics on an event that
// does not exist.
func (m *Machine) Step(event Event, now time.Time) (Verdict, bool) {
	if now.Before(m.last) {
		now = m.last
	}
	m.last = now
	before := m.verdict.State
	if event.Kind != Tick && before != Unknown && m.stale(now) {
		m.follow(Event{Kind: Tick}, now) // the result ends a hole that no tick has noticed
	}
	m.follow(event, now)
	m.verdict.Flaps, m.verdict.Passed = m.flaps, m.good > 0
	m.verdict.HoldDown, m.verdict.HeldUntil = m.holding(now)
	return m.verdict, m.verdict.State != before
}

// follow is Step for one line of the table.
func (m *Machine) follow(event Event, now time.Time) {
	m.forgive(now)
	m.count(event, now)

	line := lookup(m.verdict.State, event.Kind)
	if line.unless != nil {
		if why := line.unless(m, now); why != "" {
			m.stay(event, why)
			return
		}
	}
	if line.To == line.From {
		m.stay(event, line.Stay)
		return
	}
	m.enter(line.To, m.because(line, now), now)
}

func lookup(from State, on EventKind) transition {
	for _, line := range transitions {
		if line.From == from && line.On == on {
			return line
		}
	}
	panic(fmt.Sprintf("verdict: no transition from %s on %s", from, on))
}

// count takes the result into account, before the table is read.
func (m *Machine) count(event Event, now time.Time) {
	switch event.Kind {
	case Good:
		if m.good == 0 {
			m.goodSince = now
		}
		m.good, m.bad = min(m.good+1, m.rules.Rise), 0
	case Bad:
		m.bad, m.good = min(m.bad+1, m.rules.Fall), 0
	case Tick:
		if m.stale(now) {
			m.good, m.bad = 0, 0 // a row with a hole of unknown size is no row
		}
		return
	}
	m.verdict.Evidence, m.verdict.At = event.Evidence, now
}

// stay keeps the state. A tick without news keeps the reason of the last result too.
func (m *Machine) stay(event Event, why string) {
	if event.Kind != Tick {
		m.verdict.Reason = why
	}
}

// enter changes the state and the books that belong to it.
func (m *Machine) enter(to State, reason string, now time.Time) {
	switch to {
	case Up:
		m.decided, m.quietSince = Up, now
	case Down:
		if m.decided == Up {
			m.flaps = min(m.flaps+1, m.rules.Damping.maxFlaps())
		}
		m.decided = Down
	case Unknown:
	default:
		panic(fmt.Sprintf("verdict: a check cannot enter %s", to))
	}
	m.verdict.State, m.verdict.Reason, m.verdict.Since = to, reason, now
}

// because words why the line was followed.
func (m *Machine) because(line transition, now time.Time) string {
	switch {
	case line.On == Tick:
		return fmt.Sprintf("no result for %s", seconds(now.Sub(m.verdict.At)))
	case line.From == Unknown:
		return fmt.Sprintf("the first result was %s", line.On)
	case line.To == Down:
		return fmt.Sprintf("%d bad in a row", m.rules.Fall)
	case m.flaps > 0:
		return fmt.Sprintf("%d good in a row for %s", m.rules.Rise, seconds(now.Sub(m.goodSince)))
	default:
		return fmt.Sprintf("%d good in a row", m.rules.Rise)
	}
}

// forgive takes back one flap for every quiet period that was spent Up. Time without evidence is not quiet time.
func (m *Machine) forgive(now time.Time) {
	if m.verdict.State != Up {
		return
	}
	if known := m.verdict.At.Add(m.rules.StaleAfter); known.Before(now) {
		now = known
	}
	for m.flaps > 0 && now.Sub(m.quietSince) >= m.rules.Damping.Quiet {
		m.flaps--
		m.quietSince = m.quietSince.Add(m.rules.Damping.Quiet)
	}
}

func (m *Machine) stale(now time.Time) bool { return now.Sub(m.verdict.At) >= m.rules.StaleAfter }

func (m *Machine) fresh(now time.Time) string {
	if m.stale(now) {
		return ""
	}
	return "the evidence is fresh"
}

func (m *Machine) belowFall(time.Time) string {
	if m.bad >= m.rules.Fall {
		return ""
	}
	return fmt.Sprintf("%d of %d bad results in a row", m.bad, m.rules.Fall)
}

func (m *Machine) belowRiseOrHeldDown(now time.Time) string {
	if m.good < m.rules.Rise {
		return fmt.Sprintf("%d of %d good results in a row", m.good, m.rules.Rise)
	}
	return m.heldDown(now)
}

// heldDown holds the target back until it has been good for the whole hold-down. A bad result begins it anew, because
// it ends the row of good ones.
func (m *Machine) heldDown(now time.Time) string {
	hold := m.rules.Damping.HoldDown(m.flaps)
	left := hold - now.Sub(m.goodSince)
	if left <= 0 {
		return ""
	}
	return fmt.Sprintf("good again, held down for another %s (%s after %d flaps)", seconds(left), seconds(hold), m.flaps)
}

// holding is the hold-down that alone keeps the target back now, and when it ends.
func (m *Machine) holding(now time.Time) (time.Duration, time.Time) {
	hold := m.rules.Damping.HoldDown(m.flaps)
	if m.verdict.State == Up || m.decided != Down || m.good < m.rules.Rise || now.Sub(m.goodSince) >= hold {
		return 0, time.Time{}
	}
	return hold, m.goodSince.Add(hold)
}

// heldDownBefore goes on with the hold-down of a target that was Down when its evidence ran out. One that was Up has
// nothing to make good.
func (m *Machine) heldDownBefore(now time.Time) string {
	if m.decided != Down {
		return ""
	}
	return m.heldDown(now)
}

// seconds prints a duration for people: milliseconds are enough.
func seconds(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
