package main

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file under testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what it was (go test ./rivals -update, and read the difference); now:\n%s", path, got)
	}
}

// sample has something of everything: many runs and one, none, an idle client that notices and one that does not, a system
// that is absent, and runs that failed.
func sample() report {
	r := report{Began: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Machine: "a machine, 2 processors", Kernel: "Linux 6", Rounds: 3, Beside: 5, ProbeMS: 5, Systems: []systemReport{
		{Name: "holdfast 10 ms", Settings: "fast", Version: "1"}, {Name: "keepalived 1 s", Settings: "its defaults", Version: "2"},
		{Name: "ctdb", Settings: "its defaults", Absent: "ctdbd is not installed (Debian package ctdb)"},
	}}
	for _, gap := range []float64{31, 28.4, 35.5} {
		r.Systems[0].add("link-cut", outcome{gapMS: gap, idle: true, idleMS: gap + 4})
	}
	r.Systems[0].add("planned-move", outcome{gapMS: 5.2})
	r.Systems[1].add("link-cut", outcome{gapMS: 2721, held: true, idle: true, idleMS: -1})
	for range 5 {
		r.Systems[1].failed("planned-move", errors.New("it did not come about <within> 2m0s"))
	}
	r.Systems[1].add("planned-move", outcome{gapMS: 12345})
	r.Systems[1].Troubles = []string{"it does not start"}
	return r
}

func TestPlot(t *testing.T) {
	got := plot(sample())
	golden(t, "plot.svg", got)
	wellFormed(t, got)
	for _, wanted := range []string{"prefers-color-scheme: dark", ">1</text>", ">100</text>", "held 1/1", "not in 1 of 1", "failed 5/6", "milliseconds, logarithmic"} {
		if !strings.Contains(got, wanted) {
			t.Errorf("the plot does not show %q", wanted)
		}
	}
	wellFormed(t, plot(report{})) // nothing was measured
}

func wellFormed(t *testing.T, text string) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("the plot is not XML: %v", err)
		}
	}
}

func TestPage(t *testing.T) { golden(t, "page.md", page(sample())) }

// TestScaleIsLogarithmic: each decade is as wide as the next, and a value outside stays inside the picture.
func TestScaleIsLogarithmic(t *testing.T) {
	d := scaleOf([]group{{rows: []row{{values: []float64{0, 7, 900}}}}})
	if d != (decades{-1, 3}) {
		t.Fatalf("the scale of 0, 7 and 900 ms is %+v", d)
	}
	if first, second := d.x(1)-d.x(0.1), d.x(1000)-d.x(100); first < 1 || math.Abs(first-second) > 0.01 {
		t.Errorf("the first decade is %.2f wide, the last %.2f", first, second)
	}
	if math.Abs(d.x(0)-plotLeft) > 0.01 || math.Abs(d.x(1000)-plotRight) > 0.01 {
		t.Errorf("0 is at %.1f and 1000 at %.1f", d.x(0), d.x(1000))
	}
	if one := scaleOf([]group{{rows: []row{{values: []float64{10}}}}}); one.high <= one.low {
		t.Errorf("the scale of one value has no width: %+v", one)
	}
}

func TestDistribution(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for name, c := range map[string]struct {
		values []float64
		want   distribution
	}{
		"none": {nil, distribution{}}, "one": {[]float64{7}, distribution{7, 7, 7}},
		"three": {[]float64{30, 10, 20}, distribution{20, 30, 30}}, "four": {[]float64{40, 10, 30, 20}, distribution{20, 40, 40}},
		"hundred": {hundred, distribution{50, 99, 100}}, // the longest of a hundred is not the 99th of them
	} {
		if got := distributionOf(c.values); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestNeighbours(t *testing.T) {
	got := neighbours(`IP address       HW type     Flags       HW address            Mask     Device
10.10.0.100      0x1         0x2         02:00:0a:0a:00:04     *        eth0
10.10.0.101      0x1         0x0         00:00:00:00:00:00     *        eth0
`)
	if len(got) != 1 || got["10.10.0.100"] != "02:00:0a:0a:00:04" {
		t.Errorf("%v", got)
	}
	members, err := membersByMAC([]byte(`{"members": [{"name": "node4", "interfaces": [{"name": "eth0", "mac": "02:00:0a:0a:00:04"}]}]}`))
	if err != nil || members["02:00:0a:0a:00:04"] != "node4" {
		t.Errorf("%v %v", members, err)
	}
}

// TestARunCountsOnlyAfterAFailover: as long as the packets for one address go to the victim, or nobody knows where, it has not
// taken place, however well everything answers.
func TestARunCountsOnlyAfterAFailover(t *testing.T) {
	owners := make(map[string]string)
	for _, address := range addresses() {
		owners[address] = "node2"
	}
	if err := notMoved(owners); err != nil {
		t.Errorf("all moved: %v", err)
	}
	for _, owner := range []string{victim, "", client} {
		owners["10.10.0.111"] = owner
		if err := notMoved(owners); err == nil || !strings.Contains(err.Error(), "10.10.0.111") {
			t.Errorf("one goes to %q: %v", owner, err)
		}
	}
	if r := (probeReport{LastMS: map[string]float64{"a": 3, "b": 101}}); r.answering() {
		t.Error("an address that was silent for 101 ms answers")
	}
	if (probeReport{}).answering() {
		t.Error("nothing answers, and all is well")
	}
}

func TestKeepalivedConfigurations(t *testing.T) {
	golden(t, "keepalived-node4.conf", keepalived{advert: "0.1"}.config(3, false))
	if text := (keepalived{}).config(0, false); strings.Contains(text, "advert_int") || strings.Contains(text, "vrrp_version") {
		t.Errorf("the defaults are not left alone:\n%s", text)
	}
	if text := (keepalived{}).config(3, true); strings.Count(text, "priority 1\n") != len(nodes) {
		t.Errorf("not demoted in every instance:\n%s", text)
	}
	// Of each instance every node has another priority, and the victim is the first choice of one.
	for instance := range nodes {
		seen := make(map[string]bool)
		for node := range nodes {
			text := strings.Split(keepalived{}.config(node, false), "vrrp_instance ")[instance+1]
			_, after, _ := strings.Cut(text, "priority ")
			priority, _, _ := strings.Cut(after, "\n")
			seen[priority] = true
		}
		if len(seen) != len(nodes) || !seen["254"] {
			t.Errorf("instance %d has the priorities %v", instance+1, seen)
		}
	}
}

func TestStatusOfCTDB(t *testing.T) {
	const heading = "|Node|IP|Disconnected|Unknown|Banned|Disabled|Unhealthy|Stopped|Inactive|PartiallyOnline|ThisNode|\n"
	well := heading + "|0|10.10.0.11|0|0|0|0|0|0|0|0|Y|\n|1|10.10.0.12|0|0|0|0|0|0|0|0|N|\n|2|10.10.0.13|0|0|0|0|0|0|0|0|N|\n|3|10.10.0.14|0|0|0|0|0|0|0|0|N|\n"
	for name, c := range map[string]struct{ text, want string }{
		"all well":       {well, ""},
		"one unhealthy":  {strings.Replace(well, "|3|10.10.0.14|0|0|0|0|0|", "|3|10.10.0.14|0|0|0|0|1|", 1), "node 3 is not well"},
		"one is missing": {well[:strings.LastIndex(well, "|3|")], "knows of 3 nodes"},
		"nothing":        {"", "knows of 0 nodes"},
	} {
		err := statusFault(c.text)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestProcessesAreKnownByTheirCommandLine(t *testing.T) {
	for _, c := range []struct {
		line string
		argv []string
		want bool
	}{
		{"/usr/sbin/keepalived\x00-n\x00", []string{"keepalived"}, true},
		{"/usr/libexec/ctdb/ctdb-eventd\x00-P\x00", []string{"ctdb"}, true},
		{"/tmp/lab/bin/holdfast\x00agent\x00--dir\x00", []string{"holdfast", "agent", "guard"}, true},
		{"holdfast\x00lab\x00probe\x00", []string{"holdfast", "agent", "guard"}, false},
		{"holdfast\x00", []string{"holdfast", "agent"}, false},
		{"/bin/sh\x00keepalived\x00", []string{"keepalived"}, false},
		{"", []string{"keepalived"}, false},
	} {
		if got := isOf([]byte(c.line), c.argv[0], c.argv[1:]); got != c.want {
			t.Errorf("%q is one of %v: %v, want %v", c.line, c.argv, got, c.want)
		}
	}
	if err := endProcesses([]string{"keepalived"}); err == nil || !strings.Contains(err.Error(), "no member of a lab") {
		t.Errorf("outside of a lab: %v", err)
	}
}

func TestSystemsAndFaultsAreChosenByName(t *testing.T) {
	all := systems("holdfast")
	name := func(s system) string { return s.about().name }
	if got, err := chosen(all, name, nil); err != nil || len(got) != len(all) {
		t.Errorf("without names: %d of %d, %v", len(got), len(all), err)
	}
	if got, err := chosen(all, name, words("ctdb,holdfast 50 ms")); err != nil || len(got) != 2 || name(got[0]) != "ctdb" {
		t.Errorf("two: %v, %v", got, err)
	}
	if _, err := chosen(all, name, words("ucarp")); err == nil || !strings.Contains(err.Error(), "keepalived 0.1 s") {
		t.Errorf("an unknown one: %v", err)
	}
	if why := (about{program: "no-such-program", debian: "nothing"}).absent(); !strings.Contains(why, "Debian package nothing") {
		t.Errorf("a missing program: %q", why)
	}
}
