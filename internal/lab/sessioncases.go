package lab

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// The rows of the contract between brokers and a fleet (docs/broker.md, "When something is down"), and one in which everything is restarted.
var sessionCases = []sessionCase{
	{"broker-1", "Everything is up: a central manager, three hosts, three brokers", usualFleet, 1, playAllUp},
	{"broker-2", "A managed host is down, and returns", usualFleet, 6, playHostDown},
	{"broker-3", "The central manager is down; then a host dies as well", usualFleet, 10, playCentralDown},
	{"broker-4", "No central manager, and no host", usualFleet, 3, playNothingUp},
	{"broker-5", "Brokers are down, each in turn", usualFleet, 6, playBrokersDown},
	{"broker-6", "The fleet has only a search-primary", searchPrimaryFleet, 1, playSearchPrimary},
	{"broker-restart", "Everything is restarted while the central manager is down", usualFleet, 3, playRestart},
}

// searchPrimaryFleet is one that can never take a session.
func searchPrimaryFleet() []gatewayPlan {
	return []gatewayPlan{{"gw1", []string{"central-management", "search-primary"}}}
}

// mostPercent is what one of equal gateways may get at most.
const mostPercent = 40

func playAllUp(p *sessionStory, ctx context.Context) error {
	if err := p.round(ctx, expected{what: "all up", source: "live", spread: p.gatewayNames()}); err != nil {
		return err
	}
	r := p.result.Rounds[0]
	most := 0
	for _, count := range r.ByGateway {
		most = max(most, count)
	}
	p.check(most*100 <= mostPercent*r.Launches || r.Launches < 24, "no gateway got more than %d of %d", most, r.Launches)
	return nil
}

// playHostDown takes each host down in another way.
func playHostDown(p *sessionStory, ctx context.Context) error {
	for i, w := range ways {
		host := p.fleet[1+i].name
		if err := p.gatewayDown(ctx, host, w); err != nil {
			return err
		}
		if err := p.round(ctx, expected{what: host + " is " + string(w), source: "live"}); err != nil {
			return err
		}
		if err := p.gatewayUp(ctx, host, w); err != nil {
			return err
		}
		if err := p.round(ctx, expected{what: host + " is back", source: "live", spread: []string{host}}); err != nil {
			return err
		}
	}
	return nil
}

// playCentralDown takes the central manager down in each way. In the first outage a host dies too.
func playCentralDown(p *sessionStory, ctx context.Context) error {
	central, host, strict := p.fleet[0].name, p.fleet[1].name, p.brokers[2]
	if err := p.relink(ctx, strict, "strict"); err != nil {
		return err
	}
	if err := p.putNetwork(ctx); err != nil {
		return err
	}
	for _, w := range ways {
		if err := p.gatewayDown(ctx, central, w); err != nil {
			return err
		}
		if err := p.round(ctx, expected{what: central + " is " + string(w), source: "last-good", spread: p.hosts()}); err != nil {
			return err
		}
		if w == killed {
			if err := p.hostDiesMeanwhile(ctx, host, strict); err != nil {
				return err
			}
		}
		// It has heard of nobody yet, and nobody may suffer from that.
		p.out.title("%s is back", central)
		if err := p.up(ctx, central, w); err != nil {
			return err
		}
		p.dead = without(p.dead, central)
		if err := p.round(ctx, expected{what: "as soon as " + central + " is back"}); err != nil {
			return err
		}
		if err := p.noticed(ctx, true, p.alive()...); err != nil {
			return err
		}
	}
	return p.round(ctx, expected{what: "all up again", source: "live"})
}

// putNetwork has the servers served by all hosts.
func (p *sessionStory) putNetwork(ctx context.Context) error {
	argv := []string{"broker", "rules", "put", "servers"}
	for _, gateway := range p.gatewayNames() {
		argv = append(argv, "--gateway", sessionFleet+"/"+gateway)
	}
	p.out.command("holdfast %s   (on %s)", strings.Join(argv, " "), p.brokers[0])
	if err := p.holdfast(ctx, p.brokers[0], argv...); err != nil {
		return err
	}
	if err := p.holdfast(ctx, p.brokers[0], "broker", "rules", "assign", sessionTargets[0], "servers"); err != nil {
		return err
	}
	return p.agreed(ctx)
}

// hostDiesMeanwhile is the case that the vendor leaves open: nobody tells that a host died after the central manager.
func (p *sessionStory) hostDiesMeanwhile(ctx context.Context, host, strict string) error {
	p.out.title("%s is killed as well, while nobody speaks for the fleet", host)
	if err := p.down(host, killed); err != nil {
		return err
	}
	p.dead = append(p.dead, host)
	probing := without(p.brokers, strict)
	if _, err := p.known(ctx, probing, false, host); err != nil {
		return err
	}
	if err := p.round(ctx, expected{what: "probe: " + host + " is dead too", brokers: probing, source: "last-good"}); err != nil {
		return err
	}
	if err := p.round(ctx, expected{what: "strict: " + host + " is dead too", brokers: []string{strict}, strict: true}); err != nil {
		return err
	}
	p.out.title("An operator narrows the network down, on another broker")
	argv := []string{"broker", "override", "servers"}
	for _, other := range without(p.hosts(), host) {
		argv = append(argv, "--gateway", sessionFleet+"/"+other)
	}
	argv = append(argv, "--reason", host+" is dead")
	p.out.command("holdfast %s   (on %s)", strings.Join(argv, " "), p.brokers[1])
	if err := p.holdfast(ctx, p.brokers[1], argv...); err != nil {
		return err
	}
	if err := p.agreed(ctx); err != nil {
		return err
	}
	if err := p.round(ctx, expected{what: "strict, overridden", brokers: []string{strict}, source: "last-good"}); err != nil {
		return err
	}
	if err := p.holdfast(ctx, p.brokers[0], "broker", "override", "servers", "--remove"); err != nil {
		return err
	}
	if err := p.agreed(ctx); err != nil {
		return err
	}
	return p.gatewayUp(ctx, host, killed)
}

// playNothingUp ends the fleet one by one, each in another way, and lets one host return.
func playNothingUp(p *sessionStory, ctx context.Context) error {
	for i, gateway := range p.gatewayNames() {
		if err := p.gatewayDown(ctx, gateway, ways[i%len(ways)]); err != nil {
			return err
		}
	}
	if err := p.round(ctx, expected{what: "nothing is up", refusal: "ALL_NODES_DOWN"}); err != nil {
		return err
	}
	p.check(strings.Contains(p.result.Rounds[0].Refusal, "sessions module is down"), "the refusal says: %s", p.result.Rounds[0].Refusal)
	host := p.fleet[1].name
	if err := p.gatewayUp(ctx, host, ways[1]); err != nil {
		return err
	}
	if err := p.round(ctx, expected{what: host + " is back", source: "last-good", spread: []string{host}}); err != nil {
		return err
	}
	central := p.fleet[0].name
	if err := p.gatewayUp(ctx, central, ways[0]); err != nil {
		return err
	}
	return p.round(ctx, expected{what: central + " is back", source: "live", spread: []string{host, central}})
}

// playBrokersDown takes brokers down beside what the fleet goes through; in the end one is left.
func playBrokersDown(p *sessionStory, ctx context.Context) error {
	if err := p.oneReachesNoCentral(ctx); err != nil {
		return err
	}
	fleetToo := []func() error{
		func() error { return nil },
		func() error { return p.gatewayDown(ctx, p.fleet[3].name, killed) },
		func() error { return p.gatewayDown(ctx, p.fleet[0].name, killed) },
	}
	for i, w := range ways {
		broker := p.brokers[i]
		p.out.title("The broker of %s is %s", broker, w)
		if err := p.down(broker, w); err != nil {
			return err
		}
		p.silent = append(p.silent, broker)
		if err := fleetToo[i](); err != nil {
			return err
		}
		what := fmt.Sprintf("%s is %s", broker, w)
		if len(p.dead) > 0 {
			what += ", and " + strings.Join(p.dead, " and ")
		}
		if err := p.round(ctx, expected{what: what}); err != nil {
			return err
		}
		if i == len(ways)-1 {
			break
		}
		if err := p.brokerUp(ctx, broker, w); err != nil {
			return err
		}
	}
	broker := p.brokers[0]
	p.out.title("The broker of %s is killed too, and one is left", broker)
	if err := p.down(broker, killed); err != nil {
		return err
	}
	p.silent = append(p.silent, broker)
	return p.round(ctx, expected{what: "one broker, no central manager", source: "last-good"})
}

// oneReachesNoCentral has one broker reach everything but the central manager. It goes on by what it knew, and says so.
func (p *sessionStory) oneReachesNoCentral(ctx context.Context) error {
	lone, central := p.brokers[1], p.fleet[0].name
	p.out.title("Nothing passes between %s and %s", lone, central)
	if err := p.tell(request{Op: "partition", Groups: [][]string{{lone}, {central}}}); err != nil {
		return err
	}
	if err := p.lost(ctx, lone); err != nil {
		return err
	}
	if err := p.round(ctx, expected{what: lone + " does not reach " + central, brokers: []string{lone}, source: "last-good", other: []string{central}}); err != nil {
		return err
	}
	if err := p.round(ctx, expected{what: "the others do", brokers: without(p.brokers, lone), source: "live"}); err != nil {
		return err
	}
	apart, others := p.result.Rounds[0].OldestMS, p.result.Rounds[1].OldestMS
	p.check(apart > others, "its view is %.1f s old, and that of the others %.1f s", float64(apart)/1000, float64(others)/1000)
	if err := p.tell(request{Op: "heal"}); err != nil {
		return err
	}
	_, err := p.known(ctx, p.brokers, true, central)
	return err
}

func playSearchPrimary(p *sessionStory, ctx context.Context) error {
	p.check(strings.Contains(p.linked, "warning:") && strings.Contains(p.linked, "search-primary"), "the fleet was linked with: %s", p.linked)
	if err := p.round(ctx, expected{what: "a search-primary alone", refusal: "NO_SESSION_CAPABLE_NODE"}); err != nil {
		return err
	}
	p.check(strings.Contains(p.result.Rounds[0].Refusal, "search-primary"), "the refusal names the role: %s", p.result.Rounds[0].Refusal)
	return nil
}

// playRestart restarts all brokers and all hosts while the central manager is down.
func playRestart(p *sessionStory, ctx context.Context) error {
	central, dead := p.fleet[0].name, p.fleet[3].name
	if err := p.gatewayDown(ctx, central, blackHoled); err != nil {
		return err
	}
	if err := p.gatewayDown(ctx, dead, killed); err != nil {
		return err
	}
	if err := p.round(ctx, expected{what: "before", source: "last-good"}); err != nil {
		return err
	}
	before := p.result.Rounds[0].OldestMS
	p.out.title("All brokers are killed and start again, and so do the hosts")
	for _, broker := range p.brokers {
		if err := p.down(broker, killed); err != nil {
			return err
		}
	}
	for _, host := range without(p.hosts(), dead) {
		if err := p.down(host, killed); err != nil {
			return err
		}
		if err := p.up(ctx, host, killed); err != nil {
			return err
		}
	}
	for _, broker := range p.brokers {
		if err := p.up(ctx, broker, killed); err != nil {
			return err
		}
		began := time.Now()
		_, err := p.fleetSeen(ctx, broker)
		p.check(err == nil && time.Since(began) < time.Second, "%s answers within %d ms, though nothing comes from the central manager", broker, time.Since(began).Milliseconds())
	}
	if err := p.noticed(ctx, false, dead); err != nil {
		return err
	}
	if err := p.round(ctx, expected{what: "after", source: "last-good"}); err != nil {
		return err
	}
	after := p.result.Rounds[1].OldestMS
	p.check(after > before, "the view is from before, and its age goes on: %.1f s, then %.1f s", float64(before)/1000, float64(after)/1000)
	if err := p.gatewayUp(ctx, central, blackHoled); err != nil {
		return err
	}
	return p.round(ctx, expected{what: central + " is back", source: "live"})
}
