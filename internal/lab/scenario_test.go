package lab

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSizingExamples has the numbers of the sizing examples and near misses.
func TestSizingExamples(t *testing.T) {
	tests := []struct {
		name      string
		addresses int
		loads     map[string]nodeLoad
		want      string // "" passes
	}{
		{"twelve on three", 12, map[string]nodeLoad{"a": {4, 200}, "b": {4, 200}, "c": {4, 200}}, ""},
		{"four on three", 4, map[string]nodeLoad{"a": {2, 300}, "b": {1, 150}, "c": {1, 150}}, ""},
		{"answers need not be exact", 4, map[string]nodeLoad{"a": {2, 301}, "b": {1, 149}, "c": {1, 150}}, ""},
		{"but nearly", 4, map[string]nodeLoad{"a": {2, 290}, "b": {1, 160}, "c": {1, 150}}, "290 clients on 2 addresses; 300 would be even"},
		{"addresses are exact", 12, map[string]nodeLoad{"a": {5, 250}, "b": {4, 200}, "c": {3, 150}}, "one node holds 5 addresses and another 3"},
		{"an orphan", 12, map[string]nodeLoad{"a": {4, 200}, "b": {4, 200}, "c": {3, 150}}, "11 of 12 addresses are held"},
		{"a client that is gone", 12, map[string]nodeLoad{"a": {4, 200}, "b": {4, 199}, "c": {4, 200}}, "599 of 600 clients"},
	}
	for _, test := range tests {
		got := uneven(test.loads, test.addresses, 600)
		if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestEvenly(t *testing.T) {
	nodes := []string{"a", "b"}
	tests := []struct {
		holders map[string]string
		want    bool
	}{
		{map[string]string{"1": "a", "2": "b"}, true},
		{map[string]string{"1": "a", "2": "b", "3": "a"}, true},
		{map[string]string{"1": "a", "2": "a"}, false},
		{map[string]string{"1": "a", "2": ""}, false},
		{map[string]string{"1": "a", "2": "b", "3": "c"}, false},
		{nil, false},
	}
	for _, test := range tests {
		if got := evenly(test.holders, nodes); got != test.want {
			t.Errorf("%v: %v, want %v", test.holders, got, test.want)
		}
	}
}

func TestTranscriptIsPlainWhenPiped(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out := newTranscript(write)
	out.title("A %s", "title")
	out.table([]string{"NODE", "N"}, [][]string{{"node1", "10"}, {"n", "1"}})
	out.verdict(false, "not so")
	write.Close()
	got, _ := io.ReadAll(read)
	want := "\n1. A title\n\n   NODE   N\n   node1  10\n   n      1\n\n   NO not so\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	coloured := &transcript{out: new(bytes.Buffer), colour: true}
	if got := coloured.paint(sgrBold, "x"); got != "\x1b[1mx\x1b[0m" {
		t.Errorf("on a terminal: %q", got)
	}
}

func TestReadingTheCommandsOutput(t *testing.T) {
	report, err := parseNodeReport([]byte(`{"serving": false, "not_serving_because": "no quorum", "nodes": [{"name": "node1", "state": "up"}, {"name": "node2", "state": "unfit"}], "new": 1}`))
	if err != nil || report.Serving || report.Reason != "no quorum" || !report.up("node1") || report.up("node2") || report.up("node3") {
		t.Errorf("%+v, %v", report, err)
	}
	all, err := parseHeld([]byte(`{"addresses": [{"address": "10.10.0.100", "kind": "dynamic", "node": "node1", "state": "held"}]}`))
	if want := []heldAddress{{Address: "10.10.0.100", Kind: "dynamic", Node: "node1", State: "held"}}; err != nil || !cmp.Equal(all, want) {
		t.Errorf("%+v, %v", all, err)
	}
	fleet, err := parseFleets([]byte(`{"fleets": [{"link": {"name": "east"}, "state": "lost", "source": "last-good", "age_ms": 12}]}`))
	if err != nil || fleet.State != "lost" || fleet.Source != "last-good" || fleet.AgeMS != 12 {
		t.Errorf("%+v, %v", fleet, err)
	}
	if _, err := parseFleets([]byte(`{"fleets": []}`)); err == nil {
		t.Error("no fleet was taken for one")
	}
	gateways, err := parseGateways([]byte(`{"gateways": [{"fleet": "east", "key": "gw1", "takes": true}, {"key": "gw2", "takes": false}]}`))
	if err != nil || !cmp.Equal(gateways, map[string]bool{"gw1": true, "gw2": false}) {
		t.Errorf("%+v, %v", gateways, err)
	}
	if _, err := parseHeld([]byte("usage:")); err == nil {
		t.Error("text was taken for JSON")
	}
}

// TestEchoRequest checks the checksum as a receiver does (RFC 1071): the sum over everything is all ones.
func TestEchoRequest(t *testing.T) {
	for _, number := range []uint32{0, 1, 0xff, 0xffff, 0x10000} {
		packet := echoRequest(number)
		sum := uint32(0)
		for i := 0; i < len(packet); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(packet[i:]))
		}
		for sum>>16 != 0 {
			sum = sum>>16 + sum&0xffff
		}
		if sum != 0xffff {
			t.Errorf("number %d: sum %#x of %x", number, sum, packet)
		}
	}
}

// TestLabClientsAndProbe plays a scenario's programs against a node that is cut off and healed.
func TestLabClientsAndProbe(t *testing.T) {
	lab := startLab(t, smallLab(2, 1), launchOptions{})
	s := &stage{Directory: lab.dir, plan: lab.plan, out: newTranscript(io.Discard)}
	s.plan.Resolver.Delegations = []Delegation{{Zone: "node1"}} // the clients find it in /etc/hosts
	t.Cleanup(func() {
		for _, p := range s.programs {
			p.stop()
		}
	})
	if err := s.startServer(t.Context(), "node1"); err != nil {
		t.Fatal(err)
	}
	clients, first, err := s.startClients(t.Context(), "client1", 5)
	if err != nil {
		t.Fatal(err)
	}
	if first.Connections != 5 || first.ByNode["node1"] != 5 || first.ByAddress["10.10.0.11"] != 5 {
		t.Errorf("five clients of node1: %+v", first)
	}
	probe, err := s.startProbe(t.Context(), "client1", []string{"10.10.0.11", "10.10.0.12"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.startEcho(t.Context(), "node1"); err != nil {
		t.Fatal(err)
	}
	if err := s.watch(t.Context(), probe, []string{"10.10.0.11"}, nil); err != nil {
		t.Fatal(err)
	}
	var heard probeReport
	if err := probe.ask("speak", &heard); err != nil {
		t.Fatal(err)
	}
	until(t, "what the idle client says is answered", func() bool { return probe.ask("report", &heard) == nil && heard.unheard() == 0 })
	lab.must(request{Op: "cut", Member: "node1"})
	var report clientReport
	until(t, "all clients notice", func() bool {
		return clients.ask("report", &report) == nil && report.Connections == 0
	})
	lab.must(request{Op: "heal", Member: "node1"})
	report, err = s.reconnected(t.Context(), clients, 5, []string{"node1"})
	if err != nil || report.Repeated == 0 || report.Lost > 0 || report.LongestMS == 0 {
		t.Errorf("after the cut: %+v, %v", report, err)
	}
	var silence probeReport
	if err := probe.ask("report", &silence); err != nil || silence.LongestMS["10.10.0.11"] <= silence.LongestMS["10.10.0.12"] || silence.Received == 0 {
		t.Errorf("the cut node should have been silent for longer than the other: %+v, %v", silence, err)
	}
	until(t, "datagrams are echoed again", func() bool {
		return probe.ask("report", &silence) == nil && silence.standing() && silence.Watched["10.10.0.11"].Lost > 0
	})
	if one := silence.Watched["10.10.0.11"]; one.Broke || one.Node != "node1" || !silence.reaches("node1") || silence.reaches("node2") {
		t.Errorf("an idle client notices nothing of a cut that heals: %+v", one)
	}
	s.programs[len(s.programs)-1].stop() // the echo server
	if err := s.startEcho(t.Context(), "node1"); err != nil {
		t.Fatal(err)
	}
	until(t, "the idle client is connected again", func() bool {
		return probe.ask("report", &silence) == nil && silence.Watched["10.10.0.11"].ReconnectMS > 0
	})
	if gap, err := s.gap(t.Context(), probe); err != nil || gap == 0 {
		t.Errorf("gap %v, %v", gap, err)
	}
	fresh := clientReport{}
	if err := clients.ask("reset", &fresh); err != nil || fresh.Repeated != 0 || fresh.Connections != 5 {
		t.Errorf("after a reset: %+v, %v", fresh, err)
	}
}

func TestRunRefusesAnUnknownScenario(t *testing.T) {
	command := Command()
	command.SetArgs([]string{"run", "opera"})
	if err := command.Execute(); err == nil || !strings.Contains(err.Error(), "failover, sizing, tour") {
		t.Errorf("got %v, want the names of the scenarios", err)
	}
	if !slices.Contains(runCommand().ValidArgs, "tour") {
		t.Error("the shell does not complete the scenarios")
	}
}
