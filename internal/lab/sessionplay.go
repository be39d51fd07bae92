package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// sessionStory is a scenario about sessions while it plays.
type sessionStory struct {
	*sessions
	result   *sessionsResult
	launches int      // how many in all
	rounds   int      // over which they are spread
	user     *program // it opens the sessions
	dead     []string // gateways
	silent   []string // brokers
}

// sessionCase is a row of the contract (docs/broker.md, "When something is down"), played.
type sessionCase struct {
	name, title string
	fleet       func() []gatewayPlan
	rounds      int // of launches
	play        func(*sessionStory, context.Context) error
}

// playSessions plays one on a lab of its own.
func playSessions(c sessionCase) func(context.Context, *transcript, runOptions) (any, bool, error) {
	return func(ctx context.Context, out *transcript, o runOptions) (any, bool, error) {
		result := &sessionsResult{Scenario: c.name, Pass: true, ByGateway: map[string]int{}, Refused: map[string]int{}, Rounds: []sessionRound{}}
		out.title("%s", c.title)
		s, err := newSessions(ctx, c.fleet(), out, o.keep)
		if err != nil {
			return result, false, err
		}
		story := &sessionStory{sessions: s, result: result, launches: o.launches, rounds: c.rounds}
		err = story.begin(ctx)
		if err == nil {
			err = c.play(story, ctx)
		}
		if err = errors.Join(err, s.close()); err != nil {
			result.Pass = false
			return result, false, err
		}
		out.title("What %d launches got, and why", result.Launches)
		result.table(out, s.gatewayNames())
		for _, wrong := range result.Wrong {
			out.verdict(false, "%s", wrong)
		}
		out.verdict(result.Pass, "%d sessions were opened, %d launches refused, %d failed, %d handed a dead gateway", sum(result.ByGateway), sum(result.Refused), result.Failed, result.ToDead)
		return result, result.Pass, nil
	}
}

func sum(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}

// begin links the fleet on every broker and brings the user in.
func (p *sessionStory) begin(ctx context.Context) (err error) {
	if err := p.link(ctx); err != nil {
		return err
	}
	if p.user, err = p.start(ctx, sessionUser, "holdfast", "lab", "launches"); err != nil {
		return err
	}
	p.programs = append(p.programs, p.user)
	var nothing []launched
	return p.user.read(&nothing)
}

// check records one thing besides the launches that has to be so.
func (p *sessionStory) check(good bool, format string, arguments ...any) {
	if !p.out.verdict(good, format, arguments...) {
		p.result.Pass = false
		p.result.Wrong = append(p.result.Wrong, fmt.Sprintf(format, arguments...))
	}
}

// round does its share of the launches, and compares with what is expected. The dead gateways and the brokers that are up follow from
// what has been done, unless they are given.
func (p *sessionStory) round(ctx context.Context, e expected) error {
	if e.dead == nil {
		e.dead = slices.Clone(p.dead)
	}
	asked := e.brokers
	if asked == nil {
		asked = p.brokers
	}
	e.brokers = slices.DeleteFunc(slices.Clone(asked), func(broker string) bool { return slices.Contains(p.silent, broker) })
	e.enough = len(e.brokers) * len(p.fleet)
	done := len(p.result.Rounds)
	count := p.launches/p.rounds + min(1, max(0, p.launches%p.rounds-done))
	all, err := p.launch(ctx, asked, max(1, count), !e.strict)
	if err != nil {
		return err
	}
	addresses := make(map[string]string)
	for _, gateway := range p.gatewayNames() {
		addresses[gateway] = p.address(gateway)
	}
	r := tallyRound(e, all, addresses)
	wrong := p.result.add(r, e)
	p.out.verdict(len(wrong) == 0, "%s: %s", e.what, firstOf(strings.Join(wrong, "; "), r.text()))
	if len(e.brokers) > 0 {
		p.explain(ctx, e.brokers[0])
	}
	return nil
}

// text is what a round got, in a sentence.
func (r *sessionRound) text() string {
	var parts []string
	if len(r.ByGateway) > 0 {
		parts = append(parts, byNode(r.ByGateway))
	}
	if len(r.Refused) > 0 {
		parts = append(parts, "refused: "+byNode(r.Refused))
	}
	if r.Failed > 0 {
		parts = append(parts, fmt.Sprintf("failed: %d (%s)", r.Failed, r.Failure))
	}
	if len(r.Silent) > 0 {
		parts = append(parts, "asked in vain: "+byNode(r.Silent))
	}
	return fmt.Sprintf("%d launches. %s", r.Launches, strings.Join(parts, ". "))
}

// launch has the user open sessions.
func (p *sessionStory) launch(ctx context.Context, brokers []string, count int, retry bool) ([]launched, error) {
	order := launchOrder{
		Count: count, Target: sessionTargets[0], Account: machineAccount,
		Who: sessionWho, Key: p.keys.user.file, Known: p.brokerKeys(), Retry: retry, Work: p.node(sessionUser),
	}
	for _, broker := range brokers {
		order.Brokers = append(order.Brokers, p.place(broker))
	}
	line, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	var all []launched
	if err := p.user.ask(string(line), &all); err != nil {
		return nil, err
	}
	return all, ctx.Err()
}

// explain prints what a broker says of a launch now.
func (p *sessionStory) explain(ctx context.Context, broker string) {
	argv := []string{"holdfast", "broker", "explain", sessionTargets[0]}
	p.out.command("%s   (on %s)", strings.Join(argv, " "), broker)
	command, err := p.Command(ctx, broker, argv...)
	if err != nil {
		p.out.say("%v", err)
		return
	}
	text, _ := command.CombinedOutput() // if there is no gateway it ends with 1, and says why
	for line := range strings.Lines(strings.TrimSpace(string(text))) {
		p.out.say("%s", strings.TrimRight(line, "\n"))
	}
}

// gatewayDown takes a gateway down and waits until the brokers know.
func (p *sessionStory) gatewayDown(ctx context.Context, gateway string, w way) error {
	p.out.title("%s is %s", gateway, w)
	if err := p.down(gateway, w); err != nil {
		return err
	}
	p.dead = append(p.dead, gateway)
	return p.noticed(ctx, false, gateway)
}

// gatewayUp brings it back and waits until the brokers know.
func (p *sessionStory) gatewayUp(ctx context.Context, gateway string, w way) error {
	p.out.title("%s is back", gateway)
	if err := p.up(ctx, gateway, w); err != nil {
		return err
	}
	p.dead = without(p.dead, gateway)
	alive := []string{gateway}
	if gateway == p.fleet[0].name { // it has to hear of its hosts first
		alive = p.alive()
	}
	return p.noticed(ctx, true, alive...)
}

// brokerUp brings a broker back and waits until it knows who is alive. One that reached nobody takes everybody for dead until it has asked.
func (p *sessionStory) brokerUp(ctx context.Context, broker string, w way) error {
	if err := p.up(ctx, broker, w); err != nil {
		return err
	}
	p.silent = without(p.silent, broker)
	_, err := p.known(ctx, []string{broker}, true, p.alive()...)
	return err
}

// alive are the gateways that are not dead.
func (p *sessionStory) alive() []string {
	return slices.DeleteFunc(p.gatewayNames(), func(gateway string) bool { return slices.Contains(p.dead, gateway) })
}

// noticed waits until the brokers that are up know whether gateways take sessions, and checks how long that took.
func (p *sessionStory) noticed(ctx context.Context, takes bool, gateways ...string) error {
	brokers := slices.DeleteFunc(slices.Clone(p.brokers), func(broker string) bool { return slices.Contains(p.silent, broker) })
	took, err := p.known(ctx, brokers, takes, gateways...)
	if err != nil {
		return err
	}
	p.check(took <= noticedWithin, "%s know it after %.1f s", strings.Join(brokers, ", "), took.Seconds())
	return nil
}

// noticedWithin is by when a death must be known: three beats of the fleet, a poll or three that fail, a probe, and room for a machine of
// two cores that runs the whole lab.
const noticedWithin = 8 * time.Second

// agreed waits until all brokers have the same rules.
func (s *sessions) agreed(ctx context.Context) error {
	return s.wait(ctx, "all brokers have the same rules", func() (bool, error) {
		digests := make(map[string]bool)
		for _, broker := range s.brokers {
			out, err := s.Output(ctx, broker, "holdfast", "broker", "rules", "list", "--output", "json")
			if err != nil {
				return false, err
			}
			var rules struct {
				Digest string `json:"digest"`
			}
			if err := json.Unmarshal(out, &rules); err != nil {
				return false, err
			}
			digests[rules.Digest] = true
		}
		return len(digests) == 1, nil
	})
}

// relink has a broker watch the fleet in another mode.
func (s *sessions) relink(ctx context.Context, broker, mode string) error {
	_, err := s.linkOn(ctx, broker, "--mode", mode, "--replace")
	return err
}
