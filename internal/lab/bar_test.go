package lab

import (
	"encoding/json"
	"testing"
	"time"
)

// TestBars: each fault has a bar of its own, which is shown, and says of a case whether it is met. It is not what the case passes by.
func TestBars(t *testing.T) {
	const ms = time.Millisecond
	reconnect := func(max float64) *percentile { return &percentile{max, max, max} }
	for name, c := range map[string]struct {
		fault    string
		interval time.Duration
		want     string // the bar, as it is printed
		kept     []failoverCase
		missed   []failoverCase
	}{
		"a cut link with 50 ms x 3": {"link-cut", 50 * ms, "p99 170 ms",
			[]failoverCase{{GapMS: percentile{120, 170, 400}}}, []failoverCase{{GapMS: percentile{120, 170.1, 180}}}},
		"a cut link with 10 ms x 3": {"link-cut", 10 * ms, "median 35 ms, p99 50 ms",
			[]failoverCase{{GapMS: percentile{35, 50, 60}}}, []failoverCase{{GapMS: percentile{36, 50, 50}}, {GapMS: percentile{30, 51, 51}}}},
		"an agent killed": {"agent-killed", 50 * ms, "p99 170 ms", nil, nil},
		"a dead switch": {"switch-dead-300ms", 50 * ms, "p99 400 ms",
			[]failoverCase{{GapMS: percentile{350, 400, 400}}}, []failoverCase{{GapMS: percentile{350, 401, 401}}}},
		"a planned move": {"planned-move", 50 * ms, "lost 2, again 10 ms",
			[]failoverCase{{GapMS: percentile{99, 99, 99}, LostProbes: percentile{2, 2, 2}, ReconnectMS: reconnect(10)}, {}},
			[]failoverCase{{LostProbes: percentile{0, 2, 3}}, {ReconnectMS: reconnect(11)}}},
	} {
		chosen, err := chosenFaults([]string{c.fault})
		if err != nil {
			t.Fatal(err)
		}
		b := chosen[0].bar(c.interval, 3*c.interval)
		if got := b.String(); got != c.want {
			t.Errorf("%s: the bar is %q, want %q", name, got, c.want)
		}
		for _, kept := range c.kept {
			if !b.metBy(kept) {
				t.Errorf("%s: %+v does not meet it", name, kept)
			}
		}
		for _, missed := range c.missed {
			if b.metBy(missed) {
				t.Errorf("%s: %+v meets it", name, missed)
			}
		}
	}
}

// TestBarFailsNobody: what is twice over the bar passes within the bound, and says so.
func TestBarFailsNobody(t *testing.T) {
	c := failoverCase{BoundMS: 650, bar: bar{BarMS: barMS{P99: 170}}}
	c.judge([]seen{{gapMS: 340, serviceGapMS: 341}})
	if !c.Pass || c.Met || c.GapMS.P99 != 340 || c.ServiceGapMS.P99 != 341 {
		t.Errorf("%+v", c)
	}
	text, err := json.Marshal(c)
	var read struct {
		BarMS map[string]float64 `json:"bar_ms"`
		Met   *bool              `json:"met"`
	}
	if err == nil {
		err = json.Unmarshal(text, &read)
	}
	if err != nil || read.BarMS["p99"] != 170 || len(read.BarMS) != 1 || read.Met == nil || *read.Met {
		t.Errorf("%v: %s", err, text)
	}
	for name, over := range map[string]seen{"of a pool address": {gapMS: 651}, "of a service address": {serviceGapMS: 651}} {
		c, one := failoverCase{BoundMS: 650}, []seen{{}}
		if c.judge(append(one, over)); c.Pass || c.Why == "" {
			t.Errorf("a gap %s over the bound passes: %+v", name, c)
		}
	}
}
