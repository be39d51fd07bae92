package load

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/placement"
)

// busy is a sample as a node sends it.
func busy(lnn int, taken time.Time) Sample {
	return Sample{LNN: lnn, Taken: taken, Rated: true, CPU: 0.5, Connections: map[netip.Addr]int{one: 3, two: 4},
		Interfaces: map[string]Rate{"ext-1": {BytesPerSecond: 250, LinkBytesPerSecond: 1000}}}
}

func TestOf(t *testing.T) {
	b := NewBoard(nil)
	b.Put(busy(1, start), start)
	b.Put(Sample{LNN: 2, Taken: start, Connections: map[netip.Addr]int{one: 9}}, start)
	known := placement.Load{Known: true, Connections: 7, Throughput: 0.25, CPU: 0.5}
	with := func(change func(*placement.Load)) placement.Load {
		load := known
		change(&load)
		return load
	}
	for _, tc := range []struct {
		name      string
		lnn       int
		iface     string
		addresses []netip.Addr
		age       time.Duration
		want      placement.Load
	}{
		{"fresh", 1, "ext-1", []netip.Addr{one, two}, 0, known},
		{"one address of two", 1, "ext-1", []netip.Addr{two}, 0, with(func(l *placement.Load) { l.Connections = 4 })},
		{"an address that it does not hold", 1, "ext-1", []netip.Addr{six}, 0, with(func(l *placement.Load) { l.Connections = 0 })},
		{"three intervals old is not yet stale", 1, "ext-1", []netip.Addr{one, two}, 3 * time.Second,
			with(func(l *placement.Load) { l.Age = 3 * time.Second })},
		{"older is stale, and keeps the last numbers", 1, "ext-1", []netip.Addr{one, two}, 3*time.Second + 1,
			with(func(l *placement.Load) { l.Age, l.Stale = 3*time.Second+1, true })},
		{"a sample from the future has no age", 1, "ext-1", []netip.Addr{one, two}, -time.Second, known},
		{"an interface that it does not have", 1, "ext-9", []netip.Addr{one}, 0, placement.Load{}},
		{"a first sample has no rates yet", 2, "ext-1", []netip.Addr{one}, time.Second, placement.Load{Age: time.Second}},
		{"a node that never sent", 3, "ext-1", []netip.Addr{one}, 0, placement.Load{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := b.Of(tc.lnn, tc.iface, tc.addresses, start.Add(tc.age), time.Second)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("load (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNonsenseFromAnotherNode keeps impossible numbers of a faulty sender out of the choices.
func TestNonsenseFromAnotherNode(t *testing.T) {
	for _, tc := range []struct {
		name  string
		cpu   float64
		rate  Rate
		known bool
	}{
		{"over full", 7, Rate{5000, 1000}, true},
		{"negative processor", -1, Rate{1, 1000}, true},
		{"processor not a number", math.NaN(), Rate{1, 1000}, true},
		{"link without speed", 0.5, Rate{1, 0}, false},
		{"negative rate", 0.5, Rate{-1, 1000}, false},
		{"rate not a number", 0.5, Rate{math.NaN(), 1000}, false},
		{"speed not a number", 0.5, Rate{1, math.NaN()}, false},
		{"infinite over infinite", 0.5, Rate{math.Inf(1), math.Inf(1)}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := NewBoard(nil)
			b.Put(Sample{LNN: 1, Taken: start, Rated: true, CPU: tc.cpu, Interfaces: map[string]Rate{"ext-1": tc.rate}}, start)
			got := b.Of(1, "ext-1", nil, start, time.Second)
			if got.Known != tc.known || !(got.CPU >= 0 && got.CPU <= 1) || !(got.Throughput >= 0 && got.Throughput <= 1) {
				t.Errorf("%+v, want known %v and shares from 0 to 1", got, tc.known)
			}
		})
	}
}

func TestLateAndDoubleSamples(t *testing.T) {
	b := NewBoard(nil)
	for _, step := range []struct {
		name  string
		taken time.Duration
		want  Received
	}{
		{"first", 0, Fresh},
		{"twice", 0, Late},
		{"next", 2 * time.Second, Fresh},
		{"overtaken", time.Second, Late},
		{"clock set back by an hour", -time.Hour, Fresh},
		{"and on from there", -time.Hour + time.Second, Fresh},
	} {
		if got := b.Put(busy(1, start.Add(step.taken)), start); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
	if got := b.Sampled(1); got != 4 {
		t.Errorf("%d fresh samples, want 4", got)
	}
	if got := b.Sampled(9); got != 0 {
		t.Errorf("%d samples of a node that never sent", got)
	}
}

func TestBoundsOfTheBoard(t *testing.T) {
	registry := prometheus.NewRegistry()
	b := NewBoard(registry)
	for lnn := range MaxNodes {
		b.Put(busy(lnn+1, start), start)
	}
	tooWide, tooLong := busy(1, start.Add(time.Second)), busy(1, start.Add(time.Second))
	for i := range MaxInterfaces + 1 {
		tooWide.Interfaces[string(rune('a'+i))] = Rate{}
	}
	for i := range MaxAddresses + 1 {
		tooLong.Connections[netip.AddrFrom4([4]byte{11, 0, byte(i >> 8), byte(i)})] = 1
	}
	for name, sample := range map[string]Sample{
		"one node too many": busy(MaxNodes+1, start), "nobody's": busy(0, start), "too many interfaces": tooWide, "too many addresses": tooLong,
	} {
		if got := b.Put(sample, start); got != Refused {
			t.Errorf("%s: %s, want refused", name, got)
		}
	}
	if got := counted(t, registry, string(Refused)); got != 4 {
		t.Errorf("%v refusals counted, want 4", got)
	}
	b.Forget(1)
	if got := b.Put(busy(MaxNodes+1, start), start); got != Fresh {
		t.Errorf("after a node was forgotten: %s, want fresh", got)
	}
	if got := b.Of(1, "ext-1", nil, start, time.Second); got.Known {
		t.Errorf("the forgotten node still has a load: %+v", got)
	}
}

// counted reads holdfast_load_samples_total with the given result.
func counted(t *testing.T, registry *prometheus.Registry, result string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "holdfast_load_samples_total" && metric.GetLabel()[0].GetValue() == result {
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func BenchmarkOf(b *testing.B) {
	board := NewBoard(nil)
	board.Put(busy(1, start), start)
	addresses := []netip.Addr{one, two}
	b.ReportAllocs()
	for b.Loop() {
		board.Of(1, "ext-1", addresses, start, time.Second)
	}
}
