package lab

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var tallyAddresses = map[string]string{"gw1": "10.10.0.81", "gw2": "10.10.0.82", "gw3": "10.10.0.83"}

// opened is a launch that went well.
func opened(gateway string) launched {
	return launched{Broker: "node1", Gateway: "east/" + gateway, Host: "db1", Through: tallyAddresses[gateway], Source: "live", AgeMS: 400}
}

// TestTallyRound has one launch of each kind, and what is wrong with each.
func TestTallyRound(t *testing.T) {
	retried := opened("gw1")
	retried.Missed, retried.Silent = []string{"east/gw2"}, []string{"node3"}
	retried.LeftOut = []leftOut{{Gateway: "east/gw3", Why: "it is old"}}
	refused := launched{Broker: "node2", Refusal: &launchRefusal{Code: "ALL_NODES_DOWN", Text: "nobody"}}
	missed := launched{Broker: "node1", Gateway: "east/gw2", Missed: []string{"east/gw2"}, Error: "refused"}
	liar := opened("gw1")
	liar.Through = tallyAddresses["gw3"]
	got := tallyRound(expected{what: "all", dead: []string{"gw2"}}, []launched{opened("gw1"), retried, refused, missed, liar, {}}, tallyAddresses)
	want := sessionRound{
		What: "all", Launches: 6, ByGateway: map[string]int{"gw1": 2}, ByBroker: map[string]int{"node1": 4, "node2": 1}, Silent: map[string]int{"node3": 1},
		BySource: map[string]int{"live": 2}, OldestMS: 400, Refused: map[string]int{"ALL_NODES_DOWN": 1}, Refusal: "nobody", Failed: 3,
		Failure: "no broker answered", ToDead: 2, LeftOut: map[string]string{"gw3": "it is old"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestRoundIsHeldAgainstTheContract has a round that is as expected, and each way in which one may not be.
func TestRoundIsHeldAgainstTheContract(t *testing.T) {
	good := []launched{opened("gw1"), opened("gw3"), opened("gw1")}
	with := func(change func(*launched)) []launched {
		all := slices.Clone(good)
		change(&all[2])
		return all
	}
	usual := expected{brokers: []string{"node1"}, dead: []string{"gw2"}, source: "live"}
	refused := usual
	refused.refusal = "ALL_NODES_DOWN"
	strict := usual
	strict.strict, strict.source = true, ""
	spread := usual
	spread.spread = []string{"gw2"}
	spread.dead = nil
	narrow := usual
	narrow.other = []string{"gw3"}
	for _, test := range []struct {
		name     string
		expected expected
		all      []launched
		want     string // "": nothing is wrong
	}{
		{"as it should be", usual, good, ""},
		{"one went through a dead gateway", usual, with(func(l *launched) { *l = opened("gw2") }), "1 sessions went through gw2; 1 launches were handed a dead gateway"},
		{"one was handed it first", usual, with(func(l *launched) { l.Missed = []string{"east/gw2"} }), "1 launches were handed a dead gateway"},
		{"one went past the rule", narrow, good, "1 sessions went through gw3"},
		{"a dead broker answered", usual, with(func(l *launched) { l.Broker = "node2" }), "node2 is down and answered 1 launches"},
		{"an old view", usual, with(func(l *launched) { l.Source = "last-good" }), "1 answers came from a view that is last-good, not live"},
		{"one was not opened", usual, with(func(l *launched) { l.Host, l.Error = "", "no route" }), "2 of 3 sessions were opened (no route)"},
		{"launched though nothing is up", refused, good, "0 of 3 launches were refused with ALL_NODES_DOWN"},
		{"strict, and yet careful", strict, good, "a strict broker believes the last good view, and yet nobody was sent to gw2"},
		{"strict", strict, with(func(l *launched) { l.Host, l.Gateway, l.Missed = "", "east/gw2", []string{"east/gw2"} }), ""},
		{"one that is back gets nothing", spread, good, "no session went through gw2"},
	} {
		r := tallyRound(test.expected, test.all, tallyAddresses)
		if got := strings.Join(r.wrong(test.expected), "; "); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestSessionsTable(t *testing.T) {
	result := &sessionsResult{Pass: true, ByGateway: map[string]int{}, Refused: map[string]int{}}
	first := expected{what: "all up", brokers: []string{"node1"}, source: "live"}
	out := opened("gw3")
	out.LeftOut = []leftOut{{Gateway: "east/gw2", Why: "it does not answer"}}
	result.add(tallyRound(first, []launched{opened("gw1"), out}, tallyAddresses), first)
	second := expected{what: "nothing is up", brokers: []string{"node1"}, refusal: "ALL_NODES_DOWN"}
	result.add(tallyRound(second, []launched{{Broker: "node1", Refusal: &launchRefusal{Code: "ALL_NODES_DOWN"}}}, tallyAddresses), second)
	if !result.Pass || result.Launches != 3 || result.Refused["ALL_NODES_DOWN"] != 1 || result.Failed != 0 {
		t.Errorf("%+v", result)
	}
	var text bytes.Buffer
	result.table(newTranscript(&text), []string{"gw1", "gw2", "gw3"})
	want := `
   WHEN           LAUNCHES  gw1  gw2  gw3  REFUSED  FAILED  TO DEAD  VIEW
   all up         2         1    -    1    -        -       -        live, 0.4 s old at most
   nothing is up  1         -    -    -    1        -       -        -

   Why gateways were left out, as the brokers say:

   WHEN    GATEWAY  WHY
   all up  gw2      it does not answer

`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Error(diff)
	}
}
