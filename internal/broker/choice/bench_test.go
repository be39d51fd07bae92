package choice

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/rules"
)

// large is a fleet of 1,000 gateways, a tenth of them down, with 10,000 networks of four gateways each.
func large(t testing.TB) (*World, []*Request) {
	lines := []string{"cm cp 1 1"}
	for i := range 999 {
		disk := fmt.Sprint(i % 97)
		if i%10 == 0 {
			disk = "down"
		}
		lines = append(lines, fmt.Sprintf("gw%d m %s %d", i, disk, i%13))
	}
	p := picture(t, "f", lines...)
	var text []byte
	text = append(text, `{"format":1,"seen":{"a":1000000},"entries":[`...)
	for i := range 10_000 {
		if i > 0 {
			text = append(text, ',')
		}
		text = fmt.Appendf(text, `{"kind":"network","name":"n%d","origin":"a","number":%d,"subnets":["10.%d.%d.0/24"],"gateways":[`, i, i+1, i>>8, i&255)
		for j := range 4 {
			text = fmt.Appendf(text, `%.*s{"fleet":"f","gateway":"gw%d"}`, min(j, 1), ",", (i+j*7)%999)
		}
		text = append(text, "]}"...)
	}
	book, err := rules.Decode(append(text, "]}"...))
	if err != nil {
		t.Fatal(err)
	}
	table, _ := book.Compile()
	requests := make([]*Request, 1024)
	for i := range requests {
		requests[i] = request()
	}
	return &World{Fleets: []*fleet.Picture{p}, Rules: table}, requests
}

// A choice allocates its answer: the picks, and who was left out.
func TestAChoiceAllocatesItsAnswer(t *testing.T) {
	w, requests := large(t)
	for name, address := range map[string]string{"by a rule": "10.1.1.1", "by none": "172.16.0.1"} {
		r := *requests[0]
		r.Address = netip.MustParseAddr(address)
		if n := testing.AllocsPerRun(100, func() { Choose(w, &r) }); n > 2 {
			t.Errorf("%s: %v allocations, want the picks and those left out", name, n)
		}
	}
}

// BenchmarkChoose: 1,000 gateways, 10,000 rules; targets of rules, and targets of none, for which all gateways are looked at. The 99th
// percentile is of the processor's time, so that it does not depend on who else is busy on the machine.
func BenchmarkChoose(b *testing.B) {
	w, requests := large(b)
	for name, second := range map[string]int{"a_rule_of_four": 0, "all_gateways": 40} {
		b.Run(name, func(b *testing.B) {
			for i, r := range requests {
				r.Address = netip.AddrFrom4([4]byte{10, byte(second + i%39), byte(i), 7})
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			spans := make([]time.Duration, 0, b.N)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				began := processorTime(b)
				if a, refusal := Choose(w, requests[i%len(requests)]); refusal == nil && a.Gateway == nil {
					b.Fatal("neither an answer nor a refusal")
				}
				spans = append(spans, processorTime(b)-began)
			}
			slices.Sort(spans)
			b.ReportMetric(float64(spans[len(spans)/2].Nanoseconds()), "p50-cpu-ns")
			b.ReportMetric(float64(spans[len(spans)*99/100].Nanoseconds()), "p99-cpu-ns")
		})
	}
}

// processorTime is how long this thread has been running.
func processorTime(b *testing.B) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
