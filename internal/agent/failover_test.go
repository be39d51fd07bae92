package agent

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

func TestFailoverNames(t *testing.T) {
	if id := failoverID(2, 17); id != "2.17" {
		t.Errorf("it is called %q", id)
	}
	if lnn, over, ok := parseFailover("12.18446744073709551615"); !ok || lnn != 12 || over != 1<<64-1 {
		t.Errorf("read %d, %d, %t", lnn, over, ok)
	}
	for _, wrong := range []string{"", "2", "2.", ".17", "0.1", "2.0", "-1.4", "2.1.7", "a.b", "2.17 "} {
		if _, _, ok := parseFailover(wrong); ok {
			t.Errorf("%q is taken for a failover", wrong)
		}
	}
}

// died is the moment of the last heartbeat in the examples; the clock of node 3 is two seconds ahead.
var died = time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(died.Add(d)) }

func foundEvent(node string, f tenure.Finding, at time.Duration) *holdfastv1.Event {
	name := func(lnn int) string { return "node" + strconv.Itoa(lnn) }
	return &holdfastv1.Event{At: after(at), Node: node, Kind: kindFoundDown, Subject: "node2", Fields: findingFields(f, name, func(t time.Time) time.Time { return t })}
}

func exampleFailover(t *testing.T) *holdfastv1.Failover {
	t.Helper()
	config, err := cluster.Parse("test", []byte(testConfig))
	if err != nil {
		t.Fatal(err)
	}
	const ms = time.Millisecond
	at := func(d time.Duration) time.Time { return died.Add(d) }
	ahead := 2 * time.Second
	return failoverOf("2.17", config, []*holdfastv1.Event{
		{At: after(ahead + 157*ms), Node: "node3", Kind: kindOwned, Subject: "10.0.0.100", Fields: map[string]string{"failover": "2.17", "owner": "node3", "within": "groupnet0.subnet0.pool0"}},
		{At: after(ahead + 156*ms), Node: "node3", Kind: kindTaken, Subject: "10.0.0.100", Fields: map[string]string{
			"failover": "2.17", "put": timeField(at(ahead + 153*ms)), "announced": timeField(at(ahead + 154*ms))}},
		{At: after(ahead + 170*ms), Node: "node3", Kind: kindArrived, Subject: "10.0.0.100", Fields: map[string]string{
			"failover": "2.17", "arrived": timeField(at(ahead + 162*ms)), "from": "10.0.0.50"}},
		foundEvent("node3", tenure.Finding{LNN: 2, Over: 17, How: "other nodes have found it down", By: 1, Heard: at(ahead + 2*ms), Declared: at(ahead + 152*ms)}, ahead+152500*time.Microsecond),
		foundEvent("node1", tenure.Finding{LNN: 2, Over: 17, How: "a majority of its observers confirmed it", Heard: at(0), Declared: at(150 * ms), Asked: at(150 * ms),
			Words: []tenure.Word{{Observer: 3, Asked: at(150 * ms), Denied: tenure.DeniedHeard}, {Observer: 4, Asked: at(151 * ms), Confirmed: at(151 * ms), Came: at(152 * ms)}}}, 152*ms),
		{At: after(160 * ms), Node: "node1", Kind: kindOwned, Subject: "10.0.0.100", Fields: map[string]string{"failover": "2.17", "owner": "node3", "within": "groupnet0.subnet0.pool0"}},
		{At: after(161 * ms), Node: "node1", Kind: kindOwned, Subject: "10.0.0.9", Fields: map[string]string{"failover": "2.17", "owner": "node4", "within": "groupnet0.subnet0"}},
	})
}

// Times of different nodes are never subtracted from each other, and what nobody said is not there.
func TestFailoverIsPutTogether(t *testing.T) {
	number := func(n float64) *float64 { return &n }
	const ms = time.Millisecond
	ahead := 2 * time.Second
	want := &holdfastv1.Failover{
		Id: "2.17", Node: "node2", Lnn: 2, Incarnation: 17,
		Findings: []*holdfastv1.FailoverFinding{
			{Node: "node1", How: "a majority of its observers confirmed it", Heard: after(0), Declared: after(150 * ms), Asked: after(150 * ms), Confirmed: after(152 * ms),
				ConfirmedBy: []string{"node4"}, Found: after(152 * ms), DetectionMs: number(152)},
			{Node: "node3", How: "other nodes have found it down", ToldBy: "node1", Heard: after(ahead + 2*ms), Declared: after(ahead + 152*ms),
				Found: after(ahead + 152500*time.Microsecond), DetectionMs: number(150.5)},
		},
		Addresses: []*holdfastv1.FailoverAddress{
			{Address: "10.0.0.9", Node: "node4", Within: "groupnet0.subnet0"},
			{Address: "10.0.0.100", Node: "node3", Within: "groupnet0.subnet0.pool0", Found: after(ahead + 152500*time.Microsecond), OnInterface: after(ahead + 153*ms),
				Announced: after(ahead + 154*ms), Recorded: after(ahead + 157*ms), TakeMs: number(1.5), TotalMs: number(152),
				FirstPacket: after(ahead + 162*ms), FirstFrom: "10.0.0.50", FirstPacketMs: number(160)},
		},
	}
	if diff := cmp.Diff(want, exampleFailover(t), protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestFailoverForPeople(t *testing.T) {
	f := exampleFailover(t)
	f.Unanswered = []*holdfastv1.Unanswered{{Node: "node4", Why: "does not answer within 1s"}}
	want := `failover 2.17: incarnation 17 of node2 is over, 2 addresses went to others

node1: a majority of its observers confirmed it
  12:00:00.000  last heartbeat heard
     +150.0 ms  declared silent: none for a span (150.0 ms)
     +150.0 ms  the other observers asked (0.0 ms)
     +152.0 ms  confirmed by node4 (2.0 ms)
     +152.0 ms  known to be over (0.0 ms)

node3: other nodes have found it down, says node1
  12:00:02.002  last heartbeat heard
     +150.0 ms  declared silent: none for a span (150.0 ms)
     +150.5 ms  known to be over (0.5 ms)

10.0.0.9 (groupnet0.subnet0) on node4

10.0.0.100 (groupnet0.subnet0.pool0) on node3: 152.0 ms from the last heartbeat to the first announcement, 160.0 ms to a client's first packet
  12:00:02.152  known to be over
       +0.5 ms  on the interface (0.5 ms)
       +1.5 ms  first announcement out (1.0 ms)
       +4.5 ms  record seen (3.0 ms)
       +9.5 ms  first packet of a client, 10.0.0.50 (5.0 ms)

node4 does not answer within 1s

`
	if got, _, _ := strings.Cut(failoverText(f), "Times count"); got != want {
		t.Errorf("(-want +got)\n%s", cmp.Diff(want, got))
	}
}

func (c *testCluster) explainEvent(lnn int, name string) (*holdfastv1.ExplainResponse, error) {
	return c.ask(lnn).Explain(c.t.Context(), &holdfastv1.ExplainRequest{Event: name})
}

// lastDies ends the last of four nodes and returns what node 1 tells of it, when the others have what it had.
func (c *testCluster) lastDies(id string) *holdfastv1.ExplainResponse {
	c.t.Helper()
	c.kill(4)
	c.eventually("taken over", func() bool { return c.spreadIs(4, 4, 4, 0) })
	c.pass(time.Second)
	answer, err := c.explainEvent(1, id)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer
}

// blocks are the parts of a text in an order of their own: a node tells first what it found itself.
func blocks(text string) []string {
	return slices.Sorted(slices.Values(strings.Split(strings.TrimSpace(text), "\n\n")))
}

// A node dies: whichever of the others is asked, and by whichever event, tells the same of it.
func TestAFailoverExplained(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		v := c.nodes[1].agent.view.Load()
		id := failoverID(4, v.world.Nodes[4].Incarnation) // whom all others observe
		if _, err := c.explainEvent(1, id); err == nil || !strings.Contains(err.Error(), "no node that answered remembers") {
			t.Errorf("before anything happened: %v", err)
		}
		had := c.onKernel(4)
		answer := c.lastDies(id)
		f := answer.Failover
		if f.Id != id || f.Node != "node4" || len(f.Findings) != 3 || len(f.Addresses) != len(had) || len(f.Unanswered) != 1 || f.Unanswered[0].Node != "node4" {
			t.Fatalf("%v, it had %v", f, had)
		}
		asked := 0
		for _, finding := range f.Findings {
			if finding.Heard == nil || finding.GetDetectionMs() < float64(spanOf(c).Milliseconds()) {
				t.Errorf("%v", finding)
			}
			if finding.ToldBy == "" && finding.Confirmed != nil { // the others may have read it in the store first
				asked++
				if finding.Asked == nil || len(finding.ConfirmedBy) == 0 {
					t.Errorf("%v", finding)
				}
			}
		}
		if asked == 0 {
			t.Error("nobody found it out")
		}
		for _, a := range f.Addresses {
			if a.TotalMs == nil || a.TakeMs == nil || a.Recorded == nil || a.OnInterface.AsTime().After(a.Announced.AsTime()) || *a.TotalMs < float64(spanOf(c).Milliseconds()) {
				t.Errorf("%v", a)
			}
		}
		events, _ := c.nodes[3].agent.events.after(0)
		i := slices.IndexFunc(events, func(e event) bool { return e.Kind == kindTaken && e.Fields[fieldFailover] == id })
		if i < 0 {
			t.Fatalf("node 3 has no event of it\n%s", c.story())
		}
		again, err := c.explainEvent(3, strconv.FormatInt(events[i].ID, 10))
		if err != nil || !slices.Equal(blocks(again.Text), blocks(answer.Text)) {
			t.Errorf("node 3 tells it otherwise: %v\n%s\nand node 1:\n%s", err, again.GetText(), answer.Text)
		}
	})
}

// What an owner hands over itself is no failover.
func TestAnOrderlyStopIsNoFailover(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.nodes[3].stop()
		<-c.nodes[3].ended
		c.eventually("4 each on the others", func() bool { return c.spreadIs(4, 4, 0, 4) })
		c.pass(time.Second)
		for _, lnn := range []int{1, 2, 4} {
			events, _ := c.nodes[lnn].agent.events.after(0)
			for _, e := range events {
				if e.Kind != kindFoundDown && e.Fields[fieldFailover] != "" {
					t.Errorf("node %d: %s: %s", lnn, e.Kind, e.Message)
				}
			}
		}
	})
}

func TestEventsThatAreNoFailover(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		for name, want := range map[string]string{"soon": "neither the number of an event", "1": "is part of no failover", "999999": "remembers no event 999999"} {
			if _, err := c.explainEvent(1, name); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", name, err, want)
			}
		}
	})
}
