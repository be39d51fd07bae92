package watch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/problem"
)

// The problems of a fleet. Their subject is the fleet.
var (
	NeverSeen = problem.Define(problem.Kind{
		Code: "broker.fleet-never-seen", Severity: problem.Critical,
		Meaning: "Nothing is known of a linked fleet, neither from its central manager nor from disk: no session can be launched on it.",
		Remedy:  "See that its central manager runs, that this broker reaches it, and that the linked address and certificate are right.",
	})
	CentralDown = problem.Define(problem.Kind{
		Code: "broker.central-manager-down", Severity: problem.Error,
		Meaning: "A fleet's central manager does not answer: sessions are launched by the last good view, without the central manager itself.",
		Remedy:  "Bring it back. Meanwhile holdfast broker override can narrow networks to gateways that are known to be up.",
	})
	AnswerRefused = problem.Define(problem.Kind{
		Code: "broker.answer-refused", Severity: problem.Error,
		Meaning: "A fleet's central manager gives answers that cannot be used: sessions are launched by the last good view.",
		Remedy:  "The detail says what is wrong with the answer; look at the central manager, and at what stands between it and this broker.",
	})
	Contested = problem.Define(problem.Kind{
		Code: "broker.central-manager-contested", Severity: problem.Error,
		Meaning: "More than one gateway of a fleet says that it is the central manager; the linked one counts.",
		Remedy:  "Find out which one should be, take the role from the others, and link the fleet anew if it was not the linked one.",
	})
	ViewOld = problem.Define(problem.Kind{
		Code: "broker.view-old", Severity: problem.Error,
		Meaning: "What is known of a fleet is older than the warning age: gateways may have gone that are still chosen.",
		Remedy:  "Bring the central manager back, or override networks with gateways that are known to be up.",
	})
	ViewExpired = problem.Define(problem.Kind{
		Code: "broker.view-expired", Severity: problem.Critical,
		Meaning: "What is known of a fleet is older than its hard limit, so nothing is launched on it.",
		Remedy:  "Bring the central manager back, or raise the limit of the link.",
	})
	Hopeless = problem.Define(problem.Kind{
		Code: "broker.fleet-hopeless", Severity: problem.Critical,
		Meaning: "No gateway of a fleet ever takes sessions, by its roles: every launch fails whoever is up.",
		Remedy:  "Give a gateway the role managed-host with search-local or search-minion.",
	})
	AllDown = problem.Define(problem.Kind{
		Code: "broker.all-gateways-down", Severity: problem.Critical,
		Meaning: "No gateway of a fleet can take a session now.",
		Remedy:  "Bring a gateway back; this broker notices by itself.",
	})
	Suspected = problem.Define(problem.Kind{
		Code: "broker.gateway-suspected", Severity: problem.Warning,
		Meaning: "Gateways that the central manager does not call down do not answer this broker, which therefore gives them no sessions.",
		Remedy:  "Look at the network between this broker and them. They return when a probe reaches them.",
	})
	Odd = problem.Define(problem.Kind{
		Code: "broker.answer-odd", Severity: problem.Info,
		Meaning: "A central manager's answer has parts that make no sense; they were left out, and the rest is used.",
		Remedy:  "The detail says what is odd; it may be a newer version that says more than this one knows.",
	})
)

// Alarm is one problem of a fleet.
type Alarm struct {
	Kind   *problem.Kind
	Detail string
	Since  time.Time
}

// shownGateways is how many gateways the detail of an alarm names.
const shownGateways = 5

// alarms are the problems that there are now. They follow from the state alone.
func (w *Watch) alarms(now time.Time) []Alarm {
	var alarms []Alarm
	raise := func(present bool, kind *problem.Kind, format string, arguments ...any) {
		if present {
			alarms = append(alarms, Alarm{Kind: kind, Detail: fmt.Sprintf(format, arguments...)})
		}
	}
	p := &w.picture
	silent := w.state == Lost && p.CentralDown
	raise(p.View == nil && w.failures > 0, NeverSeen, "%s: %s", w.link.Address, p.CentralWhy)
	raise(silent, CentralDown, "%s: %s", w.link.Address, p.CentralWhy)
	raise(w.failures > 0 && w.lastFailure.Answered(), AnswerRefused, "%s: %s", w.link.Address, p.CentralWhy)
	if p.View == nil {
		return alarms
	}
	contest := w.lastFailure == fleet.Contradictory && w.failures > 0
	raise(len(p.View.Claims) > 1 || contest, Contested, "%s is linked; %s", p.View.Central, w.contest())
	expired := !p.Usable(now)
	raise(expired, ViewExpired, "the limit is %s", fleet.Ago(p.HardLimit))
	raise(!expired && p.Old(now), ViewOld, "the warning age is %s", fleet.Ago(p.WarnAge))
	hopeless := p.View.Hopeless()
	raise(hopeless != "", Hopeless, "%s", hopeless)
	raise(hopeless == "" && !expired && w.allDown(), AllDown, "%s", w.whoIsDown())
	suspects := w.suspects()
	raise(suspects != "", Suspected, "%s", suspects)
	raise(len(p.View.Remarks) > 0, Odd, "%s", strings.Join(p.View.Remarks[:min(len(p.View.Remarks), shownGateways)], "; "))
	return alarms
}

func (w *Watch) contest() string {
	if w.failures > 0 && w.lastFailure == fleet.Contradictory {
		return w.picture.CentralWhy
	}
	return "the role is also claimed by " + w.named(func(g *fleet.Gateway, _ *fleet.Standing) bool {
		return g.Roles.Has(fleet.CentralManagement) && g.Key != w.picture.View.Central
	})
}

// allDown reports whether no gateway can take a session, as far as is known.
func (w *Watch) allDown() bool {
	for i := range w.picture.View.Gateways {
		if w.up(i) {
			return false
		}
	}
	return true
}

// up reports whether a gateway takes sessions as far as is known.
func (w *Watch) up(i int) bool {
	p := &w.picture
	g := &p.View.Gateways[i]
	obstacle, _ := p.Obstacle(g, &p.Standings[i])
	return g.Refuses() == "" && obstacle == fleet.Nothing
}

func (w *Watch) whoIsDown() string {
	return w.named(func(g *fleet.Gateway, _ *fleet.Standing) bool { return g.Refuses() == "" })
}

func (w *Watch) suspects() string {
	if w.picture.Mode == fleet.Strict {
		return "" // then nothing is made of it
	}
	return w.named(func(g *fleet.Gateway, s *fleet.Standing) bool {
		return !s.SuspectSince.IsZero() && g.Status != fleet.Unavailable
	})
}

// named lists the gateways that are so, the first few by name.
func (w *Watch) named(so func(*fleet.Gateway, *fleet.Standing) bool) string {
	var names []string
	more := 0
	for i := range w.picture.View.Gateways {
		if g := &w.picture.View.Gateways[i]; so(g, &w.picture.Standings[i]) {
			if len(names) == shownGateways {
				more++
			} else {
				names = append(names, g.Shown())
			}
		}
	}
	if more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// present are the alarms that there are now, each with since when, by those that there were before.
func (w *Watch) present(now time.Time) []Alarm {
	current := w.alarms(now)
	for i := range current {
		current[i].Since = now
		if before := slices.IndexFunc(w.raised, func(a Alarm) bool { return a.Kind == current[i].Kind }); before >= 0 {
			current[i].Since = w.raised[before].Since
		}
	}
	return current
}

// Alarms are the alarms that there were after the last step.
func (w *Watch) Alarms() []Alarm { return slices.Clone(w.raised) }
