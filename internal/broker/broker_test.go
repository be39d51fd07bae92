package broker

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/internal/broker/choice"
	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/poll"
	"github.com/holdfast/holdfast/internal/broker/rules"
	"github.com/holdfast/holdfast/internal/broker/watch"
)

func TestAFleetIsLinkedAndASessionLaunched(t *testing.T) {
	f := newFleet(t, 3)
	b := newBroker(t, "b1", nil)
	if code, r := b.launch(Request{Target: "db1"}); code != string(choice.NoClusterInfo) || !strings.Contains(r.Refusal.Text, "no fleet of session gateways is linked") {
		t.Errorf("with nothing linked: %s, %+v", code, r.Refusal)
	}
	link := f.link()
	link.Fingerprint = poll.Fingerprint{}
	linked, err := b.Link(t.Context(), link, false, false)
	if err != nil || linked.Done || linked.Fingerprint != f.fingerprint() || len(b.Fleets()) != 0 {
		t.Fatalf("without a fingerprint: %+v, %v", linked, err)
	}
	link.Fingerprint = poll.Fingerprint{1}
	if _, err := b.Link(t.Context(), link, false, true); err == nil || !strings.Contains(err.Error(), f.fingerprint().String()+" came") {
		t.Fatalf("with another fingerprint: %v", err)
	}
	b.mustLink(f.link())
	if _, err := b.Link(t.Context(), f.link(), false, false); err == nil || !strings.Contains(err.Error(), "--replace") {
		t.Errorf("a second time: %v", err)
	}
	if _, err := b.Link(t.Context(), f.link(), true, false); err != nil {
		t.Errorf("a second time, to replace: %v", err)
	}
	got, r := b.launch(Request{Target: "db1", Who: "anna", Caller: "uid 0"})
	if got != "east/gw1" || r.Answer.Source != fleet.Live || len(r.Answer.Alternates) != 2 || len(r.Answer.LeftOut) != 1 || r.Launch == "" {
		t.Errorf("launched on %s: %+v", got, r.Answer)
	}
	if second, _ := b.launch(Request{Target: "db1"}); second != "east/gw2" {
		t.Errorf("the second one went to %s: the first one was not counted", second)
	}
	if dry, _ := b.launch(Request{Target: "db1", DryRun: true}); dry != "east/gw3" {
		t.Errorf("the dry run: %s", dry)
	}
	if third, _ := b.launch(Request{Target: "db1"}); third != "east/gw3" {
		t.Errorf("the third one went to %s: a dry run was counted", third)
	}
	b.close()
	lines := b.lines()
	if len(lines) != 4 || lines[0].Event != "refused" || lines[0].Code != string(choice.NoClusterInfo) || lines[0].By != "" {
		t.Fatalf("the audit has %d lines: %+v", len(lines), lines)
	}
	if e := lines[1]; e.Event != "chosen" || e.Who != "anna" || e.Caller != "uid 0" || e.Target != "db1" || e.Gateway != "east/gw1" || e.Network != "default" || e.Source != "live" ||
		e.Fitness == nil || e.AgeMS == nil || e.Launch != r.Launch || e.Broker != "b1" {
		t.Errorf("the audit has %+v", e)
	}
	if b.events.count("broker.launch-chosen") != 3 || b.events.count("broker.launch-refused") != 1 || b.events.count("broker.fleet-linked") != 2 {
		t.Errorf("told was %q", b.events.told)
	}
}

func TestAFleetWithoutSessionsIsWarnedOf(t *testing.T) {
	f := newFleet(t, 0)
	b := newBroker(t, "b1", nil)
	linked := b.mustLink(f.link())
	if len(linked.Warnings) == 0 || !strings.Contains(linked.Warnings[0], "search-primary, which takes no sessions") {
		t.Errorf("linked with warnings %q", linked.Warnings)
	}
	if code, _ := b.launch(Request{Target: "db1"}); code != string(choice.NoSessionCapableNode) {
		t.Errorf("a launch: %s", code)
	}
}

func TestACentralManagerThatIsDownIsLinkedWhenThatIsWished(t *testing.T) {
	f := newFleet(t, 1)
	f.mode.Store(resets)
	b := newBroker(t, "b1", nil)
	if _, err := b.Link(t.Context(), f.link(), false, false); err == nil || !strings.Contains(err.Error(), "--even-if-down") {
		t.Errorf("not wished: %v", err)
	}
	linked, err := b.Link(t.Context(), f.link(), false, true)
	if err != nil || !linked.Done || len(linked.Warnings) != 1 {
		t.Fatalf("wished: %+v, %v", linked, err)
	}
	f.mode.Store(answers)
	eventually(t, "it is live", b.source(fleet.Live))
	eventually(t, "the central manager's key is kept", func() bool {
		links, err := readLinks(b.options.Dir)
		return err == nil && len(links) == 1 && links[0].Central == "cm"
	})
}

// The API answers at once whatever a central manager does: Open and Launch wait for nobody. The test would hang if they did, as nothing
// ends the black hole.
func TestABlackHoledCentralManagerAtStart(t *testing.T) {
	f := newFleet(t, 2)
	f.mode.Store(blackHole)
	b := newBroker(t, "b1", nil)
	link := f.link()
	link.Timeout, link.Poll = patience, patience
	b.options.Dir = filepath.Join(t.TempDir(), "other")
	if err := os.MkdirAll(b.options.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.options.Dir, linksFile), encodeLinks([]Link{must(link.clean())}), 0o600); err != nil {
		t.Fatal(err)
	}
	b.close()
	b.start()
	if code, r := b.launch(Request{Target: "db1"}); code != string(choice.NoClusterInfo) || !strings.Contains(r.Refusal.Text, "has not given an answer") {
		t.Errorf("a launch: %s, %+v", code, r.Refusal)
	}
	if s := b.Fleets(); len(s) != 1 || s[0].State != watch.Unheard {
		t.Errorf("the fleets: %+v", s)
	}
}

func must(l Link, err error) Link {
	if err != nil {
		panic(err)
	}
	return l
}

// A broker that starts in an outage goes on with what it knew, says so, and leaves the central manager out.
func TestARestartDuringAnOutage(t *testing.T) {
	f := newFleet(t, 2)
	b := newBroker(t, "b1", nil)
	b.mustLink(f.link())
	eventually(t, "the view is on disk", func() bool { r, err := b.shelf.Load("east"); return err == nil && r != nil })
	for _, mode := range []int32{blackHole, resets, lists} {
		b.close()
		f.mode.Store(mode)
		b.start()
		got, r := b.launch(Request{Target: "db1"})
		if got != "east/gw1" || r.Answer.Source != fleet.LastGood {
			t.Errorf("mode %d: launched on %s, %s", mode, got, r.Answer.Source)
		}
		if !strings.Contains(r.Answer.Explain(), "last-good") {
			t.Errorf("mode %d: explained as %s", mode, r.Answer.Explain())
		}
	}
	f.mode.Store(answers)
	eventually(t, "it is live again", b.source(fleet.Live))
}

// Under probe no session is handed to a gateway that is dead, once it has been probed; the central manager is down and says nothing.
func TestNoLaunchGoesToADeadGateway(t *testing.T) {
	f := newFleet(t, 3)
	b := newBroker(t, "b1", nil)
	b.mustLink(f.link())
	f.mode.Store(blackHole)
	eventually(t, "the last good view counts", b.source(fleet.LastGood))
	f.kill("gw1")
	eventually(t, "gw1 is suspected", func() bool {
		gateways, err := b.Gateways("east")
		return err == nil && strings.Contains(gateways[1].Why, "did not answer this broker")
	})
	by := map[string]int{}
	for range 1000 {
		got, _ := b.launch(Request{Target: "db1"})
		by[got]++
	}
	if by["east/gw1"] != 0 || by["east/gw2"] != 500 || by["east/gw3"] != 500 {
		t.Errorf("1,000 launches went to %v", by)
	}
	eventually(t, "the problem is on the board", func() bool { return b.has(watch.Suspected.Code) && b.has(watch.CentralDown.Code) })
	if b.events.count("broker.launch-chosen") > maxToldSecond*60 || b.events.count("broker.launch-chosen") == 0 {
		t.Errorf("%d launches were told", b.events.count("broker.launch-chosen"))
	}
	f.kill("gw2")
	f.kill("gw3")
	eventually(t, "nobody is left", func() bool {
		code, _ := b.launch(Request{Target: "db1"})
		return code == string(choice.AllNodesDown)
	})
}

func (b *testBroker) has(code string) bool {
	for _, p := range b.options.Board.List() {
		if p.Kind.Code == code {
			return true
		}
	}
	return false
}

// A launch whose gateway does not answer goes to the next best; nobody else is sent there.
func TestAMissedLaunchGoesToTheNextBest(t *testing.T) {
	f := newFleet(t, 3)
	b := newBroker(t, "b1", nil)
	b.mustLink(f.link())
	request := Request{Target: "db1", Launch: "l1"}
	first, r := b.launch(request)
	if first != "east/gw1" {
		t.Fatalf("the first of three equal ones is %s", first)
	}
	f.kill("gw1") // before anybody knocks at it
	f.mode.Store(blackHole)
	next, err := b.Outcome(request, r.Answer.Ref(), false, "tcp: refused\n")
	if err != nil || next.Refusal != nil || next.Answer.Ref().Gateway == "gw1" || next.Launch != "l1" {
		t.Fatalf("after it was missed: %+v, %v", next, err)
	}
	for range 6 { // two for each, were it in their midst
		if again, _ := b.launch(Request{Target: "db2"}); again == "east/gw1" {
			t.Error("another launch was sent to a gateway that has just been missed")
		}
	}
	request.Tried = []fleet.Ref{{Fleet: "east", Gateway: "gw1"}, {Fleet: "east", Gateway: "gw2"}}
	next, err = b.Outcome(request, fleet.Ref{Fleet: "east", Gateway: "gw3"}, false, "no answer")
	if err != nil || next.Refusal == nil {
		t.Fatalf("after all were tried: %+v, %v", next, err)
	}
	if done, err := b.Outcome(request, fleet.Ref{Fleet: "east", Gateway: "gw2"}, true, ""); err != nil || done.Refusal != nil || done.Answer.Gateway != nil {
		t.Errorf("one that was reached: %+v, %v", done, err)
	}
	if _, err := b.Outcome(request, fleet.Ref{Fleet: "west", Gateway: "gw2"}, false, ""); err == nil {
		t.Error("an outcome of a fleet that is not linked is taken")
	}
}

// Under strict a stale view may be wrong; then the launch fails, and says so.
func TestStrictFailsOnAStaleView(t *testing.T) {
	f := newFleet(t, 2)
	b := newBroker(t, "b1", nil)
	link := f.link()
	link.Mode = fleet.Strict
	b.mustLink(link)
	f.mode.Store(resets)
	eventually(t, "the last good view counts", b.source(fleet.LastGood))
	request := Request{Target: "db1"}
	got, r := b.launch(request)
	next, err := b.Outcome(request, r.Answer.Ref(), false, "refused")
	if got != "east/gw1" || err != nil || next.Refusal == nil || next.Refusal.Code != choice.LaunchFailedStaleView {
		t.Errorf("%s, then %+v, %v", got, next.Refusal, err)
	}
}

func network1(name, subnet, gateway string) rules.Value {
	n := &rules.Network{Name: name, Members: []rules.Member{{Ref: fleet.Ref{Fleet: "east", Gateway: gateway}}}}
	if subnet != "" {
		n.Subnets = []netip.Prefix{netip.MustParsePrefix(subnet)}
	}
	return rules.Value{Network: n}
}

// Rules are changed on one broker while the others and the central manager are down, count there at once, and reach the others when they
// are back; those that were changed apart are merged the same everywhere.
func TestThreeBrokersInAnOutage(t *testing.T) {
	f := newFleet(t, 3)
	roads := &network{brokers: map[string]*Broker{}}
	brokers := map[string]*testBroker{}
	for _, name := range []string{"b1", "b2", "b3"} {
		b := newBroker(t, name, road{roads, name})
		b.mustLink(f.link())
		eventually(t, "the view is on disk", func() bool { r, err := b.shelf.Load("east"); return err == nil && r != nil })
		brokers[name] = b
	}
	b1, b2, b3 := brokers["b1"], brokers["b2"], brokers["b3"]
	f.mode.Store(blackHole)
	b2.close()
	b3.close()

	if _, err := b1.Put(network1("lab", "10.1.0.0/16", "gw2"), "anna", "outage"); err != nil {
		t.Fatal(err)
	}
	if got, r := b1.launch(Request{Target: "db1", Address: netip.MustParseAddr("10.1.2.3")}); got != "east/gw2" || r.Answer.Rule.Network != "lab" {
		t.Errorf("on b1 alone: %s, %+v", got, r.Answer.Rule)
	}
	b1.close()
	b2.start()
	if got, r := b2.launch(Request{Target: "db1", Address: netip.MustParseAddr("10.1.2.3")}); got != "east/gw1" || r.Answer.Source != fleet.LastGood {
		t.Errorf("on b2 alone, which has not heard of the rule: %s from %s", got, r.Answer.Source)
	}
	if _, err := b2.Put(network1("lab", "10.1.0.0/16", "gw3"), "bert", "outage"); err != nil {
		t.Fatal(err)
	}
	if _, err := b2.Put(network1("office", "10.2.0.0/16", "gw3"), "bert", "outage"); err != nil {
		t.Fatal(err)
	}

	b1.start()
	b3.start()
	for name, b := range brokers {
		roads.set(name, b)
	}
	eventually(t, "all have the same rules", func() bool {
		_, d1 := b1.Rules()
		_, d2 := b2.Rules()
		_, d3 := b3.Rules()
		return d1 == d2 && d2 == d3
	})
	for name, b := range brokers {
		book, _ := b.Rules()
		if len(book.Entries()) != 2 || len(book.Contests()) != 1 {
			t.Errorf("%s has %d rules and %d contests", name, len(book.Entries()), len(book.Contests()))
		}
		if got, _ := b.launch(Request{Target: "db1", Address: netip.MustParseAddr("10.1.2.3")}); got != "east/gw3" {
			t.Errorf("%s launches on %s, and the later rule says gw3", name, got)
		}
		eventually(t, "the contest is on the board", func() bool { return b.has(rules.Contested.Code) })
	}
	if _, err := b3.Put(network1("lab", "10.1.0.0/16", "gw1"), "carl", "decided"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the contest is decided everywhere", func() bool {
		return !b1.has(rules.Contested.Code) && !b2.has(rules.Contested.Code) && !b3.has(rules.Contested.Code)
	})
	roads.set("b2", nil)
	b2.close()
	b2.start()
	if book, _ := b2.Rules(); len(book.Entries()) != 2 {
		t.Errorf("after a restart b2 has %d rules", len(book.Entries()))
	}
}

// Rules that are longer than a part arrive whole.
func TestManyRulesAreExchangedInParts(t *testing.T) {
	roads := &network{brokers: map[string]*Broker{}}
	b1, b2 := newBroker(t, "b1", road{roads, "b1"}), newBroker(t, "b2", road{roads, "b2"})
	book, _ := b1.Rules()
	by, err := rules.Author{Origin: "b1"}, error(nil)
	for i := range 300 {
		v := network1(fmt.Sprintf("n%d", i), "", "gw1")
		for j := range 200 {
			v.Network.Subnets = append(v.Network.Subnets, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i / 256), byte(i), byte(j)}), 32))
		}
		if i > 30 {
			v.Network.Subnets = nil
		}
		v.Network.Note = strings.Repeat("x", 255)
		v.Network.Members = append(v.Network.Members, manyMembers(200)...)
		if book, err = book.Put(v, by, b1.now()); err != nil {
			t.Fatal(err)
		}
	}
	if err := b1.merge("file", book); err != nil {
		t.Fatal(err)
	}
	if n := len(b1.rules.Load().text); n < 2*MaxPart {
		t.Fatalf("the rules have %d bytes, which is no test of parts", n)
	}
	if _, err := b2.Put(rules.Value{Policy: &rules.Policy{Name: "p", Fleet: "east"}}, "", ""); err != nil {
		t.Fatal(err)
	}
	roads.set("b1", b1)
	roads.set("b2", b2)
	eventually(t, "both have the same rules", func() bool {
		_, d1 := b1.Rules()
		r, d2 := b2.Rules()
		return d1 == d2 && len(r.Entries()) == 301
	})
}

func manyMembers(n int) (members []rules.Member) {
	for i := range n {
		members = append(members, rules.Member{Ref: fleet.Ref{Fleet: "west", Gateway: fmt.Sprintf("gateway-with-a-long-name-%d", i)}})
	}
	return members
}

// What is not in use takes no part: it has nothing to say and asks nobody.
func TestABrokerThatIsNotInUseIsLeftAlone(t *testing.T) {
	roads := &network{brokers: map[string]*Broker{}}
	b1, b2 := newBroker(t, "b1", road{roads, "b1"}), newBroker(t, "b2", road{roads, "b2"})
	roads.set("b1", b1)
	roads.set("b2", b2)
	if _, err := b1.Put(rules.Value{Policy: &rules.Policy{Name: "p", Fleet: "east"}}, "", ""); err != nil {
		t.Fatal(err)
	}
	b1.askAll(t.Context())
	if part := b2.AnswerRules(Ask{}); part.InUse {
		t.Error("b2 says that it is in use")
	}
	if _, err := os.Stat(b2.options.Dir); !os.IsNotExist(err) {
		t.Errorf("b2 has a directory: %v", err)
	}
	eventually(t, "a policy of a fleet that is not linked is told of", func() bool { return b1.has(rules.Broken.Code) })
}

// Files that cannot be believed keep a broker from opening: to go on without rules could send sessions where they may not go.
func TestDamagedFilesAreNotPassedOver(t *testing.T) {
	f := newFleet(t, 1)
	b := newBroker(t, "b1", nil)
	b.mustLink(f.link())
	if _, err := b.Put(network1("lab", "10.1.0.0/16", "gw1"), "", ""); err != nil {
		t.Fatal(err)
	}
	b.close()
	for _, name := range []string{rulesFile, linksFile} {
		path := filepath.Join(b.options.Dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text[:len(text)/2], 0o600); err != nil {
			t.Fatal(err)
		}
		if opened, err := Open(b.options); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "put the file back") {
			t.Errorf("half of %s: %v, %v", name, opened, err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	views := filepath.Join(b.options.Dir, viewsDir)
	if err := os.Rename(views, views+"-kept"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(views, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second try finds nothing of the first in its way
		if opened, err := Open(b.options); err == nil {
			t.Errorf("with a file where the views are to be: %v", opened)
		}
	}
	if err := errors.Join(os.Remove(views), os.Rename(views+"-kept", views)); err != nil {
		t.Fatal(err)
	}
	b.start()
	if info, err := os.Stat(b.options.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v", info, err)
	}
	warnings, err := b.Unlink("east")
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "network lab") {
		t.Errorf("unlinking: %q, %v", warnings, err)
	}
	if r, err := b.shelf.Load("east"); r != nil || err != nil {
		t.Errorf("the last good view of an unlinked fleet: %v, %v", r, err)
	}
}

// What cannot be kept does not count.
func TestAChangeThatCannotBeKeptDoesNotCount(t *testing.T) {
	b := newBroker(t, "b1", nil)
	if err := os.WriteFile(b.options.Dir, nil, 0o600); err != nil { // a file where the directory is to be
		t.Fatal(err)
	}
	_, before := b.Rules()
	if _, err := b.Put(network1("lab", "10.1.0.0/16", "gw1"), "", ""); err == nil {
		t.Error("a rule is taken that cannot be kept")
	}
	if _, after := b.Rules(); after != before {
		t.Error("it counts all the same")
	}
	if err := b.Remove(rules.Key{Kind: rules.KindNetwork, Name: "no"}, "", ""); err == nil || !strings.Contains(err.Error(), "there is no network no") {
		t.Errorf("removing what is not there: %v", err)
	}
	if code, _ := b.launch(Request{Target: "db1"}); code != string(choice.NoClusterInfo) {
		t.Errorf("a launch that cannot be audited: %s", code)
	}
	eventually(t, "the audit's loss is told", func() bool { return b.has(auditLost.Code) })
	b.open = false
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := b.Put(network1("lab", "10.1.0.0/16", "gw1"), "", ""); !errors.Is(err, ErrClosed) {
		t.Errorf("after it was closed: %v", err)
	}
}

func TestRequestsHaveBounds(t *testing.T) {
	b := newBroker(t, "b1", nil)
	for name, r := range map[string]Request{
		"nothing":         {},
		"a long target":   {Target: strings.Repeat("x", 254)},
		"a line feed":     {Target: "db1\n{}"},
		"a long name":     {Target: "db1", Who: strings.Repeat("x", 257)},
		"many tries":      {Target: "db1", Tried: make([]fleet.Ref, MaxTried+1)},
		"a long protocol": {Target: "db1", Protocol: fleet.Protocol(strings.Repeat("x", 33))},
	} {
		if result, err := b.Launch(r); err == nil {
			t.Errorf("%s is taken: %+v", name, result)
		}
	}
}
