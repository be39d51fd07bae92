package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// sessionTourResult is what `lab run broker --output json` prints.
type sessionTourResult struct {
	Scenario string   `json:"scenario"`
	Pass     bool     `json:"pass"`
	Wrong    []string `json:"wrong,omitempty"` // what was not as it should be
}

// sessionTour shows a user with a shell on a server while the members of the fleet die.
type sessionTour struct {
	*sessions
	result sessionTourResult
	user   *shell
	over   string // the gateway that the shell goes through
	first  string // the one that the first shell went through
	dead   string // a host that died
}

func runSessionTour(ctx context.Context, out *transcript, o runOptions) (any, bool, error) {
	began := time.Now()
	t := &sessionTour{result: sessionTourResult{Scenario: "broker", Pass: true}}
	out.title("A user, two servers, four session gateways in front of them, and three brokers")
	out.say("Each is a set of namespaces on this machine. gw1 is the central manager, which speaks for all four gateways.")
	s, err := newSessions(ctx, usualFleet(), out, o.keep)
	if err != nil {
		return t.result, false, err
	}
	t.sessions = s
	for _, step := range []func(context.Context) error{s.link, t.look, t.open, t.centralDies, t.hostDies, t.brokersDie, t.gatewayDies, t.comeBack, t.recorded} {
		if err == nil {
			err = step(ctx)
		}
	}
	if t.user != nil {
		t.user.close()
	}
	if err = errors.Join(err, s.close()); err != nil {
		t.result.Pass = false
		return t.result, false, err
	}
	out.verdict(t.result.Pass, "this took %.0f seconds; nothing of it is left on this machine", time.Since(began).Seconds())
	return t.result, t.result.Pass, nil
}

// check records one thing that has to be so.
func (t *sessionTour) check(good bool, format string, arguments ...any) {
	if !t.out.verdict(good, format, arguments...) {
		t.result.Pass = false
		t.result.Wrong = append(t.result.Wrong, fmt.Sprintf(format, arguments...))
	}
}

// show runs a command in a member, prints what it prints, and returns that.
func (t *sessionTour) show(ctx context.Context, member string, argv ...string) (string, error) {
	t.out.command("%s   (on %s)", typed(argv), member)
	if member == sessionUser {
		argv = t.asUser(argv...)
	}
	command, err := t.Command(ctx, member, argv...)
	if err != nil {
		return "", err
	}
	text, failed := command.CombinedOutput()
	for line := range strings.Lines(strings.TrimSpace(string(text))) {
		t.out.say("%s", strings.TrimRight(line, "\r\n"))
	}
	return string(text), failed
}

// typed is how a command line is typed.
func typed(argv []string) string {
	var words []string
	for _, word := range argv {
		if strings.ContainsAny(word, " ;$") {
			word = "'" + word + "'"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// look shows the fleet as a broker sees it, and keeps the central manager for what only it can do.
func (t *sessionTour) look(ctx context.Context) error {
	t.out.title("Every broker watches the fleet, and decides alone")
	if _, err := t.show(ctx, t.brokers[0], "holdfast", "broker", "gateways"); err != nil {
		return err
	}
	t.out.say("Sessions on the servers go through the three hosts; the rule reaches all brokers.")
	argv := []string{"holdfast", "broker", "rules", "put", "servers", "--subnet", labNetwork.String()}
	for _, host := range t.hosts() {
		argv = append(argv, "--gateway", sessionFleet+"/"+host)
	}
	_, err := t.show(ctx, t.brokers[0], argv...)
	for _, target := range sessionTargets {
		if err == nil {
			_, err = t.show(ctx, t.brokers[0], "holdfast", "broker", "rules", "assign", target, "servers")
		}
	}
	if err != nil {
		return err
	}
	return t.agreed(ctx)
}

// open opens the shell.
func (t *sessionTour) open(ctx context.Context) error {
	t.out.title("The user opens a shell on %s", sessionTargets[0])
	return t.openAgain(ctx)
}

func (t *sessionTour) openAgain(ctx context.Context) (err error) {
	t.out.command("holdfast ssh %s@%s   (on %s)", machineAccount, sessionTargets[0], sessionUser)
	// There is no terminal here that ssh could see, so it is told to want one on the server.
	if t.user, err = t.openShell(ctx, sessionUser, t.asUser("holdfast", "ssh", "-tt", machineAccount+"@"+sessionTargets[0])...); err != nil {
		return err
	}
	shown, err := t.user.do(ctx, "hostname; tty; "+`echo "${SSH_CONNECTION%% *}"`)
	if err != nil {
		return err
	}
	for _, gateway := range t.gatewayNames() {
		if strings.HasSuffix(shown, " "+t.address(gateway)) {
			t.over = gateway
		}
	}
	t.first = firstOf(t.first, t.over)
	t.check(t.over != "" && strings.HasPrefix(shown, sessionTargets[0]), "a shell with a terminal, through %s: %s", t.over, shown)
	return nil
}

// goesOn checks that the shell still answers.
func (t *sessionTour) goesOn(ctx context.Context, after string) {
	shown, err := t.user.do(ctx, `hostname; date +%T`)
	if err != nil {
		shown = err.Error()
	}
	t.check(err == nil, "the shell through %s goes on %s: %s", t.over, after, shown)
}

// another opens a second session, which runs a command, and checks whom it goes through.
func (t *sessionTour) another(ctx context.Context, not ...string) error {
	shown, err := t.show(ctx, sessionUser, "ssh", machineAccount+"@"+sessionTargets[1], sessionProof)
	through := ""
	for _, gateway := range t.gatewayNames() {
		if strings.Contains(shown, t.address(gateway)) {
			through = gateway
		}
	}
	good := err == nil && through != ""
	for _, gateway := range not {
		good = good && through != gateway
	}
	t.check(good, "a new session on %s goes through %s", sessionTargets[1], firstOf(through, "nobody"))
	return ctx.Err()
}

// explain shows which gateway a session would get now, and why.
func (t *sessionTour) explain(ctx context.Context) {
	_, _ = t.show(ctx, t.brokers[0], "holdfast", "broker", "explain", sessionTargets[1]) // what it prints says how it went
}

func (t *sessionTour) centralDies(ctx context.Context) error {
	central := t.fleet[0].name
	t.out.title("The central manager is killed: nobody speaks for the fleet any more")
	if err := t.down(central, killed); err != nil {
		return err
	}
	if err := t.lost(ctx, t.brokers...); err != nil {
		return err
	}
	t.goesOn(ctx, "without it")
	t.explain(ctx)
	return t.another(ctx, central)
}

func (t *sessionTour) hostDies(ctx context.Context) error {
	t.dead = without(t.hosts(), t.over)[0]
	t.out.title("%s is black-holed: it is there, and hears nothing", t.dead)
	if err := t.down(t.dead, blackHoled); err != nil {
		return err
	}
	took, err := t.known(ctx, t.brokers, false, t.dead)
	if err != nil {
		return err
	}
	t.out.say("There is nobody who could tell the brokers. They probe, and know it after %.1f s.", took.Seconds())
	t.explain(ctx)
	t.goesOn(ctx, "without both")
	return t.another(ctx, t.fleet[0].name, t.dead)
}

func (t *sessionTour) brokersDie(ctx context.Context) error {
	t.out.title("All three brokers are killed")
	for _, broker := range t.brokers {
		if err := t.down(broker, killed); err != nil {
			return err
		}
	}
	t.goesOn(ctx, "without any broker")
	_, err := t.show(ctx, sessionUser, "ssh", machineAccount+"@"+sessionTargets[1], "hostname")
	t.check(err != nil, "a new session needs a broker, and says so")
	t.out.say("They start again. The central manager is still dead: what they know is on their disks.")
	for _, broker := range t.brokers {
		if err := t.up(ctx, broker, killed); err != nil {
			return err
		}
	}
	if _, err := t.known(ctx, t.brokers, false, t.dead); err != nil {
		return err
	}
	t.explain(ctx)
	return t.another(ctx, t.fleet[0].name, t.dead)
}

func (t *sessionTour) gatewayDies(ctx context.Context) error {
	lost := t.over
	t.out.title("%s is killed, and the user's shell goes through it", lost)
	if err := t.down(lost, killed); err != nil {
		return err
	}
	gone := t.user.gone(ctx, shellPatience)
	said, _, _ := strings.Cut(t.user.said.String(), "\n")
	t.check(gone, "the shell is gone, and says so: %s", firstOf(strings.TrimSpace(said), "nothing"))
	t.user.close()
	t.user = nil
	t.out.say("The user opens it again, at once. Where a gateway that the brokers take for alive does not answer, the next best one is taken.")
	if err := t.openAgain(ctx); err != nil {
		return err
	}
	t.check(t.over != lost && t.over != t.dead, "it goes through %s, the only host that is left", t.over)
	return nil
}

func (t *sessionTour) comeBack(ctx context.Context) error {
	t.out.title("Everything is back")
	for gateway, w := range map[string]way{t.fleet[0].name: killed, t.first: killed, t.dead: blackHoled} {
		if err := t.up(ctx, gateway, w); err != nil {
			return err
		}
	}
	if _, err := t.known(ctx, t.brokers, true, t.gatewayNames()...); err != nil {
		return err
	}
	if _, err := t.show(ctx, t.brokers[0], "holdfast", "broker", "gateways"); err != nil {
		return err
	}
	t.goesOn(ctx, "beside them")
	return nil
}

// recorded shows what was kept of the first shell, which ended when its gateway was killed.
func (t *sessionTour) recorded(ctx context.Context) error {
	t.out.title("What was shown is on record, up to the last second, on the gateway that was killed")
	list, err := t.show(ctx, t.first, "holdfast", "sessions", "list", "--dir", t.node(t.first)+"/recordings")
	if err != nil {
		return err
	}
	t.check(strings.Contains(list, sessionWho), "the recordings name the user")
	return nil
}
