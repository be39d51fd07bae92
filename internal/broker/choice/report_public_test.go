package choice

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/rules"
	"github.com/holdfast/holdfast/internal/broker/watch"
)

// broker is one broker in virtual time: a watch, and gateways of which some are dead.
type broker struct {
	t     *testing.T
	watch *watch.Watch
	now   time.Time
	lines []string // of the fleet as it is; the first is the central manager

	dead    map[string]bool // they answer nothing; the central manager says so of them
	hidden  map[string]bool // they drop what this broker sends, and the central manager knows nothing of it
	polling time.Time       // when a poll comes back; zero: none is under way
	beats   int
}

func newBroker(t *testing.T, link watch.Link, lines ...string) *broker {
	link.Fleet, link.Address = "f", "cm:443"
	b := &broker{t: t, now: now, lines: lines, dead: map[string]bool{}, hidden: map[string]bool{}}
	b.watch = watch.New(link, b.now)
	return b
}

// seen is the fleet as its central manager tells it.
func (b *broker) seen() *fleet.View {
	b.beats++
	var gateways []fleet.Gateway
	for _, line := range b.lines {
		g := gateway(b.t, line)
		if b.dead[g.Key] {
			g.Status, g.Why = fleet.Unavailable, "the central manager says that it is down"
		} else {
			g.LastSeen = now.Add(time.Duration(b.beats) * time.Hour) // its clock is nobody's business
		}
		gateways = append(gateways, g)
	}
	view, err := fleet.NewView(gateways[0].Key, gateways)
	if err != nil {
		b.t.Fatal(err)
	}
	return view
}

func (b *broker) central() string { return strings.Fields(b.lines[0])[0] }

// step passes an event on, and does what is to be done: polls take three seconds if the central manager is dead, probes are immediate.
func (b *broker) step(event watch.Event) {
	actions := b.watch.Step(event, b.now)
	if actions.Poll {
		b.polling = b.now
		if b.dead[b.central()] {
			b.polling = b.now.Add(3 * time.Second)
		}
	}
	for _, g := range actions.Probe {
		reached := !b.dead[g.Key] && !b.hidden[g.Key]
		b.step(watch.Probed{Gateway: g.Key, Reached: reached, Evidence: "tcp: no answer within 1 s"})
	}
}

// run lets time pass, a tenth of a second at a time.
func (b *broker) run(d time.Duration) {
	for end := b.now.Add(d); b.now.Before(end); b.now = b.now.Add(100 * time.Millisecond) {
		switch {
		case b.polling.IsZero() || b.now.Before(b.polling):
			b.step(watch.Tick{})
		case b.dead[b.central()]:
			b.polling = time.Time{}
			b.step(watch.Failed{Failure: fleet.Failure{Kind: fleet.TimedOut, Evidence: "no whole answer within 3 s"}})
		default:
			b.polling = time.Time{}
			b.step(watch.Answered{View: b.seen()})
		}
	}
}

// launch is a launch with its dial: who is not reached is told to the watch, and the next best is tried. It returns who took the session,
// and to how many dead ones it was handed.
func (b *broker) launch(w *World) (took string, toDead int) {
	b.t.Helper()
	w.Fleets = []*fleet.Picture{b.watch.Picture()}
	r := request()
	r.Now = b.now
	for {
		a, refusal := Choose(w, r)
		if refusal != nil {
			return string(refusal.Code), toDead
		}
		b.step(watch.Launched{Gateway: a.Gateway.Key, Outcome: watch.Chosen})
		if !b.dead[a.Gateway.Key] && !b.hidden[a.Gateway.Key] {
			b.step(watch.Launched{Gateway: a.Gateway.Key, Outcome: watch.Reached})
			return a.Gateway.Key, toDead
		}
		toDead++
		if b.watch.Picture().Mode == fleet.Strict {
			return "", toDead
		}
		b.step(watch.Launched{Gateway: a.Gateway.Key, Outcome: watch.Missed, Evidence: "tcp: no answer"})
		r.Tried = append(r.Tried, a.Ref())
	}
}

// launches counts who took 100 launches.
func (b *broker) launches(w *World) (took map[string]int, toDead int) {
	b.t.Helper()
	took = map[string]int{}
	for range 100 {
		who, dead := b.launch(w)
		took[who]++
		toDead += dead
	}
	return took, toDead
}

// The vendor's article on choosing nodes, before 6.0: a dead gateway is handed out for ever. Here it is out with the next poll, and back
// by itself.
func TestReport1ADeadGatewayLeavesAndReturns(t *testing.T) {
	for _, mode := range []fleet.Mode{fleet.Probe, fleet.Strict} {
		b := newBroker(t, watch.Link{Mode: mode}, "cm cp 1 1", "gw1 m 40 1", "gw2 m 40 1", "gw3 m 40 1")
		w := world(t, nil)
		b.run(time.Second)
		b.dead["gw1"] = true
		b.run(11 * time.Second)
		if took, toDead := b.launches(w); took["gw1"] != 0 || toDead != 0 || took["gw2"]+took["gw3"] != 100 {
			t.Errorf("%s, with gw1 dead: %v, %d to a dead one", mode, took, toDead)
		}
		b.dead["gw1"] = false
		b.run(11 * time.Second)
		if took, _ := b.launches(w); took["gw1"] == 0 {
			t.Errorf("%s, with gw1 back: %v", mode, took)
		}
	}
}

// The same article, case 3: the central manager is down, then a host dies, and is still chosen. Under strict it may be; under probe it is
// not; and a rule that was changed meanwhile avoids it under both.
func TestReport2AHostThatDiesAfterTheCentralManager(t *testing.T) {
	override := rules.Value{Override: &rules.Override{Network: rules.DefaultNetwork, Members: []rules.Member{member("f/gw2")}}}
	for _, test := range []struct {
		name   string
		mode   fleet.Mode
		values []rules.Value
		toDead bool
	}{
		{"strict", fleet.Strict, nil, true},
		{"probe", fleet.Probe, nil, false},
		{"strict with an override", fleet.Strict, []rules.Value{override}, false},
		{"probe with an override", fleet.Probe, []rules.Value{override}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBroker(t, watch.Link{Mode: test.mode}, "cm cl 10 1", "gw1 m 10 1", "gw2 m 40 1")
			w := world(t, test.values)
			b.run(time.Second)
			b.dead["cm"] = true
			b.run(time.Minute)
			b.dead["gw1"] = true
			b.run(6 * time.Second) // one round of probes
			took, toDead := b.launches(w)
			if (toDead > 0) != test.toDead || took["cm"] != 0 || !test.toDead && took["gw2"] != 100 {
				t.Errorf("took %v, %d handed to a dead one", took, toDead)
			}
			a, _ := Choose(w, &Request{Protocol: fleet.SSH, Now: b.now, Wall: b.now})
			if a.Source != fleet.LastGood || a.Age < time.Minute {
				t.Errorf("the answer says %s, %s", a.Source, a.Age)
			}
		})
	}
}

// hashicorp/boundary #4975, #2598: a worker that is said to be ready drops what is sent to it, and each launch waits for minutes. The
// first launch finds it out, and none after it is handed to it, however well the central manager speaks of it.
func TestReport8ReadyButDead(t *testing.T) {
	b := newBroker(t, watch.Link{}, "cm cp 1 1", "gw1 m 1 1", "gw2 m 40 1")
	w := world(t, nil)
	b.run(time.Second)
	b.hidden["gw1"] = true
	if who, toDead := b.launch(w); who != "gw2" || toDead != 1 {
		t.Errorf("the first launch: %s, after %d", who, toDead)
	}
	for range 10 {
		b.run(7 * time.Second)
		if took, toDead := b.launches(w); took["gw2"] != 100 || toDead != 0 {
			t.Fatalf("after that: %v, %d to a dead one", took, toDead)
		}
	}
	delete(b.hidden, "gw1")
	b.run(6 * time.Second)
	if took, _ := b.launches(w); took["gw1"] == 0 {
		t.Errorf("once it answers: %v", took)
	}
}

// gravitational/teleport #11163, #17024: a restart during an outage lost the cache, and with it everything. The view from disk takes over
// at once, with its age.
func TestReport10RestartDuringAnOutage(t *testing.T) {
	before := newBroker(t, watch.Link{}, "cm cl 1 1", "gw1 m 40 1", "gw2 m 50 1")
	before.run(time.Second)
	view := before.watch.Picture().View

	b := newBroker(t, watch.Link{}, before.lines...)
	b.dead["cm"], b.dead["gw1"] = true, true
	w := world(t, nil)
	b.step(watch.Restored{View: view, Age: 3 * time.Minute})
	if who, toDead := b.launch(w); who != "gw2" || toDead != 0 {
		t.Errorf("at the start: %s, %d to a dead one", who, toDead)
	}
	b.run(time.Minute)
	a, refusal := Choose(w, &Request{Protocol: fleet.SSH, Now: b.now, Wall: b.now})
	if refusal != nil || a.Gateway.Key != "gw2" || a.Source != fleet.LastGood || a.Age != 4*time.Minute {
		t.Errorf("a minute later: %v %s", refusal, a.Explain())
	}
	b.dead["cm"] = false
	b.run(11 * time.Second)
	if took, _ := b.launches(w); took["cm"] == 0 {
		t.Errorf("once the central manager is back: %v", took)
	}
}

// gravitational/teleport #66061: a process hangs when its first fetch does. Nothing here waits for a poll: while the first one is under way
// launches are answered, from the view on disk or with an error that says so.
func TestReport11NothingWaitsForTheFirstPoll(t *testing.T) {
	b := newBroker(t, watch.Link{}, "cm c 1 1", "gw1 m 40 1")
	b.dead["cm"] = true
	b.run(500 * time.Millisecond)
	w := world(t, nil, b.watch.Picture())
	_, refusal := Choose(w, &Request{Protocol: fleet.SSH, Now: b.now, Wall: b.now})
	want := "NO_CLUSTER_INFO: of fleet f nothing is known: its central manager cm:443 has not given an answer for 500 ms. " +
		"See that the central manager runs and that this broker reaches it: holdfast broker fleets."
	if refusal == nil || refusal.Error() != want {
		t.Errorf("got  %v\nwant %s", refusal, want)
	}
}

// gravitational/teleport #19720: some instances did not know a node, so that connections failed now and then. Three brokers, one of them cut
// off from the central manager: its answers carry the larger age, it raises the alarm, and it converges when the cut heals.
func TestReport12OneBrokerIsCutOff(t *testing.T) {
	brokers := make([]*broker, 3)
	for i := range brokers {
		brokers[i] = newBroker(t, watch.Link{}, "cm cp 1 1", "gw1 m 40 1", "gw2 m 50 1")
		brokers[i].run(time.Second)
	}
	brokers[2].dead["cm"] = true // as far as it can tell
	ages, alarms := "", ""
	for _, b := range brokers {
		b.lines = append(b.lines, "gw3 m 1 1") // one is added
		b.run(time.Minute)
		a, _ := Choose(world(t, nil, b.watch.Picture()), &Request{Protocol: fleet.SSH, Now: b.now, Wall: b.now})
		ages += fmt.Sprint(a.Age > 20*time.Second, a.Gateway.Key, " ")
		for _, alarm := range b.watch.Alarms() {
			alarms += alarm.Kind.Code + " "
		}
	}
	if ages != "falsegw3 falsegw3 truegw1 " || alarms != "broker.central-manager-down " {
		t.Errorf("old, chosen: %s; alarms: %s", ages, alarms)
	}
	brokers[2].dead["cm"] = false
	brokers[2].run(11 * time.Second)
	if !brokers[2].watch.Picture().View.Alike(brokers[0].watch.Picture().View) || len(brokers[2].watch.Alarms()) != 0 {
		t.Error("they do not converge")
	}
}

// warp-tech/warpgate #2488: a second active node fails for some targets. What a gateway cannot do is known of each one and taken into
// account before it is chosen.
func TestReport15CapabilityIsKnownOfEachGateway(t *testing.T) {
	p := picture(t, "f", "cm cp 1 1", "gw1 m 90 9", "gw2 m 1 1")
	i, _ := p.View.Find("gw1")
	p.View.Gateways[i].Services = []fleet.Service{{Protocol: fleet.RDP, Port: 3389}, {Protocol: fleet.SSH, Port: 22}}
	w := world(t, nil, p)
	r := request()
	if got := picked(t, w, r); got != "gw2" {
		t.Errorf("ssh: %s", got)
	}
	r.Protocol = fleet.RDP
	for range 100 {
		if a, refusal := Choose(w, r); refusal != nil || a.Gateway.Key != "gw1" || a.Port != 3389 || len(a.Alternates) != 0 {
			t.Fatalf("rdp: %v %s", refusal, a.Explain())
		}
	}
}

// The vendor's formula has no count of sessions, and is fed every so often: between two samples all launches go to one gateway. With
// launches counted in no one of three equal gateways gets more than 40%; without, one gets all.
func TestReport16NoHerdBetweenSamples(t *testing.T) {
	for _, ignore := range []bool{false, true} {
		b := newBroker(t, watch.Link{}, "cm cp 1 1", "gw1 m 40 1", "gw2 m 40 1", "gw3 m 40 1")
		w := world(t, nil)
		w.Formula.IgnoreLaunches = ignore
		b.run(time.Second)
		took, _ := b.launches(w)
		most := max(took["gw1"], took["gw2"], took["gw3"])
		if ignore && most != 100 || !ignore && most > 40 {
			t.Errorf("ignoring launches %v: %v", ignore, took)
		}
	}
}

// A gateway that was dead is never handed out after one poll under probe, whatever dies and comes back meanwhile: 1,000 launches.
func TestNeverToADeadOneAfterAPoll(t *testing.T) {
	b := newBroker(t, watch.Link{}, "cm cp 1 1", "gw0 m 10 1", "gw1 m 20 1", "gw2 m 30 1", "gw3 m 40 1")
	w := world(t, nil)
	b.run(time.Second)
	for i := range 10 {
		gone := fmt.Sprint("gw", i%4)
		b.dead[gone] = true
		b.dead["cm"] = i%3 == 2
		b.run(11 * time.Second)
		if took, toDead := b.launches(w); toDead != 0 || took[gone] != 0 {
			t.Fatalf("round %d: %v, %d to a dead one", i, took, toDead)
		}
		delete(b.dead, gone)
	}
}
