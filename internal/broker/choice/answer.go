package choice

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/rules"
)

// Request is one session about to start.
type Request struct {
	Target   string     // as the user named it; may be empty if there is an address
	Address  netip.Addr // of the target; invalid: not known, and no subnet applies
	Protocol fleet.Protocol
	Policy   string      // under which the session is granted; empty: none, and every linked fleet may take it
	Tried    []fleet.Ref // gateways that this launch has been refused by already
	Now      time.Time   // of the clock that pictures are reckoned by
	Wall     time.Time   // of the wall clock, by which overrides end

	MaxAlternates int // 0 means DefaultAlternates; at most MaxListed
	MaxLeftOut    int // 0 means DefaultLeftOut; at most MaxListed
}

// Bounds of an Answer. What is left out of a list is counted.
const (
	DefaultAlternates = 4
	DefaultLeftOut    = 16
	MaxListed         = 5000
)

// Pick is a gateway that may be launched on.
type Pick struct {
	Fleet    string
	Position int // in the view of its fleet
	Gateway  *fleet.Gateway
	Port     uint16
	Order    int
	Weight   int
	Fitness  float64
	Known    bool // whether the fitness is known
	Revived  bool // the last good view has it down, and a probe has reached it since
	Launches uint32
}

// Ref names the gateway.
func (p *Pick) Ref() fleet.Ref { return fleet.Ref{Fleet: p.Fleet, Gateway: p.Gateway.Key} }

// Why is why a gateway was left out.
type Why uint8

// The reasons, in the order in which they are looked for.
const (
	NotInFleet    Why = iota // the rule names it, and its fleet does not have it
	NoView                   // of its fleet there is no view that may be used
	WrongFleet               // the rule names it, and the policy names another fleet
	WrongRole                // it never takes sessions
	WrongProtocol            // it does not take sessions of this protocol
	AlreadyTried             // this launch was refused by it
	CentralGone              // it is the central manager, which cannot be reached
	SaidDown                 // the central manager says that it is down
	Silent                   // it no longer reports to the central manager
	Suspect                  // a probe or a launch found it dead
	fit                      // none: it can take the session
)

// LeftOut is a gateway that could not be picked.
type LeftOut struct {
	Ref    fleet.Ref
	Why    Why
	Detail string    // what is known beyond Why; may be empty
	Since  time.Time // zero: not known, or always
}

// Says is why the gateway was left out, in words, at a moment.
func (l *LeftOut) Says(now time.Time) string {
	text := l.Detail
	switch l.Why {
	case NotInFleet:
		text = "it is not in its fleet"
	case NoView:
		text = "of its fleet nothing is known that may be used"
	case WrongFleet:
		text = "the policy names another fleet"
	case WrongProtocol:
		text = "it takes no sessions of this protocol"
	case AlreadyTried:
		text = "this launch did not get through to it"
	case CentralGone:
		text = "it is the central manager, which cannot be reached"
	case Silent:
		text = "it no longer reports to the central manager"
	case Suspect:
		text = "it did not answer this broker: " + l.Detail
	case WrongRole, SaidDown, fit:
	}
	if !l.Since.IsZero() {
		text += " (for " + fleet.Ago(now.Sub(l.Since)) + ")"
	}
	return text
}

// Answer is what was chosen and what it rests on.
type Answer struct {
	Pick
	Alternates []Pick // next best first
	More       int    // how many more could have been picked
	LeftOut    []LeftOut
	LeftOutTo  int // how many were left out beyond those that are listed

	Rule     rules.Match // the rule that was used
	FellBack bool        // the gateways of the rule were all out, and it says that the default network takes over
	Policy   string
	Source   fleet.Source
	Age      time.Duration // of the view that the pick rests on
	AtLeast  bool          // the view may be older than Age
	Old      bool          // Age is beyond the warning age
	At       time.Time
	Formula  Formula
}

// Explain tells the whole of an answer in lines.
func (a *Answer) Explain() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", a.Ref(), a.reason())
	fmt.Fprintf(&b, "rule: %s\n", a.rule())
	fmt.Fprintf(&b, "view: %s\n", a.view())
	for i := range a.Alternates {
		p := &a.Alternates[i]
		fmt.Fprintf(&b, "then: %s, %s\n", p.Ref(), a.score(p))
	}
	if a.More > 0 {
		fmt.Fprintf(&b, "then: %d more\n", a.More)
	}
	for i := range a.LeftOut {
		fmt.Fprintf(&b, "not: %s: %s\n", a.LeftOut[i].Ref, a.LeftOut[i].Says(a.At))
	}
	if a.LeftOutTo > 0 {
		fmt.Fprintf(&b, "not: %d more\n", a.LeftOutTo)
	}
	return b.String()
}

func (a *Answer) reason() string {
	candidates := 1 + len(a.Alternates) + a.More
	if candidates == 1 {
		return "the only one that can take it; " + a.score(&a.Pick)
	}
	return fmt.Sprintf("the first of %d that can take it; %s", candidates, a.score(&a.Pick))
}

func (a *Answer) score(p *Pick) string {
	var text string
	if p.Order > 0 {
		text = fmt.Sprintf("order %d, ", p.Order)
	}
	switch {
	case p.Revived:
		return text + "the last good view has it down, and a probe has reached it since"
	case p.Known:
		return text + fmt.Sprintf("fitness %.4g (%s)", p.Fitness, a.Formula.describe(p))
	default:
		return text + a.Formula.describe(p)
	}
}

func (a *Answer) rule() string {
	text := ruleText(&a.Rule)
	if a.FellBack {
		text += "; all its gateways are out, and it says that those of the default network take over"
	}
	if a.Policy != "" {
		text = fmt.Sprintf("policy %s has fleet %s; %s", a.Policy, a.Fleet, text)
	}
	return text
}

// ruleText names a rule and how the target came to it.
func ruleText(m *rules.Match) string {
	text := "network " + m.Network + ", " + m.By.String()
	if m.By == rules.BySubnet {
		text += " " + m.Subnet.String()
	}
	if m.Override != nil {
		text += ", with the gateways of its override"
		if m.Override.Note != "" {
			text += " (" + m.Override.Note + ")"
		}
	}
	return text
}

func (a *Answer) view() string {
	text := fmt.Sprintf("%s, %s old", a.Source, fleet.Ago(a.Age))
	if a.AtLeast {
		text = fmt.Sprintf("%s, at least %s old", a.Source, fleet.Ago(a.Age))
	}
	if a.Source == fleet.LastGood {
		text += "; the central manager gives no answer that can be used, so what has happened since is not in it"
	}
	if a.Old {
		text += "; that is older than it should be"
	}
	return text
}
