package sim

import (
	"strings"
	"testing"
	"time"
)

// said are words of the program's inside, which no operator knows.
var said = []string{"json:", "sim.", "struct", "int64", "[]", "time.Duration", "Go value", "uint64", "slice", "strconv"}

func refused(t *testing.T, data []byte, want string) {
	t.Helper()
	_, err := Decode(data)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
		return
	}
	for _, word := range said {
		if strings.Contains(err.Error(), word) {
			t.Errorf("it says %q, which no operator knows: %v", word, err)
		}
	}
}

// TestDecode: what cannot be played is refused with what is wrong, where, and what may be there.
func TestDecode(t *testing.T) {
	good := Generate(1)
	good.Nodes, good.Interval, good.Multiplier, good.Delay, good.Faults = 3, 50*time.Millisecond, 3, time.Millisecond, nil
	if _, err := Decode(good.Encode()); err != nil {
		t.Fatal(err)
	}
	fault := func(f Fault) func(*Scenario) {
		return func(s *Scenario) { s.Faults = []Fault{{Kind: Kill, Node: 1}, f} }
	}
	for _, c := range []struct {
		name   string
		change func(*Scenario)
		want   string
	}{
		{"too many nodes", func(s *Scenario) { s.Nodes = MaxNodes + 1 }, "Nodes is 21: write 1 to 20"},
		{"no addresses", func(s *Scenario) { s.Addresses = 0 }, "Addresses is 0: write 1 to 64"},
		{"more is lost than there is", func(s *Scenario) { s.LossPM = 5000 }, "LossPM is 5000: write 0 to 1000"},
		{"negative delay", func(s *Scenario) { s.Delay = -1 }, "Delay is -1 nanoseconds"},
		{"days of delay", func(s *Scenario) { s.Delay = 99999999999999 }, "write 0 to 100000000 (0s to 100ms)"},
		{"a delay in which no heartbeat is answered", func(s *Scenario) { s.Delay = 90 * time.Millisecond }, "Interval is too short: with heartbeats of 50ms x 3"},
		{"negative storm", func(s *Scenario) { s.Storm = -time.Second }, "Storm is -1000000000 nanoseconds (-1s)"},
		{"heartbeats that no configuration has", func(s *Scenario) { s.Interval = time.Millisecond }, "Interval is 1000000 nanoseconds"},
		{"half a millisecond", func(s *Scenario) { s.Interval += time.Microsecond }, "write whole milliseconds"},
		{"too many faults", func(s *Scenario) { s.Faults = make([]Fault, 1001) }, "the number of Faults is 1001"},
		{"a fault that there is not", fault(Fault{Kind: "flood"}), `fault 2 of 2 (flood): there is no Kind "flood"; there are kill, power`},
		{"a fault before the beginning", fault(Fault{Kind: Kill, At: -1}), "fault 2 of 2 (kill): At is -1 nanoseconds"},
		{"a fault that ends before it begins", fault(Fault{Kind: Kill, Lasts: -1}), "Lasts is -1 nanoseconds"},
		{"a negative amount", fault(Fault{Kind: Slow, Node: 1, Amount: -5}), "Amount is -5: write 0 to 2000"},
		{"no heartbeats", fault(Fault{Kind: Span}), "Amount is 0: write 10 to 1000"},
		{"heartbeats that no acknowledgement keeps up with", func(s *Scenario) {
			s.Delay = 20 * time.Millisecond
			s.Faults = []Fault{{Kind: Span, Amount: 20}}
		}, "Amount is too short: with heartbeats of 20ms x 3"},
		{"a node that is not there", fault(Fault{Kind: Kill, Node: 4}), "Node is 4: write 0 to 3"},
		{"a network that is not there", func(s *Scenario) { s.Networks, s.Faults = 1, []Fault{{Kind: Switch, Other: 2}} }, "Other is 2: write 0 to 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := good
			c.change(&s)
			refused(t, s.Encode(), c.want)
			if result := Play(s, Options{}); result.Kind != Unplayable {
				t.Errorf("it is played: %+v", result)
			}
		})
	}
}

// TestDecodeText: what is no scenario at all, or has what a scenario has not.
func TestDecodeText(t *testing.T) {
	for _, c := range []struct{ data, want string }{
		{"", "line 1: it ends in the middle"},
		{"{\n\n", "line 3: it ends in the middle"},
		{"{\n\"Nodes\": 3,\n}", "line 3: it is not JSON"},
		{"[]", "line 1: the whole is a list where an object belongs"},
		{"{\n \"Nodes\": \"three\"}", "line 2: Nodes is text where a whole number belongs"},
		{"{\"Nodes\": 3.5}", "Nodes is 3.5 where a whole number belongs"},
		{"{\"Delay\": \"5ms\"}", "Delay is text where a whole number belongs"},
		{"{\"Delay\": 1e30}", "Delay is 1e30 where a whole number belongs"},
		{"{\"Seed\": -1}", "Seed is -1 where a whole number that is not negative belongs"},
		{"{\"Static\": 1}", "Static is a number where true or false belongs"},
		{"{\"Faults\": {}}", "Faults is an object where a list of faults belongs"},
		{"{\"Faults\": [{\"Kind\": 3}]}", "Faults.Kind is a number where text belongs"},
		{"{\"Knots\": 3}", `there is no field "Knots" in a scenario or a fault; a scenario has Seed, Story, Nodes`},
		{string(Generate(1).Encode()) + "{}", "more follows after the scenario"},
		{strings.Repeat(" ", maxFile+1), "no scenario is that long"},
	} {
		refused(t, []byte(c.data), c.want)
	}
}

// TestGeneratedCanBePlayed: whatever follows from a seed is within the bounds, and what may be wrong in it has a name.
func TestGeneratedCanBePlayed(t *testing.T) {
	for seed := range uint64(3000) {
		s := Generate(seed)
		if err := s.check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, name := range Stories() {
			if s, _ := Directed(name, seed); s.check() != nil {
				t.Fatalf("seed %d of %s: %v", seed, name, s.check())
			}
		}
	}
	for _, kind := range kinds {
		s := Scenario{Nodes: 1, Multiplier: 3, Interval: 100 * time.Millisecond, Addresses: 1, Networks: 1, Faults: []Fault{{Kind: kind, Amount: 20}}}
		if kind == Partition {
			s.Faults[0].Amount = 1
		}
		if err := s.check(); err != nil {
			t.Error(err)
		}
	}
}

// FuzzDecode: whatever is read can be played or is refused.
func FuzzDecode(f *testing.F) {
	f.Add(Generate(1).Encode())
	f.Add([]byte(`{"Nodes": 3, "Faults": [{"Kind": "kill"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := Decode(data); err == nil {
			if s.check() != nil {
				t.Error("it was read, and cannot be played")
			}
			configOf(s)
		}
	})
}
