package choice

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/rules"
)

// Code is why nothing was launched, for programs.
type Code string

// The codes.
const (
	NoClusterInfo         Code = "NO_CLUSTER_INFO"             // of no fleet that may take the session is anything known
	NoSessionCapableNode  Code = "NO_SESSION_CAPABLE_NODE"     // no gateway there ever takes sessions
	AllNodesDown          Code = "ALL_NODES_DOWN"              // the sessions module is down
	NetworkExhausted      Code = "NETWORK_EXHAUSTED"           // those of the target's network are out, others are not
	PolicyFleetMismatch   Code = "POLICY_FLEET_MISMATCH"       // policy and rules name different fleets, or what is not there
	NoProtocolCapability  Code = "NO_PROTOCOL_CAPABILITY"      // none takes sessions of the protocol
	LaunchFailedStaleView Code = "LAUNCH_FAILED_ON_STALE_VIEW" // those that the last good view has did not answer
)

// Refusal is why nothing was launched.
type Refusal struct {
	Code      Code
	Text      string // what, since when, who was tried
	Remedy    string // what to do
	LeftOut   []LeftOut
	LeftOutTo int // how many were left out beyond those that are listed
	Rule      rules.Match
}

// Error is the code, the text and the remedy.
func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s. %s.", r.Code, r.Text, r.Remedy) }

func (c *choosing) noFleet() *Refusal {
	return &Refusal{
		Code: NoClusterInfo, Text: "no fleet of session gateways is linked to this broker, so nothing can be launched",
		Remedy: "Link one by its central manager: holdfast broker link",
	}
}

func (c *choosing) noPolicy() *Refusal {
	return &Refusal{
		Code: PolicyFleetMismatch, Text: fmt.Sprintf("there is no policy %.50q that would name a fleet, and it is not guessed which was meant", c.request.Policy),
		Remedy: "Correct the policy's name in the request, or make the policy: holdfast broker rules",
	}
}

func (c *choosing) policyUnlinked(name string) *Refusal {
	names := make([]string, len(c.world.Fleets))
	for i, p := range c.world.Fleets {
		names[i] = p.Fleet
	}
	return &Refusal{
		Code:   PolicyFleetMismatch,
		Text:   fmt.Sprintf("policy %s names fleet %s, which is not linked to this broker; linked: %s", c.request.Policy, name, some(names)),
		Remedy: "Link the fleet (holdfast broker link), or correct the policy (holdfast broker rules)",
	}
}

// refuse finds the reason why nobody is left.
func (c *choosing) refuse() *Refusal {
	r := &Refusal{LeftOut: c.leftOut, LeftOutTo: c.leftOutTo, Rule: c.rule}
	// What the whole of the fleets looks like tells a rule that is exhausted from a sessions module that is down.
	all := choosing{world: c.world, request: c.request, only: c.only, best: make([]Pick, 0, 1)}
	all.gatherAll()
	usable, whole := c.usable(), all.looked()
	switch {
	case usable == 0:
		r.Code, r.Text, r.Remedy = NoClusterInfo, c.unknown(), "See that the central manager runs and that this broker reaches it: holdfast broker fleets"
	case whole > 0 && all.out[WrongRole] == whole:
		r.Code, r.LeftOut, r.LeftOutTo = NoSessionCapableNode, all.leftOut, all.leftOutTo
		r.Text = fmt.Sprintf("the sessions module is down: no gateway of %s ever takes sessions: %s", c.scope(), c.reasons(all.leftOut))
		r.Remedy = "Give a gateway the role managed-host with search-local or search-minion, or link another fleet"
	case c.rule.Missing:
		r.Code = NetworkExhausted
		r.Text = fmt.Sprintf("target %s is assigned to network %s, which does not exist any more, and it is not guessed where else it may go", c.request.Target, c.rule.Network)
		r.Remedy = "Make the network again or remove the assignment: holdfast broker rules"
	case !c.served():
		r.Code = PolicyFleetMismatch
		r.Text = fmt.Sprintf("policy %s names fleet %s, and %s has no gateway of it", c.request.Policy, c.only.Fleet, ruleText(&c.rule))
		r.Remedy = "Add a gateway of that fleet to the network, or correct the policy: holdfast broker rules"
	case c.stale() && c.out[AlreadyTried] > 0:
		r.Code, r.Text = LaunchFailedStaleView, c.failedLaunch()
		r.Remedy = "Bring the central manager back, or override the network with gateways that are known to be up: holdfast broker override"
	case c.lacksProtocol():
		r.Code = NoProtocolCapability
		r.Text = fmt.Sprintf("no gateway of %s takes %s sessions: %s", c.scopeOfRule(), c.request.Protocol, c.reasons(c.leftOut))
		r.Remedy = "Give a gateway a connection policy for the protocol, or name one that has it: holdfast broker rules"
	case all.candidates > 0 && c.rule.Members != nil:
		r.Code = NetworkExhausted
		r.Text = fmt.Sprintf("%s: none of its gateways can take the session: %s. Of all gateways %d could, but the rule does not let them",
			ruleText(&c.rule), c.reasons(c.leftOut), all.candidates)
		r.Remedy = "Bring one of its gateways back, override it for now (holdfast broker override), or let it fall back: on-exhausted default"
	default:
		r.Code, r.LeftOut, r.LeftOutTo = AllNodesDown, all.leftOut, all.leftOutTo
		r.Text = fmt.Sprintf("the sessions module is down%s: no gateway of %s can take a session: %s", c.since(), c.scope(), c.reasons(all.leftOut))
		r.Remedy = "Bring a gateway or the central manager back; this broker goes on looking and notices by itself"
	}
	return r
}

// looked is how many gateways were looked at.
func (c *choosing) looked() int {
	sum := c.candidates
	for _, n := range c.out {
		sum += n
	}
	return sum
}

func (c *choosing) usable() (n int) {
	for _, p := range c.allowed() {
		if p.Usable(c.request.Now) {
			n++
		}
	}
	return n
}

func (c *choosing) stale() bool {
	for _, p := range c.allowed() {
		if p.Source == fleet.LastGood && p.Usable(c.request.Now) {
			return true
		}
	}
	return false
}

// lacksProtocol reports whether some gateway that was looked at could take sessions by its role, and none of those the protocol.
func (c *choosing) lacksProtocol() bool {
	return c.out[WrongProtocol] > 0 && c.out[WrongProtocol]+c.out[WrongRole]+c.out[NotInFleet]+c.out[NoView]+c.out[WrongFleet] == c.looked()
}

// scope names the fleets that may take the session.
func (c *choosing) scope() string {
	fleets := c.allowed()
	if len(fleets) == 1 {
		return "fleet " + fleets[0].Fleet
	}
	names := make([]string, len(fleets))
	for i, p := range fleets {
		names[i] = p.Fleet
	}
	return "fleets " + some(names)
}

func (c *choosing) scopeOfRule() string {
	if c.rule.Members == nil || c.fellBack {
		return c.scope()
	}
	return ruleText(&c.rule)
}

// shown is how many things a text names before it says how many more there are.
const shown = 5

func some(names []string) string {
	if len(names) > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
	}
	return strings.Join(names, ", ")
}

// reasons lists who was left out and why.
func (c *choosing) reasons(leftOut []LeftOut) string {
	var texts []string
	for i := range leftOut[:min(len(leftOut), shown)] {
		texts = append(texts, leftOut[i].Ref.String()+": "+leftOut[i].Says(c.request.Now))
	}
	if len(leftOut) > shown {
		texts = append(texts, "and others")
	}
	return strings.Join(texts, "; ")
}

// unknown says of each fleet why nothing of it is known.
func (c *choosing) unknown() string {
	var texts []string
	for _, p := range c.allowed() {
		asked := fmt.Sprintf("of fleet %s nothing is known: its central manager %s has not given an answer for %s", p.Fleet, p.Asked, fleet.Ago(c.request.Now.Sub(p.CentralSince)))
		if p.View != nil {
			asked = fmt.Sprintf("of fleet %s the last good view is %s old, and views of %s or more are not to be used; its central manager %s has not given an answer for %s",
				p.Fleet, fleet.Ago(p.Age(c.request.Now)), fleet.Ago(p.HardLimit), p.Asked, fleet.Ago(c.request.Now.Sub(p.CentralSince)))
		}
		if p.CentralWhy != "" {
			asked += " (" + p.CentralWhy + ")"
		}
		texts = append(texts, asked)
	}
	if len(texts) > shown {
		texts = append(texts[:shown], "and so on")
	}
	return strings.Join(texts, "; ")
}

// since says for how long a central manager has been away, as that is when the trouble began.
func (c *choosing) since() string {
	var longest time.Duration
	for _, p := range c.allowed() {
		if p.Source == fleet.LastGood {
			longest = max(longest, c.request.Now.Sub(p.CentralSince))
		}
	}
	for i := range c.leftOut {
		if since := c.leftOut[i].Since; !since.IsZero() && longest == 0 {
			return "" // each gateway says it for itself
		}
	}
	if longest == 0 {
		return ""
	}
	return ", and the central manager has not answered for " + fleet.Ago(longest)
}

func (c *choosing) failedLaunch() string {
	tried := make([]string, len(c.request.Tried))
	for i, ref := range c.request.Tried {
		tried[i] = ref.String()
	}
	age, since := time.Duration(0), time.Duration(0)
	for _, p := range c.allowed() {
		if p.Source == fleet.LastGood {
			age, since = max(age, p.Age(c.request.Now)), max(since, c.request.Now.Sub(p.CentralSince))
		}
	}
	return fmt.Sprintf("the launch got through to none of the gateways that the last good view has: %s; the view is %s old, and the central manager has not answered for %s",
		some(tried), fleet.Ago(age), fleet.Ago(since))
}

// Failed is the refusal for a launch whose gateway did not answer and that tries no other, as under strict: from an answer, what the
// dial came to, and the moment. It is nil where the view was live: then Choose with the gateway among those tried says what is left.
func Failed(a *Answer, evidence string, now time.Time) *Refusal {
	if a.Source != fleet.LastGood {
		return nil
	}
	return &Refusal{
		Code: LaunchFailedStaleView, Rule: a.Rule, LeftOut: a.LeftOut, LeftOutTo: a.LeftOutTo,
		Text: fmt.Sprintf("gateway %s did not take the session (%s); it was chosen by the last good view, which is %s old, because the central manager gives no answer that can be used",
			a.Ref(), evidence, fleet.Ago(a.Age+now.Sub(a.At))),
		Remedy: "Launch again with probes (mode probe), or override the network with gateways that are known to be up: holdfast broker override",
	}
}
